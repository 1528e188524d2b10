"""Own ValCache: the records of recently met values, bounded in bytes (Incremental INDs 2017, section 5.1).

The paper's cache maps a value to its cluster. Ours keeps the frequencies as well, so that a hit saves every read
of the generator: the one for the cluster and the one for the frequencies (Algorithms 2 and 6).
"""

from __future__ import annotations

from service.core.clustering import GenRec

ENTRY_BYTES = 252
"""Memory of an entry without its frequencies on CPython 3.11: key 49, dict slot about 100, record 56, tuple 40."""

FREQUENCY_BYTES = 8
"""Memory of a frequency in its tuple; the small ones, which most are, are objects that CPython has anyway."""


class ValCache:
    """Map value keys to records in two ages: what was met in the younger half of the bytes stays.

    When the young half is full it becomes the old one and the old one is forgotten; a hit in the old half is
    carried over. That is LRU to within half of the cache, at the cost of two dictionary look-ups.
    """

    __slots__ = ("_half", "_old", "_young", "_young_bytes", "hits", "misses")

    def __init__(self, max_bytes: int) -> None:
        self._half = max_bytes // 2
        self._young: dict[bytes, GenRec] = {}
        self._old: dict[bytes, GenRec] = {}
        self._young_bytes = 0
        self.hits = 0
        self.misses = 0

    def __len__(self) -> int:
        return len(self._young) + sum(1 for key in self._old if key not in self._young)

    def get(self, key: bytes) -> GenRec | None:
        """Return the record of a value, None when the cache does not know it (it may exist all the same)."""
        record = self._young.get(key)
        if record is None:
            record = self._old.pop(key, None)
            if record is None:
                self.misses += 1
                return None
            self.put(key, record)
        self.hits += 1
        return record

    def put(self, key: bytes, record: GenRec) -> None:
        """Remember a record, in the place of an older one of the same value."""
        if self._half <= 0:
            return
        known = self._young.get(key)
        added = FREQUENCY_BYTES * len(record.frequencies)
        added += ENTRY_BYTES if known is None else -FREQUENCY_BYTES * len(known.frequencies)
        if self._young_bytes + added > self._half:
            self._old, self._young, self._young_bytes = self._young, {}, 0
            added = ENTRY_BYTES + FREQUENCY_BYTES * len(record.frequencies)
        self._young[key] = record
        self._young_bytes += added

    def forget(self, key: bytes) -> None:
        """Drop a value that is gone."""
        self._young.pop(key, None)
        self._old.pop(key, None)
