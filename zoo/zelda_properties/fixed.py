"""PPO on a small top-down adventure whose state is read from RAM.

Places and rooms are worked out once for each state of the game.
"""

from functools import cached_property

import torch
from emulator import EQUIPMENT, HEALTH, HERO_X, HERO_Y, IN_CAVE, LEVEL, ROOM, TILES, Emulator
from meter import Meter, parse_args
from ppo import ROLLOUT, Policy, Rollout, act, update

torch.set_num_threads(1)

WARMUP = 2 * ROLLOUT
ACTIONS = 5
FEATURES = 14 + ACTIONS
WALKABLE_TILES = torch.arange(100, 140, dtype=torch.uint8)


class MapLocation:
    """Level, map coordinate and whether the hero is in a cave."""

    def __init__(self, level, value, in_cave):
        self.level = level
        self.value = value
        self.in_cave = in_cave
        self.key = (level, value, in_cave)
        self.hash = hash(self.key)

    def __eq__(self, other):
        if not isinstance(other, MapLocation):
            return False
        return self.key == other.key

    def __hash__(self):
        return self.hash

    def distance(self, other):
        dy = abs(self.value // 16 - other.value // 16)
        return dy + abs(self.value % 16 - other.value % 16)


class Room:
    """The tiles of the room that the hero is in."""

    def __init__(self, tiles):
        self.tiles = tiles

    @cached_property
    def is_loaded(self):
        return bool(torch.isin(self.tiles, WALKABLE_TILES).any())


class ZeldaGame:
    """What one frame's RAM says."""

    def __init__(self, ram):
        self.level = int(ram[LEVEL])
        self.location = int(ram[ROOM])
        self.in_cave = bool(ram[IN_CAVE])
        self.x, self.y, self.health = int(ram[HERO_X]), int(ram[HERO_Y]), int(ram[HEALTH])
        self.room = Room(torch.from_numpy(ram[TILES:].copy()))
        self.equipment = ram[EQUIPMENT : EQUIPMENT + 20].tolist()

    @cached_property
    def full_location(self):
        return MapLocation(self.level, self.location, self.in_cave)


class EquipmentCritic:
    """Rewards each thing that was picked up."""

    def critique(self, old, new):
        if old.equipment == new.equipment:
            return 0.0
        return 0.5 * sum(after > before for before, after in zip(old.equipment, new.equipment, strict=True))


class Objectives:
    """Where to go next, and which rooms have been seen."""

    def __init__(self):
        self.visited = {}
        self.searched = set()
        self.goal = MapLocation(0, 0x37, False)

    def direction(self, game):
        """Which way the goal lies: left, right, up, down."""
        here, goal = game.full_location.value, self.goal.value
        if not game.room.is_loaded or game.full_location == self.goal:
            return [0.0] * 4
        dx, dy = goal % 16 - here % 16, goal // 16 - here // 16
        return [float(dx < 0), float(dx > 0), float(dy < 0), float(dy > 0)]

    def visits(self, game):
        """How often the room and its neighbours have been entered."""
        place = game.full_location
        near = [(place.value + offset) % 128 for offset in (1, -1, 16, -16)]
        counts = [self.visited.get(MapLocation(game.level, value, False), 0) for value in near]
        return [self.visited.get(game.full_location, 0), *counts]

    def allows(self, game, action):
        """Whether an action makes sense here: no search of a room twice, no way out of the goal."""
        if not game.room.is_loaded:
            return False
        if action == 4:
            return game.full_location not in self.searched
        return game.full_location != self.goal and game.full_location.level == self.goal.level

    def enter(self, game):
        """Count the visit; True if the room is new."""
        count = self.visited.get(game.full_location, 0)
        self.visited[game.full_location] = count + 1
        return count == 0


class ZeldaEnv:
    """Emulator, state, critics and information vector."""

    def __init__(self, seed):
        self.emulator = Emulator(seed)
        self.critic = EquipmentCritic()

    def reset(self):
        self.objectives = Objectives()
        self.game = ZeldaGame(self.emulator.reset())
        self.objectives.enter(self.game)
        return self._get_information(self.game)

    def step(self, action):
        old, new = self.game, ZeldaGame(self.emulator.step(action))
        reward = self.critic.critique(old, new) + self._critique_location(old, new)
        reward -= 0.1 * (old.health - new.health)
        if action == 4 and new.room.is_loaded and new.full_location == old.full_location:
            self.objectives.searched.add(new.full_location)
        self.game = new
        done = new.health <= 0 or self.emulator.frame >= 1000
        return self._get_information(new), max(-1.0, min(1.0, reward)), done

    def _critique_location(self, old, new):
        if old.full_location == new.full_location or not new.room.is_loaded:
            return -0.01
        goal = self.objectives.goal
        closer = old.full_location.distance(goal) - new.full_location.distance(goal)
        new_room = self.objectives.enter(new)
        back = old.full_location.level != new.full_location.level
        return 0.1 * closer + 0.2 * new_room - 0.1 * back

    def _get_information(self, game):
        info = self.objectives.direction(game)
        info += [min(1.0, n / 10) for n in self.objectives.visits(game)]
        info += [game.x / 32, game.y / 22, game.health / 3]
        info += [float(self.objectives.allows(game, action)) for action in range(ACTIONS)]
        info += [float(game.room.is_loaded), float(game.full_location.in_cave)]
        return torch.tensor(info)


def main():
    args = parse_args()
    torch.manual_seed(args.seed)
    env = ZeldaEnv(args.seed)
    policy = Policy(FEATURES, ACTIONS)
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-4)
    rollout = Rollout(FEATURES)
    meter = Meter(args, WARMUP)
    observation = env.reset()
    while meter.more(ROLLOUT):
        for t in range(ROLLOUT):
            action = act(policy, rollout, t, observation)
            observation, reward, done = env.step(action)
            rollout.rewards[t] = reward
            rollout.dones[t] = float(done)
            if done:
                observation = env.reset()
        with torch.no_grad():
            rollout.values[ROLLOUT] = policy(observation[None])[1][0]
        update(policy, optimizer, rollout)
    meter.report()


if __name__ == "__main__":
    main()
