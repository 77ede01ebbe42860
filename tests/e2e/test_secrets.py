"""A script is given secrets in a dozen ways and recorded: the run directory must not contain any of them."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

HOTLOOP = [sys.executable, "-m", "hotloop.cli.main"]
# Each contains a unique word to search for. Known token formats are concatenated so that secret scanners ignore them.
SECRETS = {
    "after an option": "canary-option",
    "after a dash": "-canary-dash",
    "second value": "canary-second",
    "joined": "canary-joined",
    "of an address": "canary-address",
    "of a header": "canary-header",
    "of JSON": "canary-json",
    "of Hydra": "canary-hydra",
    "of a webhook": "canary-hook",
    "a GitHub token": "github_pat_" + "11canaryAB" * 4,
    "a Google key": "AIza" + "canary1234" * 4,
    "of the configuration": "canary-config",
    "assigned": "canary-assigned",
    "of a string of lines": "canary-lines",
    "of an f-string": "canary-format",
    "of a dictionary": "canary-dict",
    "of the environment": "canary-environ",
    "of a keyword": "canary-keyword",
    "of a comment": "canary-comment",
    "of a span": "canary-span",
    "of a counter": "canary-counter",
    "of a thread": "canary-thread",
    "of a process": "canary-process",
    "printed": "canary-printed",
}
COMMAND = [
    "--api-key", SECRETS["after an option"], "--wandb-key", SECRETS["after a dash"], "--keys", "first-canary",
    SECRETS["second value"], f"--passphrase={SECRETS['joined']}", f"redis://:{SECRETS['of an address']}@host",
    "--header", f"Authorization: Bearer {SECRETS['of a header']}", json.dumps({"pw": SECRETS["of JSON"]}),
    f"+wandb.api_key={SECRETS['of Hydra']}", f"https://hooks.slack.com/services/T0/B0/{SECRETS['of a webhook']}",
    SECRETS["a GitHub token"], SECRETS["a Google key"],
]  # fmt: skip
SCRIPT = f'''
import multiprocessing, os, threading, time
from hotloop import count, span

def busy(*args, **kwargs):
    end = time.monotonic() + 0.06
    while time.monotonic() < end:
        sum(range(500))

def work():
    for _ in range(10):
        with span("worker"):
            busy()

def lines():
    api_key = busy() or "{SECRETS["assigned"]}"
    token = busy() or """x
        {SECRETS["of a string of lines"]}"""
    url = f"redis://:{SECRETS["of an f-string"]}@{{busy()}}"
    headers = {{"Authorization": "{SECRETS["of a dictionary"]}", "n": busy()}}
    os.environ["MY_SECRET"] = busy() or "{SECRETS["of the environment"]}"
    busy(password="{SECRETS["of a keyword"]}")
    busy()  # the password is {SECRETS["of a comment"]}

if __name__ == "__main__":
    name = "password={SECRETS["of a process"]}"
    child = multiprocessing.get_context("spawn").Process(target=work, name=name)
    thread = threading.Thread(target=work, name="token={SECRETS["of a thread"]}")
    child.start(); thread.start()
    for i in range(8):
        with span("upload to redis://:{SECRETS["of a span"]}@host"):
            time.sleep(0.01)
        count("env_steps"); count("api_key={SECRETS["of a counter"]}")
        lines()
        print("password: {SECRETS["printed"]} 12.5 ms")
        print("upload with token={SECRETS["printed"]} took 12.5 ms")
    child.join(); thread.join()
'''


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("secrets")
    (place / "train.py").write_text(SCRIPT)
    done = subprocess.run(
        [*HOTLOOP, "run", "--functions", "2", "--warmup", "1", "train.py", *COMMAND],
        cwd=place, capture_output=True, text=True, timeout=90, preexec_fn=lambda: os.umask(0o022),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return next((place / "runs").iterdir())


def contents(file: Path) -> bytes:
    """All bytes of a file, and the decompressed buffers of an Arrow stream."""
    content = file.read_bytes()
    if ".arrow" in file.suffix:
        with pa.ipc.open_stream(content) as stream:
            table = stream.read_all()
        content += str(table.schema).encode() + json.dumps(table.to_pylist()).encode()
    return content


def test_no_file_of_the_run_contains_a_secret(run):
    files = [file for file in run.rglob("*") if file.is_file()]
    assert len(files) > 10
    leaked = {
        f"{kind} in {file.name}"
        for file in files
        for kind, secret in {**SECRETS, "first value": "first-canary"}.items()
        if secret.encode() in contents(file) or secret.strip("-").encode() in contents(file)
    }
    assert leaked == set()


def test_harmless_values_are_kept(run):
    manifest = json.loads((run / "run.json").read_text())
    assert manifest["command"] == [
        "train.py", "--api-key", "***", "--wandb-key", "***", "--keys", "***", "***", "--passphrase=***",
        "redis://:***@host", "--header", "Authorization: ***", '{"pw": "***"}', "+wandb.api_key=***",
        "https://hooks.slack.com/services/***", "***", "***",
    ]  # fmt: skip
    names = b"".join(file.read_bytes() for file in run.glob("*/names.jsonl")).decode()
    entries = [json.loads(line) for line in names.splitlines()]
    found = {each["name"] for each in entries if each["is"] in ("span", "counter", "thread")}
    assert {"upload to redis://:***@host", "api_key=***", "token=***", "worker", "env_steps"} <= found
    lines = {each["text"] for each in entries if each["is"] == "frame"}
    assert 'busy(password="**************")' in lines, "redaction keeps the length of a line"
    states = [json.loads(file.read_text())["process"] for file in run.glob("*/state.json")]
    assert sorted(states) == ["MainProcess", "password=***"]
    claims = [row["path"] for file in run.glob("*/claims.json") for row in json.loads(file.read_text())["claims"]]
    assert any("***" in name for path in claims for name in path)


def test_only_the_owner_can_read_a_run(run):
    rights = {path: stat.S_IMODE(path.stat().st_mode) for path in (run, *run.rglob("*"))}
    assert {mode for path, mode in rights.items() if path.is_dir()} == {0o700}
    assert {mode for path, mode in rights.items() if path.is_file()} == {0o600}
    assert stat.S_IMODE(run.parent.stat().st_mode) == 0o755, "the parent folder of runs follows the umask"


def test_exports_follow_the_umask(run, tmp_path):
    for words in (["export", run, "--to", "csv", "--output", "out"], ["explain", run, "--output", "r.txt"]):
        subprocess.run(
            [*HOTLOOP, *map(str, words)], cwd=tmp_path, check=True, capture_output=True, timeout=60,
            preexec_fn=lambda: os.umask(0o022),
        )  # fmt: skip
    assert stat.S_IMODE((tmp_path / "out" / "spans.csv").stat().st_mode) == 0o644
    assert stat.S_IMODE((tmp_path / "r.txt").stat().st_mode) == 0o644


def test_secrets_are_removed_from_the_configuration_and_the_failure_reason(tmp_path):
    code = f"""
import hotloop
from hotloop.profiling.recorder import session
current = hotloop.record("run", config={{"lr": 0.1, "wandb": {{"api_key": "{SECRETS["of the configuration"]}"}}}})
current.recorder._recorder._fail(OSError("cannot write to redis://:{SECRETS["of an address"]}@host"))
current.stop()
"""
    # The recorder in this process, so that the test can make it fail.
    pure = os.environ | {"HOTLOOP_PURE": "1"}
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], cwd=tmp_path, env=pure, check=True, timeout=60)
    manifest = json.loads((tmp_path / "run" / "run.json").read_text())
    assert manifest["config"] == {"lr": 0.1, "wandb": {"api_key": "***"}}
    assert manifest["recorder_failed"] == "OSError: cannot write to redis://:***@host"
