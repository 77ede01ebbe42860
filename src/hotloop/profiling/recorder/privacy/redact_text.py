"""Keys, tokens and passwords are not written down: every text from the user passes here before it reaches a file.

What is a secret is decided in `names` (by the name of an option, variable or key) and in `values` (by the form of the
text itself). Lines of source code have rules of their own, in `source`.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping, Sequence

from hotloop.json_types import Json
from hotloop.profiling.recorder.privacy.secret_names import Secrecy, hides, hides_value, secrecy
from hotloop.profiling.recorder.privacy.secret_values import secret_spans

HIDDEN = "***"
_JOINED = re.compile(r"(?P<name>[-+~/]*[^\s=:\"'{}]+)(?P<sign>[=:]\s*)(?P<value>.*)", re.DOTALL)
_NAME = re.compile(r"[-+~/]*[^\W\d][\w.\-]*")
_OPTION = re.compile(r"-[A-Za-z]|--[A-Za-z]+\d*(?:[-_.][A-Za-z]+\d*|[-_.]\d+)*(?:=.*)?|--", re.DOTALL)
_GLUED = re.compile(r"-[A-Za-z]")
PASSWORD_OPTION = "-p"
"""Of many clients. It may also be a port or a probability, so numbers are kept."""
_GLUED_PASSWORD = re.compile(r"-p(?=\S*[A-Z\d@#$%!])(?=\S*[A-Za-z@#$%!])[^\s=\-]\S{4,}")
_SHORT_OPTION = re.compile(r"-[a-z]+")
BEFORE_VALUES = frozenset({"=", ":", "bearer", "basic", "token", "digest"})
ACCOUNTS = frozenset({"u", "user", "username", "login", "account"})
"""Options whose value may be `name:password`."""


def redacted_text(text: str) -> str:
    """Return a text with what looks secret replaced by ***."""
    parts, at = [], 0
    for start, end in secret_spans(text):
        parts += [text[at:start], HIDDEN]
        at = end
    return "".join([*parts, text[at:]]) if parts else text


def redacted_command(words: Sequence[str]) -> list[str]:
    """Return a command line with *** for what looks secret: all values of a secret option, up to the next option."""
    shown: list[str] = []
    option, values = "", 0
    for word in words:
        if option and _is_value(word, values):
            shown.append(_redacted_value_of(option, word))
            values += 1
            # A name without dashes has one value, but for the scheme of a header: Authorization: Bearer abc.
            option = option if option.startswith("-") or word.lower() in BEFORE_VALUES else ""
            continue
        shown.append(_redacted_word(word))
        name = word.rstrip("=:")
        has_password = name == PASSWORD_OPTION or (name.startswith("-") and name.lstrip("-") in ACCOUNTS)
        option, values = (name, 0) if _NAME.fullmatch(name) and (secrecy(name) or has_password) else ("", 0)
    return shown


def redacted(values: Mapping[str, object]) -> dict[str, object]:
    """Return configuration or environment values with what looks secret replaced by ***."""
    return {redacted_text(str(name)): _redacted_under(secrecy(str(name)), value) for name, value in values.items()}


def redacted_strings(content: Mapping[str, Json], keep: frozenset[str] = frozenset()) -> dict[str, Json]:
    """Return what is to be written as JSON with the secrets in its texts replaced by ***.

    Args:
        content: Its keys are hotloop's own.
        keep: Keys whose texts have been redacted already.
    """
    return {name: each if name in keep else _redacted_json(each, keep) for name, each in content.items()}


def _redacted_json(value: Json, keep: frozenset[str]) -> Json:
    if isinstance(value, str):
        return redacted_text(value)
    if isinstance(value, Mapping):
        return redacted_strings(value, keep)
    if isinstance(value, list | tuple):
        return [each if isinstance(each, int | float) else _redacted_json(each, keep) for each in value]
    return value


def _is_value(word: str, values: int) -> bool:
    """Return whether a word after a secret option is its value: keys may begin with a dash."""
    if _OPTION.fullmatch(word) and not secret_spans(word.partition("=")[0].lstrip("-")):
        return False
    return not (values and _SHORT_OPTION.fullmatch(word))


def _redacted_value_of(option: str, word: str) -> str:
    if word in ("=", ":"):
        return word
    if option == PASSWORD_OPTION:
        return HIDDEN if hides_value(Secrecy.LIKELY, word) else word
    if secrecy(option):
        return HIDDEN if hides(option, word) else word
    user, colon, password = word.partition(":")
    return f"{user}:{HIDDEN}" if colon and password and "/" not in user else _redacted_word(word)


def _redacted_word(word: str) -> str:
    if word[:1] in ("{", "["):
        try:
            content, written = json.loads(word), json.dumps
        except ValueError:
            try:
                content, written = ast.literal_eval(word), repr
            except (ValueError, SyntaxError, RecursionError, MemoryError):
                return redacted_text(word)
        cleared = _redacted_under(Secrecy.NONE, content)
        return word if cleared == content else written(cleared)
    if _GLUED_PASSWORD.fullmatch(word):
        return f"{PASSWORD_OPTION}{HIDDEN}"
    joined = _JOINED.fullmatch(word)
    if joined is None or joined["value"].startswith("//"):
        return redacted_text(word)
    name, sign, value = joined.group("name", "sign", "value")
    # A letter may be an option to which its value is glued: -DPASSWORD=x.
    secret = next((each for each in (name, _GLUED.sub("", name)) if secrecy(each)), None)
    if secret is not None:
        return f"{name}{sign}{HIDDEN}" if value and hides(secret, value) else word
    if name.startswith("-") and name.lstrip("-") in ACCOUNTS:
        return f"{name}{sign}{_redacted_value_of(name, value)}"
    if sign[0] == "=" and _NAME.fullmatch(name):
        return f"{name}{sign}{_redacted_word(value)}"
    return redacted_text(word)


def _redacted_under(level: Secrecy, value: object) -> object:
    """Hide the secrets in a value, given the secrecy of the name that it is under."""
    if isinstance(value, Mapping):
        return {
            redacted_text(str(name)): _redacted_under(max(level, secrecy(str(name))), each)
            for name, each in value.items()
        }
    if isinstance(value, list | tuple | set | frozenset):
        if level is Secrecy.NONE and all(isinstance(each, str) for each in value):
            return redacted_command([str(each) for each in value])
        return [_redacted_under(level, each) for each in value]
    if level is not Secrecy.NONE and not isinstance(value, bool):
        return HIDDEN if value is None or hides_value(level, str(value)) else value
    return redacted_text(value) if isinstance(value, str) else value
