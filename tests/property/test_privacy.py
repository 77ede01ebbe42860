"""Secrets are redacted in every form in which programs receive them; harmless words are kept."""

from __future__ import annotations

import json
import string

from hypothesis import assume, given
from hypothesis import strategies as st

from hotloop.profiling.recorder.privacy.redact_source import Source
from hotloop.profiling.recorder.privacy.redact_text import redacted, redacted_command, redacted_text

# Any password a person might choose. It starts and ends with letters, so that a match is not a coincidence.
ODD = string.ascii_letters + string.digits + "-_.!$%*+~^"
SECRET = st.builds(
    lambda head, body, tail: f"Zq{head}{body}{tail}qZ",
    st.sampled_from("Xx7"),
    st.text(ODD, min_size=4, max_size=24),
    st.sampled_from("Kk9"),
)
NAME = st.sampled_from(
    """password db_passwd passphrase pw api_key wandb-api-key apiKey WANDB_API_KEY access_token authToken token key
    client_secret credentials auth jwt dsn slack_webhook private_key session_id cookie gh_pat""".split()  # noqa: SIM905
)
OPTION = NAME.map(lambda name: "--" + name.replace("_", "-"))
LITERAL = st.text(st.characters(exclude_characters="\"'\\{}", exclude_categories=("Cs", "Cc")), min_size=4).filter(
    lambda text: not text.strip().isdigit()
)
QUIET = st.text(string.ascii_lowercase, min_size=1, max_size=8)


@given(OPTION, SECRET, st.lists(SECRET, max_size=2), st.sampled_from(["{}", "-{}"]))
def test_values_after_an_option(option, secret, more, form):
    words = ["train.py", option, form.format(secret), *more, "--lr", "0.1"]
    shown = redacted_command(words)
    assert not any(each in word for each in (secret, *more) for word in shown)
    assert shown[-2:] == ["--lr", "0.1"] and shown[:2] == words[:2]


@given(
    NAME,
    SECRET,
    st.sampled_from(
        [
            "{n}={s}",
            "--{n}={s}",
            "--{n}:{s}",
            "+a.{n}={s}",
            "--env={n}={s}",
            "-D{n}={s}",
            '{{"{n}": "{s}", "lr": 3}}',
            '--a={{"b": [{{"{n}": "{s}"}}]}}',
        ]
    ),
)
def test_values_in_the_same_argument(name, secret, form):
    assert secret not in redacted_command([form.format(n=name, s=secret)])[0]


@given(
    NAME,
    SECRET,
    st.sampled_from(
        [
            "{n}={s}",
            "{n}: {s}",
            '{n} = "{s}"',
            "'{n}': '{s}'",
            "cannot open with {n}={s}, sorry",
            "x --{n} {s} --y",
            "https://h/x?a=1&{n}={s}&b=2",
        ]
    ),
)
def test_values_in_text(name, secret, form):
    assert secret not in redacted_text(form.format(n=name, s=secret))


@given(
    SECRET.filter(lambda secret: not set(secret) & set("!$%^*~+")),
    st.sampled_from(
        [
            "redis://:{}@host:6379/0",
            "postgres://me:{}@host/db",
            "https://{}@github.com/x",
            "https://{}:x-oauth-basic@host",
            "https://hooks.slack.com/services/T0/{}",
            "Authorization: Bearer {}",
            "Authorization: Basic {}",
            "authorization: {}",
            "Cookie: a=b; c={}",
            "Bearer {}",
            "https://h/x?sig={}",
            "me:{}@db.example.com",
        ]
    ),
)
def test_values_in_urls_and_headers(secret, form):
    text = form.format(secret)
    assert secret not in redacted_text(text)
    assert secret not in " ".join(redacted_command(["--url", text]))
    assert secret not in Source(f"call({text!r})  # {text}").line(1)


@given(NAME, SECRET, st.lists(QUIET, max_size=3))
def test_values_in_configurations(name, secret, above):
    values: object = {
        name: secret,
        "more": [{name: [secret]}],
        "args": [f"--{name}", secret],
        "text": f"{name}={secret}",
    }
    for each in above:
        values = {each: values}
    assert secret not in json.dumps(redacted(values if isinstance(values, dict) else {}))


@given(
    NAME.map(lambda name: name.replace("-", "_")),
    LITERAL,
    st.sampled_from(
        [
            "{n} = {q}{s}{q}",
            "self.{n} = {q}{s}{q}",
            "{n}: str = {q}{s}{q}",
            "d[{q}{n}{q}] = {q}{s}{q}",
            "f({n}={q}{s}{q})",
            "x = {{{q}{n}{q}: {q}{s}{q}}}",
            "{n} = f{q}{s}{{x}}{q}",
            "{n} = ({q}{s}{q}\n    {q}{s}{q})",
            "{n} = a or [{q}{s}{q}.strip()]",
            "os.environ.setdefault({q}{n}{q}, {q}{s}{q})",
            "def f({n}={q}{s}{q}): ...",
            "if {n} == {q}{s}{q}: ...",
            "é = 1; {n} = {q}{s}{q}",
            "({n} := {q}{s}{q})",
            "lambda {n}={q}{s}{q}: 1",
        ]
    ),
    st.sampled_from(['"', "'", '"""', "'''"]),
)
def test_string_literals_in_source_lines(name, secret, form, quote):
    assume(
        secret.strip().lower() not in ("true", "false", "none", "null") and len(set(secret)) > 1 and "*" not in secret
    )
    text = form.format(n=name, s=secret, q=quote)
    assume(secret not in form.format(n=name, s="", q=quote))
    source = Source(text)
    shown = [source.line(i + 1) for i in range(text.count("\n") + 1)]
    assert not any(secret in line for line in shown)
    assert [len(line.encode()) for line in shown] == [len(line.encode()) for line in text.split("\n")]


@given(st.text())
def test_redaction_accepts_any_text_and_is_idempotent(text):
    once = redacted_text(text)
    assert redacted_text(once) == once
    redacted_command([text, text])
    lines = text.split("\n")
    source = Source(text)
    assert [len(source.line(i + 1).encode("utf-8", "surrogatepass")) for i in range(len(lines))] == [
        len(line.encode("utf-8", "surrogatepass")) for line in lines
    ]


@given(
    st.lists(st.one_of(QUIET, st.integers(0, 10**9).map(str), st.floats(0, 1).map(str)), min_size=1, max_size=6),
    st.sampled_from(["-", "_", "/", ".", " "]),
)
def test_names_of_words_and_numbers_are_kept(parts, between):
    text = between.join(parts)
    assume(
        not any(
            word in text
            for word in ("pw", "key", "sig", "pat", "pin", "auth", "otp", "psk", "sas", "dsn", "jwt", "cred", "pass")
        )
    )
    assert redacted_text(text) == text
