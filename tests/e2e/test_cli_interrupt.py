"""Ctrl-C in a subcommand that does not handle it itself: one line, exit 130, no traceback."""

from __future__ import annotations

import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from hotloop.cli.main import main
from hotloop.training.pipelines import dqn_snake
from hotloop.training.run.options import Options

CONFIG = replace(
    dqn_snake.Config(),
    envs=16, board=6, features="basic", hidden=(32, 32), buffer=2000, learning_starts=500, kernel="torch",
)  # fmt: skip
FOREVER = """
import sys
from hotloop.cli.main import main
from hotloop.training.tasks import snake
play, watch = snake.play_episodes, snake.watch
def forever(play):
    def again(*args):
        while True:
            for _ in [*play(*args)] if play is watch else [play(*args)]:
                pass
            print("played", flush=True)
    return again
snake.play_episodes, snake.watch = forever(play), forever(watch)
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("trained") / "run"
    dqn_snake.train(CONFIG, Options(out=out, steps=1024, tensorboard=False, quiet=True))
    return out


@pytest.mark.parametrize("words", [("evaluate", "--episodes", "64"), ("play", "--json")])
def test_ctrl_c_prints_one_line(words: tuple[str, ...], trained: Path) -> None:
    command = [sys.executable, "-c", FOREVER, words[0], str(trained), *words[1:]]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    first = process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate()
    assert first == "played\n", stderr
    assert (process.returncode, stderr) == (130, "hotloop: interrupted\n")


def test_ctrl_c_in_compiled_code_is_handled_as_ctrl_c(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def ends(error: BaseException) -> None:
        def run(arguments: object) -> int:
            raise SystemError("returned a result with an exception set") from error

        monkeypatch.setattr("hotloop.cli.doctor.run", run)

    ends(KeyboardInterrupt())
    assert main(["doctor"]) == 130
    assert capsys.readouterr().err == "hotloop: interrupted\n"
    ends(ValueError("a fault of ours"))
    with pytest.raises(SystemError):
        main(["doctor"])
