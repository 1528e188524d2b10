"""ValCache: it may forget, but what it says is true, and it keeps within its bytes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from service.core.clustering import GenRec
from service.core.val_cache import ENTRY_BYTES, FREQUENCY_BYTES, ValCache

KEYS = st.sampled_from([bytes([n]) for n in range(8)])
RECORDS = st.builds(GenRec, st.integers(1, 9), st.lists(st.integers(1, 3), min_size=1, max_size=40).map(tuple))
STEPS = st.lists(
    st.one_of(st.tuples(st.just("put"), KEYS, RECORDS), st.tuples(st.sampled_from(["get", "forget"]), KEYS))
)


def size_of(record: GenRec) -> int:
    return ENTRY_BYTES + FREQUENCY_BYTES * len(record.frequencies)


@given(STEPS, st.integers(0, 6000))
def test_it_never_says_what_is_not_so_and_never_outgrows_its_bytes(steps: list, max_bytes: int) -> None:  # type: ignore[type-arg]
    cache, truth = ValCache(max_bytes), {}
    for step, key, *record in steps:
        if step == "put":
            cache.put(key, *record)
            (truth[key],) = record
        elif step == "forget":
            cache.forget(key)
            truth.pop(key, None)
        else:
            assert cache.get(key) in (None, truth.get(key))
        kept = [record for half in (cache._young, cache._old) for record in half.values()]
        assert sum(map(size_of, kept)) <= max(max_bytes, 2 * max(map(size_of, kept), default=0))


def test_a_record_that_widens_counts_with_its_new_width() -> None:
    cache = ValCache(100_000)
    for width in (1, 400):
        for number in range(100):
            cache.put(bytes([number]), GenRec(1, (1,) * width))
    assert len(cache) < 100


def test_what_is_met_stays_and_what_is_not_met_goes() -> None:
    cache = ValCache(20 * size_of(GenRec(1, (1,))))
    cache.put(b"met", GenRec(1, (1,)))
    cache.put(b"not met", GenRec(2, (1,)))
    for number in range(30):
        cache.put(bytes([number]), GenRec(3, (1,)))
        assert cache.get(b"met") == GenRec(1, (1,))
    assert cache.get(b"not met") is None
    assert (cache.hits, cache.misses) == (30, 1)
