"""Describes the nodes of a call tree, for `names.jsonl`."""

from __future__ import annotations

from hotloop.json_types import Json
from hotloop.phases import Phase
from hotloop.profiling.recorder.call_tree.thread_totals import Account
from hotloop.profiling.recorder.call_tree.tree import DARK, EDGE
from hotloop.profiling.recorder.feed import NamedSpan


def node_entries(account: Account, every: list[NamedSpan]) -> list[dict[str, Json]]:
    """Describe the nodes of a thread's tree that have no entry yet."""
    entries = []
    for node in range(account.named, len(account.tree.keys)):
        key = account.tree.keys[node]
        entry: dict[str, Json] = {
            "is": "node",
            "thread": account.index,
            "id": node,
            "parent": key.parent,
            "kind": key.kind,
        }
        if key.kind == "span":
            each = every[(key.variant >> 1) - 1]
            entry |= {
                "code": each.code,
                "name": each.name,
                "phase": Phase.ACT if key.variant & 1 else each.phase,
            }
        elif key.kind == "gap":
            before, after = _sibling(key.before, every), _sibling(key.variant, every)
            entry |= {"before": before, "after": after, "dark": key.before == DARK}
        entries.append(entry)
    return entries


def _sibling(variant: int, every: list[NamedSpan]) -> dict[str, Json] | None:
    if variant in (EDGE, DARK):
        return None
    each = every[(variant >> 1) - 1]
    return {"name": each.name, "phase": Phase.ACT if variant & 1 else each.phase}
