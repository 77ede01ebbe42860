"""PPO on a small top-down adventure; the agent sees a grey viewport around the hero, three frames deep.

Each frame is turned grey once; the observation is a view of three kept frames.
"""

import numpy as np
import torch
from game import AdventureEnv
from meter import Meter, parse_args
from PIL import Image
from ppo import ROLLOUT, Policy, Rollout, act, update

torch.set_num_threads(1)

WARMUP = 3 * ROLLOUT


class ObservationWrapper:
    """A ring of three grey frames as bytes, and the viewport cut out of it."""

    def __init__(self, env):
        self.env = env
        self.grey = np.zeros((3, 224, 240), np.uint8)

    def reset(self):
        self.grey[:] = to_grey(self.env.reset())
        return self._get_image_observation()

    def step(self, action):
        frame, reward, done = self.env.step(action)
        self.grey[:2] = self.grey[1:]
        self.grey[2] = to_grey(frame)
        return self._get_image_observation(), reward, done

    def _get_image_observation(self):
        top = min(max(self.env.hero[0] - 64, 0), 224 - 128)
        left = min(max(self.env.hero[1] - 64, 0), 240 - 128)
        return torch.from_numpy(self.grey[:, top : top + 128, left : left + 128]) / 255.0


def to_grey(frame):
    """Luminance of a colour frame as bytes, with the usual weights 0.299, 0.587, 0.114."""
    return np.asarray(Image.fromarray(frame).convert("L"))


def main():
    args = parse_args()
    torch.manual_seed(args.seed)
    env = ObservationWrapper(AdventureEnv(args.seed))
    policy = Policy(channels=3, actions=AdventureEnv.actions)
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-4)
    rollout = Rollout(channels=3)
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
