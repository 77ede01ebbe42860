"""Finds secrets in a text: by their form, or by the name beside them.

`KNOWN` is the table to maintain: the forms in which services issue keys. Everything else is recognised by the syntax of
addresses, headers and assignments, or because a random string does not look like words.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache

from hotloop.profiling.recorder.privacy.secret_names import Secrecy, hides, secrecy

Span = tuple[int, int]

KNOWN = (
    r"gh[pousr]_[A-Za-z0-9]{12,}|github_pat_\w{12,}",  # GitHub
    r"gl[a-z]{2,6}-[\w\-]{12,}",  # GitLab
    r"xox[a-z]-[\w\-]{8,}|xapp-[\w\-]{8,}",  # Slack
    r"(?:AKIA|ASIA|ABIA|ACCA|AROA|AIDA)[A-Z0-9]{12,}",  # AWS
    r"AIza[\w\-]{20,}|ya29\.[\w\-.]{10,}|GOCSPX-[\w\-]{10,}|1//0[\w\-]{20,}",  # Google
    r"sk-(?:ant|proj|svcacct|admin|or)-[\w\-]{12,}|sk-(?:\w+-)*\w{12,}[\w\-]*",  # OpenAI, Anthropic
    r"gsk_\w{16,}|xai-\w{16,}|pplx-\w{16,}|r8_\w{16,}|nvapi-[\w\-]{16,}",  # other model services
    r"hf_[A-Za-z0-9]{12,}|api_org_\w{12,}",  # Hugging Face
    r"wandb_v\d_\w{12,}",  # Weights & Biases
    r"npm_[A-Za-z0-9]{12,}|pypi-[\w\-]{16,}|dckr_pat_[\w\-]{12,}|rubygems_[0-9a-f]{16,}",  # registries
    r"[prs]k_(?:live|test)_\w{8,}|whsec_\w{8,}",  # Stripe
    r"SG\.[\w\-]{8,}\.[\w\-]{8,}|(?:SK|AC)[0-9a-f]{32}|key-[0-9a-f]{32}",  # SendGrid, Twilio, Mailgun
    r"eyJ[\w\-]{8,}\.[\w\-]+(?:\.[\w\-]*)?",  # JSON web tokens
    r"\d{6,12}:[A-Za-z0-9_\-]{30,}",  # Telegram
    r"do[opr]_v1_[0-9a-f]{16,}|dapi[0-9a-f]{28,}|shp(?:at|ca|pa|ss)_\w{16,}|lin_api_\w{12,}|ntn_\w{16,}|hv[sb]\.\w{12,}",
    r"gl(?:c|sa)_\w{12,}|sntry[su]_[\w=\-]{12,}|dp\.pt\.\w{12,}|PMAK-[\w\-]{12,}|figd_[\w\-]{12,}|sbp_\w{16,}|pul-\w{16,}",
    r"\w{14}\.atlasv1\.[\w\-]+|AGE-SECRET-KEY-\w+",
)
_LONG = re.compile(r"[\w\-.:/+=]{12}")
_SIGN = re.compile(r"[=:\"']|(?<!\w)-")
_KNOWN = re.compile(rf"(?<![A-Za-z0-9])(?:{'|'.join(KNOWN)})")
_HOOK = re.compile(
    r"(?:hooks\.slack\.com/\w+/|discord(?:app)?\.com/api/(?:v\d+/)?webhooks/|\.webhook\.office\.com/|/bot(?=\d+:))([^\s\"'<>]+)"
)
_PEM = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY[A-Z ]*-----(.*?)(?:-----END|\Z)", re.DOTALL)
_URL = re.compile(r"(?P<scheme>[A-Za-z][\w+.\-]*)://(?P<rest>[^\s\"'<>]+)")
_ACCOUNT = re.compile(r"(?<![\w.:@])(?<![^/]/)(?!mailto:)[\w.+\-]+:(?P<password>[^\s:@/\"']+)@(?=[\w\-]+\.?\w)")
_SCHEME = re.compile(
    r"(?i)\b(?:bearer\s+(?P<any>[^\s\"',;]+)|(?:basic|token|digest|negotiate|apikey)\s+(?P<odd>[^\s\"',;]{6,}))"
)
_PAIR = re.compile(
    r"(?<![\w.\-])(?P<name>[^\W\d][\w.\-]{0,120})(?P<close>[\\\"'\]]*)\s*(?:=>|:=|={1,2}|:(?!//))\s*"
    r"(?:[rbfuRBFU]{0,2}(?P<quote>\\*(?:\"\"\"|'''|[\"']))(?P<quoted>.*?)(?:(?P=quote)|\Z)|(?P<bare>[^\s,;&{}\[\]()<>]+))",
    re.DOTALL,
)
_CLAUSE = re.compile(r"[^,;&{}\[\]<>\n]+")
_LINE = re.compile(r"[^\n]+")
_OPTION = re.compile(r"(?<![\w\-])--?(?P<name>[A-Za-z][\w.\-]*)\s+(?P<value>(?!--)[^\s]+)")
_SAID = re.compile(r"(?P<name>[^\W\d][\w\-]*)\s+(?:is\s+|was\s+)?(?P<quote>[\"'])(?P<value>.+?)(?P=quote)")
_LOGIN = re.compile(
    r"(?<!\S)(?:-u|--user)[ =]?[\w.+\-@]+:(?P<of_user>\S+)|\blogin\s+\S+\s+password\s+(?P<of_netrc>\S+)"
)
_CLIENT = re.compile(
    r"\b(?:mysql\w*|mariadb\w*|sshpass|mongo\w*|docker login)\b[^|;&\n]*?\s-p\s?(?P<password>[^\s\-]\S*)"
)
_HEX = re.compile(r"(?<![\w/])(?=\d*[a-fA-F])[0-9a-fA-F]{32,}(?![\w/]|\.\w)")
_TOKEN = re.compile(r"[A-Za-z0-9+/_=\-.]{20,}")
_RUN = re.compile(r"[A-Za-z0-9]{16,}")
_WORD_OF_A_PATH = re.compile(r"(?:^|/)[A-Za-z_]?[a-z_.\-]{2,}(?:/|$)")
_ENDING = re.compile(r"\.[A-Za-z]\w{0,5}$")
LEAST_BITS = 3.0
"""Entropy a character: a string of few different characters is no key."""
LEAST_TURNS = 0.25
"""Changes between letters, capitals and digits, a character. Random letters and digits have 0.40 to 0.47, names that
people make up for models and runs below 0.2."""
_AWS = re.compile(r"(?=.*[a-z])(?=.*[A-Z])(?=.*\d)[A-Za-z0-9+/]{40}")
AWS_TURNS = 0.15
"""A secret key of AWS is known by its length; it is broken into short runs, of which some have no digit."""


@lru_cache(maxsize=1024)
def secret_spans(text: str) -> tuple[Span, ...]:
    """Return where a text holds secrets, in order and without overlap."""
    found: set[Span] = set()
    # Most texts are short names without any of the signs that a secret needs.
    if _LONG.search(text) or "-----BEGIN" in text:
        found = {*_by_form(text), *_random(text)}
    if "@" in text or "://" in text:
        found |= {*_in_urls(text)}
    if _SIGN.search(text):
        found |= {*_named(text)}
    found |= {*_in_headers(text), *_in_commands(text)}
    merged: list[Span] = []
    for start, end in sorted(found):
        if start < end and merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        elif start < end:
            merged.append((start, end))
    return tuple(merged)


def _by_form(text: str) -> Iterator[Span]:
    for pattern in (_KNOWN, _HEX):
        yield from (match.span() for match in pattern.finditer(text))
    for pattern in (_HOOK, _PEM):
        yield from (match.span(1) for match in pattern.finditer(text))


def _in_headers(text: str) -> Iterator[Span]:
    for match in _SCHEME.finditer(text):
        if match["any"] or _turns(match["odd"]) or match["odd"].endswith("="):
            yield match.span("any" if match["any"] else "odd")


def _in_urls(text: str) -> Iterator[Span]:
    for match in _URL.finditer(text):
        yield from _in_url(match["scheme"].lower(), match["rest"], match.start("rest"))
    yield from (match.span("password") for match in _ACCOUNT.finditer(text))


def _in_url(scheme: str, rest: str, at: int) -> Iterator[Span]:
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    end = authority.rfind("@")
    if end < 0 and re.search(r":(?!\d*$)", authority):
        # No port follows the colon: it is a password with an unescaped slash in it.
        end = rest.rfind("@")
    if end >= 0:
        user, colon, password = rest[:end].partition(":")
        if colon:
            yield at + len(user) + 1, at + end
        # Tokens are given as a user without a password; of remote shells it is a name.
        if user and password in ("", "x-oauth-basic") and scheme.rpartition("+")[2] not in ("ssh", "sftp", "rsync"):
            yield at, at + len(user)
    for part in re.finditer(r"[^/?#&=@:]+", rest[end + 1 :]):
        if _is_random(part[0]) or _HEX.fullmatch(part[0]):
            yield at + end + 1 + part.start(), at + end + 1 + part.end()


def _named(text: str) -> Iterator[Span]:
    at = 0
    while match := _PAIR.search(text, at):
        at = match.end("name")
        level = secrecy(match["name"])
        if level is Secrecy.NONE:
            continue
        group = "quoted" if match["quote"] else "bare"
        start, end = match.span(group)
        if group == "bare":
            end = _end_of_value(text, start, end, match["name"], level)
        if hides(match["name"], text[start:end]):
            yield start, end
    for pattern in (_OPTION, _SAID):
        for match in pattern.finditer(text):
            certain = pattern is _OPTION or secrecy(match["name"]) is Secrecy.CERTAIN
            if certain and hides(match["name"], match["value"]):
                yield match.span("value")


def _in_commands(text: str) -> Iterator[Span]:
    """Find the passwords that well-known programs take on their command line, and those of a netrc file."""
    for match in _LOGIN.finditer(text):
        yield match.span("of_user" if match["of_user"] else "of_netrc")
    yield from (match.span("password") for match in _CLIENT.finditer(text))


def _end_of_value(text: str, start: int, end: int, name: str, level: Secrecy) -> int:
    """Return where a value without quotes ends: headers at the line's end, passphrases at the clause's."""
    headers = name.lower().endswith(("authorization", "authorisation", "cookie", "cookies"))
    longer = _LINE if headers else _CLAUSE
    if not (headers or level is Secrecy.CERTAIN):
        return end
    match = longer.match(text, start)
    return match.end() if match else end


def _random(text: str) -> Iterator[Span]:
    for match in _TOKEN.finditer(text):
        if _is_random(match[0]):
            yield match.span()


def _is_random(word: str) -> bool:
    """Say whether a word is too long and too disordered to have been made up by a person. Paths are left alone."""
    if len(word) < 20 or word.startswith(("/", "./", "../")) or _WORD_OF_A_PATH.search(word) or _ENDING.search(word):
        return False
    if _AWS.fullmatch(word) and _turns(word) >= AWS_TURNS * len(word):
        return True
    return any(_is_random_run(run[0]) for run in _RUN.finditer(word))


def _is_random_run(run: str) -> bool:
    if run.isalpha() or run.isdigit():
        return False
    counts = Counter(run).values()
    bits = -sum(n / len(run) * math.log2(n / len(run)) for n in counts)
    return bits >= LEAST_BITS and _turns(run) >= LEAST_TURNS * len(run)


def _turns(word: str) -> int:
    """Count the changes between small letters, capitals and digits; a word's first capital is not one."""
    return len(re.findall(r"[a-z](?=[A-Z\d])|[A-Z](?=\d)|\d(?=[A-Za-z])", word))
