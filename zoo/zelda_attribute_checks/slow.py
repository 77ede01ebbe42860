"""A2C on 1024 adventure games whose rewards follow from what changed between two states.

Each change is looked for by name: twenty times getattr on both states, type checks, an object for each change.
"""

import numpy as np
import torch
from agent import INPUTS, ActorCritic, Learner
from game import EQUIPMENT, NEAR, TRAPS, Game, Link
from meter import Meter, parse_args

torch.set_num_threads(1)

NUM_ENVS, ROLLOUT = 1024, 4
WARMUP = 8 * NUM_ENVS


class Change:
    """One thing that is different now."""

    def __init__(self, name, before, after):
        assert isinstance(name, str)
        assert isinstance(before, (int, bool)) and isinstance(after, (int, bool))
        self.name = name
        self.before = before
        self.after = after

    @property
    def gained(self):
        return self.after > self.before


class Location:
    """A tile of a room."""

    def __init__(self, room, x, y):
        assert isinstance(room, int) and isinstance(x, int) and isinstance(y, int)
        self.room, self.x, self.y = room, x, y

    def __eq__(self, other):
        return isinstance(other, Location) and (self.room, self.x, self.y) == (other.room, other.x, other.y)

    def __hash__(self):
        return hash((self.room, self.x, self.y))


class Zelda:
    """One game, with its rewards."""

    def __init__(self, seed):
        self.game = Game(seed)
        self.traps = {Location(*place) for place in TRAPS}

    def start(self):
        self.game.start()
        self.link = self.read()
        self.age = 0
        return self.encode(self.link)

    def read(self):
        game = self.game
        return Link(game.values, game.x, game.y, game.room, game.health)

    def encode(self, link):
        values = [getattr(link, name) for name in EQUIPMENT]
        return [*values, link.x / 32, link.y / 22, link.room / 128, link.health / 3]

    def equipment_change(self, before, after, name):
        old, new = getattr(before, name, None), getattr(after, name, None)
        if isinstance(old, bool) and isinstance(new, bool):
            old, new = int(old), int(new)
        if not isinstance(old, int) or not isinstance(new, int):
            raise TypeError(f"{name} is {old!r} and {new!r}")
        return Change(name, old, new)

    def changes(self, before, after):
        found = [self.equipment_change(before, after, name) for name in EQUIPMENT]
        found.append(self.equipment_change(before, after, "health"))
        return found

    def neighbours(self, link):
        return [Location(link.room, link.x + dx, link.y + dy) for dx, dy in NEAR]

    def play(self, action):
        before = self.link
        self.game.move(action)
        self.link = self.read()
        changes = self.changes(before, self.link)
        reward = sum(1.0 if change.gained else -1.0 for change in changes if change.before != change.after)
        reward -= 0.01 * sum(place in self.traps for place in self.neighbours(self.link))
        self.age += 1
        dead, late = self.link.health <= 0, self.age >= 1_000
        state = self.start() if dead or late else self.encode(self.link)
        return state, reward, (dead, late)


class VectorZelda:
    """Many games as one environment, with automatic reset."""

    def __init__(self, num_envs, seed):
        self.games = [Zelda(seed + i) for i in range(num_envs)]
        self.states = np.zeros((num_envs, INPUTS), np.float32)
        self.rewards = np.zeros(num_envs, np.float32)
        self.ends = np.zeros((num_envs, 2), bool)

    def reset(self):
        for i, game in enumerate(self.games):
            self.states[i] = game.start()
        return torch.tensor(self.states)

    def step(self, actions):
        for i, action in enumerate(actions.tolist()):
            self.states[i], self.rewards[i], self.ends[i] = self.games[i].play(action)
        return torch.tensor(self.states), torch.tensor(self.rewards), *torch.tensor(self.ends.T), {}


def main():
    args = parse_args()
    torch.manual_seed(args.seed)
    env, policy = VectorZelda(NUM_ENVS, args.seed), ActorCritic()
    learner = Learner(policy, ROLLOUT, NUM_ENVS)
    meter = Meter(args, WARMUP)
    states = env.reset()
    while meter.more(NUM_ENVS):
        actions = policy.act(states)
        next_states, rewards, terminated, truncated, _ = env.step(actions)
        full = learner.keep(states, actions, rewards, (terminated | truncated).float())
        states = next_states
        if full:
            learner.update(states)
    meter.report()


if __name__ == "__main__":
    main()
