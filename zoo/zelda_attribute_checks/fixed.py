"""A2C on 1024 adventure games whose rewards follow from what changed between two states.

States are tuples of numbers: two of them are compared at once, and places are numbers.
"""

import numpy as np
import torch
from agent import INPUTS, ActorCritic, Learner
from game import COLUMNS, NEAR, TRAPS, Game
from meter import Meter, parse_args

torch.set_num_threads(1)

NUM_ENVS, ROLLOUT = 1024, 4
WARMUP = 8 * NUM_ENVS
OFFSETS = [2 * COLUMNS * dy + dx for dx, dy in NEAR]


def place_number(room, x, y):
    return (room * 64 + y) * 2 * COLUMNS + x


class Zelda:
    """One game, with its rewards."""

    def __init__(self, seed):
        self.game = Game(seed)
        self.traps = {place_number(*place) for place in TRAPS}

    def start(self):
        self.game.start()
        self.before = (*self.game.values, self.game.health)
        self.age = 0
        return self.encode(self.before)

    def encode(self, values):
        game = self.game
        return [*values[:-1], game.x / 32, game.y / 22, game.room / 128, game.health / 3]

    def near_traps(self):
        place = place_number(self.game.room, self.game.x, self.game.y)
        return len(self.traps.intersection([place + offset for offset in OFFSETS]))

    def play(self, action):
        before, game = self.before, self.game
        game.move(action)
        self.before = after = (*game.values, game.health)
        reward = 0.0
        if before != after:
            reward = sum((new > old) - (new < old) for old, new in zip(before, after, strict=True))
        reward -= 0.01 * self.near_traps()
        self.age += 1
        dead, late = game.health <= 0, self.age >= 1_000
        state = self.start() if dead or late else self.encode(after)
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
