"""ValCache: it may forget, but what it says is true, and it keeps within its bytes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from service.core.records import NO_CLUSTER, Keys, Records
from service.core.val_cache import SEGMENT_BITS, SLOT_BYTES, SMALLEST, ValCache

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
