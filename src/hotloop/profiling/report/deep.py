"""Deep profiling in a report: functions, operators and layers, as terminal tables and as JSON."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from hotloop import numbers
from hotloop.json_types import JsonObject
from hotloop.profiling.report.layout import heading, near
from hotloop.profiling.trace.deep import CallRow, FunctionRow, Look, Traced

FUNCTION_ROWS = 20
TREE_ROWS = 30
TREE_SHARE = 0.02
OPERATOR_ROWS = 20
LAYER_ROWS = 40
WHERE_WIDTH = 22
KIND_STYLES = {"own": "bold", "library": "", "native": "dim"}
OPTIMISABLE = {"yes": Text("yes", "green"), "calls": Text("fewer calls", "yellow"), "no": Text("no", "dim")}


def as_dict(traced: Traced) -> JsonObject:
    """Return the fields of `explain --json` on deep profiling."""
    looks = {
        "functions": _look_dict(traced.functions_look),
        "operators": _look_dict(traced.operators_look),
        "layers": asdict(traced.layers_look) if traced.layers_look else None,
    }
    return {
        "traced_functions": [asdict(row) for row in traced.functions],
        "operators": [asdict(row) for row in traced.operators],
        "layers": [asdict(row) for row in traced.layers],
        "looks": {name: look for name, look in looks.items() if look is not None},
    }


def _look_dict(look: Look | None) -> JsonObject | None:
    return None if look is None else asdict(look) | {"factor": look.factor}


def render(traced: Traced) -> Iterator[RenderableType]:
    """Yield the sections on deep profiling, if there was any."""
    if traced.functions_look is not None:
        yield heading("Functions", _progress(traced.functions_look))
        yield from _functions(traced, traced.functions_look)
        yield Text()
    if traced.operators_look is not None:
        yield heading("Torch operators", _progress(traced.operators_look))
        yield from _operators(traced, traced.operators_look)
        yield Text()
    if traced.layers_look is not None:
        look = traced.layers_look
        yield heading("Layers", f"{look.updates_timed} updates, one in {look.every}")
        yield from _layers(traced)
        yield Text()


def _progress(look: Look) -> str:
    if look.state == "done":
        return f"{look.iterations} iterations after {numbers.count(look.warmup)}, not in the tables above"
    return {
        "cut": f"{look.iterations} of {look.asked} iterations: then the run ended",
        "looking": "in progress",
        "waiting": "the warm-up is not over yet",
    }.get(look.state, "nothing was recorded")


def _functions(traced: Traced, look: Look) -> Iterator[RenderableType]:
    if not traced.functions:
        yield _why_empty(look)
        return
    yield Padding(_kinds(traced.functions), (0, 2))
    table = _table(30, "function", "share", "calls/it", "self/call", "total/call", "optimisable", "where")
    for row in traced.functions[:FUNCTION_ROWS]:
        # A function that was running all the time has no calls.
        means = (
            numbers.digits(row.calls_per_iteration),
            numbers.seconds(row.self_mean_s),
            numbers.seconds(row.total_mean_s),
        )
        name, share = Text(row.name, KIND_STYLES[row.kind]), numbers.percent(row.share)
        cells = means if row.calls else ("", "", "")
        table.add_row(name, share, *cells, OPTIMISABLE[row.optimisable], _where(row))
    _add_rest(table, len(traced.functions) - FUNCTION_ROWS)
    yield Padding(table, (0, 0, 0, 2))
    yield Padding(_tree(traced.function_tree), (1, 0, 0, 2))
    yield _cost(look, "a call")


def _kinds(rows: tuple[FunctionRow, ...]) -> Text:
    shares = {kind: sum(row.share for row in rows if row.kind == kind) for kind in KIND_STYLES}
    labels = {"own": "your own code", "library": "libraries' Python", "native": "native code"}
    return Text(" · ").join(Text(f"{labels[kind]} {numbers.percent(share)}") for kind, share in shares.items())


def _where(row: FunctionRow) -> Text:
    if not row.file:
        return Text("native", "dim")
    file = near(row.file)
    if row.kind != "own":
        file = os.path.join(*file.split(os.sep)[-2:])
    place = f"{file}:{row.line}"
    if len(place) > WHERE_WIDTH:
        place = "…" + place[1 - WHERE_WIDTH :]
    return Text(place, "cyan" if row.kind == "own" else "dim")


def _tree(rows: tuple[CallRow, ...]) -> RenderableType:
    table = _table(62, "call tree of functions", "share", "total", "self", "calls")
    open_at: list[bool] = []
    shown = [row for row in rows if row.share >= TREE_SHARE]
    for i, row in enumerate(shown[:TREE_ROWS]):
        del open_at[row.depth :]
        # Small branches are left out, so the last child here may not be the last in the whole tree.
        after = next((each.depth for each in shown[i + 1 :] if each.depth <= row.depth), -1)
        last = after < row.depth
        guides = "".join("│ " if is_open else "  " for is_open in open_at[1:])
        guides += ("└ " if last else "├ ") if row.depth else ""
        name = Text.assemble((guides, "dim"), (row.name, KIND_STYLES[row.kind]))
        own = numbers.seconds(row.self_s) if row.self_s else ""
        calls = numbers.count(row.calls) if row.calls else ""
        table.add_row(name, numbers.percent(row.share), numbers.seconds(row.total_s), own, calls)
        open_at.append(not last)
    _add_rest(table, len(shown) - TREE_ROWS)
    return table


def _operators(traced: Traced, look: Look) -> Iterator[RenderableType]:
    if not traced.operators:
        yield _why_empty(look)
        return
    device = any(row.device_s for row in traced.operators)
    table = _table(50, "operator", "self", "share", "calls/it", "self/call", "total", *(["device"] if device else []))
    for row in traced.operators[:OPERATOR_ROWS]:
        cells = [
            numbers.seconds(row.self_s),
            numbers.percent(row.share),
            numbers.digits(row.calls_per_iteration),
            numbers.seconds(row.self_mean_s),
            numbers.seconds(row.total_s),
        ]
        table.add_row(Text(row.name), *cells, *([numbers.seconds(row.device_s)] if device else []))
    _add_rest(table, len(traced.operators) - OPERATOR_ROWS)
    yield Padding(table, (0, 0, 0, 2))
    yield _cost(look, "an operator")


def _layers(traced: Traced) -> Iterator[RenderableType]:
    look = traced.layers_look
    if not traced.layers or look is None:
        yield Padding(Text("No layer was timed: there was no update yet.", "yellow"), (0, 2))
        return
    table = _table(28, "layer", "share", "forward", "backward", "calls", "forward/call", "backward/call", "module")
    above = [""]
    for row in traced.layers[:LAYER_ROWS]:
        del above[row.depth :]
        name = "  " * (row.depth - 1) + row.name.removeprefix(f"{above[-1]}.")
        above.append(row.name)
        back = numbers.seconds(row.backward_s) if row.backward_s else ""
        mean = numbers.seconds(row.backward_mean_s) if row.backward_s else ""
        table.add_row(
            Text(name, "bold" if row.depth == 1 else ""),
            numbers.percent(row.share),
            numbers.seconds(row.forward_s),
            back,
            numbers.count(row.calls),
            numbers.seconds(row.forward_mean_s),
            mean,
            Text(row.module, "dim"),
        )
    _add_rest(table, len(traced.layers) - LAYER_ROWS)
    device = ", synchronised with the device" if look.synchronised else ""
    cost = f"Timing them took {numbers.seconds(look.cost_s)}{device}: subtracted here, but not from the phases above."
    yield Group(Padding(table, (0, 0, 0, 2)), Padding(Text(cost, "dim"), (0, 2)))


def _why_empty(look: Look) -> RenderableType:
    reason = "Nothing was called." if look.state in ("done", "cut") else "Nothing was recorded yet."
    if look.reason:
        reason = f"Nothing was recorded: {look.reason}."
    return Padding(Text(reason, "yellow"), (0, 2))


def _cost(look: Look, what: str) -> RenderableType:
    text = f"An iteration took {numbers.seconds(look.iteration_s)} with tracing"
    if look.untraced_s and look.factor:
        text += f", {numbers.seconds(look.untraced_s)} without ({look.factor:.2f}×"
        text += f": {numbers.seconds(look.call_cost_s)} {what})" if look.call_cost_s else ")"
    else:
        text += "; it cannot be compared with the rest of the run, which had a different number of updates per step"
    overhead = "This overhead is subtracted." if what == "a call" else "This overhead is included in the times above."
    if not look.updates:
        overhead += " No update was among these iterations."
    return Padding(Text(f"{text}. {overhead}", "dim"), (0, 2))


def _table(width: int, first: str, *titles: str) -> Table:
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="dim")
    table.add_column(first, overflow="ellipsis", no_wrap=True, max_width=width)
    for title in titles:
        left = title in ("where", "module", "optimisable")
        table.add_column(title, justify="left" if left else "right", no_wrap=True, overflow="ellipsis")
    return table


def _add_rest(table: Table, n: int) -> None:
    if n > 0:
        table.add_row(Text(f"{n} more: see --detailed", "dim"))
