"""Lines of source code without the secrets in them: every hidden byte becomes one `*`, so that columns stay valid.

Python's own parser says which string is assigned to, passed as, keyed by or compared with a secret name; strings and
comments are also searched for secrets. A file that cannot be parsed is handled line by line.
"""

from __future__ import annotations

import ast
import linecache
import re
import string
from collections.abc import Iterator, Sequence
from functools import lru_cache

from hotloop.profiling.recorder.privacy.secret_names import Secrecy, hides_value, secrecy
from hotloop.profiling.recorder.privacy.secret_values import secret_spans

_IDENTIFIER = re.compile(r"[^\W\d]\w*")
_VARIABLE = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*")
_NAMING = re.compile(r"-{0,2}[^\W\d][\w.\-]*")
_OPENING = re.compile(rb"[A-Za-z]{0,2}(\"\"\"|'''|\"|')")
_KEPT = re.compile(rb"\n[ \t]*|[\"']|[^\n\"']")
_QUOTED = re.compile(r"\"\"\".*?(?:\"\"\"|$)|'''.*?(?:'''|$)|\"(?:\\.|[^\"\\])*\"?|'(?:\\.|[^'\\])*'?")
ESCAPE = re.compile(rb"\\(.)", re.DOTALL)
KNOWN_ESCAPES = frozenset(bytes([each]) for each in b"\n\r\\'\"abfnrtv01234567xNuU")
_PLACEHOLDER = re.compile(r"([^\W\d][\w.\-]*)[\"']?\s*[=:]\s*[\"']?(?:%|\{)")
"""The name before a place that `%` or `format` fills."""
VALUE_KEYWORDS = frozenset({"default", "const", "value", "fallback"})

JOINING = frozenset(string.punctuation + string.whitespace)
"""What an f-string may put between its values without being a secret itself."""


def redacted_source_line(file: str, line: int) -> str:
    """Return a line of a file with `*` for each byte of a secret; "" if it is not there."""
    return _source_of(file).line(line)


def redacted_source(file: str) -> tuple[str, str]:
    """Return the text of a file as Python read it, and the same with `*` for each byte of a secret."""
    source = _source_of(file)
    return source.text, source.redacted()


def _without_invalid_escape(found: re.Match[bytes]) -> bytes:
    """Replace the backslash of an escape that Python does not know; positions stay as they are."""
    return found[0] if found[1] in KNOWN_ESCAPES else b"_" + found[1]


@lru_cache(maxsize=8)
def _source_of(file: str) -> Source:
    return Source("".join(linecache.getlines(file)))


class Source:
    """The text of a file. Only the part of its syntax tree that touches a requested line is inspected."""

    def __init__(self, text: str) -> None:
        self._raw = text.encode("utf-8", "surrogatepass")
        self._starts = [0]
        for line in self._raw.split(b"\n"):
            self._starts.append(self._starts[-1] + len(line) + 1)
        try:
            # The parser would warn of invalid escapes once more, and a script may turn warnings into errors.
            self._tree = ast.parse(ESCAPE.sub(_without_invalid_escape, self._raw))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            self._tree = None

    @property
    def text(self) -> str:
        """The text, with its secrets."""
        return _decoded(self._raw)

    def redacted(self) -> str:
        """Return the whole text, as many bytes of UTF-8 long as it is."""
        ends = [start - 1 for start in self._starts[1:]]
        if self._tree is None:
            lines = (self._raw[start:end] for start, end in zip(self._starts, ends, strict=False))
            return "\n".join(_redacted_alone(_decoded(line)) for line in lines)
        mask = _Mask(self._raw, self._starts)
        for node in ast.walk(self._tree):
            for level, value in _under_names(node):
                mask.hide_literals(value, level)
            mask.hide_in(node)
        for start, end in zip(self._starts, ends, strict=False):
            mask.hide_in_comment(start, end)
        return _decoded(mask.content)

    def line(self, number: int) -> str:
        """Return a line, counted from 1, as many bytes of UTF-8 long as it is; "" if there is none."""
        if not 0 < number < len(self._starts):
            return ""
        start, end = self._starts[number - 1], self._starts[number] - 1
        if self._tree is None:
            return _redacted_alone(_decoded(self._raw[start:end]))
        mask = _Mask(self._raw, self._starts)
        for node in _touching(self._tree, number):
            for level, value in _under_names(node):
                mask.hide_literals(value, level)
            mask.hide_in(node)
        mask.hide_in_comment(start, end)
        return _decoded(mask.content[start:end])


class _Mask:
    """The bytes of a file, and which of them are hidden."""

    def __init__(self, raw: bytes, starts: list[int]) -> None:
        self._raw = raw
        self._starts = starts
        self._strings: list[tuple[int, int]] = []
        self.content = bytearray(raw)

    def hide_literals(self, value: ast.AST, level: Secrecy) -> None:
        """Hide the strings of an expression, and numbers under a name that is certainly secret."""
        for node in _values_of(value):
            if isinstance(node, ast.JoinedStr):
                if any(char not in JOINING for part in node.values for char in _text(part)):
                    self._hide_string(node)
            elif isinstance(node, ast.Constant):
                shown = node.value.decode("latin-1") if isinstance(node.value, bytes) else node.value
                if isinstance(shown, str) and hides_value(level, shown):
                    self._hide_string(node)
                elif type(shown) is int and level is Secrecy.CERTAIN and shown > 999:
                    self._hide(*self._place(node))

    def hide_in(self, node: ast.AST) -> None:
        """Hide the parts of a string that are secret by their form."""
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            whole = _folded(node)
            if whole is not None and secret_spans(whole):
                self.hide_literals(node, Secrecy.CERTAIN)
        if not isinstance(node, ast.JoinedStr) and not (
            isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
        ):
            return
        start, end = self._place(node)
        self._strings.append((start, end))
        found = self._hide_spans(start, end)
        # Before Python 3.12 expressions in an f-string may be given a wrong place.
        if isinstance(node, ast.JoinedStr) and any(True for each in ast.walk(node) for _ in _under_names(each)):
            self._hide_string(node)
        if isinstance(node, ast.Constant) and not found:
            # Adjacent strings are one, and escapes may spell anything: what counts is the value.
            value = node.value.decode("latin-1") if isinstance(node.value, bytes) else str(node.value)
            if secret_spans(value):
                self._hide_string(node)

    def hide_in_comment(self, start: int, end: int) -> None:
        """Hide the secrets of a line's comment: what follows a `#` outside of the strings inspected before."""

        def in_string(at: int) -> bool:
            return any(first <= at < last for first, last in self._strings)

        at = next((i for i in range(start, end) if self._raw[i] == ord("#") and not in_string(i)), end)
        self._hide_spans(at, end)
        comment = _decoded(self._raw[at:end])
        word = next((word for word in _IDENTIFIER.finditer(comment) if secrecy(word[0]) is Secrecy.CERTAIN), None)
        if word is not None:
            # Prose names a password in any way: "the password is ...".
            self._hide(at + len(_encoded(comment[: word.end()])), end)

    def _hide(self, start: int, end: int) -> None:
        self.content[start:end] = re.sub(rb"\S", b"*", self._raw[start:end])

    def _place(self, node: ast.expr) -> tuple[int, int]:
        assert node.end_lineno is not None and node.end_col_offset is not None  # of every parsed expression
        return self._starts[node.lineno - 1] + node.col_offset, self._starts[node.end_lineno - 1] + node.end_col_offset

    def _hide_string(self, node: ast.expr) -> None:
        """Hide a string, except for its quotes, line breaks and indentation."""
        start, end = self._place(node)
        opening = _OPENING.match(self._raw, start, end)
        if opening is None:
            return  # a misplaced part of an f-string, which is hidden as a whole
        inner = slice(opening.end(), end - len(opening[1]))
        self.content[inner] = _KEPT.sub(lambda each: each[0] if each[0][:1] in b"\n\"'" else b"*", self._raw[inner])

    def _hide_spans(self, start: int, end: int) -> bool:
        """Hide the secrets in a part of the source; return whether there were any."""
        text = _decoded(self._raw[start:end])
        spans = secret_spans(text)
        for begin, stop in spans:
            self._hide(start + len(_encoded(text[:begin])), start + len(_encoded(text[:stop])))
        return bool(spans)


def _touching(tree: ast.AST, line: int) -> Iterator[ast.AST]:
    """Yield the nodes of which a part is in a line, and those without a place."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        for child in ast.iter_child_nodes(node):
            first, last = getattr(child, "lineno", line), getattr(child, "end_lineno", line)
            # The decorators of a function are above its first line.
            if first <= line <= last or getattr(child, "decorator_list", None):
                waiting.append(child)


def _decoded(raw: bytes | bytearray) -> str:
    return raw.decode("utf-8", "surrogatepass")


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _under_names(node: ast.AST) -> Iterator[tuple[Secrecy, ast.AST]]:
    """Yield the expressions that a node puts under a secret name, and how secret it is."""
    for names, value in _named_values(node):
        level = max((secrecy(name) for name in names), default=Secrecy.NONE)
        if level is not Secrecy.NONE and value is not None:
            yield level, value


def _named_values(node: ast.AST) -> Iterator[tuple[list[str], ast.AST | None]]:
    match node:
        case ast.Assign(targets=targets, value=value):
            for target in targets:
                yield from _assigned(target, value)
        case ast.AnnAssign() | ast.NamedExpr() | ast.AugAssign():
            yield [_name(node.target)], node.value
        case ast.Dict(keys=keys, values=values):
            yield from (([_name(key)], value) for key, value in zip(keys, values, strict=True))
        case ast.Compare(left=left, comparators=others):
            sides = [left, *others]
            yield from (([_name(other) for other in sides if other is not side], side) for side in sides)
        case ast.BinOp(left=ast.Constant(value=str(template)), op=ast.Mod(), right=values):
            yield _PLACEHOLDER.findall(template), values
        case ast.Call(func=ast.Attribute(value=ast.Constant(value=str(template)), attr="format")):
            names = _PLACEHOLDER.findall(template)
            yield from ((names, value) for value in [*node.args, *(each.value for each in node.keywords)])
        case ast.Call():
            yield from _called(node)
        case ast.Tuple(elts=[key, value]) | ast.List(elts=[key, value]):
            yield [_text(key)], value
        case ast.Tuple(elts=words) | ast.List(elts=words):
            yield from _after_options(words)
        case ast.Match(subject=subject, cases=cases):
            yield from (([_name(subject)], case.pattern) for case in cases)
        case ast.MatchMapping(keys=keys, patterns=patterns):
            yield from (([_name(key)], pattern) for key, pattern in zip(keys, patterns, strict=True))
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            yield from _defaults(node.args)
            yield from (([name], each.value) for each in ast.walk(node) if isinstance(each, ast.Return))
        case ast.Lambda(args=args):
            yield from _defaults(args)
        case ast.ClassDef(name=name, body=body) if secrecy(name) is Secrecy.CERTAIN:
            yield from (([name], each.value) for each in body if isinstance(each, ast.Assign | ast.AnnAssign))


def _assigned(target: ast.expr, value: ast.expr) -> Iterator[tuple[list[str], ast.AST | None]]:
    if isinstance(target, ast.Tuple | ast.List):
        if isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts):
            for each, part in zip(target.elts, value.elts, strict=True):
                yield from _assigned(each, part)
        else:
            yield [_name(each) for each in target.elts], value
    else:
        yield [_name(target)], value


def _called(call: ast.Call) -> Iterator[tuple[list[str], ast.AST | None]]:
    yield from (([each.arg or ""], each.value) for each in call.keywords)
    yield from (([_name(call.func)], argument) for argument in call.args)
    for at, argument in enumerate(call.args):
        # setdefault("API_KEY", "..."), setattr(options, "password", "...")
        yield from (([_text(argument)], each) for each in call.args[at + 1 :] if _NAMING.fullmatch(_text(argument)))
    names = [_text(argument) for argument in call.args if _NAMING.fullmatch(_text(argument))]
    yield from ((names, each.value) for each in call.keywords if each.arg in VALUE_KEYWORDS)


def _after_options(words: Sequence[ast.expr]) -> Iterator[tuple[list[str], ast.AST | None]]:
    """Yield the values of a command line's options: `["train.py", "--api-key", "..."]`."""
    option = ""
    for word in words:
        if option and not _text(word).startswith("--"):
            yield [option], word
        if _text(word).startswith("-"):
            option = _text(word)


def _defaults(arguments: ast.arguments) -> Iterator[tuple[list[str], ast.AST | None]]:
    every = [*arguments.posonlyargs, *arguments.args]
    yield from (([each.arg], value) for each, value in zip(every[::-1], arguments.defaults[::-1], strict=False))
    yield from (([each.arg], value) for each, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True))


def _values_of(value: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of an expression that may hold its value, which excludes keys and indices."""
    yield value
    for child in ast.iter_child_nodes(value):
        if isinstance(value, ast.Subscript) and child is value.slice:
            continue
        if isinstance(value, ast.Call) and _VARIABLE.fullmatch(_text(child)) and secrecy(_text(child)):
            continue  # os.getenv("API_KEY")
        if isinstance(value, ast.Compare):
            continue  # what it is compared with has a name of its own
        if isinstance(value, ast.JoinedStr) and isinstance(child, ast.Constant):
            continue  # hidden with the whole, and before Python 3.12 without a place of its own
        yield from _values_of(child)


def _name(node: ast.AST | None) -> str:
    """Return the name of a variable, attribute or function, or the text of a key."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Subscript(slice=key):
            return _text(key)
        case _:
            return _text(node)


def _text(node: ast.AST | None) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _folded(node: ast.expr) -> str | None:
    """Return the value of strings that are added up."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = _folded(node.left), _folded(node.right)
        return None if left is None or right is None else left + right
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _redacted_alone(line: str) -> str:
    """Hide the secrets of a line without knowing its context."""
    spans = list(secret_spans(line))
    if any(secrecy(name) for name in _IDENTIFIER.findall(line)):
        spans += [match.span() for match in _QUOTED.finditer(line)]
    hidden = {at for start, end in spans for at in range(start, end)}
    return "".join("*" * len(_encoded(char)) if at in hidden else char for at, char in enumerate(line))
