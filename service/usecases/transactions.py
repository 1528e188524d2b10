"""Own the wholeness of the source's transactions: which records wait until the rest of their transaction has come.

A source that writes a transaction topic says with each END how many events of each table the transaction has. Events
of one transaction come in several partitions, in any order of these, so the records that a feed has given so far may
hold the half of one. Such records, and all behind them in their partitions, are held back.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Container, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from service.core.errors import RecordError
from service.core.model import (
    NOT_FOLLOWED,
    Decoded,
    FeedPosition,
    Operation,
    RawRecord,
    RowChange,
    Skipped,
    Table,
    TransactionMark,
)

TRANSACTION_TOPIC = ".transaction"
REMEMBERED = 100_000
"""Of how many transactions is known what came of them: those whose events are to come, and those that were cut."""
_PAGE_BITS = 1024


class TransactionKey(NamedTuple):
    """Name a transaction: the prefix of its connector's topics, and its id in the source."""

    prefix: str
    transaction: str


@dataclass(frozen=True, slots=True)
class WaitLimits:
    """Bound what waits: by records and bytes in all, and by seconds since a waiting transaction's last event."""

    records: int = 100_000
    seconds: float = 5.0
    bytes: int = 64 * 1024 * 1024
    """Of records as received; what they are decoded to takes about twice as much beside them."""


class Taken(NamedTuple):
    """Hold records that may be applied now, what each was decoded to and its transaction, and whether these are whole.

    `is_whole` is None where the source tells nothing of its transactions, or not of all.
    """

    records: list[RawRecord]
    decoded: list[Decoded]
    keys: list[TransactionKey | None]
    is_whole: bool | None


class _Held(NamedTuple):
    record: RawRecord
    decoded: Decoded
    key: TransactionKey | None


@dataclass(slots=True)
class _Transaction:
    """Count the events that came of a transaction, each once: a bit for each number, as there may be millions."""

    grown_at: float = 0.0
    seen: int = 0
    expected: int | None = None
    is_cut: bool = False
    is_over: bool = False
    end: FeedPosition | None = None
    """Where its END is, in which the order of the source's commits shows."""
    _pages: dict[int, int] = field(default_factory=dict)

    def add(self, order: object) -> None:
        """Hear of the event with this number among all of the transaction (`total_order`)."""
        number = order if type(order) is int else -1
        page, bit = number // _PAGE_BITS, 1 << number % _PAGE_BITS
        known = self._pages.get(page, 0)
        if not known & bit:
            self._pages[page] = known | bit
            self.seen += 1

    def take_back(self, order: object) -> None:
        """Forget the event with this number, which will come again."""
        number = order if type(order) is int else -1
        page, bit = number // _PAGE_BITS, 1 << number % _PAGE_BITS
        known = self._pages.get(page, 0)
        if known & bit:
            self._pages[page] = known ^ bit
            self.seen -= 1

    def take_back_end(self) -> None:
        """Forget its END, which will come again."""
        self.expected = self.end = None

    @property
    def is_complete(self) -> bool:
        return self.expected is not None and self.seen >= self.expected


class TransactionBuffer:
    """Hold back records of transactions that have not come whole, until they have or a limit is met.

    Feed it with what each poll gave, decoded; `take` gives the records that can be applied now, in the order of each
    partition. A record that is held holds back all behind it in its partition, so that a feed's positions say what
    was taken. So does an END whose events are still to come all transactions whose END is behind it. Beyond the limits
    everything is given, and `is_whole` is False until the transactions that were cut are complete. An END whose events
    have all been applied before, or do not come at all, is waited for no longer than the limits' seconds. A change
    that cannot be tied to a transaction holds nothing back: since one was given nobody knows what is whole.
    """

    def __init__(self, tables: Iterable[Table], topics: Iterable[str] = (), limits: WaitLimits = WaitLimits()) -> None:
        self._databases: dict[str, str] = {}
        """By prefix the database of a connector whose ENDs do not name it: Postgres has one for each."""
        self._limits = limits
        self._prefixes: set[str] = set()
        self._marked: set[str] = set()
        """Topics in which marks of transactions have come."""
        self._of_tables: set[str] = set()
        """Topics that are called as one of transactions is, but are those of tables with the name `transaction`."""
        self._held: list[_Held] = []
        self._size = 0
        self._known: dict[TransactionKey, _Transaction] = {}
        self._over: dict[TransactionKey, _Transaction] = {}
        """Those of which all was given by the last `take`."""
        self._ahead: OrderedDict[TransactionKey, _Transaction] = OrderedDict()
        """Transactions of which marks came and no event yet."""
        self._ends: dict[tuple[str, int], deque[_Transaction]] = {}
        """Of each partition with ENDs the transactions that are not over, in the order of these."""
        self._cut: dict[TransactionKey, None] = {}
        """Those that were given in part, in the order in which they were cut first."""
        self._must_give = self._has_untied = False
        self.follow(tables, topics)

    def follow(self, tables: Iterable[Table], topics: Iterable[str]) -> None:
        """Await the events of these tables from now on, and hear of topics."""
        self._tables: dict[str, set[str | None]] = {}
        """By `schema.table` the databases of which the table's events are awaited; None: any."""
        for table in tables:
            self._tables.setdefault(name_on_wire(table), set()).add(table.wire[0] if table.wire else None)
        self._followed: dict[tuple[str, str | None], bool] = {}
        self._note_topics(topics)

    @property
    def held(self) -> Sequence[RawRecord]:
        """Give the records that wait, in the order in which they came."""
        return [held.record for held in self._held]

    def is_needed(self, records: Iterable[RawRecord]) -> bool:
        """Tell whether the source tells of its transactions, or begins to with these records."""
        return bool(self._prefixes) or any(record.topic.endswith(TRANSACTION_TOPIC) for record in records)

    def add(self, records: Sequence[RawRecord], decoded: Sequence[Decoded], now: float) -> None:
        """Take what a poll gave at the moment `now` (seconds), with what each record was decoded to.

        A bad record says nothing of its transaction: nothing waits for it, or behind it.
        """
        topics = {record.topic for record in records}
        self._note_topics(topics)
        if any(topic.endswith(TRANSACTION_TOPIC) and topic not in self._marked for topic in topics):
            self._learn(records, decoded)
        for record, one in zip(records, decoded, strict=True):
            self._must_give |= isinstance(one, RecordError)
            self._held.append(_Held(record, one, self._note(record, one, now)))
            self._size += _size(record)

    def take(self, now: float) -> Taken:
        """Give the records that can be applied at the moment `now` (seconds)."""
        if not self._prefixes:
            everything = _taken(self._held, None)
            self._held, self._size = [], 0
            return everything
        waiting = self._waiting_places(now)
        if self._must_give or len(self._held) > self._limits.records or self._size > self._limits.bytes:
            self._must_give = False
            waiting = {}
        given: list[_Held] = []
        kept: list[_Held] = []
        for held in self._held:
            first = waiting.get((held.record.topic, held.record.partition))
            (given if first is None or held.record.offset < first else kept).append(held)
        self._held = kept
        self._size = sum(_size(held.record) for held in kept)
        self._settle({held.key for held in given if held.key is not None}, now)
        # The rest of its transaction may come in any later batch.
        self._has_untied = self._has_untied or any(map(_is_untied, given))
        return _taken(given, False if self._cut else None if self._has_untied else True)

    def take_back(self, rest: Iterable[tuple[RawRecord, Decoded]]) -> None:
        """Be as behind what was given last but for its `rest`, which will come again as what is held will.

        What was applied of a transaction does not come again: without this it would be waited for.
        """
        known = self._ahead | self._over | self._known
        for record, decoded in [*rest, *((held.record, held.decoded) for held in self._held)]:
            key = self._key_of(record, decoded)
            if key is None or key not in known:
                continue
            if isinstance(decoded, RowChange):
                known[key].take_back(decoded.source_position.get("total_order"))
            elif isinstance(decoded, TransactionMark) and decoded.counts is not None:
                known[key].take_back_end()
        self._held, self._size, self._must_give = [], 0, False
        self._known = {key: one for key, one in known.items() if one.seen and not one.is_complete}
        self._ahead = OrderedDict((key, one) for key, one in known.items() if not one.seen and one.end is not None)
        self._cut, self._over = dict.fromkeys(self._known), {}
        for one in known.values():
            one.is_cut, one.is_over = one.seen > 0, one.seen > 0 and one.is_complete
        for place, ends in self._ends.items():
            self._ends[place] = deque(one for one in ends if one.end is not None)

    def _note_topics(self, topics: Iterable[str]) -> None:
        ends = {topic for topic in transaction_topics(topics, self._tables) if topic not in self._of_tables}
        self._prefixes.update(topic.removesuffix(TRANSACTION_TOPIC) for topic in ends)

    def _learn(self, records: Sequence[RawRecord], decoded: Sequence[Decoded]) -> None:
        """Learn from what is in topics whose names leave it open whether they are of transactions: a mark tells."""
        others = set()
        for (topic, *_), one in zip(records, decoded, strict=True):
            if not topic.endswith(TRANSACTION_TOPIC):
                continue
            if isinstance(one, TransactionMark):
                self._marked.add(topic)
            elif isinstance(one, RowChange) or (isinstance(one, Skipped) and one.reason == NOT_FOLLOWED):
                others.add(topic)
        self._of_tables = (self._of_tables | others) - self._marked
        self._prefixes |= {topic.removesuffix(TRANSACTION_TOPIC) for topic in self._marked}
        self._prefixes -= {topic.removesuffix(TRANSACTION_TOPIC) for topic in self._of_tables}

    def _note(self, record: RawRecord, decoded: Decoded, now: float) -> TransactionKey | None:
        """Find the transaction of a record, and remember what the record says of it."""
        key = self._key_of(record, decoded)
        if key is None:
            return None
        if isinstance(decoded, TransactionMark):
            known = self._known.get(key)
            is_ahead = known is None
            if known is None:  # a mark need not wait: nothing of the transaction is applied before an event is there
                known = self._ahead.setdefault(key, _Transaction())
                if len(self._ahead) > REMEMBERED:
                    self._ahead.popitem(last=False)[1].is_over = True
            known.grown_at = now
            if decoded.counts is not None:
                known.expected = sum(n for name, n in decoded.counts.items() if self._is_followed(name, key.prefix))
                if is_ahead and not known.expected:
                    self._ahead.pop(key, None)
                elif known.end is None:
                    known.end = record.position
                    self._ends.setdefault((record.topic, record.partition), deque()).append(known)
            return None if is_ahead else key
        assert isinstance(decoded, RowChange)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._ahead.pop(key, _Transaction())
            database, schema, _ = decoded.table.wire or (None, "", "")
            if database is not None and database != schema:  # MySQL's are what ENDs have for a schema
                self._databases.setdefault(key.prefix, database)
        known.grown_at = now
        known.add(decoded.source_position.get("total_order"))
        return key

    def _key_of(self, record: RawRecord, decoded: Decoded) -> TransactionKey | None:
        """Find the transaction that a record is of; None for one that says nothing of it."""
        if isinstance(decoded, TransactionMark):
            return TransactionKey(record.topic.removesuffix(TRANSACTION_TOPIC), transaction_of(decoded.transaction_id))
        if not isinstance(decoded, RowChange):
            return None
        told, prefix = decoded.source_position.get("transaction_id"), self._prefix_of(record.topic)
        return TransactionKey(prefix, transaction_of(told)) if prefix is not None and isinstance(told, str) else None

    def _prefix_of(self, topic: str) -> str | None:
        """Find the connector that a topic is of: the longest prefix of a transaction topic that fits.

        One that leaves a schema and a table is rather meant than one that leaves a table alone, as topics are named by
        both unless they are routed.
        """
        fitting = [prefix for prefix in self._prefixes if topic.startswith(prefix + ".")]
        return max(fitting, key=lambda prefix: ("." in topic[len(prefix) + 1 :], len(prefix)), default=None)

    def _is_followed(self, collection: str, prefix: str) -> bool:
        """Tell whether the events of a table as END names it (`schema.table`, `db.schema.table`) are awaited."""
        at = collection, self._databases.get(prefix)
        if at not in self._followed:
            self._followed[at] = self._has(*at)
        return self._followed[at]

    def _has(self, collection: str, told: str | None) -> bool:
        """Tell whether there is a table of a name, in the database that it begins with, or else that was told."""
        for name in (collection, ".".join(collection.split(".")[-2:])):
            database = collection.removesuffix(name).rstrip(".") or told
            databases = self._tables.get(name, set())
            if databases and (database is None or not databases.isdisjoint({None, database})):
                return True
        return False

    def _waiting_places(self, now: float) -> Mapping[tuple[str, int], int]:
        """Find for each partition the first offset that has to wait; none when something has waited for too long.

        A transaction waits when it is not complete, when one of its records is behind one that waits, or when its END
        is behind that of one that waits or of which no event came yet.
        """
        keys = {held.key for held in self._held if held.key is not None}
        waiting = {key for key in keys if self._is_awaited(key)}
        if any(self._is_stuck(key, now) for key in waiting):
            return {}
        ends = self._awaited_ends(now)
        while True:
            if waiting or ends:
                waiting |= self._behind_ends(keys, waiting, ends)
            if not waiting:
                return {}
            firsts: dict[tuple[str, int], int] = {}
            behind = set()
            for record, _, key in self._held:
                place = record.topic, record.partition
                if place in firsts:
                    if key is not None and key not in waiting:
                        behind.add(key)
                elif key in waiting:
                    firsts[place] = record.offset
            if not behind:
                return firsts
            waiting |= behind

    def _awaited_ends(self, now: float) -> dict[tuple[str, int], int]:
        """Find for each partition with ENDs the first whose events are to come still; forget those that are over."""
        found = {}
        for place, ends in self._ends.items():
            while ends and self._is_past(ends[0], now):
                ends.popleft()
            for one in ends:
                if not one.is_complete and not self._is_past(one, now):
                    assert one.end is not None
                    found[place] = one.end.offset
                    break
        return found

    def _behind_ends(
        self, keys: Set[TransactionKey], waiting: Set[TransactionKey], ends: dict[tuple[str, int], int]
    ) -> set[TransactionKey]:
        """Find those of the keys whose END is behind the first of its partition in `ends`, or of those that wait."""
        placed = [(key, known.end) for key in keys if (known := self._known.get(key)) is not None and known.end]
        for key, (topic, partition, offset) in placed:
            if key in waiting:
                ends[topic, partition] = min(offset, ends.get((topic, partition), offset))
        return {key for key, end in placed if key not in waiting and end.offset > ends.get(end[:2], end.offset)}

    def _is_past(self, one: _Transaction, now: float) -> bool:
        """Tell whether nothing waits for a transaction with an END any more: it is over, cut, or does not come."""
        return one.is_over or one.is_cut or (not one.seen and now - one.grown_at >= self._limits.seconds)

    def _is_awaited(self, key: TransactionKey) -> bool:
        known = self._known.get(key)
        return known is not None and not known.is_cut and not known.is_complete

    def _is_stuck(self, key: TransactionKey, now: float) -> bool:
        known = self._known.get(key)
        return known is None or now - known.grown_at >= self._limits.seconds

    def _settle(self, given: set[TransactionKey], now: float) -> None:
        """Note which transactions were cut, and forget those of which all was given.

        One that was cut counts as over as well when nothing of it has come for long while others were applied behind
        it: the rest of it was applied before, or set aside. So do the first of more than can be remembered.
        """
        rest = {held.key for held in self._held}
        over: set[TransactionKey] = set()
        for key in given:
            known = self._known.get(key)
            if key not in rest and (known is None or known.is_complete):
                over.add(key)
            elif known is not None:
                known.is_cut = True
                self._cut.setdefault(key)
        if over:
            over |= {key for key in self._cut.keys() - rest - given if self._is_stuck(key, now)}
        if len(self._cut) > REMEMBERED:
            first = islice(self._cut, len(self._cut) - REMEMBERED)
            over |= {key for key in first if key not in rest}
        for key in over:
            self._cut.pop(key, None)
        self._over = {key: known for key in over if (known := self._known.pop(key, None)) is not None}
        for known in self._over.values():
            known.is_over = True


def name_on_wire(table: Table) -> str:
    """Give the name by which a source's records call a table: `schema.table`."""
    _, schema, name = table.wire or (None, table.schema, table.name)
    return f"{schema}.{name}"


def transaction_topics(topics: Iterable[str], tables: Container[str]) -> set[str]:
    """Find the topics that tell of a source's transactions by their names; `tables` has those of the followed tables.

    That of a table with the name `transaction` is none of them, though it ends as they do.
    """
    ends = {topic for topic in topics if topic.endswith(TRANSACTION_TOPIC)}
    return {topic for topic in ends if topic.count(".") < 2 or ".".join(topic.split(".")[-2:]) not in tables}


def _taken(given: Sequence[_Held], is_whole: bool | None) -> Taken:
    return Taken([held.record for held in given], [h.decoded for h in given], [h.key for h in given], is_whole)


def _is_untied(held: _Held) -> bool:
    """Tell whether a change is of a transaction that is not known; the rows of a connector's snapshot are of none."""
    return held.key is None and isinstance(held.decoded, RowChange) and held.decoded.operation is not Operation.READ


def _size(record: RawRecord) -> int:
    return len(record.key or b"") + len(record.value or b"")


def transaction_of(transaction_id: str) -> str:
    """Give what is the same in all events of a transaction: Postgres writes `txId:lsn`, and the LSN differs."""
    first, colon, second = transaction_id.partition(":")
    return first if colon and first.isdecimal() and second.isdecimal() else transaction_id
