"""ValCache: it may forget, but what it says is true, and it keeps within its bytes."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.records import NO_CLUSTER, Keys, Records
from service.core.val_cache import SEGMENT_BITS, SLOT_BYTES, SMALLEST, Segment, ValCache

Known = dict[bytes, tuple[int, tuple[int, ...]]]

NOTHING = (NO_CLUSTER, ())
KEYS = [bytes([first]) + bytes(14) + bytes([last]) for first in (0, 3, 255) for last in range(120)]
"""Of three segments; keys of one segment are all of one home, so that every slot but one is a collision."""

RECORDS = st.one_of(
    st.just(NOTHING),
    st.tuples(st.integers(1, 9), st.lists(st.integers(0, 2**40), min_size=1, max_size=40).map(tuple)),
)
BATCHES = st.lists(st.dictionaries(st.sampled_from(KEYS), RECORDS, max_size=60), max_size=30)


def put(cache: ValCache, batch: Mapping[bytes, tuple[int, tuple[int, ...]]]) -> None:
    cache.put(Keys.of(sorted(batch)), Records.of([batch[key] for key in sorted(batch)]))


def find(cache: ValCache, keys: list[bytes]) -> Known:
    """Give what the cache knows of these values."""
    is_known, records = cache.find(Keys.of(sorted(keys)))
    known = [key for key, known in zip(sorted(keys), is_known, strict=True) if known]
    return {key: records.record(place) for place, key in enumerate(known)}


@given(BATCHES, st.integers(0, 60_000))
def test_it_never_says_what_is_not_so_and_never_outgrows_its_bytes(batches: list[Known], max_bytes: int) -> None:
    cache, truth = ValCache(max_bytes), Known()
    for batch in batches:
        put(cache, batch)
        truth.update(batch)
        assert cache.bytes <= max_bytes
        for key, record in find(cache, KEYS).items():
            assert record == truth.get(key), key


@given(BATCHES)
def test_with_room_enough_it_forgets_nothing(batches: list[Known]) -> None:
    cache, truth = ValCache(1 << 24), Known()
    for batch in batches:
        put(cache, batch)
        truth.update(batch)
    assert find(cache, KEYS) == truth


@given(BATCHES, BATCHES, st.sets(st.sampled_from(KEYS)))
def test_a_segment_that_was_loaded_knows_of_every_value_of_its_range(
    before: list[Known], after: list[Known], stored: set[bytes]
) -> None:
    """What was stored when the segment was read may be older than what the cache has heard since."""
    cache = ValCache(1 << 24)
    old = dict.fromkeys(stored, (7, (1, 2)))
    truth = dict(old)
    for batch in before:
        put(cache, batch)
        truth.update(batch)
    for number in cache.segments():
        within = sorted(key for key in old if key[0] >> (8 - SEGMENT_BITS) == number)
        assert cache.load(number, Keys.of(within), Records.of([old[key] for key in within]), cache.forgotten(number))
    for batch in after:
        put(cache, batch)
        truth.update(batch)
    assert find(cache, KEYS) == {key: truth.get(key, NOTHING) for key in KEYS}
    assert len(cache) >= sum(record != NOTHING for record in truth.values())


def test_what_was_forgotten_while_a_segment_was_read_keeps_it_from_being_loaded() -> None:
    cache = ValCache(SLOT_BYTES * SMALLEST + 8)
    then = cache.forgotten(0)
    for number in range(2 * SMALLEST):
        put(cache, {number.to_bytes(16, "big"): (1, (1,))})
    assert not cache.load(0, Keys.of([bytes(16)]), Records.of([(2, (1,))]), then)
    assert find(cache, [bytes(16)]) in ({}, {bytes(16): (1, (1,))})


def test_what_is_met_stays_and_what_is_not_met_goes() -> None:
    cache = ValCache(SLOT_BYTES * SMALLEST + 8)
    met, not_met = (1).to_bytes(16, "big"), (2).to_bytes(16, "big")
    put(cache, {met: (1, (1,)), not_met: (2, (1,))})
    for number in range(3, 3 + 2 * SMALLEST):
        put(cache, {number.to_bytes(16, "big"): (3, (1,))})
        assert find(cache, [met]) == {met: (1, (1,))}
    assert find(cache, [not_met]) == {}
    assert cache.misses == 1
    assert cache.hits == 2 * SMALLEST


def test_a_record_too_wide_for_the_cache_is_not_remembered_and_its_old_one_forgotten() -> None:
    cache = ValCache(SLOT_BYTES * SMALLEST + 100)
    put(cache, {KEYS[0]: (1, (1,)), KEYS[1]: (1, (1,))})
    put(cache, {KEYS[0]: (2, tuple(range(100)))})
    assert KEYS[0] not in find(cache, KEYS)
    put(cache, {KEYS[1]: (3, (5,))})
    assert find(cache, KEYS[:2]) == {KEYS[1]: (3, (5,))}
    assert np.count_nonzero(cache.find(Keys.of(KEYS[2:3]))[0]) == 0


def test_slots_take_the_bytes_that_are_counted_and_room_is_made_at_once_for_what_is_expected() -> None:
    assert sum(part.nbytes for part in Segment.empty(10)) == 10 * SLOT_BYTES
    cache = ValCache(1 << 24, 32 * 300)
    room = cache.bytes
    assert room >= 32 * 300 * SLOT_BYTES
    put(cache, {number.to_bytes(16, "big"): (1, (1,)) for number in range(300)})
    assert (cache.bytes, len(cache)) == (room, 300)
    assert 0 < ValCache(40_000, 10**6).bytes <= 32_000
    assert ValCache(40_000).bytes == 0


def test_keys_and_frequencies_are_exact_to_their_last_bit() -> None:
    high, counts = (1 << 63) | 1, (2**31 - 1, 2**31, 2**32 + 1, 2**53 + 1, 0)
    keys = [(high + a).to_bytes(8, "big") + (high + b).to_bytes(8, "big") for a in range(3) for b in range(5)]
    batch = {key: (place + 1, (counts[place % 5],)) for place, key in enumerate(keys)}
    cache = ValCache(1 << 20)
    put(cache, batch)
    assert find(cache, keys) == batch
    _, records = cache.find(Keys.of(keys))
    assert (records.cluster_id.dtype, records.frequencies.dtype) == (np.int64, np.int64)
    assert find(cache, [bytes(16)]) == find(cache, [bytes([1] * 16)]) == {}
    assert (cache.hits, cache.misses) == (30, 2)


def test_wide_records_have_room_up_to_the_last_place_of_the_pool() -> None:
    """Records of 127 and 126 frequencies leave one place of the first 256: the next one needs more."""
    for last in ((5, 6), (2**31,), (2**32 - 1,)):
        cache = ValCache(1 << 20)
        batch = {KEYS[0]: (1, tuple(range(127))), KEYS[1]: (2, tuple(range(126))), KEYS[2]: (3, last)}
        for key, record in batch.items():
            put(cache, {key: record})
        assert find(cache, KEYS[:3]) == batch
    wide = {key: (4, tuple(range(place, place + 40))) for place, key in enumerate(KEYS[:120])}
    put(cache, wide)
    put(cache, {key: (5, record[1][:30]) for key, record in wide.items()})
    assert find(cache, KEYS[:120]) == {key: (5, record[1][:30]) for key, record in wide.items()}


def test_a_full_segment_whose_values_were_all_met_of_late_begins_anew() -> None:
    keys = [number.to_bytes(16, "big") for number in range(1, 219)]
    for met, kept in ((217, 0), (100, 100)):
        cache = ValCache(SLOT_BYTES * SMALLEST + 8)
        put(cache, dict.fromkeys(keys[:217], (1, (1,))))
        assert len(find(cache, keys[:met])) == met
        put(cache, {keys[217]: (2, (2,))})
        assert cache.forgotten(0) == 1
        assert find(cache, keys) == {**dict.fromkeys(keys[:kept], (1, (1,))), keys[217]: (2, (2,))}


@pytest.mark.parametrize("seed", range(6))
def test_values_are_found_when_others_go_also_round_the_end_of_a_segment(seed: int) -> None:
    """A complete segment forgets what has no record: what lies behind it in the circle of slots moves up."""
    random, cache, truth = Random(seed), ValCache(1 << 20), Known()
    last = [b"\x07" + b"\xff" * 7 + bytes(7) + bytes([n]) for n in range(8)]
    keys = [
        *last,
        *(bytes(15) + bytes([n]) for n in range(8)),
        *(b"\x07" + bytes([240 + n]) + bytes(14) for n in range(8)),
    ]
    assert cache.load(0, Keys.of([]), Records.of([]), 0)
    for _ in range(40):
        batch = {key: random.choice([NOTHING, (3, (4,)), (5, (6, 7))]) for key in random.sample(keys, 5)}
        put(cache, batch)
        truth.update(batch)
        assert find(cache, keys) == {key: truth.get(key, NOTHING) for key in keys}
        assert len(cache) == sum(record != NOTHING for record in truth.values())
