"""What looks secret is not written down; what does not is."""

from __future__ import annotations

import warnings

import pytest

from hotloop.profiling.recorder.privacy.redact_source import Source
from hotloop.profiling.recorder.privacy.redact_text import redacted, redacted_command, redacted_strings, redacted_text
from hotloop.profiling.recorder.privacy.secret_names import Secrecy, secrecy

RANDOM = "q8Zr3Lm0Xw7Tn5Vb2Kd9"


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["train.py", "--api-key", "abc"], ["train.py", "--api-key", "***"]),
        (["--token=abc", "--lr=0.1"], ["--token=***", "--lr=0.1"]),
        (["--token:abc"], ["--token:***"]),
        (["--token=", "abc"], ["--token=", "***"]),
        (["--PASSWORD", "p"], ["--PASSWORD", "***"]),
        (["WANDB_API_KEY=abc"], ["WANDB_API_KEY=***"]),
        (["--env=WANDB_API_KEY=abc"], ["--env=WANDB_API_KEY=***"]),
        (["-DPASSWORD=abc", "-eTOKEN=abc"], ["-DPASSWORD=***", "-eTOKEN=***"]),
        (["--password", "--verbose"], ["--password", "--verbose"]),
        (["--wandb-key", "-abc123", "--seed", "1"], ["--wandb-key", "***", "--seed", "1"]),
        (["--password", "--s3cr3t"], ["--password", "***"]),
        (["--passphrase", "correct", "horse", "-v"], ["--passphrase", "***", "***", "-v"]),
        (["--keys", "a", "b", "--lr", "3"], ["--keys", "***", "***", "--lr", "3"]),
        (["--keys", "a", "b", "-lr", "3"], ["--keys", "***", "***", "-lr", "3"]),
        (["--pw", "abc"], ["--pw", "***"]),
        (["--keys", "a", "--pw=b", "--lr=3"], ["--keys", "***", "--pw=***", "--lr=3"]),
        (["config", "set", "api_key", "abc", "next"], ["config", "set", "api_key", "***", "next"]),
        (["Authorization:", "Bearer", "abc", "x"], ["Authorization:", "***", "***", "x"]),
        (["//me:abc@host/share"], ["//me:***@host/share"]),
        (["password", "=", "abc"], ["password", "=", "***"]),
        (["+wandb.api_key=abc", "~auth.token=abc"], ["+wandb.api_key=***", "~auth.token=***"]),
        (['{"api_key": "abc", "lr": 3}'], ['{"api_key": "***", "lr": 3}']),
        (['--config={"a": {"auth": ["x", "y"]}}'], ['--config={"a": {"auth": ["***", "***"]}}']),
        (["wandb={api_key:abc,project:x}"], ["wandb={api_key:***,project:x}"]),
        (["--header", "Authorization: Bearer abc"], ["--header", "Authorization: ***"]),
        (["-H", "X-Api-Key: abc"], ["-H", "X-Api-Key: ***"]),
        (["-u", "me:abc", "--user", "me"], ["-u", "me:***", "--user", "me"]),
        (["bash", "-c", "train.py --api-key abc --lr 3"], ["bash", "-c", "train.py --api-key *** --lr 3"]),
        (["--seed", "12345"], ["--seed", "12345"]),
        (["postgres://me:pw@host/db"], ["postgres://me:***@host/db"]),
        (["--db=redis://:pw@host"], ["--db=redis://:***@host"]),
        (["sk-abcdefghijklmnop"], ["***"]),
        (["hf_abcdefghijklmnopqr"], ["***"]),
        (["--commit", "d" * 40], ["--commit", "***"]),
        (["a=b=c"], ["a=b=c"]),
        (["-p", "Abc-1"], ["-p", "***"]),
        (["-p", "8080"], ["-p", "8080"]),
        (["-pHunter2x"], ["-p***"]),
        (["-print"], ["-print"]),
        (["--login=bob:abc"], ["--login=bob:***"]),
        (["['--password', 'abc']"], ["['--password', '***']"]),
        ([], []),
    ],
)
def test_commands(words, shown):
    assert redacted_command(words) == shown


@pytest.mark.parametrize(
    "name",
    """api_key wandbApiKey WANDB_API_KEY --wandb-key OPENAIKEY key keys key_1 token tokens authToken gh_pat passphrase
    passPhrase pass_word PassWord db_passwd pw PWD db_pass pin credentials cred secret client_secret secrets.db auth
    oauth X-Authorization bearer cookie Set-Cookie session_id JSESSIONID sessionId dsn SENTRY_DSN slack_webhook private
    private_key signature X-Amz-Signature sig sas_token jwt connection_string otp mypassword passwort""".split(),  # noqa: SIM905
)
def test_names_of_secrets(name):
    assert secrecy(name) is not Secrecy.NONE


@pytest.mark.parametrize(
    "name",
    """keyframe keyframes monkey tokenizer tokenize num_tokens max_new_tokens n_keys author authority pass-through
    forward_pass key-bindings keyboard hotkey pin_memory compass passenger sort_key obs_keys rng_key key_dim
    token_embedding pad_token seed lr path patch session sessions signal private_copy primary_key public_key
    bypass_encoder spinner dns task_id password-less""".split()[:-1],  # noqa: SIM905
)
def test_names_of_other_things(name):
    assert secrecy(name) is Secrecy.NONE


@pytest.mark.parametrize(
    "words",
    [
        ["--num-tokens", "512"], ["--tokens", "50000000"], ["--key", "3"], ["--use-token", "true"], ["--auth=False"],
        ["--tokenizer", "gpt2"], ["--author", "me"], ["--keyframe", "10", "a"], ["--monkey", "see"],
        ["--obs-keys", "image", "state"], ["--key-bindings", "wasd"], ["--pass-through", "x"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_innocent_options_keep_their_values(words):
    assert redacted_command(words) == words


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("redis://:pw@host", "redis://:***@host"),
        ("redis://:p/w@host/0", "redis://:***@host/0"),
        ("https://u:p@ss@host/", "https://u:***@host/"),
        ("https://tok@host/x", "https://***@host/x"),
        ("https://tok:x-oauth-basic@host/x", "https://***:***@host/x"),
        ("ssh://git@host/x", "ssh://git@host/x"),
        ("https://host:8080/a@b", "https://host:8080/a@b"),
        ("me:pw@db.example.com", "me:***@db.example.com"),
        ("https://h/x?sig=abc%3D&se=2030", "https://h/x?sig=***&se=2030"),
        ("https://h/x?access_token=abc#top", "https://h/x?access_token=***"),
        ("https://hooks.slack.com/services/T0/B0/x", "https://hooks.slack.com/services/***"),
        ("https://discord.com/api/webhooks/1/x", "https://discord.com/api/webhooks/***"),
        (f"https://host/{RANDOM}/x", "https://host/***/x"),
        ("curl -H 'Authorization: token abc' x", "curl -H 'Authorization: ***"),
        ("sent Bearer abc.def", "sent Bearer ***"),
        ("Basic dXNlcjpwYXNz", "Basic ***"),
        ("-----BEGIN EC PRIVATE KEY-----\nabc\n-----END EC", "-----BEGIN EC PRIVATE KEY-----***-----END EC"),
        ("login failed for password 'abc'", "login failed for password '***'"),
        ("password: correct horse, lr: 3", "password: ***, lr: 3"),
        ("Server=h;Password=abc;Port=3", "Server=h;Password=***;Port=3"),
        ("AccountKey=abc==;Suffix=x", "AccountKey=***;Suffix=x"),
        (r"{\"api_key\": \"abc\"}", r"{\"api_key\": \"***\"}"),
        ("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "***"),
        (f"took {RANDOM} 3 ms", "took *** 3 ms"),
    ],
)
def test_texts(text, shown):
    assert redacted_text(text) == shown


# Made of parts: a complete one, even if invented, is found by scanners of repositories.
KNOWN = {
    "GitHub": "ghp_" + "a1B2" * 9, "GitHub fine-grained": "github_pat_" + "11AB" * 8, "GitLab": "glpat-" + "a1B2c3" * 4,
    "Slack": "xoxb-" + "123456-" * 3 + "abc", "AWS": "AKIA" + "ABCD" * 4, "Google": "AIza" + "a-B_1" * 7,
    "Google OAuth": "ya29." + "a0Bc" * 6, "OpenAI": "sk-proj-" + "a1B2" * 8, "Anthropic": "sk-ant-api03-" + "a1-B" * 8,
    "Hugging Face": "hf_" + "aBcD" * 8, "W&B": "0123456789abcdef" * 2 + "01234567", "npm": "npm_" + "a1B2" * 9,
    "PyPI": "pypi-" + "AgEI" * 8, "Stripe": "sk_" + "live_" + "a1B2" * 6,
    "Stripe restricted": "rk_" + "live_" + "a1B2" * 6,
    "SendGrid": "SG." + "a1B2" * 5 + "." + "c3D4" * 10, "Twilio": "SK" + "0123456789abcdef" * 2,
    "JWT": "eyJ" + "hbGciOiJI." + "eyJ" + "zdWIiOi.c2ln", "Telegram": "123456789:" + "AAbb1-" * 6,
}  # fmt: skip


@pytest.mark.parametrize("secret", list(KNOWN.values()), ids=list(KNOWN))
def test_keys_of_services_are_known_by_their_form(secret):
    assert redacted_text(secret) == "***"
    assert secret not in redacted_text(f"cannot log in with {secret}, try again")
    assert secret[8:] not in Source(f'x = call("{secret}")').line(1)


@pytest.mark.parametrize(
    "text",
    [
        "CartPole-v1", "runs/20240101-120000-train", "3e-4", "cuda:0", "deadbeef", "stable_baselines3.common.vec_env",
        "20240101-120000-HalfCheetah-v4-seed3-lr3e-4", "lr3e4_bs256_g099_s1_fp16_384x384", "env.step", "key: 3",
        "550e8400-e29b-41d4-a716-446655440000", "/cache/" + "a1b2c3d4" * 5 + "/train.py",
        "123456789012345678901234567890",
        "model-00001-of-00002.safetensors", "token embedding: 12.5 ms", "tokens/s: 34567", "pass 2: 3 ms", "https://h/a/b?x=1",
        "ReplayBuffer.sample", "(DQN.train → ·)", "loss: 0.3 sample: 20 ms", "KeyError: 'obs'", "me@example.com",
        "git@host:me/x",
    ],
)  # fmt: skip
def test_plain_words_stay(text):
    assert redacted_text(text) == text


def test_configuration_of_any_depth():
    values = {
        "lr": 0.1,
        "wandb": {"api_key": "abc", "project": "p"},
        "url": "http://a:b@c",
        "seed": 3,
        "token": None,
        "num_tokens": 512,
        "use_auth": True,
        "tokens": {"a": "x", "b": ["y"]},
        "args": ["--api-key", "abc", "--lr", "3"],
    }
    assert redacted(values) == {
        "lr": 0.1, "wandb": {"api_key": "***", "project": "p"}, "url": "http://a:***@c", "seed": 3, "token": "***",
        "num_tokens": 512, "use_auth": True, "tokens": {"a": "***", "b": ["***"]},
        "args": ["--api-key", "***", "--lr", "3"],
    }  # fmt: skip
    assert values["wandb"]["api_key"] == "abc", "the script's own configuration is not changed"


def test_secrets_inside_lists_of_the_configuration():
    assert "hunter" not in str(redacted({"servers": [{"password": "hunter"}, "https://u:hunter@h"]}))


def test_texts_of_a_file_are_cleared_but_for_what_is_cleared_already():
    entry = {"name": "redis://:abc@h", "text": "key = 'abc'", "n": 3, "frames": (1, 2), "within": [{"name": "pw=abc"}]}
    assert redacted_strings(entry, frozenset({"text"})) == {
        "name": "redis://:***@h",
        "text": "key = 'abc'",
        "n": 3,
        "frames": [1, 2],
        "within": [{"name": "pw=***"}],
    }


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ('wandb.login(key="0123abcd")', 'wandb.login(key="********")'),
        ("os.environ['WANDB_API_KEY'] = 'abc def'", "os.environ['WANDB_API_KEY'] = '*******'"),
        ("password: str = 'x'", "password: str = '*'"),
        ('headers = {"Authorization": "Bearer abc", "n": "3"}', 'headers = {"Authorization": "**********", "n": "3"}'),
        ('os.environ.setdefault("X_TOKEN", "abc")', 'os.environ.setdefault("X_TOKEN", "***")'),
        ('add("--api-key", default="abc", help="the key")', 'add("--api-key", default="***", help="the key")'),
        ('a, password = "left", "right"', 'a, password = "left", "*****"'),
        ('ok = password == "abc"', 'ok = password == "***"'),
        ('def f(token="abc", *, pw="de", lr="3"): ...', 'def f(token="***", *, pw="**", lr="3"): ...'),
        ('def get_token(): return "abc"', 'def get_token(): return "***"'),
        ('class Secrets: db = "abc"', 'class Secrets: db = "***"'),
        ('items = [("api_key", "abc"), ("lr", "x")]', 'items = [("api_key", "***"), ("lr", "x")]'),
        ('c = connect(f"redis://:abc@{host}")', 'c = connect(f"redis://:***@{host}")'),
        ('secret = f"ab{x}" + b"cd".decode()', 'secret = f"*****" + b"**".decode()'),
        ('key = os.environ["API_KEY"] or os.getenv("API_KEY", "x")',
         'key = os.environ["API_KEY"] or os.getenv("API_KEY", "*")'),
        ('t = "ghp_abcdefgh" + "ijklmnopqr"', 't = "************" + "**********"'),
        ('passphrase = "é漢"', 'passphrase = "*****"'),
        ("pin = 123456", "pin = ******"),
        ('run(["train.py", "--api-key", "abc", "--lr", "3"])', 'run(["train.py", "--api-key", "***", "--lr", "3"])'),
        ('things = ["door", "magic_key", "chest"]', 'things = ["door", "magic_key", "chest"]'),
        ('key = f"{name}:{phase}"', 'key = f"{name}:{phase}"'),
        ("x = f\"{login(pw='abc')}\"", "x = f\"**********'***'**\""),
        ("x = 1  # the password is abc", "x = 1  # the password ** ***"),
        ("x = '# key'  # api_key=abc", "x = '# key'  # api_key****"),
        ("password = (", "password = ("),
        ('run("curl -u bob:abc http://x")', 'run("curl -u bob:*** http://x")'),
        ('run("mysql -pabc db")', 'run("mysql -p*** db")'),
        ('run("sshpass -p abc ssh host")', 'run("sshpass -p *** ssh host")'),
        ("x = 'machine h login bob password abc'", "x = 'machine h login bob password ****"),
        ('x = "token={}".format("abc")', 'x = "token={}".format("***")'),
        ('x = "loss=%s" % "abc"', 'x = "loss=%s" % "abc"'),
        ("batch = sorted(rows, key=len)", "batch = sorted(rows, key=len)"),
        ("loss = criterion(q, target)", "loss = criterion(q, target)"),
        ('env = make("CartPole-v1", render_mode="rgb_array")', 'env = make("CartPole-v1", render_mode="rgb_array")'),
    ],
)  # fmt: skip
def test_a_line_of_code_that_assigns_a_secret_is_kept_without_it(line, shown):
    assert Source(line).line(1) == shown
    assert len(shown.encode()) == len(line.encode())


def test_strings_of_several_lines_are_hidden_in_each():
    source = Source(
        'API_KEY = """abc\n  def # x\n"""\nlogin(\n    user="me",\n    password=("ab"\n              "cd"),\n)\n'
    )
    lines = [source.line(i) for i in range(1, 9)]
    assert lines == [
        'API_KEY = """***', "  *******", '"""', "login(",
        '    user="me",', '    password=("**"', '              "**"),', ")",
    ]  # fmt: skip
    assert source.line(0) == source.line(99) == ""


def test_values_that_a_secret_is_matched_with():
    source = Source('match password:\n    case "abc": ...\nmatch x:\n    case {"token": "abc", "n": "abc"}: ...\n')
    assert source.line(2) == '    case "***": ...'
    assert source.line(4) == '    case {"token": "***", "n": "abc"}: ...'


def test_a_file_that_is_not_python_is_judged_line_by_line():
    source = Source("x = (\nkey = 'abc'\nname = 'abc'\nurl = 'redis://:abc@h'\n")
    assert [source.line(i) for i in (2, 3, 4)] == ["key = *****", "name = 'abc'", "url = 'redis://:***@h'"]


def test_reading_source_warns_of_nothing():
    """A warning of the parser would reach the script, and may be an error there."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Source('x = "\\d"; password = "\\d"').line(1) == 'x = "\\d"; password = "**"'
        assert Source("x = b'\\d\\\\d'").line(1) == "x = b'\\d\\\\d'"
