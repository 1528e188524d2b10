"""Own what the one writer keeps in memory of the state, and how a batch changes it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from service.core.clustering import Applied, AttributeIds, Clusters, Moves, apply_deltas
from service.core.contracts import BoundContract, ContractTransition, ContractWatch
from service.core.histogram_changes import ValueSwitches
from service.core.model import Attribute, AttributeCounters, BadRecord, FeedPosition, RawRecord, Table, Transition
from service.core.overlap import make_overlap
from service.core.records import Deltas, Flags, Int64s, Keys, NewRecords, Records, UInt64s, find_keys, starts_of
from service.core.sketch_changes import SketchChanges
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
    has_sketches: bool = False
    contracts: Sequence[BoundContract] = ()

    @property
    def values(self) -> int:
        """Count the generator records."""
        return sum(count for _, _, count in self.clusters)


class ClusterCounts(NamedTuple):
    """Hold clusters with their attributes, which lie end to end, and how many values each has."""

    cluster_id: Int64s
    attribute_ids: Int64s
    starts: Int64s
    values: Int64s


@dataclass(frozen=True, slots=True)
class StateDelta:
    """Hold everything that a batch changes in the state beside positions: absolute values, ready to be stored.

    `texts` are those of the records that are new, in their order. `emptied` are attributes that have no value any more,
    whatever sketches say of them; `switches` tells what else changes in sketches. `contracts` are transitions of those
    that the batch was held against, which are `known_contracts`.
    """

    records: NewRecords
    texts: list[str]
    clusters: ClusterCounts
    dropped: list[int]
    counters: dict[int, AttributeCounters]
    transitions: list[Transition]
    witnesses: dict[bytes, str]
    switches: SketchChanges
    emptied: Sequence[int] = ()
    contracts: Sequence[ContractTransition] = ()
    known_contracts: frozenset[int] = frozenset()
    values: ValueSwitches = field(default_factory=ValueSwitches.none)
    """Which values came and went, of a batch; of what is emptied or filled whole nothing."""


@dataclass(frozen=True, slots=True)
class NewTuple:
    """Hold a derived attribute that is backfilled, with the ordinals of its parts."""

    attribute: Attribute
    parts: Sequence[int]
    snapshot: str | None


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
    new_tuple: NewTuple | None = None
    """A derived attribute that is followed from this version on, which is no batch of a feed."""
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    transaction_consistent: bool | None = None
    """Whether the state behind it has every transaction of the source whole or not at all; None: not known."""
    images: Images = field(default_factory=dict)
    """Kept rows as they are after the batch."""
    emptied: Table | None = None
    retried: Sequence[RawRecord] | None = None
    """The batch's records where they had been set aside before: those that are not again are no dead letters now."""
    contract_positions: Mapping[int, FeedPosition] = field(default_factory=dict)
    """Which change brought the witness of a contract's transition, by contract_id."""


@dataclass  # without slots, as the next one: `Totals` is both
class BatchCounts:
    """Count the records of a batch, and what became of them."""

    records: int = 0
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    skipped: int = 0
    dead: int = 0


@dataclass
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
        self.cache = ValCache(cache_bytes, stored.values)
        self.accesses = Accesses()
        self.contracts = ContractWatch()
        self._has_sketches = stored.has_sketches
        attributes = [*stored.stale, *(attribute for table in stored.tables for attribute in table.followed)]
        size = max((a.attribute_id for a in attributes), default=0) + 1
        self._uncounted = np.zeros(size, np.bool_)
        self._uncounted[[a.attribute_id for a in attributes if a.insert_only]] = True
        self.overlap = make_overlap(size, [(attributes, count) for _, attributes, count in stored.clusters])

    def apply(self, netted: Netted, records: Records) -> StateDelta:
        """Apply a netted batch; `records` are the present records of its values.

        Raises clustering.Underflow, with nothing changed, when the batch takes away what was never there.
        """
        nulls = {a: -(self.counters[a].null_count + difference) for a, difference in netted.nulls.items()}
        missing_nulls = {a: count for a, count in nulls.items() if count > 0}
        applied = apply_deltas(self.clusters, netted.deltas, records, self._uncounted, missing_nulls)
        self._count_accesses(netted.deltas, applied)
        new = applied.records
        self.cache.put(new.keys, new.records)
        texts = netted.texts_of(new.keys.take(new.is_new))
        delta = self._conclude(applied, netted.rows, netted.nulls, netted.texts_of, texts)
        values = ValueSwitches(applied.switches, netted.deltas.keys.high, netted.texts, netted.places)
        delta = replace(delta, values=values)
        if not len(netted.sketched.hashes):
            return delta
        return replace(delta, switches=SketchChanges.joined([delta.switches, netted.sketched]))

    def truncate(
        self,
        attribute_ids: Collection[int],
        portions: Iterable[tuple[Keys, Records, list[str]]],
        write: Callable[[NewRecords, Sequence[str]], None],
    ) -> StateDelta:
        """Extract whole attributes, given portions of the values that they hold: keys, records and texts.

        `write` stores the records of each portion before the next is asked for; the delta that is returned has no
        records. Its transitions are those of the whole: what turned and turned back on the way is none.
        """
        own = set(attribute_ids)
        # What is taken away whole goes from an insert-only source as well, where nothing is counted.
        uncounted = np.zeros(len(self._uncounted), np.bool_)
        extracted = ((self._extraction(keys, records, own), records, values) for keys, records, values in portions)
        whole, texts = self._apply_portions(extracted, uncounted, write)
        rows = {a: -self.counters[a].row_count for a in own}
        nulls = {a: -self.counters[a].null_count for a in own}
        delta = self._conclude(whole, rows, nulls, texts, [])
        return replace(delta, emptied=sorted(own) if self._has_sketches else ())

    def fill(
        self,
        attribute_id: int,
        portions: Iterable[tuple[Deltas, Records, list[str]]],
        write: Callable[[NewRecords, Sequence[str]], None],
        rows: Callable[[], int],
    ) -> StateDelta:
        """Merge a whole attribute that is new, given portions of its values with their present records and texts.

        `write` is given the texts of new records; `rows` says, behind the last portion, how many rows there are. As of
        `truncate` the delta has no records.
        """
        occurrences = 0
        hashes: list[UInt64s] = []

        def counted() -> Iterator[tuple[Deltas, Records, list[str]]]:
            nonlocal occurrences
            for portion in portions:
                occurrences += int(portion[0].differences.sum())
                hashes.append(portion[0].keys.high)
                yield portion

        whole, texts = self._apply_portions(counted(), self._uncounted, write)
        nulls = rows() - occurrences
        delta = self._conclude(whole, {attribute_id: rows()}, {attribute_id: nulls}, texts, [])
        if not (self._has_sketches and hashes):
            return delta
        came = np.concatenate(hashes)
        ones = np.ones(len(came), np.int64)
        return replace(delta, switches=SketchChanges.of(attribute_id * ones, ones, came))

    def _apply_portions(
        self,
        portions: Iterable[tuple[Deltas, Records, list[str]]],
        uncounted: Flags,
        write: Callable[[NewRecords, Sequence[str]], None],
    ) -> tuple[Applied, Callable[[Keys], list[str]]]:
        """Apply deltas that are too many for one batch; gives what they do together, and the texts of witnesses."""
        moves: list[Moves] = []
        texts: dict[bytes, str] = {}
        distinct: Counter[int] = Counter()
        repeated: Counter[int] = Counter()
        touched: list[Int64s] = []
        for deltas, records, values in portions:
            applied = apply_deltas(self.clusters, deltas, records, uncounted)
            self._count_accesses(deltas, applied)
            new = applied.records
            self.cache.put(new.keys, new.records)
            write(new, [values[place] for place in find_keys(deltas.keys, new.keys.take(new.is_new)).tolist()])
            witnesses = applied.moves.witnesses
            places = find_keys(deltas.keys, witnesses.take(witnesses.order()))
            texts.update((deltas.keys.key(place), values[place]) for place in places.tolist())
            moves.append(applied.moves)
            distinct.update(applied.distinct)
            repeated.update(applied.repeated)
            touched += [applied.clusters, applied.dropped]
        # A cluster's id that was given back may serve another already: what counts is how it stands at the end.
        clusters = np.unique(np.concatenate(touched)) if touched else np.zeros(0, np.int64)
        is_live = self.clusters.has(clusters)
        whole = Applied(
            NewRecords.none(),
            Moves.joined(moves),
            distinct,
            repeated,
            clusters[is_live],
            clusters[~is_live],
            SketchChanges.none(),
        )
        return whole, lambda keys: [texts[keys.key(place)] for place in range(len(keys.high))]

    def _extraction(self, keys: Keys, records: Records, own: Collection[int]) -> Deltas:
        """Give the deltas that take away all that some attributes have of values, each of which is in one of them."""
        attribute_ids, starts = self.clusters.sets(records.cluster_id)
        goes = np.isin(attribute_ids, list(own))
        value = np.repeat(np.arange(len(records.cluster_id)), np.diff(starts))[goes]
        lengths = np.bincount(value, minlength=len(records.cluster_id))
        return Deltas(keys, starts_of(lengths), attribute_ids[goes], -records.frequencies[goes])

    def _conclude(
        self,
        applied: Applied,
        rows: Mapping[int, int],
        nulls: Mapping[int, int],
        texts_of: Callable[[Keys], list[str]],
        texts: list[str],
    ) -> StateDelta:
        """Let counters and overlaps follow, and gather all that is to be stored."""
        counters = self.counters
        for attribute_id, difference in rows.items():
            counters[attribute_id].row_count += difference
        for attribute_id, difference in nulls.items():
            counters[attribute_id].null_count += difference
        for attribute_id, difference in applied.distinct.items():
            of_attribute = counters[attribute_id]
            of_attribute.distinct_count = (of_attribute.distinct_count or 0) + difference
        for attribute_id, difference in applied.repeated.items():
            of_attribute = counters[attribute_id]
            of_attribute.repeated_count = (of_attribute.repeated_count or 0) + difference
        changed = rows.keys() | nulls.keys() | applied.distinct.keys() | applied.repeated.keys()
        transitions = self.overlap.apply(applied.moves)
        known_contracts = self.contracts.known
        contracts = self.contracts.apply(applied.moves, self.overlap)
        found = {t.witness for t in transitions if t.witness is not None}
        witnesses = sorted(found | {contract.witness for contract in contracts})
        clusters = applied.clusters
        return StateDelta(
            records=applied.records,
            texts=texts,
            clusters=ClusterCounts(clusters, *self.clusters.sets(clusters), self.clusters.counts(clusters)),
            dropped=applied.dropped.tolist(),
            counters={attribute_id: replace(counters[attribute_id]) for attribute_id in changed},
            transitions=transitions,
            witnesses=dict(zip(witnesses, texts_of(Keys.of(witnesses)), strict=True)),
            switches=applied.switches if self._has_sketches else SketchChanges.none(),
            contracts=contracts,
            known_contracts=known_contracts,
        )

    def _count_accesses(self, deltas: Deltas, applied: Applied) -> None:
        """Count what the paper would have done for the same values without its caches (section 5.4).

        Each value is looked up and written; one that is taken away somewhere has its frequencies read; one
        that leaves a cluster has the values of that cluster counted.
        """
        accesses, moves, written = self.accesses, applied.moves, len(applied.records.cluster_id)
        accesses.values += deltas.size
        accesses.written += written
        taken = np.count_nonzero(np.minimum.reduceat(deltas.differences, deltas.starts[:-1]) < 0) if deltas.size else 0
        left = moves.values[np.diff(moves.old_starts) > 0].sum()
        accesses.without_caches += deltas.size + written + int(taken + left)
