"""What expensive calls do, what they cost, and what to use instead: data for `rules/calls/expensive_calls.py`.

An entry is recognised by what is called, by its full name, and by what it works on: never by the words of a source
line or by names that the user chose.
"""

from __future__ import annotations

from hotloop.profiling.diagnosis.catalogue.containers import CONTAINERS
from hotloop.profiling.diagnosis.catalogue.entry import Entry, Needs
from hotloop.profiling.diagnosis.catalogue.networks import NETWORKS
from hotloop.profiling.diagnosis.catalogue.numbers import NUMBERS
from hotloop.profiling.diagnosis.catalogue.outside import OUTSIDE

__all__ = ["CATALOGUE", "Entry", "Needs"]

CATALOGUE: tuple[Entry, ...] = (*CONTAINERS, *NUMBERS, *NETWORKS, *OUTSIDE)
"""The first entry that fits counts."""
