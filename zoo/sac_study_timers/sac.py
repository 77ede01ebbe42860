"""Visual soft actor-critic with verbose timers: every tenth update prints where its time went.

The networks see every second pixel and have fewer channels than the usual ones, so that an update takes
a tenth of a second on one core; its convolutions are the largest part of it all the same.
"""

from itertools import pairwise

import torch
from torch import nn
from torch.nn import functional as F

PRINT_EVERY = 10


def thin(frames: torch.Tensor) -> torch.Tensor:
    """Take every second pixel of stacks [B, 4, 96, 96], bytes or floats in 0..1; float32 [B, 4, 48, 48]."""
    small = frames[:, :, ::2, ::2]
    return small.float().div_(255) if small.dtype == torch.uint8 else small.contiguous()


class Encoder(nn.Module):
    """Three convolutions, run by the device."""

    def __init__(self, device, clock):
        super().__init__()
        self.device, self.clock = device, clock
        self.conv1 = nn.Conv2d(4, 8, kernel_size=6, stride=4)
        self.conv2 = nn.Conv2d(8, 16, kernel_size=4, stride=2)
        self.conv3 = nn.Conv2d(16, 32, kernel_size=3, stride=1)

    def encode(self, x):
        """Return the features, which may not be there yet, and the clock after each layer."""
        times = [self.clock()]
        for layer in (self.conv1, self.conv2, self.conv3):
            x = self.device.run(lambda x, layer=layer: F.relu(layer(x)), x)
            times.append(self.clock())
        return x, times


class VisualActor(Encoder):
    """Tanh-Gaussian policy."""

    def __init__(self, actions, device, clock):
        super().__init__(device, clock)
        self.fc1 = nn.Linear(128, 64)
        self.mean = nn.Linear(64, actions)
        self.log_std = nn.Linear(64, actions)

    def forward(self, x):
        h, _ = self.encode(x)
        h = self.device.wait(self.device.run(lambda h: F.relu(self.fc1(h.flatten(1))), h))
        mean, std = self.mean(h), self.log_std(h).clamp(-5, 2).exp()
        noise = torch.randn_like(mean)
        action = torch.tanh(mean + std * noise)
        log_prob = -0.5 * noise**2 - std.log() - 0.919 - torch.log(1 - action**2 + 1e-6)
        return action, log_prob.sum(1, keepdim=True)


class VisualCritic(Encoder):
    """Q(s, a), and how long each layer took in ms."""

    def __init__(self, actions, device, clock):
        super().__init__(device, clock)
        self.fc1 = nn.Linear(128 + actions, 64)
        self.fc2 = nn.Linear(64, 1)

    def forward(self, x, action):
        h, times = self.encode(x)
        q = self.device.run(lambda h: self.fc2(F.relu(self.fc1(torch.cat((h.flatten(1), action), 1)))), h)
        times.append(self.clock())
        q = self.device.wait(q)
        took = [1000 * (b - a) for a, b in pairwise(times)]
        return q, {"total": 1000 * (self.clock() - times[0])} | dict(
            zip(("conv1", "conv2", "conv3", "FC layers"), took, strict=True)
        )


class SAC:
    """Twin critics with targets, learned temperature, Adam 3e-4."""

    def __init__(self, actions, device, clock):
        self.clock = clock
        self.actor = VisualActor(actions, device, clock)
        self.critic_1, self.critic_2 = (VisualCritic(actions, device, clock) for _ in range(2))
        self.target_1, self.target_2 = (VisualCritic(actions, device, clock) for _ in range(2))
        self.target_1.load_state_dict(self.critic_1.state_dict())
        self.target_2.load_state_dict(self.critic_2.state_dict())
        self.log_alpha = torch.zeros(1, requires_grad=True)
        self.target_entropy = -float(actions)
        self.optimisers = {
            net: torch.optim.Adam(net.parameters(), lr=3e-4) for net in (self.actor, self.critic_1, self.critic_2)
        }
        self.alpha_opt = torch.optim.Adam([self.log_alpha], lr=3e-4)
        self.updates = 0

    @torch.no_grad()
    def act(self, state):
        """Sample one action for a stack [4, 96, 96]."""
        action, _ = self.actor(thin(torch.from_numpy(state)[None]))
        return action[0].numpy()

    def update(self, replay, batch_size):
        """One update of critics, actor, temperature and targets."""
        marks = [self.clock()]
        states, actions, rewards, next_states, dones = replay.sample(batch_size)
        marks.append(self.clock())
        x, next_x = thin(states), thin(next_states)
        alpha = self.log_alpha.exp().detach()
        target_q = self._target(next_x, rewards, dones, alpha)
        marks.append(self.clock())
        layers_1 = self._update_critic(self.critic_1, x, actions, target_q)
        marks.append(self.clock())
        layers_2 = self._update_critic(self.critic_2, x, actions, target_q)
        marks.append(self.clock())
        log_prob = self._update_actor(x, alpha)
        marks.append(self.clock())
        self._update_rest(log_prob)
        marks.append(self.clock())
        self.updates += 1
        if self.updates % PRINT_EVERY == 0:
            report(marks, layers_1, layers_2)

    @torch.no_grad()
    def _target(self, next_x, rewards, dones, alpha):
        action, log_prob = self.actor(next_x)
        q = torch.min(self.target_1(next_x, action)[0], self.target_2(next_x, action)[0])
        return rewards + 0.99 * (1 - dones) * (q - alpha * log_prob)

    def _update_critic(self, critic, x, actions, target_q):
        q, layers = critic(x, actions)
        self._descend(critic, F.mse_loss(q, target_q))
        return layers

    def _update_actor(self, x, alpha):
        action, log_prob = self.actor(x)
        q = torch.min(self.critic_1(x, action)[0], self.critic_2(x, action)[0])
        self._descend(self.actor, (alpha * log_prob - q).mean())
        return log_prob

    def _update_rest(self, log_prob):
        alpha_loss = -(self.log_alpha * (log_prob.detach() + self.target_entropy)).mean()
        self.alpha_opt.zero_grad()
        alpha_loss.backward()
        self.alpha_opt.step()
        with torch.no_grad():
            for target, critic in ((self.target_1, self.critic_1), (self.target_2, self.critic_2)):
                torch._foreach_lerp_(list(target.parameters()), list(critic.parameters()), 0.005)

    def _descend(self, network, loss):
        optimiser = self.optimisers[network]
        optimiser.zero_grad()
        loss.backward(inputs=list(network.parameters()))
        optimiser.step()


def report(marks, layers_1, layers_2):
    """Print the timings of an update."""
    names = ("Sample batch", "Target networks", "Critic 1 update", "Critic 2 update", "Actor update", "Alpha + soft")
    for name, (a, b) in zip(names, pairwise(marks), strict=True):
        print(f"{name + ':':20s}{1000 * (b - a):8.2f} ms")
    for number, layers in ((1, layers_1), (2, layers_2)):
        print(f"{f'Critic {number} forward:':20s}{layers['total']:8.2f} ms")
        for branch, name in (("├─", "conv1"), ("├─", "conv2"), ("├─", "conv3"), ("└─", "FC layers")):
            print(f"  {branch} {name + ':':15s}{layers[name]:8.2f} ms")
    print(f"{'Total SAC update:':20s}{1000 * (marks[-1] - marks[0]):8.2f} ms")
