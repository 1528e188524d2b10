"""Own what the one writer keeps in memory of the state, and how a batch changes it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from service.core.clustering import NO_CLUSTER, Applied, AttributeIds, Clusters, GenRec, Move, apply_deltas
from service.core.model import Attribute, AttributeCounters, BadRecord, FeedPosition, RawRecord, Table, Transition
from service.core.overlap import make_overlap
from service.core.val_cache import ValCache
from service.usecases.netting import Netted
from service.usecases.row_images import Images


@dataclass(frozen=True, slots=True)
class StoredState:
    """Hold what the store gives of the state at one version, all but the generator records.

    `stale` are attributes that keep their values though their source has them no longer: no table has them.
    """

    version: int
    generation: int
    tables: tuple[Table, ...]
    counters: Mapping[int, AttributeCounters]
    clusters: tuple[tuple[int, AttributeIds, int], ...]
    stale: tuple[Attribute, ...] = ()
    snapshots: Mapping[str, str] = field(default_factory=dict)
    """What was visible to the bootstraps of Postgres sources, by source."""
    late: frozenset[int] = frozenset()
    """Attributes that a schema change made: a cell of an older row may hold a default that was never sent."""
    begun: Mapping[int, int] = field(default_factory=dict)
    """Version that bootstrapped or emptied a table last, by table_id."""


@dataclass(frozen=True, slots=True)
class RecordWrite:
    """Say how one generator record changes: `attributes` is empty when the value is gone.

    `text` is None where the record is known to exist and keeps its text.
    """

    key: bytes
    text: str | None
    cluster_id: int
    attributes: AttributeIds
    frequencies: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StateDelta:
    """Hold everything that a batch changes in the state beside positions: absolute values, ready to be stored."""

    records: list[RecordWrite]
    clusters: list[tuple[int, AttributeIds, int]]
    dropped: list[int]
    counters: dict[int, AttributeCounters]
    transitions: list[Transition]
    witnesses: dict[bytes, str]


@dataclass(frozen=True, slots=True)
class BatchCommit:
    """Hold what is stored with a batch beside its generator records, in the same transaction."""

    version: int
    generation: int
    feed: str | None
    positions: Mapping[tuple[str, int], tuple[int, int]]
    """(topic, partition) to (next offset before the batch, next offset after it)."""
    delta: StateDelta
    counts: BatchCounts
    dead_letters: Sequence[BadRecord] = ()
    last_position: FeedPosition | None = None
    source_positions: Mapping[tuple[str, int], Mapping[str, object]] = field(default_factory=dict)
    """(topic, partition) to what the batch's last change of it says of its source; none where nothing changed."""
    newest_source_ms: int | None = None
    dropped_attributes: Sequence[int] = ()
    """Attributes that are followed no longer: their values are gone with this version, which is no batch of a feed."""
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    transaction_consistent: bool | None = None
    """Whether the state behind it has every transaction of the source whole or not at all; None: not known."""
    images: Images = field(default_factory=dict)
    """Kept rows as they are after the batch."""
    emptied: Table | None = None
    retried: Sequence[RawRecord] | None = None
    """The batch's records where they had been set aside before: those that are not again are no dead letters now."""


@dataclass(slots=True)
class BatchCounts:
    """Count the records of a batch, and what became of them."""

    records: int = 0
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    skipped: int = 0
    dead: int = 0


@dataclass(slots=True)
class Accesses:
    """Count accesses to the generator records, as the 2017 paper's Table 4 does."""

    values: int = 0
    read: int = 0
    written: int = 0
    without_caches: int = 0


class LiveState:
    """Keep ACRecs, CountCache, ValCache, counters and overlaps, and apply netted batches to them."""

    def __init__(self, stored: StoredState, cache_bytes: int) -> None:
        self.version = stored.version
        self.generation = stored.generation
        self.tables = stored.tables
        self.late = stored.late
        self.clusters = Clusters(stored.clusters)
        self.counters = {attribute_id: replace(counters) for attribute_id, counters in stored.counters.items()}
        self.cache = ValCache(cache_bytes)
        self.accesses = Accesses()
        attributes = [*stored.stale, *(attribute for table in stored.tables for attribute in table.attributes)]
        self._uncounted = frozenset(a.attribute_id for a in attributes if a.insert_only)
        size = max((a.attribute_id for a in attributes), default=0) + 1
        self.overlap = make_overlap(size, [(attributes, count) for _, attributes, count in stored.clusters])

    def apply(self, netted: Netted, records: Mapping[bytes, GenRec]) -> StateDelta:
        """Apply a netted batch; `records` are the present records of its keys.

        Raises clustering.Underflow, with nothing changed, when the batch takes away what was never there.
        """
        nulls = {a: -(self.counters[a].null_count + difference) for a, difference in netted.nulls.items()}
        missing_nulls = {a: count for a, count in nulls.items() if count > 0}
        applied = apply_deltas(self.clusters, records, netted.deltas, self._uncounted, missing_nulls)
        self._count_accesses(netted.deltas, applied)
        writes = self._remember(applied, netted.texts)
        return self._conclude(applied, netted.rows, netted.nulls, netted.texts, writes)

    def truncate(
        self,
        attribute_ids: Collection[int],
        portions: Iterable[Mapping[bytes, tuple[str, GenRec]]],
        write: Callable[[list[RecordWrite]], None],
    ) -> StateDelta:
        """Extract whole attributes, given portions of (text, record) of the values that they hold.

        `write` stores the records of each portion before the next is asked for; the delta that is returned has no
        records. Its transitions are those of the whole: what turned and turned back on the way is none.
        """
        own = set(attribute_ids)
        moves: dict[tuple[AttributeIds, AttributeIds], Move] = {}
        texts: dict[bytes, str] = {}
        distinct: Counter[int] = Counter()
        repeated: Counter[int] = Counter()
        touched: dict[int, None] = {}
        dropped: list[int] = []
        for portion in portions:
            records = {key: record for key, (_, record) in portion.items()}
            deltas = {}
            for key, record in records.items():
                members = zip(self.clusters.attributes(record.cluster_id), record.frequencies, strict=True)
                deltas[key] = {attribute_id: -n for attribute_id, n in members if attribute_id in own}
            applied = apply_deltas(self.clusters, records, deltas, self._uncounted)
            self._count_accesses(deltas, applied)
            write(self._remember(applied, {}))
            for move in applied.moves:
                known = moves.get((move.old, move.new))
                if known is None:
                    texts[move.witness] = portion[move.witness][0]
                moves[move.old, move.new] = move if known is None else known._replace(values=known.values + move.values)
            distinct.update(applied.distinct)
            repeated.update(applied.repeated)
            touched.update(dict.fromkeys(applied.clusters))
            dropped += applied.dropped
        gone = set(dropped)
        whole = Applied(
            moves=list(moves.values()),
            distinct=distinct,
            repeated=repeated,
            clusters=[cluster_id for cluster_id in touched if cluster_id not in gone],
            dropped=dropped,
        )
        rows = {a: -self.counters[a].row_count for a in own}
        nulls = {a: -self.counters[a].null_count for a in own}
        return self._conclude(whole, rows, nulls, texts, [])

    def _remember(self, applied: Applied, texts: Mapping[bytes, str]) -> list[RecordWrite]:
        """Put the new records into ValCache, and say how they are written."""
        writes = []
        for key, record in applied.records.items():
            if record is None:
                self.cache.forget(key)
                writes.append(RecordWrite(key, None, NO_CLUSTER, (), ()))
            else:
                self.cache.put(key, record)
                text = texts[key] if key in applied.inserted else None
                attributes = self.clusters.attributes(record.cluster_id)
                writes.append(RecordWrite(key, text, record.cluster_id, attributes, record.frequencies))
        return writes

    def _conclude(
        self,
        applied: Applied,
        rows: Mapping[int, int],
        nulls: Mapping[int, int],
        texts: Mapping[bytes, str],
        writes: list[RecordWrite],
    ) -> StateDelta:
        """Let counters and overlaps follow, and gather all that is to be stored."""
        counters = self.counters
        for attribute_id, difference in rows.items():
            counters[attribute_id].row_count += difference
        for attribute_id, difference in nulls.items():
            counters[attribute_id].null_count += difference
        for attribute_id, difference in applied.distinct.items():
            counters[attribute_id].distinct_count += difference
        for attribute_id, difference in applied.repeated.items():
            of_attribute = counters[attribute_id]
            of_attribute.repeated_count = (of_attribute.repeated_count or 0) + difference
        changed = rows.keys() | nulls.keys() | applied.distinct.keys() | applied.repeated.keys()
        transitions = self.overlap.apply(applied.moves)
        return StateDelta(
            records=writes,
            clusters=[(c, self.clusters.attributes(c), self.clusters.count(c)) for c in applied.clusters],
            dropped=applied.dropped,
            counters={attribute_id: replace(counters[attribute_id]) for attribute_id in changed},
            transitions=transitions,
            witnesses={t.witness: texts[t.witness] for t in transitions if t.witness is not None},
        )

    def _count_accesses(self, deltas: Mapping[bytes, Mapping[int, int]], applied: Applied) -> None:
        """Count what the paper would have done for the same values without its caches (section 5.4).

        Each value is looked up and written; one that is taken away somewhere has its frequencies read; one
        that leaves a cluster has the values of that cluster counted.
        """
        accesses = self.accesses
        accesses.values += len(deltas)
        accesses.written += len(applied.records)
        taken = sum(1 for delta in deltas.values() if min(delta.values()) < 0)
        left = sum(move.values for move in applied.moves if move.old)
        accesses.without_caches += len(deltas) + len(applied.records) + taken + left
