"""Own the values of a range of keys, as several sources have them: they are put together to buckets.

A source is some tables that were read together, or a stored segment; it knows its values by codes of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from service.core.posting_buckets import Buckets, encode_buckets, value_numbers
from service.core.record_kernels import take_lists
from service.core.records import Int64s, Keys, starts_of


class ValuePlaces(NamedTuple):
    """Hold values of a source by its codes, with keys: the cells of value i are places[starts[i]:starts[i + 1]]."""

    source: int
    codes: Int64s
    keys: Keys
    starts: Int64s
    places: Int64s


def code_range(found: Sequence[ValuePlaces], bits: int) -> tuple[Buckets, list[Int64s]]:
    """Code all values of a range of keys as buckets; give the numbers of the values of each of `found`, too."""
    keys = Keys(*(np.concatenate([np.zeros(0, np.uint64), *(p.keys[half] for p in found)]) for half in (0, 1)))
    counts = np.concatenate([np.zeros(0, np.int64), *(np.diff(p.starts) for p in found)])
    places = np.concatenate([np.zeros(0, np.int64), *(p.places for p in found)])
    order = keys.order()
    ordered = keys.take(order)
    is_new = np.ones(len(order), np.bool_)
    is_new[1:] = (ordered.high[1:] != ordered.high[:-1]) | (ordered.low[1:] != ordered.low[:-1])
    distinct = ordered.take(is_new)
    value = np.cumsum(is_new) - 1
    starts = starts_of(np.bincount(value, counts[order], len(distinct.high)).astype(np.int64))
    laid = take_lists(order, starts_of(counts), places, starts_of(counts[order]))
    laid = _sorted_lists(np.repeat(value, counts[order]), laid)
    numbers = np.empty(len(order), np.int64)
    numbers[order] = value_numbers(distinct, bits)[value]
    ends = np.cumsum([len(p.codes) for p in found])
    return encode_buckets(distinct, starts, laid, bits), np.split(numbers, ends[:-1]) if len(found) else []


def _sorted_lists(lists: Int64s, numbers: Int64s) -> Int64s:
    """Sort the numbers of each list; lists ascend. Both in one word are sorted in half of the time."""
    shift = int(numbers.max(initial=0)).bit_length()
    if not len(lists) or int(lists[-1]).bit_length() + shift > 63:
        return numbers[np.lexsort((numbers, lists))]
    return np.sort(lists << shift | numbers) & ((1 << shift) - 1)
