"""Own which changes are applied already: by the bootstrap, or before, when a connector repeats them.

Positions keep a feed's records apart; here it is about one change that comes in two records, or in the bootstrap and
in a record.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from service.core.errors import FeedError, RecordError
from service.core.model import FeedPosition, Operation, RowChange, Skipped
from service.core.snapshot import Snapshot, widen

REPEATED = "repeated by the connector"
IN_BOOTSTRAP = "part of the bootstrap"
CAUGHT_UP = "applied before"

CLOCKS_DIFFER_MS = 60_000
"""By how much the times of two transactions may contradict their order."""

SEEN = "seen"
"""Key of what was seen of each source, in the source position that the state keeps of a partition."""


class Seen(NamedTuple):
    """Hold how far a source was followed in a partition: highest place, newest ts_ms, newest transaction (64 bits).

    `mark` is a change's mark with its number in its group as the last one (see `_number`); `last` is the mark of the
    last change that came, repeated or not, and behind it its number.
    """

    mark: tuple[int, ...] = ()
    ts_ms: int = 0
    transaction: int = 0
    last: tuple[int, ...] = ()


Partition = tuple[str, int]
Reader = tuple[str, str]
"""Who reads a source: the state's name of the source, and the name of the connector ("" where nothing tells it)."""
SeenByPartition = Mapping[Partition, Mapping[Reader, Seen]]


@dataclass(slots=True)
class Screened:
    """Hold what is to be applied, what is left out, what is wrong, and what was seen."""

    changes: list[RowChange] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    bad: dict[FeedPosition, RecordError] = field(default_factory=dict)
    rewound: dict[FeedPosition, FeedError] = field(default_factory=dict)
    seen: dict[Partition, dict[Reader, Seen]] = field(default_factory=dict)


class Screen:
    """Decide of each change whether it is applied, skipped, or refused.

    `snapshots` are what was visible to the bootstraps, by source: a change belongs to a bootstrap exactly when its
    transaction is visible, and a row of a connector's own snapshot when that was begun before. `stored` are the
    positions' source positions. A change of a source that is marked
    (`source_position["mark"]`: its order in the source, rising within a partition) is repeated when its place is not
    above the highest one seen there; when it is also newer (`ts_ms`) than everything seen, a source that was set
    back sends it (restored from a backup, failed over), and the feed must stop. Marks of different sources in one
    topic are kept apart, and so are those of connectors that read one together, each a part; records without one (a
    snapshot's) are neither.

    `catch_up` says of which records a source's data holds all: those of a partition before an offset.
    """

    def __init__(
        self,
        snapshots: Mapping[str, str],
        stored: Mapping[Partition, Mapping[str, object]],
        catch_up: Mapping[Partition, Mapping[str, int]] | None = None,
    ) -> None:
        self._snapshots = {source: Snapshot.parse(text) for source, text in snapshots.items()}
        self._seen = {partition: read_seen(position) for partition, position in stored.items()}
        self._catch_up = catch_up or {}
        self._newest = {source: snapshot.xmax for source, snapshot in self._snapshots.items()}
        self.know_transactions(self._seen)

    def screen(self, changes: Sequence[RowChange]) -> Screened:
        """Screen changes in the order of the feed; remembers nothing until `advance`."""
        done = Screened()
        newest = dict(self._newest)
        for change in changes:
            table, told = change.table, change.source_position
            partition = change.position.topic, change.position.partition
            source = table.source
            transaction = told.get("txId")
            if isinstance(transaction, int) and transaction > 0:
                # For good: whoever holds it against a tuple's snapshot, which may be old, knows of nothing newer.
                told["txId"] = widen(transaction, newest.get(source, 0))
            if partition in self._catch_up and self._is_caught_up(change, partition):
                done.skipped.append(Skipped(change.position, CAUGHT_UP))
                if "mark" in told:  # it was seen, and may come again
                    of_partition, reader = self._of_partition(done, partition), _reader(change)
                    seen = _seen_by(reader, of_partition)
                    of_partition[reader] = _later(seen, _read(told, seen.last))
                continue
            is_read = change.operation is Operation.READ
            if is_read and self._is_older(told, source):
                done.skipped.append(Skipped(change.position, IN_BOOTSTRAP))
                continue
            if is_read and not table.row_images:
                done.bad[change.position] = _second_snapshot(change)
                continue
            if is_read or ("mark" not in told and source not in self._snapshots):
                done.changes.append(change)
                continue
            of_partition, reader = self._of_partition(done, partition), _reader(change)
            seen = _seen_by(reader, of_partition)
            now = _read(told, seen.last)
            if now.mark and now.mark <= seen.mark:
                if now.ts_ms > seen.ts_ms > 0:
                    done.rewound[change.position] = _rewound(change, now, seen)
                else:
                    done.skipped.append(Skipped(change.position, REPEATED))
                    of_partition[reader] = seen._replace(last=now.last)
                continue
            of_partition[reader] = _later(seen, now)
            snapshot = self._snapshots.get(source)
            if snapshot is not None and now.transaction:
                newest[source] = max(newest[source], now.transaction)
                if snapshot.is_visible(now.transaction):
                    if seen.transaction >= snapshot.xmax and now.ts_ms > seen.ts_ms + CLOCKS_DIFFER_MS:
                        # What began after the snapshot was committed before what the snapshot shows: not this server.
                        done.rewound[change.position] = _rewound(change, now, seen)
                        continue
                    done.skipped.append(Skipped(change.position, IN_BOOTSTRAP))
                    continue
            done.changes.append(change)
        return done

    def _of_partition(self, done: Screened, partition: Partition) -> dict[Reader, Seen]:
        found = done.seen.get(partition)
        if found is None:
            found = done.seen[partition] = dict(self._seen.get(partition, {}))
        return found

    def advance(self, seen: SeenByPartition) -> None:
        """Remember what was seen: it is part of the state now."""
        for partition, of_partition in seen.items():
            self._seen[partition] = dict(of_partition)
        self.know_transactions(seen)

    def know_transactions(self, seen: SeenByPartition) -> None:
        """Widen transactions near the newest of those seen, too."""
        for of_partition in seen.values():
            for (source, _), one in of_partition.items():
                if source in self._newest:
                    self._newest[source] = max(self._newest[source], one.transaction)

    def _is_older(self, told: Mapping[str, object], source: str) -> bool:
        """Tell whether a snapshot's row was read before the bootstrap's snapshot was taken.

        The changes that came to it in between are skipped, so it would be set back to what it was. One whose
        transaction ran meanwhile was read before, too.
        """
        snapshot = self._snapshots.get(source)
        return snapshot is not None and 0 < _read(told, ()).transaction < snapshot.xmax

    def _is_caught_up(self, change: RowChange, partition: Partition) -> bool:
        return change.position.offset < self._catch_up[partition].get(change.table.source, 0)


class RetryScreen:
    """Screen the changes of records that had been set aside: by the bootstraps, not by what was seen since.

    `set_aside` is the version at which each record was, `begun` the version since which a table's rows are what they
    are (its bootstrap, a truncate), by the table's id. A change from before that is refused, unless the bootstrap's
    snapshot says that it is part of it; so is a truncate, which would empty more than it did at its place. One change
    in two records, as its connector repeated it, is applied once. `stored` are the positions' source positions: they
    tell of the newest transactions alone.
    """

    def __init__(
        self,
        snapshots: Mapping[str, str],
        set_aside: Mapping[FeedPosition, int],
        begun: Mapping[int, int],
        stored: Mapping[Partition, Mapping[str, object]],
    ) -> None:
        self._screen = Screen(snapshots, {})
        self._screen.know_transactions({partition: read_seen(position) for partition, position in stored.items()})
        self._set_aside = set_aside
        self._begun = begun
        self._marks: dict[tuple[object, ...], FeedPosition] = {}

    def screen(self, changes: Sequence[RowChange]) -> Screened:
        """Screen changes in the order of the feed."""
        done = Screened()
        for change in changes:
            # One by one: what is in one record that was set aside says nothing of the order of the others.
            one = self._screen.screen([change])
            if one.changes and self._is_repeated(change):
                done.skipped.append(Skipped(change.position, REPEATED))
                continue
            done.skipped += one.skipped
            done.bad |= one.bad
            version, begun = self._set_aside[change.position], self._begun.get(change.table.table_id, 0)
            if one.changes and change.operation is Operation.TRUNCATE:
                done.bad[change.position] = _late_truncate(change)
            elif one.changes and version < begun:
                done.bad[change.position] = _outlived(change, version, begun)
            else:
                done.changes += one.changes
        return done

    def advance(self, seen: SeenByPartition) -> None:
        """Remember nothing."""

    def _is_repeated(self, change: RowChange) -> bool:
        mark = change.source_position.get("mark")
        if not isinstance(mark, list):
            return False
        # The last number of a mark may be another change's after a restart of the connector: the rows tell.
        what = (_reader(change), *mark, change.table.table_id, change.before, change.after, change.key)
        return self._marks.setdefault(what, change.position) != change.position


def read_seen(source_position: Mapping[str, object]) -> dict[Reader, Seen]:
    """Read what a stored source position says was seen, by who read it."""
    stored = source_position.get(SEEN)
    if not isinstance(stored, Mapping):
        return {}
    return {
        (source, connector): Seen(tuple(mark), ts_ms, transaction, tuple(last))
        for source, of_source in stored.items()
        # Before connectors were told apart there was one for each source.
        for connector, (mark, ts_ms, transaction, last) in (
            of_source if isinstance(of_source, Mapping) else {"": of_source}
        ).items()
    }


def put_seen(source_position: Mapping[str, object], seen: Mapping[Reader, Seen]) -> dict[str, object]:
    """Give a source position as it is stored: with what was seen in place of the last change's mark."""
    rest = {name: value for name, value in source_position.items() if name not in ("mark", "marked_by", SEEN)}
    by_source: dict[str, dict[str, object]] = {}
    for (source, connector), one in seen.items():
        by_source.setdefault(source, {})[connector] = list(one)
    return {**rest, SEEN: by_source} if seen else rest


def _seen_by(reader: Reader, of_partition: dict[Reader, Seen]) -> Seen:
    """Give what was seen of a reader, or (once) of what was seen before anything told its name."""
    return of_partition.get(reader) or of_partition.pop((reader[0], ""), Seen())


def _reader(change: RowChange) -> Reader:
    return change.table.source, str(change.source_position.get("marked_by", ""))


def count_reasons(skipped: Iterable[Skipped]) -> dict[str, int]:
    """Count skipped records by reason."""
    counts: dict[str, int] = {}
    for one in skipped:
        counts[one.reason] = counts.get(one.reason, 0) + 1
    return counts


def _read(source_position: Mapping[str, object], last: tuple[int, ...]) -> Seen:
    """Read place, time and transaction (64 bits) of a change: the place behind the last one."""
    mark, ts_ms, transaction = map(source_position.get, ("mark", "ts_ms", "txId"))
    place: tuple[int, ...] = ()
    if isinstance(mark, list):
        number = _number(mark, last)
        place, last = (*mark[:-1], number), (*mark, number)
    return Seen(
        place,
        ts_ms if isinstance(ts_ms, int) else 0,
        transaction if isinstance(transaction, int) and transaction > 0 else 0,
        last,
    )


def _number(mark: list[int], last: tuple[int, ...]) -> int:
    """Count how manieth of its group a change is: of those whose marks differ in the last number alone.

    The last number cannot be compared itself: a connector that restarts inside of a transaction may count its
    changes from elsewhere. But it sends a group from its first change on, and rising numbers.
    """
    follows = len(last) == len(mark) + 1 and last[:-2] == tuple(mark[:-1]) and mark[-1] > last[-2]
    return last[-1] + 1 if follows else 1


def _later(seen: Seen, now: Seen) -> Seen:
    return Seen(max(seen.mark, now.mark), max(seen.ts_ms, now.ts_ms), max(seen.transaction, now.transaction), now.last)


def _rewound(change: RowChange, now: Seen, seen: Seen) -> FeedError:
    at = change.position
    order = f"place {list(now.mark)}, before: {list(seen.mark)}" if now.mark else f"transaction {now.transaction}"
    return FeedError(
        f"{at}: the source {change.table.source!r} was set "
        f"back: a change made later (ts_ms {now.ts_ms}, before: {seen.ts_ms}) stands earlier in the source's own order "
        f"({order}) than what is applied already. It was restored from a backup, or another server took over. Its data "
        f"may differ from the state: bootstrap it again with --replace, and let the feed go on behind that"
    )


def _late_truncate(change: RowChange) -> RecordError:
    at, table = change.position, change.table
    return RecordError.plain(
        f"{at}: empties {table}, but at a place in the feed "
        f"that is passed: bootstrap its source again with --replace, or drop it with `subsetd dead-letters drop`"
    )


def _second_snapshot(change: RowChange) -> RecordError:
    at, table = change.position, change.table
    return RecordError.plain(
        f"{at}: is a row of a snapshot (op r) of {table}, "
        f"whose rows the state has counted already: set the connector's snapshot.mode to no_data, or bootstrap the "
        f"source again with --replace --row-images always, with which such a row is an upsert by key"
    )


def _outlived(change: RowChange, version: int, begun: int) -> RecordError:
    at, table = change.position, change.table
    return RecordError.plain(
        f"{at}: was set aside at version {version}, and "
        f"{table} was bootstrapped or emptied at version {begun} since; drop it with `subsetd dead-letters drop`"
    )
