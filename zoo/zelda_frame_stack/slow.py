"""PPO on a small top-down adventure; the agent sees a grey viewport around the hero, three frames deep.

The observation is built from the last three colour frames on every step.
"""

from collections import deque

import torch
from game import AdventureEnv
from meter import Meter, parse_args
from ppo import ROLLOUT, Policy, Rollout, act, update

torch.set_num_threads(1)

WARMUP = 3 * ROLLOUT
GRAYSCALE_WEIGHTS = torch.tensor([0.299, 0.587, 0.114])


class ObservationWrapper:
    """Frame stack, grey scale and viewport."""

    def __init__(self, env):
        self.env = env
        self.frames = deque(maxlen=3)

    def reset(self):
        self.frames.extend([self.env.reset()] * 3)
        return self._get_image_observation()

    def step(self, action):
        frame, reward, done = self.env.step(action)
        self.frames.append(frame)
        return self._get_image_observation(), reward, done

    def _get_stacked_frames(self):
        frames = []
        for frame in self.frames:
            frames.append(torch.as_tensor(frame, dtype=torch.float32).permute(2, 0, 1))
        return torch.stack(frames)

    def _get_image_observation(self):
        frames = self._get_stacked_frames()
        frames = frames / 255.0
        frames = frames * GRAYSCALE_WEIGHTS.view(1, -1, 1, 1)
        grey = frames.sum(dim=1)
        top = min(max(self.env.hero[0] - 64, 0), grey.shape[1] - 128)
        left = min(max(self.env.hero[1] - 64, 0), grey.shape[2] - 128)
        return grey[:, top : top + 128, left : left + 128]


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
