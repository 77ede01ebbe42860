"""PPO on sixteen CartPoles, in a trainer that trains one iteration at a time."""

import gymnasium as gym
import torch
from meter import Meter, parse_args
from torch import nn

torch.set_num_threads(1)

NUM_ENVS, ROLLOUT, EPOCHS, MINIBATCH = 16, 64, 4, 256
GAMMA, LAMBDA, CLIP = 0.99, 0.95, 0.2
WARMUP = NUM_ENVS * ROLLOUT


def mlp(outputs):
    return nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, outputs))


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor, self.critic = mlp(2), mlp(1)

    def forward(self, states):
        return self.actor(states).log_softmax(-1), self.critic(states).squeeze(-1)


class Rollout:
    """Preallocated storage, [T, N] and one more value."""

    def __init__(self):
        self.states = torch.zeros(ROLLOUT, NUM_ENVS, 4)
        self.actions = torch.zeros(ROLLOUT, NUM_ENVS, dtype=torch.long)
        self.log_probs = torch.zeros(ROLLOUT, NUM_ENVS)
        self.rewards, self.dones = torch.zeros(ROLLOUT, NUM_ENVS), torch.zeros(ROLLOUT, NUM_ENVS)
        self.values = torch.zeros(ROLLOUT + 1, NUM_ENVS)


class Trainer:
    """Holds the environments, the policy and the rollout; each iteration collects and learns."""

    def __init__(self, seed):
        self.env = gym.make_vec("CartPole-v1", num_envs=NUM_ENVS, vectorization_mode="vector_entry_point")
        self.policy, self.rollout = Policy(), Rollout()
        self.optimizer = torch.optim.Adam(self.policy.parameters(), lr=3e-4, eps=1e-5)
        self.seed = seed

    def reset(self):
        self.states = torch.from_numpy(self.env.reset(seed=self.seed)[0])

    def train_iteration(self, epochs):
        self.collect()
        self.update(epochs)
        return self.rollout

    @torch.no_grad()
    def collect(self):
        rollout, states = self.rollout, self.states
        for t in range(ROLLOUT):
            log_probs, values = self.policy(states)
            actions = torch.multinomial(log_probs.exp(), 1)
            rollout.states[t], rollout.values[t] = states, values
            rollout.actions[t], rollout.log_probs[t] = actions[:, 0], log_probs.gather(1, actions)[:, 0]
            next_states, rewards, terminated, truncated, _ = self.env.step(actions[:, 0].numpy())
            rollout.rewards[t] = torch.from_numpy(rewards)
            rollout.dones[t] = torch.from_numpy(terminated | truncated)
            states = torch.from_numpy(next_states)
        rollout.values[ROLLOUT] = self.policy(states)[1]
        self.states = states

    @torch.no_grad()
    def advantages(self):
        """Generalised advantage estimates, [T, N]."""
        rollout = self.rollout
        alive = 1 - rollout.dones
        deltas = rollout.rewards + GAMMA * rollout.values[1:] * alive - rollout.values[:-1]
        result, running = torch.zeros_like(deltas), torch.zeros(NUM_ENVS)
        for t in reversed(range(ROLLOUT)):
            running = deltas[t] + GAMMA * LAMBDA * alive[t] * running
            result[t] = running
        return result

    def update(self, epochs):
        """Some epochs of clipped PPO."""
        adv, rollout = self.advantages(), self.rollout
        returns = (adv + rollout.values[:-1]).flatten()
        adv = ((adv - adv.mean()) / (adv.std() + 1e-8)).flatten()
        states, actions = rollout.states.flatten(0, 1), rollout.actions.flatten()
        old_log_probs = rollout.log_probs.flatten()
        for _ in range(epochs):
            for i in torch.randperm(len(adv)).split(MINIBATCH):
                log_probs, values = self.policy(states[i])
                ratio = (log_probs.gather(1, actions[i, None])[:, 0] - old_log_probs[i]).exp()
                gain = torch.min(ratio * adv[i], ratio.clamp(1 - CLIP, 1 + CLIP) * adv[i]).mean()
                entropy = -(log_probs.exp() * log_probs).sum(1).mean()
                loss = 0.5 * (values - returns[i]).pow(2).mean() - gain - 0.01 * entropy
                self.optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.policy.parameters(), 0.5)
                self.optimizer.step()


def main():
    args = parse_args()
    torch.manual_seed(args.seed)
    trainer = Trainer(args.seed)
    trainer.reset()
    meter = Meter(args, WARMUP)
    while meter.more(NUM_ENVS * ROLLOUT):
        trainer.train_iteration(EPOCHS)
    meter.report()


if __name__ == "__main__":
    main()
