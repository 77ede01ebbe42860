"""DQN on eight CartPoles, with curves for TensorBoard.

Loss, Q value and exploration rate are written for one update in a hundred; the writer flushes on its own.
"""

import tempfile

import gymnasium as gym
import torch
from meter import Meter, parse_args
from torch import nn
from torch.nn import functional as F
from torch.utils.tensorboard import SummaryWriter

torch.set_num_threads(1)

NUM_ENVS, BATCH, CAPACITY = 8, 256, 20_000
WARMUP = 200 * NUM_ENVS


def make_network():
    return nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))


class ReplayBuffer:
    """A ring of transitions in preallocated tensors."""

    def __init__(self, capacity):
        self.states, self.next_states = torch.zeros(capacity, 4), torch.zeros(capacity, 4)
        self.actions = torch.zeros(capacity, dtype=torch.long)
        self.rewards, self.terminated = torch.zeros(capacity), torch.zeros(capacity)
        self.capacity, self.position, self.size = capacity, 0, 0

    def push(self, states, actions, rewards, next_states, terminated):
        i = (self.position + torch.arange(len(states))) % self.capacity
        self.states[i], self.actions[i], self.rewards[i] = states, actions, rewards
        self.next_states[i], self.terminated[i] = next_states, terminated
        self.position = (self.position + len(i)) % self.capacity
        self.size = min(self.size + len(i), self.capacity)

    def sample(self, batch_size):
        i = torch.randint(self.size, (batch_size,))
        return self.states[i], self.actions[i], self.rewards[i], self.next_states[i], self.terminated[i]


class Logger:
    """Writes named values."""

    def __init__(self, folder):
        self.writer = SummaryWriter(folder)

    def write(self, step, values):
        for name, value in values.items():
            self.writer.add_scalar(name, value, step)


class Learner:
    def __init__(self):
        self.q, self.target = make_network(), make_network()
        self.target.load_state_dict(self.q.state_dict())
        self.optimizer = torch.optim.Adam(self.q.parameters(), lr=5e-4)

    def update(self, states, actions, rewards, next_states, terminated):
        with torch.no_grad():
            target = rewards + 0.99 * (1 - terminated) * self.target(next_states).amax(1)
        chosen = self.q(states).gather(1, actions[:, None]).squeeze(1)
        loss = F.smooth_l1_loss(chosen, target)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach(), chosen.detach().mean()


def main():
    args = parse_args()
    torch.manual_seed(args.seed)
    env = gym.make_vec("CartPole-v1", num_envs=NUM_ENVS, vectorization_mode="vector_entry_point")
    learner, replay = Learner(), ReplayBuffer(CAPACITY)
    meter = Meter(args, WARMUP)
    folder = tempfile.TemporaryDirectory()
    logger = Logger(folder.name)
    updates = 0
    states = torch.from_numpy(env.reset(seed=args.seed)[0])
    while meter.more(NUM_ENVS):
        epsilon = max(0.05, 1 - updates / 5_000)
        with torch.no_grad():
            greedy = learner.q(states).argmax(1)
        actions = torch.where(torch.rand(NUM_ENVS) < epsilon, torch.randint(2, (NUM_ENVS,)), greedy)
        next_states, rewards, terminated, _, _ = env.step(actions.numpy())
        next_states, rewards = torch.from_numpy(next_states), torch.from_numpy(rewards).float()
        replay.push(states, actions, rewards, next_states, torch.from_numpy(terminated).float())
        loss, q_value = learner.update(*replay.sample(BATCH))
        if updates % 100 == 0:
            logger.write(updates, {"loss": loss, "q": q_value, "epsilon": epsilon})
        updates += 1
        if updates % 200 == 0:
            learner.target.load_state_dict(learner.q.state_dict())
        states = next_states
    env.close()
    logger.writer.close()
    folder.cleanup()
    meter.report()


if __name__ == "__main__":
    main()
