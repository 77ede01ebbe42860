"""DQN on CartPole, after the PyTorch tutorial: deque memory, named tuples, soft target updates."""

import random
from collections import deque, namedtuple

import gymnasium as gym
import torch
import torch.nn as nn
import torch.nn.functional as F
from progress import tick

BATCH_SIZE, GAMMA, EPS, TAU, LR = 64, 0.99, 0.1, 0.005, 1e-4
Transition = namedtuple("Transition", ("state", "action", "next_state", "reward"))


class ReplayMemory:
    def __init__(self, capacity):
        self.memory = deque(maxlen=capacity)

    def push(self, *args):
        self.memory.append(Transition(*args))

    def sample(self, batch_size):
        return random.sample(self.memory, batch_size)

    def __len__(self):
        return len(self.memory)


class DQN(nn.Module):
    def __init__(self, n_observations, n_actions):
        super().__init__()
        self.layer1 = nn.Linear(n_observations, 128)
        self.layer2 = nn.Linear(128, 128)
        self.layer3 = nn.Linear(128, n_actions)

    def forward(self, x):
        x = F.relu(self.layer1(x))
        x = F.relu(self.layer2(x))
        return self.layer3(x)


random.seed(1)
torch.manual_seed(1)
env = gym.make("CartPole-v1")
policy_net, target_net = DQN(4, 2), DQN(4, 2)
target_net.load_state_dict(policy_net.state_dict())
optimizer = torch.optim.AdamW(policy_net.parameters(), lr=LR, amsgrad=True)
memory = ReplayMemory(2000)


def select_action(state):
    if random.random() > EPS:
        with torch.no_grad():
            return policy_net(state).max(1).indices.view(1, 1)
    return torch.tensor([[random.randrange(2)]], dtype=torch.long)


def optimize_model():
    if len(memory) < BATCH_SIZE:
        return
    batch = Transition(*zip(*memory.sample(BATCH_SIZE), strict=True))
    non_final_mask = torch.tensor([s is not None for s in batch.next_state], dtype=torch.bool)
    non_final_next_states = torch.cat([s for s in batch.next_state if s is not None])
    state_action_values = policy_net(torch.cat(batch.state)).gather(1, torch.cat(batch.action))
    next_state_values = torch.zeros(BATCH_SIZE)
    with torch.no_grad():
        next_state_values[non_final_mask] = target_net(non_final_next_states).max(1).values
    expected = next_state_values * GAMMA + torch.cat(batch.reward)
    loss = F.smooth_l1_loss(state_action_values, expected.unsqueeze(1))
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_value_(policy_net.parameters(), 100)
    optimizer.step()
    for target, source in zip(target_net.parameters(), policy_net.parameters(), strict=True):
        target.data.lerp_(source.data, TAU)


observation, _ = env.reset(seed=1)
state = torch.tensor(observation).unsqueeze(0)
while True:
    action = select_action(state)
    observation, reward, terminated, truncated, _ = env.step(action.item())
    next_state = None if terminated else torch.tensor(observation).unsqueeze(0)
    memory.push(state, action, next_state, torch.tensor([reward], dtype=torch.float32))
    state = next_state
    optimize_model()
    if terminated or truncated:
        state = torch.tensor(env.reset()[0]).unsqueeze(0)
    tick()
