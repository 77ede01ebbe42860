"""Rules on acting and learning: where they fire, with exact shares and residuals, and where they must not."""

from __future__ import annotations

import pytest
from tests.traces import frame, gap, make_trace, place, seen

from hotloop.phases import Phase
from hotloop.profiling.diagnosis.ranking import ranked, settle
from hotloop.profiling.diagnosis.rules import find_causes
from hotloop.profiling.diagnosis.rules.data import two_pass_normalise
from hotloop.profiling.diagnosis.rules.learning import (
    act_one_by_one,
    distribution_validation,
    dropped_gradients,
    python_returns,
    slow_optimiser,
    slow_polyak,
    wasted_gradients,
)
from hotloop.profiling.diagnosis.time_slices import study

RULES = (
    act_one_by_one,
    distribution_validation,
    dropped_gradients,
    python_returns,
    slow_optimiser,
    slow_polyak,
    two_pass_normalise,
    wasted_gradients,
)


def explained(trace):
    """What the rules of this file find, priced and ranked."""
    loop = study(trace)
    return ranked(settle(loop, find_causes(loop, RULES))[0])


def through_critics(taken, dropped):
    """10 s, of which 6 in backward passes."""
    trace = make_trace(
        [place("backward", Phase.BACKWARD, 6.0, 2000), place("Env.step", Phase.ENV, 4.0, 1000)],
        [seen("backward", [frame("update", "sac.py", 86, "actor_loss.backward()")], 6.0)],
        {"env_steps": 1000, "updates": 1000, "gradients_taken_elements": taken, "gradients_dropped_elements": dropped},
    )
    trace.manifest["torch"] = {"gradients_dropped_at": ["sac.py", 92]}
    return trace


def test_gradients_that_nobody_takes_are_found():
    (finding,) = explained(through_critics(3_000_000, 2_000_000))
    assert (finding.rule, finding.file, finding.line) == ("dropped_gradients", "sac.py", 92)
    assert finding.share == pytest.approx(0.6)
    # Two fifths of the gradients, and half of the work for each: a fifth of the backward passes.
    assert finding.gain == pytest.approx(1 / (1 - 0.6 * 0.2))
    assert "40 % of the gradients written" in " ".join(finding.evidence)
    assert "2,000 of them an update" in " ".join(finding.evidence)


def test_gradients_that_are_taken_or_a_few_that_are_not_are_fine():
    assert explained(through_critics(3_000_000, 0)) == []
    assert explained(through_critics(3_000_000, 100_000)) == []


DISTRIBUTIONS = "/lib/torch/distributions/"
MAKE = frame("act", "ppo.py", 20, "dist = Normal(mean, std)")


def validating(inner):
    """10 s, of which 3 s are seen on one line of torch.distributions."""
    return make_trace(
        [place("Policy", Phase.ACT, 5.0, 1000), place("Env.step", Phase.ENV, 5.0, 1000)],
        [seen("Policy", [inner, MAKE], 3.0), seen("Policy", [frame("act", "ppo.py", 19, "mean = self.net(x)")], 2.0)],
        {"env_steps": 1000, "vector_steps": 1000},
    )


@pytest.mark.parametrize(
    ("function", "file"),
    [
        ("Distribution.__init__", "distribution.py"),
        ("Distribution._validate_sample", "distribution.py"),
        ("_IntegerInterval.check", "constraints.py"),
    ],
)
def test_validation_of_distributions_is_found(function, file):
    (finding,) = explained(validating(frame(function, DISTRIBUTIONS + file, 76, "", own=False)))
    assert (finding.rule, finding.file, finding.line) == ("distribution_validation", "ppo.py", 20)
    assert finding.share == pytest.approx(0.3)
    assert finding.gain == pytest.approx(1 / (1 - 0.3 * 0.97))
    assert "100 % of the time in torch.distributions is validation" in finding.evidence
    assert "3 ms a step, updates included" in finding.evidence


@pytest.mark.parametrize(
    ("function", "file"),
    [
        ("Normal.__init__", DISTRIBUTIONS + "normal.py"),
        ("Normal.log_prob", DISTRIBUTIONS + "normal.py"),
        ("Box.__init__", "/lib/gymnasium/spaces/distribution.py"),
    ],
)
def test_the_work_of_distributions_is_no_validation(function, file):
    assert explained(validating(frame(function, file, 98, "", own=False))) == []


def acting(num_envs, calls, phase=Phase.ACT):
    """10 s, 100 vector steps; the policy takes 4 s, and 2 s lie between its calls."""
    line = frame("act", "dqn.py", 7, "q = self.q(state)")
    return make_trace(
        [
            place("QNetwork", phase, 4.0, 100 * calls, counts={"flops": 600_000_000}),
            gap("(QNetwork → QNetwork)", phase, 2.0),
            place("Env.step", Phase.ENV, 4.0, 100),
        ],
        [seen("QNetwork", [line], 4.0), seen("(QNetwork → QNetwork)", [line], 2.0)],
        {"env_steps": 100 * num_envs, "vector_steps": 100, "flops": 600_000_000},
    )


def test_a_call_for_each_environment_is_found():
    (finding,) = explained(acting(num_envs=16, calls=16))
    assert (finding.rule, finding.phase, finding.line) == ("act_one_by_one", Phase.ACT, 7)
    assert finding.share == pytest.approx(0.6)
    # A sixteenth of the 6 s is left, and four times the arithmetic at 60 GFLOP/s.
    assert finding.gain == pytest.approx(10 / (4 + 6 / 16 + 4 * 0.01))
    assert "16 calls for acting a vector step of 16 environments" in finding.evidence
    assert "a call takes 2.5 ms, its arithmetic 6.25 µs" in finding.evidence


@pytest.mark.parametrize(
    ("num_envs", "calls", "phase"),
    [(16, 1, Phase.ACT), (16, 2, Phase.ACT), (1, 1, Phase.ACT), (2, 2, Phase.ACT), (16, 16, Phase.FORWARD)],
)
def test_batched_acting_and_learning_are_left_alone(num_envs, calls, phase):
    assert explained(acting(num_envs, calls, phase)) == []


GAE = (
    (30, "for t in reversed(range(T)):"),
    (31, "alive = 1.0 - dones[t]"),
    (32, "delta = rewards[t] + gamma * values[t + 1] * alive - values[t]"),
    (33, "gae = delta + gamma * lam * alive * gae"),
    (34, "advantages[t] = gae"),
    (60, "loss = policy_loss + 0.5 * value_loss"),
)


def returning(lines, env_steps=1000):
    """10 s, of which each line of a function takes 1 s."""
    spent = float(len(lines))
    return make_trace(
        [
            place("Policy", Phase.ACT, 10.0 - spent, 100),
            gap("(Policy → Policy)", Phase.FORWARD, spent),
        ],
        [seen("(Policy → Policy)", [frame("update", "ppo.py", n, text)], 1.0) for n, text in lines],
        {"env_steps": env_steps, "vector_steps": env_steps},
    )


@pytest.mark.parametrize("lines", [GAE, GAE[1:]], ids=["with its head", "head never seen"])
def test_advantages_in_a_python_loop_are_found(lines):
    (finding,) = explained(returning(lines))
    assert finding.rule == "python_returns"
    # All lines of the loop, none of the loss.
    share = (len(lines) - 1) / 10
    assert finding.share == pytest.approx(share)
    assert finding.gain == pytest.approx(1 / (1 - share * 0.98))


@pytest.mark.parametrize(
    "lines",
    [
        [(12, "for r in reversed(rewards):"), (13, "R = r + gamma * R"), (14, "returns.insert(0, R)")],
        [(13, "R = r + gamma * R"), (14, "returns.insert(0, R)")],
        [
            (12, "for t in range(T - 1, -1, -1):"),
            (13, "returns[t] = rewards[t] + gamma * alive[t] * returns[t + 1]"),
        ],
        [(12, "for t in reversed(range(T)):"), (13, "adv[t] = last = delta + gamma * lam * mask * last")],
    ],
)
def test_discounted_returns_in_a_python_loop_are_found(lines):
    (finding,) = explained(returning(lines))
    assert finding.rule == "python_returns"
    assert finding.share == pytest.approx(len(lines) / 10)


@pytest.mark.parametrize(
    "lines",
    [
        [(12, "advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)")],
        [(12, "returns = advantages + values[:-1]"), (13, "loss = -(ratio * advantages).mean()")],
        [(12, "episode_return = reward + gamma * episode_return")],
        [(12, "for layer in reversed(self.layers):"), (13, "x = x + scale * layer(x)")],
    ],
)
def test_losses_and_running_returns_are_left_alone(lines):
    assert explained(returning(lines)) == []


def test_advantages_for_many_environments_at_once_are_left_alone():
    # 5 s for ten million environment steps: half a microsecond each.
    assert explained(returning(GAE, env_steps=10_000_000)) == []


def optimising(tensors, elements=1000, steps=1000, self_s=4.0):
    line = frame("update", "sac.py", 50, "self.critic_opt.step()")
    counts = {"optimiser_tensors": tensors * steps, "optimiser_elements": elements * tensors * steps} if tensors else {}
    return make_trace(
        [place("Adam.step", Phase.OPTIMISE, self_s, steps, counts=counts), place("Env.step", Phase.ENV, 6.0, steps)],
        [seen("Adam.step", [line], self_s)],
        {"env_steps": steps, "updates": steps} | counts,
    )


def test_an_optimiser_that_visits_many_tensors_is_found():
    (finding,) = explained(optimising(60))
    assert (finding.rule, finding.line, finding.phase) == ("slow_optimiser", 50, Phase.OPTIMISE)
    assert finding.share == pytest.approx(0.4)
    # 7 µs a tensor, and 28 bytes a number at twice the copy speed of 8 GB/s.
    left = 1000 * 60 * (7e-6 + 1000 * 28 / 16e9)
    assert finding.gain == pytest.approx(10 / (6 + left))
    assert "Adam.step takes 4 ms for 60 tensors of 1 knumbers on average" in " ".join(finding.evidence)


@pytest.mark.parametrize("tensors", [0, 6, 12])
def test_fused_optimisers_and_small_networks_are_left_alone(tensors):
    assert explained(optimising(tensors)) == []


def test_large_tensors_leave_the_optimiser_nothing_to_gain():
    # 60 tensors of a million numbers: 100 ms of memory traffic a step, whatever its form.
    assert explained(optimising(60, elements=1_000_000, steps=40)) == []


def following(lines):
    """10 s with 1000 updates; each line of a function takes 1.5 s."""
    spent = 1.5 * len(lines)
    return make_trace(
        [
            place("Adam.step", Phase.OPTIMISE, 10.0 - spent, 1000),
            gap("(Adam.step → Actor)", Phase.SYNC_WEIGHTS, spent),
        ],
        [seen("(Adam.step → Actor)", [frame("follow", "td3.py", n, text)], 1.5) for n, text in lines],
        {"env_steps": 1000, "updates": 1000},
    )


WALK = (40, "for p, q in zip(net.parameters(), target.parameters()):")


@pytest.mark.parametrize(
    "line",
    [
        (41, "q.data.copy_(tau * p.data + (1 - tau) * q.data)"),
        (41, "q.data.mul_(1 - tau).add_(tau * p.data)"),
        (41, "q.data.lerp_(p.data, tau)"),
    ],
)
def test_targets_that_follow_one_by_one_are_found(line):
    (finding,) = explained(following([WALK, line]))
    assert (finding.rule, finding.phase) == ("slow_polyak", Phase.OWN)
    assert finding.share == pytest.approx(0.3)
    assert finding.gain == pytest.approx(1 / (1 - 0.3 * (1 - 1.5 / 9)))
    assert "3 ms an update on walking through pairs of parameters" in finding.evidence


@pytest.mark.parametrize(
    "text",
    [
        "target_param.data.copy_(TAU * param.data + (1 - TAU) * target_param.data)",
        "q.data.mul_(1 - tau).add_(p.data, alpha=tau)",
        "target_param.lerp_(param, tau)",
    ],
)
def test_targets_that_follow_are_found_though_the_head_of_the_loop_was_not_seen(text):
    (finding,) = explained(following([(41, text)]))
    assert (finding.rule, finding.share) == ("slow_polyak", pytest.approx(0.15))


@pytest.mark.parametrize(
    "lines",
    [
        [(41, "state.target_weights.lerp_(state.online.weights, tau)")],
        [(41, "param.data.copy_(source)")],
        [(41, "torch._foreach_lerp_(self.slow, self.online, tau)")],
        [(41, "self.obs[i].copy_(obs)")],
        [WALK, (41, "distance += (p - q).pow(2).sum()")],
    ],
)
def test_other_copies_and_walks_are_left_alone(lines):
    assert explained(following(lines)) == []


def normalising(lines, updates=1000, each_s=1.0):
    """10 s, of which each line takes `each_s`."""
    spent = each_s * len(lines)
    return make_trace(
        [place("backward", Phase.BACKWARD, 10.0 - spent, updates), gap("(Replay.sample → Net)", Phase.FORWARD, spent)],
        [seen("(Replay.sample → Net)", [frame("preprocess", "dqn.py", n, text)], each_s) for n, text in lines],
        {"env_steps": 1000, "updates": updates},
    )


THRICE = ((5, "x = torch.from_numpy(frames).float()"), (6, "x = x / 255.0"), (7, "return (x - MEAN) / STD"))


def test_four_passes_over_a_batch_of_frames_are_found():
    (finding,) = explained(normalising(THRICE))
    assert finding.rule == "two_pass_normalise"
    assert finding.share == pytest.approx(0.3)
    # Bytes to floats 0.4, and three passes into new memory; left are three passes over memory that is there.
    assert finding.gain == pytest.approx(1 / (1 - 0.3 * (1 - 0.75 / 3.4) - 1000 * 300e-6 / 10))
    assert "Image batches are normalised in 4 passes over memory." in finding.title


def test_a_normalisation_through_float64_costs_more():
    lines = [(5, "x = np.array(frames, dtype=np.float64) / 255.0"), (6, "x = ((x - mean) / std).astype(np.float32)")]
    (finding,) = explained(normalising(lines))
    assert finding.gain == pytest.approx(1 / (1 - 0.2 * (1 - 0.75 / (0.4 + 1.5 + 1 + 1 + 0.4)) - 1000 * 300e-6 / 10))


@pytest.mark.parametrize(
    "lines",
    [
        [(5, "x = torch.from_numpy(frames).float().mul_(1 / (255 * STD)).sub_(MEAN / STD)")],
        [(5, "return out.copy_(torch.from_numpy(windows)).mul_(1 / (255 * STD)).sub_(MEAN / STD)")],
        [(5, "x = frames.float() / 255.0")],
        [(5, "x = (obs.float() - self.mean) / self.std")],
    ],
)
def test_one_pass_and_vectors_are_left_alone(lines):
    assert explained(normalising(lines, each_s=6.0)) == []


def test_small_batches_are_left_alone():
    assert explained(normalising(THRICE, updates=100_000)) == []


def recording(unused, used, phase=Phase.ACT):
    """10 s, in 6 s of which a network is called 10,000 times with graphs of 200 nodes."""
    inner = frame("RecurrentQ.forward", "drqn.py", 12, "state = self.cell(x, state)")
    line = frame("Agent.act", "drqn.py", 60, "greedy = self.q(windows).argmax(1)")
    counts = {"graphs_unused": unused, "graphs_used": used, "graph_nodes_unused": 200 * unused}
    return make_trace(
        [place("RecurrentQ", phase, 6.0, 10_000, counts=counts), place("Env.step", Phase.ENV, 4.0, 10_000)],
        [seen("RecurrentQ", [inner, line], 6.0)],
        {"env_steps": 10_000} | counts,
    )


@pytest.mark.parametrize("phase", [Phase.ACT, Phase.FORWARD])
def test_graphs_that_nothing_uses_are_found(phase):
    (finding,) = explained(recording(unused=50, used=0, phase=phase))
    # To blame is the line that calls the network, not a layer in it.
    assert (finding.rule, finding.file, finding.line) == ("wasted_gradients", "drqn.py", 60)
    # 200 nodes a call, 1.1 µs each.
    assert finding.gain == pytest.approx(10 / (10 - 10_000 * 200 * 1.1e-6))
    assert "100 % of 50 graphs followed up were freed unused, 200 nodes each" in finding.evidence[1]


@pytest.mark.parametrize(("unused", "used"), [(0, 50), (25, 25), (4, 0), (0, 0)])
def test_used_graphs_and_thin_evidence_are_left_alone(unused, used):
    assert explained(recording(unused, used)) == []
