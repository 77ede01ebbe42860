"""How much of a real training loop has no known phase when its unmodified script is recorded.

Three scripts by `hotloop run`, from their first environment step to their last: `other` and own code together.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from measure import Row, against_limit, main, say, spread

from hotloop.phases import Phase
from hotloop.profiling.trace.load import load
from hotloop.profiling.trace.summary import phases

HOTLOOP = Path(sys.executable).with_name("hotloop")
SCRIPTS = Path(__file__).with_name("scripts")
STEPS = {
    "sb3_dqn": ("SB3 DQN", 30_000),
    "sb3_ppo_subproc": ("SB3 PPO, SubprocVecEnv", 20_000),
    "sac_single_file": ("single-file SAC", 3_000),
}
LIMIT_PERCENT = 5.0


def run(quick: bool) -> list[Row]:
    """Measure everything this bench shows."""
    rows = []
    for script, (title, steps) in STEPS.items():
        shares = [unnamed_percent(script, steps // 5 if quick else steps) for _ in range(1 if quick else 3)]
        rows.append(against_limit(f"{title}: other and own code", spread(shares), LIMIT_PERCENT, "%"))
    return rows


def unnamed_percent(script: str, steps: int) -> float:
    """Record a script; return the share of its loop without a phase, in per cent of the main thread's time."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run"
        command = [HOTLOOP, "run", "--out", path, SCRIPTS / f"{script}.py", str(steps)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{script} ended with {done.returncode}: {done.stderr.strip()[-800:]}")
        trace = load(path)
    shares = {row.phase: 100 * row.share for row in phases(trace.thread)}
    text = ", ".join(f"{phase} {share:.1f}" for phase, share in shares.items())
    say(f"{script}: {trace.wall_s:.1f} s, {trace.main.counts.get('env_steps', 0):,} steps; {text}")
    return shares.get("other", 0.0) + shares.get(Phase.OWN, 0.0)


if __name__ == "__main__":
    main(run, __doc__)
