"""Own the loops over records: compiled, and loaded by who runs them, as most commands run none."""

from __future__ import annotations

import numpy as np

from service.core.compiled import kernel
from service.core.records import Int64s, UInt64s


@kernel
def take_lists(places: Int64s, starts: Int64s, values: Int64s, out_starts: Int64s) -> Int64s:
    """Copy the lists at `places` end to end."""
    out = np.empty(out_starts[-1], np.int64)
    for n in range(len(places)):
        at = out_starts[n]
        for i in range(starts[places[n]], starts[places[n] + 1]):
            out[at] = values[i]
            at += 1
    return out


@kernel
def scatter(places: Int64s, starts: Int64s, values: Int64s, out_starts: Int64s, out: Int64s) -> None:
    """Copy list i to where out's list places[i] is."""
    for i in range(len(places)):
        at = out_starts[places[i]]
        for j in range(starts[i], starts[i + 1]):
            out[at] = values[j]
            at += 1


@kernel
def find_places(high: UInt64s, low: UInt64s, wanted_high: UInt64s, wanted_low: UInt64s) -> Int64s:
    """Give for each wanted key its place among the keys, -1 for one that is not there; both are ascending."""
    found = np.full(len(wanted_high), -1, np.int64)
    at = 0
    for i in range(len(wanted_high)):
        h, l = wanted_high[i], wanted_low[i]  # noqa: E741
        while at < len(high) and (high[at] < h or (high[at] == h and low[at] < l)):
            at += 1
        if at < len(high) and high[at] == h and low[at] == l:
            found[i] = at
    return found
