"""What looks secret is not written down; what does not is."""

from __future__ import annotations

import pytest

from hotloop.record.privacy import redacted, redacted_command, redacted_line, redacted_text


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["train.py", "--api-key", "abc"], ["train.py", "--api-key", "***"]),
        (["--token=abc", "--lr=0.1"], ["--token=***", "--lr=0.1"]),
        (["--PASSWORD", "p"], ["--PASSWORD", "***"]),
        (["WANDB_API_KEY=abc"], ["WANDB_API_KEY=***"]),
        (["--password", "--verbose"], ["--password", "--verbose"]),
        (["--seed", "12345"], ["--seed", "12345"]),
        (["postgres://me:pw@host/db"], ["postgres://me:***@host/db"]),
        (["sk-abcdefghijklmnop"], ["***"]),
        (["hf_abcdefghijklmnopqr"], ["***"]),
        (["--commit", "d" * 40], ["--commit", "***"]),
        (["a=b=c"], ["a=b=c"]),
        ([], []),
    ],
)
def test_commands(words, shown):
    assert redacted_command(words) == shown


def test_configuration_of_any_depth():
    values = {
        "lr": 0.1,
        "wandb": {"api_key": "abc", "project": "p"},
        "url": "http://a:b@c",
        "seed": 3,
        "token": None,
    }
    assert redacted(values) == {
        "lr": 0.1, "wandb": {"api_key": "***", "project": "p"}, "url": "http://a:***@c", "seed": 3, "token": "***",
    }  # fmt: skip
    assert values["wandb"]["api_key"] == "abc", "the script's own configuration is not changed"


def test_secrets_inside_lists_of_the_configuration():
    assert "hunter" not in str(redacted({"servers": [{"password": "hunter"}, "https://u:hunter@h"]}))


@pytest.mark.parametrize("text", ["CartPole-v1", "runs/20240101-120000-train", "3e-4", "cuda:0", "deadbeef"])
def test_plain_words_stay(text):
    assert redacted_text(text) == text


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ('wandb.login(key="0123abcd")', 'wandb.login(key="***")'),
        ("os.environ['WANDB_API_KEY'] = 'abc def'", "os.environ['WANDB_API_KEY'] = '***'"),
        ("password: str = 'x'", "password: str = '***'"),
        ('headers = {"Authorization": "Bearer abc", "n": "3"}', 'headers = {"Authorization": "***", "n": "3"}'),
        ("batch = sorted(rows, key=len)", "batch = sorted(rows, key=len)"),
        ("loss = criterion(q, target)", "loss = criterion(q, target)"),
    ],
)
def test_a_line_of_code_that_assigns_a_secret_is_kept_without_it(line, shown):
    assert redacted_line(line) == shown
