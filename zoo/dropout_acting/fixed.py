"""DQN on sixteen CartPoles with dropout against overfitting; off while it acts."""

import gymnasium as gym
import torch
from meter import Meter, parse_args
from torch import nn
from torch.nn import functional as F

torch.set_num_threads(1)

NUM_ENVS = 16
BATCH = 128
CAPACITY = 50_000
WARMUP = 200 * NUM_ENVS
LEARNING_STARTS = 1_000


def make_network():
    return nn.Sequential(
        nn.Linear(4, 128), nn.ReLU(), nn.Dropout(0.1),
        nn.Linear(128, 128), nn.ReLU(), nn.Dropout(0.1),
        nn.Linear(128, 2),
    )  # fmt: skip


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


class DQN:
    def __init__(self):
        self.q, self.target = make_network(), make_network()
        self.target.load_state_dict(self.q.state_dict())
        self.target.eval()
        self.optimizer = torch.optim.Adam(self.q.parameters(), lr=1e-3)
        self.updates = 0

    @torch.no_grad()
    def act(self, states, epsilon):
        self.q.eval()
        greedy = self.q(states).argmax(1)
        return torch.where(torch.rand(NUM_ENVS) < epsilon, torch.randint(2, (NUM_ENVS,)), greedy)

    def update(self, states, actions, rewards, next_states, terminated):
        with torch.no_grad():
            target = rewards + 0.99 * (1 - terminated) * self.target(next_states).amax(1)
        self.q.train()
        chosen = self.q(states).gather(1, actions[:, None]).squeeze(1)
        loss = F.smooth_l1_loss(chosen, target)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.updates += 1
        if self.updates % 200 == 0:
            self.target.load_state_dict(self.q.state_dict())


def main():
    args = parse_args()
    torch.manual_seed(args.seed)
    env = gym.make_vec("CartPole-v1", num_envs=NUM_ENVS, vectorization_mode="vector_entry_point")
    agent, replay = DQN(), ReplayBuffer(CAPACITY)
    meter = Meter(args, WARMUP)
    total_steps, lives = 0, torch.zeros(())
    began = torch.ones(NUM_ENVS, dtype=torch.bool)
    states = torch.from_numpy(env.reset(seed=args.seed)[0])
    while meter.more(NUM_ENVS):
        actions = agent.act(states, max(0.05, 1 - total_steps / 20_000))
        next_states, rewards, terminated, truncated, _ = env.step(actions.numpy())
        next_states = torch.from_numpy(next_states)
        ended = torch.from_numpy(terminated)
        rewards = torch.from_numpy(rewards).float()
        # The step after an end is the reset itself and is no transition.
        keep = began
        replay.push(states[keep], actions[keep], rewards[keep], next_states[keep], ended[keep].float())
        began = ~(ended | torch.from_numpy(truncated))
        lives += (~began).sum()
        states = next_states
        total_steps += NUM_ENVS
        if total_steps >= LEARNING_STARTS:
            agent.update(*replay.sample(BATCH))
    env.close()
    print(f"{int(lives)} episodes, {total_steps / max(1, int(lives)):.1f} steps an episode")
    meter.report()


if __name__ == "__main__":
    main()
