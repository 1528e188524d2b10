"""Own the values of a range of keys, as several sources have them: they are put together to buckets.

A source is some tables that were read together, or a stored segment; it knows its values by codes of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from service.core.join_layout import Layout
from service.core.posting_buckets import MOST_VALUES, Buckets, bucket_numbers, encode_buckets, value_numbers
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
    """Code all values of a range of keys as buckets; give the numbers of the values of each of `found`, too.

    Raises CrowdedError where a bucket would have too many values.
    """
    order, distinct, value = _distinct(found)
    counts, places = _all_places(found)
    starts = starts_of(np.bincount(value, counts[order], len(distinct.high)).astype(np.int64))
    laid = take_lists(order, starts_of(counts), places, starts_of(counts[order]))
    laid = _sorted_lists(np.repeat(value, counts[order]), laid)
    numbers = np.empty(len(order), np.int64)
    numbers[order] = value_numbers(distinct, bits)[value]
    ends = np.cumsum([len(p.codes) for p in found])
    return encode_buckets(distinct, starts, laid, bits), np.split(numbers, ends[:-1]) if len(found) else []


def crowding_tables(found: Sequence[ValuePlaces], layout: Layout, bits: int) -> Int64s:
    """Choose tables without which no bucket has too many values, of each bucket those with most of its values."""
    order, distinct, value = _distinct(found)
    counts, places = _all_places(found)
    of = np.empty(len(order), np.int64)
    of[order] = value
    values, tables = np.repeat(of, counts), layout.tables(places)
    buckets = bucket_numbers(distinct, bits)
    chosen = np.zeros(0, np.int64)
    for bucket in np.unique(buckets[MOST_VALUES:][buckets[MOST_VALUES:] == buckets[:-MOST_VALUES]]):
        here = (buckets[values] == bucket) & ~np.isin(tables, chosen)
        pairs = np.unique(np.stack((tables[here], values[here])), axis=1)
        while len(np.unique(pairs[1])) > MOST_VALUES:
            each, held = np.unique(pairs[0], return_counts=True)
            chosen = np.append(chosen, each[held.argmax()])
            pairs = pairs[:, pairs[0] != chosen[-1]]
    return chosen


def _distinct(found: Sequence[ValuePlaces]) -> tuple[Int64s, Keys, Int64s]:
    """Order the keys of all; give their order, each key once, and which of these each ordered one is."""
    keys = Keys(*(np.concatenate([np.zeros(0, np.uint64), *(p.keys[half] for p in found)]) for half in (0, 1)))
    order = keys.order()
    ordered = keys.take(order)
    is_new = np.ones(len(order), np.bool_)
    is_new[1:] = (ordered.high[1:] != ordered.high[:-1]) | (ordered.low[1:] != ordered.low[:-1])
    return order, ordered.take(is_new), np.cumsum(is_new) - 1


def _all_places(found: Sequence[ValuePlaces]) -> tuple[Int64s, Int64s]:
    """Give how many cells each value of all has, and these end to end."""
    counts = np.concatenate([np.zeros(0, np.int64), *(np.diff(p.starts) for p in found)])
    return counts, np.concatenate([np.zeros(0, np.int64), *(p.places for p in found)])


def _sorted_lists(lists: Int64s, numbers: Int64s) -> Int64s:
    """Sort the numbers of each list; lists ascend. Both in one word are sorted in half of the time."""
    shift = int(numbers.max(initial=0)).bit_length()
    if not len(lists) or int(lists[-1]).bit_length() + shift > 63:
        return numbers[np.lexsort((numbers, lists))]
    return np.sort(lists << shift | numbers) & ((1 << shift) - 1)
