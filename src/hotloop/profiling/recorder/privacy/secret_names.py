"""Which names stand for secrets: of options, variables, keys of a dictionary, headers.

A name is split into words at punctuation, digits and changes of case. Some words make any name secret (password);
others only where no neighbour says that something else is meant (`api_key`, but not `sort_key` or `key_bindings`).
"""

from __future__ import annotations

import re
from enum import IntEnum
from functools import lru_cache

_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[^\W\d_A-Z]+|[A-Z]+")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


STEMS = ("passw", "passphrase", "passcode", "secret", "credential", "apikey", "privatekey", "sessionid", "sessid")
"""A word that contains one of these is secret: `mypassword`, `dbsecrets`."""
CERTAIN = _words("pw pwd psw pswd pword cred creds jwt dsn otp totp bearer webhook webhooks sas psk mnemonic")
LAST = _words("pin pat pass private sig")
"""Secret only as the last word: not `pin_memory`, `pass_through`, `private_copy`."""
COUPLES = frozenset(
    tuple(couple.split("_"))
    for couple in _words(
        """session_id connection_string conn_string conn_str seed_phrase recovery_phrase recovery_code pass_word
        pass_words pass_phrase pass_code access_code api_key api_keys access_key access_keys private_key private_keys
        account_key api_token access_token auth_token"""
    )
)
POSSIBLE = _words("auth oauth authorization authorisation authentication authenticator cookie cookies signature")
NOT_KEYS = _words("monkey donkey turkey hockey jockey whiskey mickey hotkey hotkeys monkeys donkeys turkeys smokey")
MEASURES = _words("n num number max min total count per avg mean")
"""Before a word: a number of tokens is no token."""
PROPERTIES = _words(
    """dim dims size len length count num type kind mode name names binding bindings map maps mapping frame frames
    embedding embeddings embed emb budget limit window rate through index idx point points event events press order
    format encoding path file dir url endpoint host port provider method scheme backend encoder decoder proj projection
    query head heads padding mask error errors space"""
)
"""After a word: what is said of a key is no key."""
OTHERWISE = {
    "key": _words(
        """obs observation cnn mlp image state action rng prng jax random sort group primary foreign partition row
        column dict cache public arrow metric log loss reward data batch feature target input output info config plot
        x y lookup missing unknown"""
    ),
    "token": _words(
        """eos bos pad unk sep cls mask special stop start end class text image input output prompt new next last
        first action state latent"""
    ),
    "pass": _words("forward backward single first second one two multi render low high band all each test"),
}
"""Before a word: kinds of it that nobody keeps secret."""


class Secrecy(IntEnum):
    """How much a name says about its value."""

    NONE = 0
    LIKELY = 1
    """A short number may be anything: `--key 3`."""
    CERTAIN = 2


@lru_cache(maxsize=4096)
def secrecy(name: str) -> Secrecy:
    """Return whether a name stands for a secret; for a dotted name, whether any of its parts does."""
    return max((_part_secrecy(part) for part in name.split(".")), default=Secrecy.NONE)


def _part_secrecy(part: str) -> Secrecy:
    words = [word.lower() for word in _WORD.findall(part)]
    found = Secrecy.NONE
    for at, word in enumerate(words):
        before, after = words[:at], words[at + 1 :]
        certain = word in CERTAIN or any(stem in word for stem in STEMS) or (word, *after[:1]) in COUPLES
        if certain or (word == "pin" and not after):
            return Secrecy.CERTAIN
        if _is_possible(word, before, after):
            found = Secrecy.LIKELY
    return found


def _is_possible(word: str, before: list[str], after: list[str]) -> bool:
    if MEASURES & set(before) or (after and after[0] in PROPERTIES):
        return False
    if before and before[-1] in OTHERWISE.get(word.removesuffix("s") if word != "pass" else word, ()):
        return False
    if word in LAST:
        return not after
    return (
        word in POSSIBLE
        or (word.endswith(("key", "keys")) and word not in NOT_KEYS)
        or word.endswith(("token", "tokens"))
    )


_LITERAL = re.compile(r"(?i:true|false|none|null)|")
_SHORT_NUMBER = re.compile(
    r"[-+]?(?:\d{1,5}|\d*\.\d+|\d+\.\d*|\d+(?:\.\d+)?e[-+]?\d+)\s?(?:%|[numµ]?s|min|[hxkKMG]|[kKMG]?i?B)?"
)
_NUMBER = re.compile(r"[-+]?[\d_,]*\.?\d+(?:e[-+]?\d+)?")


def hides(name: str, value: str) -> bool:
    """Say whether a value must be hidden because of its name. Booleans stay, and short numbers with a doubtful name."""
    return hides_value(secrecy(name), value, counts=name.lower().endswith("tokens"))


def hides_value(level: Secrecy, value: str, counts: bool = False) -> bool:
    """Say whether a value under a name of some secrecy must be hidden.

    Args:
        level: Of the name.
        value: As text.
        counts: Whether the name may be a number of things, so that any number may stay.
    """
    value = value.strip("\"' ")
    if level is Secrecy.NONE or _LITERAL.fullmatch(value):
        return False
    if level is Secrecy.CERTAIN:
        return True
    return not (_SHORT_NUMBER.fullmatch(value) or (counts and _NUMBER.fullmatch(value)))
