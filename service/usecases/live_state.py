"""Own what the one writer keeps in memory of the state, and how a batch changes it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from functools import partial
from itertools import compress

import numpy as np

from service.core.clustering import (
    NULL_KEY,
    Applied,
    ClusterCounts,
    Clusters,
    ClusterSets,
    Moves,
    Underflow,
    apply_deltas,
)
from service.core.contracts import BoundContract, ContractTransition, ContractWatch
from service.core.histogram_changes import ValueSwitches
from service.core.model import Attribute, AttributeCounters, BadRecord, Cause, RawRecord, Table, Transition
from service.core.overlap import make_overlap
from service.core.records import Deltas, Flags, Int64s, Keys, NewRecords, Records, distinct_of, find_keys, starts_of
from service.core.shards import ShardedClusters, follow_moves, local_ids
from service.core.shown_values import ShownValues
from service.core.sketch_changes import SketchChanges
from service.core.sketch_upkeep import SketchForm
from service.core.sketches.column import ColumnSketch
from service.core.val_cache import ValCache
from service.usecases.key_values import KeyKind
from service.usecases.netting import Netted
from service.usecases.row_images import Images

WriteRecords = Callable[[NewRecords, Sequence[str], Sequence[str]], None]
"""Stores records, as ports.UnitOfWork.write_records does."""


@dataclass(frozen=True, slots=True)
class StoredState:
    """Hold what the store gives of the state at one version, all but the generator records.

    `stale` are attributes that keep their values though their source has them no longer: no table has them.
    """

    version: int
    generation: int
    tables: tuple[Table, ...]
    counters: Mapping[int, AttributeCounters]
    clusters: ClusterSets
    stale: tuple[Attribute, ...] = ()
    snapshots: Mapping[str, str] = field(default_factory=dict)
    """What was visible to the bootstraps of Postgres sources, by source."""
    late: frozenset[int] = frozenset()
    """Attributes that a schema change made: a cell of an older row may hold a default that was never sent."""
    begun: Mapping[int, int] = field(default_factory=dict)
    """Version that bootstrapped or emptied a table last, by table_id."""
    sketches: SketchForm | None = None
    """Of what form its sketches are; None where it has none."""
    contracts: Sequence[BoundContract] = ()
    shards: int = 1
    shard_clusters: Callable[[], ClusterSets] = ClusterSets.of
    """Reads the clusters of each shard, by their stored ids, where there is more than one."""
    committed_at: datetime | None = None

    @property
    def values(self) -> int:
        """Count the generator records."""
        return int(self.clusters.values.sum())


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
    counters: dict[int, AttributeCounters]
    transitions: list[Transition]
    witnesses: dict[bytes, str]
    switches: SketchChanges
    emptied: Sequence[int] = ()
    contracts: Sequence[ContractTransition] = ()
    known_contracts: frozenset[int] = frozenset()
    shown: ShownValues = field(default_factory=lambda: ShownValues.of((), 0))
    """How much of a value an answer about an attribute may show; what is stored of `witnesses` is cut to it."""
    changed_texts: Sequence[str] = ()
    """Of the records that are not new, in their order, what may be kept of their texts now; none where all may."""
    values: ValueSwitches = field(default_factory=ValueSwitches.none)
    """Which values came and went, of a batch; of what is emptied or filled whole nothing."""
    sketches: Mapping[int, ColumnSketch] = field(default_factory=dict)
    """Those of attributes that are filled whole: what so many values change would be too long for the sketches' log."""
    shard_clusters: ClusterCounts | None = None
    """Clusters of shards that changed, by stored id; None where the whole is one shard."""


@dataclass(frozen=True, slots=True)
class NewTuples:
    """Hold derived attributes that are backfilled, each with the ordinals of its parts, and why they are keys.

    `beside` are others that were read anew in the same snapshot.
    """

    attributes: Sequence[tuple[Attribute, Sequence[int]]]
    snapshot: str | None
    kind: KeyKind
    beside: Sequence[int] = ()


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
    source_positions: Mapping[tuple[str, int], Mapping[str, object]] = field(default_factory=dict)
    """(topic, partition) to what the batch's last change of it says of its source; none where nothing changed."""
    newest_source_ms: int | None = None
    dropped_attributes: Sequence[int] = ()
    """Attributes that are followed no longer: their values are gone with this version, which is no batch of a feed."""
    new_tuples: NewTuples | None = None
    """Derived attributes that are followed from this version on, which is no batch of a feed."""
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    transaction_consistent: bool | None = None
    """Whether the state behind it has every transaction of the source whole or not at all; None: not known."""
    images: Images = field(default_factory=dict)
    """Kept rows as they are after the batch."""
    emptied: Table | None = None
    retried: Sequence[RawRecord] | None = None
    """The batch's records where they had been set aside before: those that are not again are no dead letters now."""
    causes: Sequence[Cause] = ()
    """Of the delta's transitions, in their order; none where the commit is no batch of a feed."""
    contract_causes: Mapping[int, Cause] = field(default_factory=dict)
    """By contract_id."""


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

    def count(self, more: Accesses) -> None:
        """Add those of another batch."""
        for one in fields(Accesses):
            setattr(self, one.name, getattr(self, one.name) + getattr(more, one.name))


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
        self._sketches = stored.sketches
        self._stored = stored if stored.shards > 1 else None
        self._sharded: ShardedClusters | None = None
        attributes = [*stored.stale, *(attribute for table in stored.tables for attribute in table.followed)]
        size = max((a.attribute_id for a in attributes), default=0) + 1
        self.uncounted = np.zeros(size, np.bool_)
        self.uncounted[[a.attribute_id for a in attributes if a.insert_only]] = True
        self.shown = ShownValues.of(attributes, size)
        self.overlap = make_overlap(size, stored.clusters)

    def apply(self, netted: Netted, records: Records) -> StateDelta:
        """Apply a netted batch; `records` are the present records of its values.

        Raises clustering.Underflow, with nothing changed, when the batch takes away what was never there.
        """
        applied = self._apply_deltas(netted.deltas, records, self.uncounted, self._missing_nulls(netted.nulls))
        self.accesses.count(accesses_of(netted.deltas, applied))
        new = applied.records
        self._keep(new)
        texts, changed_texts = self._kept_texts(new, netted.texts_of)
        delta = self._conclude(applied, netted.rows, netted.nulls, netted.texts_of, texts)
        values = ValueSwitches(applied.switches, netted.deltas.keys.high, netted.texts, netted.places)
        delta = replace(delta, values=values, changed_texts=changed_texts)
        if not len(netted.sketched.hashes):
            return delta
        return replace(delta, switches=SketchChanges.joined([delta.switches, netted.sketched]))

    def truncate(
        self,
        attribute_ids: Collection[int],
        portions: Iterable[tuple[Keys, Records, list[str]]],
        write: WriteRecords,
    ) -> StateDelta:
        """Extract whole attributes, given portions of the values that they hold: keys, records and texts.

        `write` stores the records of each portion before the next is asked for; the delta that is returned has no
        records. Its transitions are those of the whole: what turned and turned back on the way is none.
        """
        own = set(attribute_ids)
        # What is taken away whole goes from an insert-only source as well, where nothing is counted.
        uncounted = np.zeros(len(self.uncounted), np.bool_)
        extracted = ((self._extraction(keys, records, own), records, values) for keys, records, values in portions)
        whole, texts = self._apply_portions(extracted, uncounted, write)
        rows = {a: -self.counters[a].row_count for a in own}
        nulls = {a: -self.counters[a].null_count for a in own}
        delta = self._conclude(whole, rows, nulls, texts, [])
        return replace(delta, emptied=() if self._sketches is None else sorted(own))

    def fill(
        self,
        attribute_ids: Collection[int],
        portions: Iterable[tuple[Deltas, Records, list[str]]],
        records_of: Callable[[Sequence[int]], Iterable[tuple[Keys, Records, list[str]]]],
        write: WriteRecords,
        rows: Callable[[], Mapping[int, int]],
    ) -> StateDelta:
        """Let attributes have other values than before, given portions of those that they have now.

        Portions come by ascending keys, with how often each attribute has a value, its present record and its text.
        `records_of` reads the records of clusters: those with values that the attributes have no longer. `rows` says,
        behind the last portion, how many rows each attribute has. As of `truncate` the delta has no records.
        """
        own = sorted(set(attribute_ids))
        clusters = self.clusters_of(own)
        occurrences = dict.fromkeys(own, 0)
        sketches = {} if self._sketches is None else {attribute_id: self._sketches.empty() for attribute_id in own}
        read = [Keys.of(())]

        def differing() -> Iterator[tuple[Deltas, Records, list[str]]]:
            for counts, records, texts in portions:
                values = counts.values()
                for attribute_id in own:
                    is_own = counts.attribute_ids == attribute_id
                    occurrences[attribute_id] += int(counts.differences[is_own].sum())
                    if sketches:
                        sketches[attribute_id].update(counts.keys.high[values[is_own]])
                if clusters:
                    read.append(counts.keys)
                yield counts.plus(self._extraction(counts.keys, records, own)), records, texts
            are_read = Keys(*map(np.concatenate, zip(*read, strict=True)))
            for keys, records, texts in records_of(clusters) if clusters else ():
                gone = np.flatnonzero(find_keys(are_read, keys) < 0)
                left = records.take(gone)
                yield self._extraction(keys.take(gone), left, own), left, [texts[place] for place in gone.tolist()]

        def written(new: NewRecords, texts: Sequence[str], changed_texts: Sequence[str]) -> None:
            # Values of which nothing is kept come without a text, and open none that others keep.
            bare = np.zeros(len(new.is_new), np.bool_)
            bare[~new.is_new] = [not text for text in changed_texts] or False
            if bare.any():
                write(new.take(bare), [], [])
            write(new.take(~bare), texts, [text for text in changed_texts if text])

        whole, texts = self._apply_portions(differing(), self.uncounted, written)
        now = rows()
        more = {a: now[a] - self.counters[a].row_count for a in own}
        nulls = {a: now[a] - occurrences[a] - self.counters[a].null_count for a in own}
        return replace(self._conclude(whole, more, nulls, texts, []), sketches=sketches)

    def _apply_portions(
        self,
        portions: Iterable[tuple[Deltas, Records, list[str]]],
        uncounted: Flags,
        write: WriteRecords,
    ) -> tuple[Applied, Callable[[Keys], list[str]]]:
        """Apply deltas that are too many for one batch; gives what they do together, and the texts of witnesses."""
        _ = self._shards  # also without a portion the delta is one of all shards
        moves: list[Moves] = []
        texts: dict[bytes, str] = {}
        distinct: Counter[int] = Counter()
        repeated: Counter[int] = Counter()
        touched: list[Int64s] = []
        for deltas, records, values in portions:
            applied = self._apply_deltas(deltas, records, uncounted, {})
            self.accesses.count(accesses_of(deltas, applied))
            new = applied.records
            self._keep(new)
            write(new, *self._kept_texts(new, partial(_texts_at, deltas.keys, values)))
            witnesses = applied.moves.witnesses
            places = find_keys(deltas.keys, witnesses.take(witnesses.order()))
            texts.update((deltas.keys.key(place), values[place]) for place in places.tolist())
            moves.append(applied.moves)
            distinct.update(applied.distinct)
            repeated.update(applied.repeated)
            touched += [applied.clusters, applied.dropped]
        # A cluster's id that was given back may serve another already: what counts is how it stands at the end.
        clusters = distinct_of(np.concatenate(touched)) if touched else np.zeros(0, np.int64)
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

    def conclude(
        self,
        applied: Applied,
        rows: Mapping[int, int],
        nulls: Mapping[int, int],
        texts: Mapping[bytes, str],
    ) -> StateDelta:
        """Let the whole follow what all shards did together; `texts` has those of the moves' witnesses.

        Raises clustering.Underflow, with nothing changed, when the batch takes away NULLs that were never there.
        """
        missing_nulls = self._missing_nulls(nulls)
        if missing_nulls:
            raise Underflow([(NULL_KEY, attribute_id, count) for attribute_id, count in missing_nulls.items()])
        kept, dropped = follow_moves(self.clusters, applied.moves)
        whole = replace(applied, clusters=kept, dropped=dropped)
        return self._conclude(
            whole, rows, nulls, lambda keys: [texts[keys.key(place)] for place in range(len(keys.high))], []
        )

    def clusters_of(self, attribute_ids: Collection[int]) -> list[int]:
        """Give the ids under which records are stored that have any of these attributes."""
        own = set(attribute_ids)
        clusters = self.clusters if self._shards is None else self._shards
        return [cluster_id for cluster_id, attributes, _ in clusters if not own.isdisjoint(attributes)]

    @property
    def _shards(self) -> ShardedClusters | None:
        """Give the clusters of the shards, which are read when they are first needed; None where there is one shard."""
        if self._sharded is None and self._stored is not None:
            self._sharded = ShardedClusters(self._stored.shards, self._stored.shard_clusters())
        return self._sharded

    def _missing_nulls(self, nulls: Mapping[int, int]) -> dict[int, int]:
        counted = {a: -(self.counters[a].null_count + difference) for a, difference in nulls.items()}
        return {a: count for a, count in counted.items() if count > 0}

    def _apply_deltas(
        self, deltas: Deltas, records: Records, uncounted: Flags, missing_nulls: Mapping[int, int]
    ) -> Applied:
        shards = self._shards
        if shards is None:
            return apply_deltas(self.clusters, deltas, records, uncounted, missing_nulls)
        applied = shards.apply(deltas, records, uncounted, missing_nulls)
        kept, dropped = follow_moves(self.clusters, applied.moves)
        return replace(applied, clusters=kept, dropped=dropped)

    def _keep(self, new: NewRecords) -> None:
        records = new.records
        if self._sharded is not None:
            records = records._replace(cluster_id=local_ids(records.cluster_id))
        self.cache.put(new.keys, records)

    def _kept_texts(self, new: NewRecords, texts_of: Callable[[Keys], list[str]]) -> tuple[list[str], list[str]]:
        """Give what is kept of the texts of new records, and (where some are not kept whole) of the others."""
        if self.shown.are_whole:
            return texts_of(new.keys.take(new.is_new)), []
        kept = self.shown.cut(texts_of(new.keys), new.starts, new.attribute_ids)
        return list(compress(kept, new.is_new.tolist())), list(compress(kept, (~new.is_new).tolist()))

    def _extraction(self, keys: Keys, records: Records, own: Collection[int]) -> Deltas:
        """Give the deltas that take away all that some attributes have of values, each of which is in one of them."""
        shards = self._shards
        at = records.cluster_id
        attribute_ids, starts = self.clusters.sets(at) if shards is None else shards.sets(keys, at)
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
        return StateDelta(
            records=applied.records,
            texts=texts,
            clusters=ClusterCounts.take(self.clusters, applied.clusters, applied.dropped),
            counters={attribute_id: replace(counters[attribute_id]) for attribute_id in changed},
            transitions=transitions,
            witnesses=dict(zip(witnesses, texts_of(Keys.of(witnesses)), strict=True)),
            switches=SketchChanges.none() if self._sketches is None else applied.switches,
            contracts=contracts,
            known_contracts=known_contracts,
            shard_clusters=None if self._sharded is None else self._sharded.take_changes(),
            shown=self.shown,
        )


def accesses_of(deltas: Deltas, applied: Applied) -> Accesses:
    """Count what a batch accesses, and what the paper would have done for the same values without its caches.

    Section 5.4: each value is looked up and written; one that is taken away somewhere has its frequencies read; one
    that leaves a cluster has the values of that cluster counted.
    """
    moves, written = applied.moves, len(applied.records.cluster_id)
    taken = len(distinct_of(deltas.values()[deltas.differences < 0]))  # a value may have no difference at all
    left = moves.values[np.diff(moves.old_starts) > 0].sum()
    return Accesses(deltas.size, 0, written, deltas.size + written + taken + int(left))


def _texts_at(keys: Keys, texts: Sequence[str], wanted: Keys) -> list[str]:
    """Give the texts of some of the keys."""
    return [texts[place] for place in find_keys(keys, wanted).tolist()]
