"""ValCache is filled part by part with what is stored, and nothing of a segment is put in that was not read whole."""

from __future__ import annotations

from random import Random

import pytest

from service.core.records import NO_CLUSTER, Keys, Records
from service.core.val_cache import ValCache
from service.usecases import warm_up
from service.usecases.warm_up import WarmUp, WarmUpPolicy

RANDOM = Random(3)
KEYS = sorted(RANDOM.randbytes(16) for _ in range(400))
STORED = {key: (place + 1, (place, 7)[: 1 + place % 2]) for place, key in enumerate(KEYS)}
ABSENT = [RANDOM.randbytes(16) for _ in range(50)]


class Store:
    """Give records of key ranges, and note which were asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []
        self.warm_up: WarmUp | None = None
        self.stops_behind = len(KEYS)

    def read_range(self, number: int, bits: int) -> tuple[Keys, Records]:
        self.asked.append((number, bits))
        if len(self.asked) == self.stops_behind and self.warm_up is not None:
            self.warm_up._stop.set()
        found = [key for key in KEYS if int.from_bytes(key, "big") >> (128 - bits) == number]
        return Keys.of(found), Records.of([STORED[key] for key in found])


@pytest.mark.parametrize("records", [1, 5, 16_384])
def test_all_that_is_stored_is_known_behind_it(records: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm_up, "PART_RECORDS", records)
    store, cache = Store(), ValCache(1 << 20, len(KEYS))
    filling = WarmUp(cache, len(KEYS), store.read_range, WarmUpPolicy.BEFORE)
    assert filling.records == len(KEYS)
    ((bits,), numbers) = {bits for _, bits in store.asked}, [number for number, _ in store.asked]
    assert numbers == list(range(1 << bits)), "each part once, in their order"
    assert 400 / 2**bits <= 2 * records
    asked = sorted([*KEYS, *ABSENT])
    is_known, found = cache.find(Keys.of(asked))
    assert is_known.all()
    assert [found.record(place) for place in range(len(asked))] == [STORED.get(key, (NO_CLUSTER, ())) for key in asked]


def test_what_is_stopped_in_a_segment_puts_in_none_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm_up, "PART_RECORDS", 1)
    store, cache = Store(), ValCache(1 << 20, len(KEYS))
    store.stops_behind = 2 * 8 + 3
    filling = WarmUp(cache, 0, store.read_range, WarmUpPolicy.BESIDE)  # of nothing: it does not begin by itself
    filling._part_bits, store.warm_up = 3, filling
    filling._run()
    filling._is_over = False
    filling.take()
    assert len(store.asked) == store.stops_behind
    read = sum(key[0] >> 3 < 2 for key in KEYS)
    assert (filling.records, len(cache)) == (read, read)


def test_a_segment_that_has_forgotten_something_before_it_was_read_is_not_put_in() -> None:
    """What it forgot may be of a batch that is not committed yet, and so not among what is read."""
    cache, met = ValCache(250_000, 10**6), KEYS[:1]
    assert met[0][0] >> 3 == 0
    cache.put(Keys.of(met), Records.of([(9, (3,))]))
    while not cache.forgotten(0):
        cache.put(Keys.of([bytes(1) + RANDOM.randbytes(15)]), Records.of([(NO_CLUSTER, ())]))
    filling = WarmUp(cache, 1, Store().read_range, WarmUpPolicy.BEFORE)
    assert (filling.records, cache.find(Keys.of(met))[0].tolist()) == (0, [False])
