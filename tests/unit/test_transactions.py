"""Hold the buffer of transactions to its law: what is applied never holds a part of a transaction."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.errors import RecordError
from service.core.model import (
    NOT_FOLLOWED,
    FeedPosition,
    Operation,
    RawRecord,
    RowChange,
    Skipped,
    Table,
    TransactionMark,
)
from service.stream.envelope import Decoder
from service.usecases import transactions
from service.usecases.transactions import Taken, TransactionBuffer, WaitLimits, transaction_of, transaction_topics
from tests.events import tracked_table

ORDERS = tracked_table("s", "orders", {"id": "string"})
LINES = tracked_table("s", "lines", {"id": "string"})
EVENTS = Path(__file__).parent.parent / "data" / "debezium_events"
TOPICS = ("app.s.orders", "app.s.lines", "app.transaction")


class Source:
    """Write transactions as a connector does, and read its partitions in any portions."""

    def __init__(self) -> None:
        self.partitions: dict[tuple[str, int], list[tuple[RawRecord, RowChange | Skipped]]] = {}
        self.members: dict[FeedPosition, str] = {}
        self.read: Counter[tuple[str, int]] = Counter()

    def write(self, name: str, events: list[tuple[str, int]], *, ends: bool = True) -> None:
        """Write a transaction of events, each of (table, partition), with its END if it `ends`."""
        self._append("app.transaction", 0, lambda at: TransactionMark(at, "BEGIN", f"{name}:1"))
        for order, (table, partition) in enumerate(events, 1):
            of = ORDERS if table == "orders" else LINES
            told = {"transaction_id": f"{name}:{order}", "total_order": order}
            at = self._append(
                f"app.s.{table}",
                partition,
                lambda at, of=of, told=told: RowChange(of, Operation.CREATE, None, ("1",), at, told),
            )
            self.members[at] = name
        if ends:
            self.end(name, events)

    def end(self, name: str, events: list[tuple[str, int]]) -> None:
        counts = {f"s.{table}": count for table, count in Counter(table for table, _ in events).items()}
        counts["s.not_followed"] = 3
        self._append("app.transaction", 0, lambda at: TransactionMark(at, "END", f"{name}:9", counts))

    def poll(
        self, buffer: TransactionBuffer, topic: str, partition: int = 0, count: int = 1_000, now: float = 0
    ) -> None:
        place = topic, partition
        got = self.partitions.get(place, [])[self.read[place] : self.read[place] + count]
        self.read[place] += len(got)
        buffer.add([record for record, _ in got], [decoded for _, decoded in got], now)

    def _append(self, topic: str, partition: int, make) -> FeedPosition:  # type: ignore[no-untyped-def]
        log = self.partitions.setdefault((topic, partition), [])
        at = FeedPosition(topic, partition, len(log))
        log.append((RawRecord(*at, None, b"", 0), make(at)))
        return at


def any_source(rng: random.Random, transactions: int) -> Source:
    """Write so many transactions of up to four events."""
    source = Source()
    for number in range(transactions):
        events = [(rng.choice(["orders", "lines"]), rng.randrange(3)) for _ in range(rng.randrange(5))]
        source.write(str(number), events)
    return source


def changes_of(source: Source, taken: Taken) -> list[str]:
    places = [FeedPosition(r.topic, r.partition, r.offset) for r in taken.records]
    return [source.members[place] for place in places if place in source.members]


def test_half_a_transaction_waits_for_the_other_and_for_its_end() -> None:
    source, buffer = Source(), TransactionBuffer([ORDERS, LINES], TOPICS)
    source.write("7", [("orders", 0), ("lines", 0), ("lines", 1)])
    for topic, partition in (("app.s.orders", 0), ("app.s.lines", 1), ("app.transaction", 0)):
        source.poll(buffer, topic, partition)
        assert changes_of(source, buffer.take(0)) == []
    source.poll(buffer, "app.s.lines", 0)
    taken = buffer.take(0)
    assert (changes_of(source, taken), taken.is_whole, buffer.held) == (["7", "7", "7"], True, [])


def test_what_is_behind_a_waiting_record_waits_with_its_own_transaction() -> None:
    source, buffer = Source(), TransactionBuffer([ORDERS, LINES], TOPICS)
    source.write("6", [("lines", 2)])
    source.write("7", [("orders", 0), ("lines", 0)])
    source.write("8", [("orders", 0), ("lines", 1)])
    for topic, partition in (("app.s.orders", 0), ("app.s.lines", 1), ("app.s.lines", 2), ("app.transaction", 0)):
        source.poll(buffer, topic, partition)
    assert changes_of(source, buffer.take(0)) == ["6"], "8 is complete, but behind 7 in the orders' partition"
    source.poll(buffer, "app.s.lines", 0)
    assert sorted(changes_of(source, buffer.take(0))) == ["7", "7", "8", "8"]


@pytest.mark.parametrize("first", [[("lines", 0)], [("lines", 0), ("lines", 1)]])
def test_a_transaction_waits_for_those_whose_end_is_before_its_own(first: list[tuple[str, int]]) -> None:
    source, buffer = Source(), TransactionBuffer([ORDERS, LINES], TOPICS)
    source.write("7", first)
    source.write("8", [("orders", 0)])
    for topic, partition in (("app.s.lines", 1), ("app.s.orders", 0), ("app.transaction", 0)):
        source.poll(buffer, topic, partition)
        assert changes_of(source, buffer.take(0)) == [], "8 is complete, but the source committed 7 before"
    source.poll(buffer, "app.s.lines", 0)
    taken = buffer.take(0)
    assert (sorted(changes_of(source, taken)), taken.is_whole) == (["7"] * len(first) + ["8"], True)


def test_an_end_whose_events_do_not_come_is_waited_for_once_and_cuts_nothing() -> None:
    source, buffer = Source(), TransactionBuffer([ORDERS, LINES], TOPICS, WaitLimits(seconds=5))
    for name in ("5", "6"):
        source.write(name, [("lines", 0)])
    source.write("7", [("orders", 0)])
    source.poll(buffer, "app.transaction", now=100)
    source.poll(buffer, "app.s.orders", now=104)
    assert changes_of(source, buffer.take(104.9)) == []
    taken = buffer.take(105)
    assert (changes_of(source, taken), taken.is_whole) == (["7"], True)
    source.write("8", [("orders", 0)])
    for topic in ("app.transaction", "app.s.orders"):
        source.poll(buffer, topic, now=105)
    assert changes_of(source, buffer.take(105)) == ["8"]


def test_a_transaction_larger_than_the_bound_is_cut_and_said_to_be_until_it_is_over() -> None:
    source, buffer = Source(), TransactionBuffer([ORDERS, LINES], TOPICS, WaitLimits(records=5, seconds=60))
    source.write("7", [("orders", 0)] * 10)
    source.poll(buffer, "app.s.orders", 0, 4)
    assert buffer.take(0) == Taken([], [], [], True)
    source.poll(buffer, "app.s.orders", 0, 3)
    taken = buffer.take(0)
    assert (len(taken.records), taken.is_whole) == (7, False)
    source.poll(buffer, "app.s.orders")
    assert buffer.take(0).is_whole is False
    source.poll(buffer, "app.transaction")
    assert buffer.take(0).is_whole is True


def test_of_a_large_transaction_each_event_counts_once_though_it_is_repeated() -> None:
    source, buffer = Source(), TransactionBuffer([ORDERS, LINES], TOPICS, WaitLimits(records=100, seconds=60))
    source.write("7", [("orders", 0)] * 3_000)
    source.poll(buffer, "app.transaction")
    source.poll(buffer, "app.s.orders", 0, 2_999)
    assert buffer.take(0).is_whole is False
    source.read["app.s.orders", 0] = 0
    source.poll(buffer, "app.s.orders", 0, 2_999)
    assert buffer.take(0).is_whole is False
    source.poll(buffer, "app.s.orders")
    assert buffer.take(0).is_whole is True


def test_a_transaction_of_few_large_records_is_applied_in_parts() -> None:
    source, buffer = Source(), TransactionBuffer([ORDERS, LINES], TOPICS, WaitLimits(seconds=60, bytes=1_000))
    source.write("1", [("orders", 0)] * 3, ends=False)
    partition = source.partitions["app.s.orders", 0]
    partition[:] = [(record._replace(value=b"x" * 400), change) for record, change in partition]
    source.poll(buffer, "app.s.orders", count=2)
    assert buffer.take(0).records == []
    source.poll(buffer, "app.s.orders", count=1)
    taken = buffer.take(0)
    assert (len(taken.records), taken.is_whole) == (3, False)
    source.write("2", [("orders", 0)], ends=False)
    source.poll(buffer, "app.s.orders")
    assert buffer.take(0).records == [], "what was given counts no more"


def test_a_transaction_of_which_nothing_more_comes_is_given_up_after_the_bounded_wait() -> None:
    source, buffer = Source(), TransactionBuffer([ORDERS, LINES], TOPICS, WaitLimits(seconds=5))
    source.write("7", [("orders", 0), ("lines", 0)])
    source.poll(buffer, "app.s.orders", now=100)
    assert buffer.take(104.9) == Taken([], [], [], True)
    taken = buffer.take(105)
    assert (changes_of(source, taken), taken.is_whole) == (["7"], False)
    source.write("8", [("orders", 0)])
    source.poll(buffer, "app.s.orders", now=106)
    source.poll(buffer, "app.transaction", now=106)
    assert buffer.take(106).is_whole is False, "the rest of 7 may still come"
    source.poll(buffer, "app.s.lines", now=106)
    assert buffer.take(106).is_whole is True


def test_ends_whose_events_were_applied_before_hold_nothing_back() -> None:
    source, buffer = Source(), TransactionBuffer([ORDERS, LINES], TOPICS)
    source.write("7", [("orders", 0), ("lines", 0)])
    source.poll(buffer, "app.transaction")
    taken = buffer.take(0)
    assert (len(taken.records), taken.is_whole) == (2, True)


@pytest.mark.parametrize("elsewhere", ["s.lines", "b.s.lines"], ids=["Postgres", "SQL Server"])
def test_events_of_tables_that_another_database_has_are_not_waited_for(elsewhere: str) -> None:
    followed = replace(ORDERS, wire=("a", "s", "orders")), replace(LINES, wire=("c", "s", "lines"))
    buffer = TransactionBuffer(followed, TOPICS)
    for number in ("7", "8"):
        at = FeedPosition("app.s.orders", 0, int(number))
        told = {"transaction_id": f"{number}:1", "total_order": 1}
        change = RowChange(followed[0], Operation.CREATE, None, ("1",), at, told)
        end = FeedPosition("app.transaction", 0, int(number))
        mark = TransactionMark(end, "END", f"{number}:9", {"s.orders": 1, elsewhere: 3})
        buffer.add([RawRecord(*at, None, b"", 0), RawRecord(*end, None, b"", 0)], [change, mark], 0)
        taken = buffer.take(0)
        assert (len(taken.records), taken.is_whole) == (2, True)


def test_a_bad_record_is_not_waited_for() -> None:
    source, buffer = Source(), TransactionBuffer([ORDERS, LINES], TOPICS)
    source.write("7", [("orders", 0), ("lines", 0)])
    source.poll(buffer, "app.s.orders")
    buffer.add([RawRecord("app.s.orders", 0, 1, None, b"{", 0)], [RecordError("is not JSON")], 0)
    taken = buffer.take(0)
    assert (len(taken.records), taken.is_whole) == (2, False)


def test_without_a_transaction_topic_nothing_waits_and_nothing_is_claimed() -> None:
    source, buffer = Source(), TransactionBuffer([ORDERS, LINES], ["app.s.orders"])
    source.write("7", [("orders", 0), ("lines", 0)])
    source.poll(buffer, "app.s.orders")
    taken = buffer.take(0)
    assert (len(taken.records), taken.is_whole) == (1, None)


@pytest.mark.parametrize(
    ("topic", "transaction"), [("orders", "7:1"), ("another.s.orders", "7:1"), ("app.s.orders", None)]
)
def test_nothing_is_claimed_once_a_change_was_given_that_nothing_ties_to_a_transaction(
    topic: str, transaction: str | None
) -> None:
    source, buffer = Source(), TransactionBuffer([ORDERS, LINES], [*TOPICS, topic])
    at, told = FeedPosition(topic, 0, 0), {"transaction_id": transaction, "total_order": 1}
    for operation, is_whole in ((Operation.READ, True), (Operation.CREATE, None)):
        buffer.add([RawRecord(*at, None, b"", 0)], [RowChange(ORDERS, operation, None, ("1",), at, told)], 0)
        assert buffer.take(0).is_whole is is_whole
    source.write("8", [("lines", 0)])
    source.poll(buffer, "app.s.lines")
    source.poll(buffer, "app.transaction")
    taken = buffer.take(0)
    assert (changes_of(source, taken), taken.is_whole) == (["8"], None), "the other half of 7 may still come"


@given(st.randoms(use_true_random=False), st.integers(1, 12), st.booleans())
def test_whatever_is_polled_when_no_transaction_is_ever_applied_in_part(
    rng: random.Random, transactions: int, is_bounded: bool
) -> None:
    source = any_source(rng, transactions)
    buffer = TransactionBuffer([ORDERS, LINES], TOPICS, WaitLimits(records=6) if is_bounded else WaitLimits())
    sizes = Counter(source.members.values())
    applied: Counter[str] = Counter()
    offsets: Counter[tuple[str, int]] = Counter()
    places = list(source.partitions)
    while any(source.read[place] < len(log) for place, log in source.partitions.items()):
        source.poll(buffer, *rng.choice(places), count=rng.randint(1, 4))
        taken = buffer.take(0)
        for record, decoded in zip(taken.records, taken.decoded, strict=True):
            assert decoded is source.partitions[record.topic, record.partition][record.offset][1]
            assert record.offset == offsets[record.topic, record.partition], "in order, without a gap"
            offsets[record.topic, record.partition] += 1
        applied.update(changes_of(source, taken))
        is_whole = all(applied[name] in (0, size) for name, size in sizes.items())
        assert taken.is_whole is True or is_bounded
        assert is_whole or not taken.is_whole
        in_order = [applied[str(number)] for number in range(transactions) if str(number) in sizes]
        assert is_bounded or in_order == sorted(in_order, key=lambda count: not count), "as the source committed them"
    assert applied == sizes
    assert buffer.held == []


@given(st.randoms(use_true_random=False), st.integers(1, 12), st.integers(1, 4))
def test_a_feed_that_begins_anew_at_a_record_waits_for_nothing_that_was_applied_before(
    rng: random.Random, transactions: int, drifts: int
) -> None:
    source = any_source(rng, transactions)
    buffer = TransactionBuffer([ORDERS, LINES], TOPICS)
    sizes = Counter(source.members.values())
    unread = set(rng.sample(sorted(source.members), min(drifts, len(source.members))))
    applied: Counter[str] = Counter()
    offsets: Counter[tuple[str, int]] = Counter()
    places = list(source.partitions)
    while any(source.read[place] < len(log) for place, log in source.partitions.items()):
        for place in rng.choices(places, k=rng.randint(1, 4)):
            got = source.partitions[place][source.read[place] :][: rng.randint(1, 4)]
            source.read[place] += len(got)
            decoded = [RecordError("drift") if record.position in unread else one for record, one in got]
            buffer.add([record for record, _ in got], decoded, 0)
        taken = buffer.take(0)
        cut = next((i for i, one in enumerate(taken.decoded) if isinstance(one, RecordError)), None)
        for record in taken.records[:cut]:
            assert record.offset == offsets[record.topic, record.partition], "in order, without a gap"
            offsets[record.topic, record.partition] += 1
        applied.update(changes_of(source, Taken(taken.records[:cut], [], [], None)))
        if cut is None:
            assert not taken.is_whole or all(applied[name] in (0, size) for name, size in sizes.items())
        else:
            unread.remove(taken.records[cut].position)
            buffer.take_back(zip(taken.records[cut:], taken.decoded[cut:], strict=True))
            buffer.follow([ORDERS, LINES], TOPICS)
            source.read = Counter(offsets)
    assert applied == sizes, "though no time has passed"
    assert buffer.held == []
    assert buffer.take(0).is_whole is True


def test_what_a_feed_that_begins_anew_will_not_see_again_is_kept_in_mind() -> None:
    source, buffer = Source(), TransactionBuffer([ORDERS, LINES], TOPICS)
    source.write("6", [("orders", 0)])
    source.write("7", [("orders", 0), ("lines", 0)])
    source.write("8", [("lines", 1)])
    source.poll(buffer, "app.transaction")
    assert changes_of(source, buffer.take(0)) == []
    source.poll(buffer, "app.s.orders")
    drift = source.partitions["app.s.lines", 0][0][0]
    buffer.add([drift], [RecordError("drift")], 0)
    taken = buffer.take(0)
    assert (changes_of(source, taken), taken.is_whole) == (["6", "7", "7"], False)
    buffer.take_back([(taken.records[-1], taken.decoded[-1])])
    buffer.follow([ORDERS, LINES], TOPICS)
    source.write("9", [("orders", 0), ("lines", 2)])
    source.poll(buffer, "app.s.orders")
    assert changes_of(source, buffer.take(0)) == [], "what was not begun waits as ever"
    source.poll(buffer, "app.s.lines", 1)
    taken = buffer.take(0)
    assert (changes_of(source, taken), taken.is_whole) == (["8"], False), "8 is whole, 7 is not"
    for place in (("app.s.lines", 0), ("app.s.lines", 2), ("app.transaction", 0)):
        source.poll(buffer, *place)
    taken = buffer.take(0)
    assert (sorted(changes_of(source, taken)), taken.is_whole) == (["7", "9", "9"], True)


@pytest.mark.parametrize(
    ("told", "same"), [("764:24400904", "764"), ("a-b:23", "a-b:23"), ("file=m.1,pos=4", "file=m.1,pos=4"), ("7", "7")]
)
def test_the_lsn_of_a_postgres_id_differs_inside_a_transaction_and_does_not_count(told: str, same: str) -> None:
    assert transaction_of(told) == same


@pytest.mark.parametrize("connector", ["src", "srs", "strm"])
def test_recorded_marks_count_their_events(connector: str) -> None:
    lines = [json.loads(line) for line in (EVENTS / f"{connector}.jsonl").read_text().splitlines()]
    records = [RawRecord(e["topic"], 0, e["offset"], None, e["value"].encode(), 0) for e in lines if e["value"]]
    marks = [Decoder([]).decode(record) for record in records if record.topic.endswith(".transaction")]
    ends = {transaction_of(m.transaction_id): m.counts for m in marks if isinstance(m, TransactionMark) and m.counts}
    assert (len(marks), len(ends)) == (20, 10)
    assert ends["760"] == {"public.allt": 2, "public.plain": 1}


def test_ends_far_ahead_forget_nothing_of_what_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "REMEMBERED", 5)
    source, buffer = Source(), TransactionBuffer([ORDERS, LINES], TOPICS, WaitLimits(seconds=60))
    source.write("0", [("orders", 0), ("lines", 0)])
    for number in range(1, 20):
        source.write(str(number), [("lines", 0)])
    source.write("elsewhere", [])
    source.poll(buffer, "app.s.orders")
    source.poll(buffer, "app.transaction")
    assert changes_of(source, buffer.take(0)) == []
    source.poll(buffer, "app.s.lines", 0, 1)
    taken = buffer.take(0)
    assert (changes_of(source, taken), taken.is_whole) == (["0", "0"], True)
    source.poll(buffer, "app.s.lines")
    taken = buffer.take(0)
    assert changes_of(source, taken) == [], "their ENDs are forgotten: they wait"
    taken = buffer.take(60)
    assert (len(changes_of(source, taken)), taken.is_whole) == (19, False)


def test_of_transactions_whose_rest_never_comes_the_last_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "REMEMBERED", 5)
    source, buffer = Source(), TransactionBuffer([ORDERS, LINES], TOPICS, WaitLimits(seconds=5))
    for number in range(20):
        source.write(str(number), [("orders", 0), ("lines", number % 2)])
        source.poll(buffer, "app.s.orders", now=number * 10)
        source.poll(buffer, "app.transaction", now=number * 10)
        taken = buffer.take(number * 10 + 5)
        assert (changes_of(source, taken), taken.is_whole) == ([str(number)], False)
    for partition in (0, 1):
        source.poll(buffer, "app.s.lines", partition, now=200)
    assert changes_of(source, buffer.take(200)) == [], "the first are forgotten, so their events wait"
    taken = buffer.take(205)
    assert sorted(map(int, changes_of(source, taken))) == list(range(20))
    assert taken.is_whole is False


Written = list[tuple[RawRecord, RowChange | Skipped]]


def add(buffer: TransactionBuffer, written: Written) -> None:
    buffer.add([record for record, _ in written], [decoded for _, decoded in written], 0)


def one_transaction(number: int, prefix: str, tables: list[Table]) -> Written:
    """Write a transaction of one change of each table, and its END."""
    written: Written = []
    for order, table in enumerate(tables, 1):
        at = FeedPosition(f"{prefix}.{table.schema}.{table.name}", 0, number)
        told = {"transaction_id": f"{number}:{order}", "total_order": order}
        written.append((RawRecord(*at, None, b"", 0), RowChange(table, Operation.CREATE, None, ("1",), at, told)))
    at = FeedPosition(f"{prefix}.transaction", 0, number)
    counts = {f"{table.schema}.{table.name}": 1 for table in tables}
    return [*written, (RawRecord(*at, None, b"", 0), TransactionMark(at, "END", f"{number}:9", counts))]


@pytest.mark.parametrize("prefix", ["app", "eu.app"])
@pytest.mark.parametrize("is_followed", [True, False])
def test_the_topic_of_a_table_called_transaction_is_not_taken_for_one_of_transactions(
    prefix: str, is_followed: bool
) -> None:
    called = tracked_table("s", "transaction", {"id": "string"})
    tables = [ORDERS, called] if is_followed else [ORDERS]
    buffer = TransactionBuffer(tables, [f"{prefix}.{name}" for name in ("s.orders", "s.transaction", "transaction")])
    for number in range(3):
        written = one_transaction(number, prefix, tables)
        if not is_followed:
            at = FeedPosition(f"{prefix}.s.transaction", 0, number)
            written.insert(1, (RawRecord(*at, None, b"", 0), Skipped(at, NOT_FOLLOWED)))
        add(buffer, written[:1])
        assert buffer.take(0).records == [], "its END is to come"
        add(buffer, written[1:])
        taken = buffer.take(0)
        assert (len(taken.records), taken.is_whole) == (len(written), True)


def test_of_a_table_called_transaction_nothing_is_claimed_where_nothing_tells_of_transactions() -> None:
    called = tracked_table("s", "transaction", {"id": "string"})
    buffer = TransactionBuffer([ORDERS, called], ["app.s.orders", "app.s.transaction"])
    at = FeedPosition("app.s.transaction", 0, 0)
    add(buffer, [(RawRecord(*at, None, b"", 0), RowChange(called, Operation.CREATE, None, ("1",), at, {}))])
    taken = buffer.take(0)
    assert (len(taken.records), taken.is_whole) == (1, None)
    assert transaction_topics(["app.s.transaction", "app.transaction"], {"s.transaction"}) == {"app.transaction"}


def test_a_topic_that_could_be_either_is_one_of_transactions_once_it_tells_of_one() -> None:
    called = tracked_table("shop", "transaction", {"id": "string"})
    buffer = TransactionBuffer([ORDERS, called], ["eu.shop.s.orders", "eu.shop.transaction"])
    for number in range(2):
        change, end = one_transaction(number, "eu.shop", [ORDERS])
        add(buffer, [change])
        assert len(buffer.take(0).records) == (1 if number == 0 else 0), "known from its first mark on"
        add(buffer, [end])
        buffer.take(0)
