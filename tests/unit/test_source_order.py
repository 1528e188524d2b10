"""Say which order events have in their source, and that an event that comes again never stands above what was seen."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.model import FeedPosition, Operation, RowChange
from service.stream.source_order import Mark, mark, reader
from service.usecases.screening import Screen, put_seen
from tests.events import tracked_table

EVENTS = Path(__file__).parent.parent / "data" / "debezium_events"


def marks(connector: str, topic: str) -> list[Mark | None]:
    with open(EVENTS / f"{connector}.jsonl", encoding="utf-8") as lines:
        records = [json.loads(line) for line in lines]
    values = [json.loads(r["value"]) for r in records if r["topic"].endswith(topic) and r["value"] is not None]
    values = [value.get("payload", value) for value in values]
    return [mark(value["source"], value["transaction"], value["op"]) for value in values]


@pytest.mark.parametrize("connector", ["src", "srs", "strm"])
@pytest.mark.parametrize("topic", ["allt", "plain"])
def test_recorded_events_of_a_topic_have_rising_marks(connector: str, topic: str) -> None:
    streamed = [m for m in marks(connector, topic) if m is not None]
    assert len(streamed) == {"allt": 8, "plain": 6}[topic]
    assert all(a < b for a, b in pairwise(streamed))


def test_recorded_halves_of_a_key_change_and_tables_of_a_truncate_share_an_lsn_and_not_a_mark() -> None:
    every = [m for m in marks("src", "allt") + marks("src", "plain") if m is not None]
    assert len({m[:2] for m in every}) == len(every) - 3  # two key changes, one TRUNCATE of two tables
    assert len(set(every)) == len(every)


def test_a_row_of_a_snapshot_has_no_mark() -> None:
    assert marks("src", "allt")[0] is None
    source = {"connector": "mysql", "file": "binlog.000003", "pos": 4, "row": 0}
    for snapshot in ("true", "first", "last", "incremental", True):
        assert mark({**source, "snapshot": snapshot}, None, "r") is None
    for snapshot in ("false", False, None):
        assert mark({**source, "snapshot": snapshot}, None, "c") == (3, 4, 0, 1)


def test_without_the_transaction_a_postgres_event_cannot_be_told_from_another_with_its_lsn() -> None:
    source = {"connector": "postgresql", "sequence": '["10","20"]', "lsn": 20}
    assert mark(source, {"id": "7:20", "total_order": 2}, "c") == (10, 20, 2)
    assert mark(source, None, "c") is None


@pytest.mark.parametrize(
    ("lsn", "found"), [(0, (10, 0, 2)), (2**63 - 1, (10, 2**63 - 1, 2)), (2**63, None), (-1, None)]
)
def test_a_number_that_is_no_place_in_a_log_gives_no_mark(lsn: int, found: Mark | None) -> None:
    source = {"connector": "postgresql", "sequence": '["10","20"]', "lsn": lsn}
    assert mark(source, {"id": "7:20", "total_order": 2}, "c") == found


def test_the_first_transaction_of_a_connector_stands_before_all_others() -> None:
    first = mark({"connector": "postgresql", "sequence": '[null,"99"]', "lsn": 99}, {"total_order": 3}, "c")
    second = mark({"connector": "postgresql", "sequence": '["50","60"]', "lsn": 60}, {"total_order": 1}, "c")
    assert first is not None
    assert second is not None
    assert first < second


@pytest.mark.parametrize("connector", ["mysql", "mariadb"])
def test_mysql_goes_by_file_position_and_row_and_a_key_change_takes_away_first(connector: str) -> None:
    def at(file: str, pos: int, row: int, letter: str) -> Mark:
        found = mark({"connector": connector, "file": file, "pos": pos, "row": row}, None, letter)
        assert found is not None
        return found

    events = [
        at("binlog.999999", 900, 0, "c"),
        at("binlog.1000000", 4, 0, "u"),
        at("binlog.1000000", 4, 1, "d"),
        at("binlog.1000000", 4, 1, "c"),
        at("binlog.1000000", 200, 0, "t"),
    ]
    assert events == sorted(set(events))


def test_sql_server_goes_by_commit_and_order_in_it() -> None:
    def at(lsn: str, order: int) -> Mark | None:
        return mark({"connector": "sqlserver", "commit_lsn": lsn, "change_lsn": "x"}, {"total_order": order}, "u")

    assert at("00000027:00000758:0005", 2) == (0x27, 0x758, 5, 2, 0)
    assert mark({"connector": "sqlserver", "commit_lsn": "00000027:00000758:0005"}, None, "u") is None


def test_what_is_no_order_gives_no_mark() -> None:
    assert mark({}, None, "c") is None
    assert mark({"connector": "oracle", "scn": "1", "commit_scn": "2"}, {"total_order": 1}, "c") is None
    for source in (
        {"connector": "postgresql", "sequence": "[", "lsn": 1},
        {"connector": "postgresql", "sequence": "7", "lsn": 1},
        {"connector": "postgresql", "sequence": '["ten"]', "lsn": 1},
        {"connector": "postgresql", "sequence": '["10","20"]', "lsn": 2**70},
        {"connector": "mysql", "file": "binlog", "pos": 1, "row": 0},
        {"connector": "sqlserver", "commit_lsn": "27:758"},
        {"connector": "sqlserver", "commit_lsn": "-1:+2: 3"},
    ):
        assert mark(source, {"total_order": 1}, "c") is None


TABLE = tracked_table("s", "t", {"id": "integer"})


@st.composite
def sent_by_postgres(draw: st.DrawFn) -> list[tuple[int | None, int, int]]:
    """Draw what a Postgres connector sends of interleaved transactions, in the order of commits, LSNs mixed.

    Each event is (LSN of the last commit before, LSN, order in the transaction).
    """
    lsn, done = 100, []
    open_: dict[int, list[int]] = {}
    for transaction in range(draw(st.integers(1, 5))):
        open_[transaction] = []
        for _ in range(draw(st.integers(1, 6))):
            writer = draw(st.sampled_from(sorted(open_)))
            lsn += draw(st.integers(1, 3))
            # One record of the log may hold several rows (COPY, both halves of a key change).
            open_[writer] += [lsn] * draw(st.integers(1, 4))
        lsn += 1
        done.append((lsn, open_.pop(draw(st.sampled_from(sorted(open_))))))
    events: list[tuple[int | None, int, int]] = []
    last = None
    for commit, lsns in done:
        events += [(last, at, order) for order, at in enumerate(lsns, 1)]
        last = commit if lsns else last
    return events


def sent_again(
    events: list[tuple[int | None, int, int]], stored: int, order: int
) -> list[tuple[int, tuple[int | None, int, int]]]:
    """Give what a connector sends after a start, with the events' numbers, when `stored` was the last it stored.

    It goes on behind the LSN of that event, and counts the rest of the transaction on from the number that it had.
    """
    group = events[stored][:2]
    begin = next((i for i in range(stored, len(events)) if events[i][:2] != group), len(events))
    lost = events[begin - 1][2] - order
    return [
        (i, (commit, lsn, order - lost if commit == group[0] else order))
        for i, (commit, lsn, order) in enumerate(events[begin:], begin)
    ]


@given(sent_by_postgres(), st.data())
def test_of_what_a_killed_connector_repeats_each_event_is_applied_once(
    events: list[tuple[int | None, int, int]], data: st.DataObject
) -> None:
    arriving = list(enumerate(events))
    started, stored = 0, None  # where in `arriving` the connector started last, and what it had stored then
    for _ in range(data.draw(st.integers(0, 3), "kills")):
        killed = data.draw(st.integers(min(started + 1, len(arriving)), len(arriving)), "killed after")
        # What it stores is of a group that was sent whole: behind its LSN it would not send the group's rest again.
        sent = arriving[started:killed]
        whole = [
            (i, order)
            for place, (i, (*group, order)) in enumerate(sent, 1)
            if i + 1 == len(events) or events[i + 1][:2] != tuple(group) or place < len(sent)
        ]
        candidates = whole if stored is None else [stored, *whole]
        if not candidates:
            continue
        drawn = data.draw(st.sampled_from(candidates), "stored")
        last = sent[-1][0] if sent else drawn[0]
        if events[drawn[0]][:2] == events[last][:2] and last + 1 < len(events) and drawn != stored:
            continue
        stored, started = drawn, killed
        arriving = arriving[:killed] + sent_again(events, *stored)
    topic = {i for i in range(len(events)) if data.draw(st.booleans())}  # what of it goes to one topic partition
    changes = arrived([one for one in arriving if one[0] in topic])
    screen, applied, rest = Screen({}, {}), [], changes
    while rest:
        size = data.draw(st.integers(1, len(rest)), "batch")
        screened = screen.screen(rest[:size])
        screen.advance(screened.seen)
        stored_positions = {place: put_seen({}, seen) for place, seen in screened.seen.items()}
        if data.draw(st.booleans(), "the consumer starts anew"):
            screen = Screen({}, json_of(stored_positions))
        applied += [int((change.after or ())[0] or "") for change in screened.changes]
        rest = rest[size:]
    assert applied == sorted(topic)


def test_a_killed_connector_counts_a_transaction_anew_and_nothing_is_lost_or_applied_twice() -> None:
    copied, copied_too = [(None, 10, order) for order in range(1, 6)], [(None, 20, order) for order in range(6, 10)]
    whole = list(enumerate(copied + copied_too))
    # The second event was stored: it goes on behind its LSN, and counts on from 2.
    again = sent_again(copied + copied_too, 1, 2)
    assert [event[2] for _, event in again] == [3, 4, 5, 6]
    for killed in range(5, 10):
        screened = Screen({}, {}).screen(arrived(whole[:killed] + again))
        assert [change.after for change in screened.changes] == [(str(i),) for i in range(9)]
        assert len(screened.skipped) == killed - 5


def arrived(events: list[tuple[int, tuple[int | None, int, int]]]) -> list[RowChange]:
    """Make the changes of numbered events, as they come in one topic partition."""
    changes = []
    for number, (commit, lsn, order) in events:
        source = {"connector": "postgresql", "sequence": json.dumps([commit and str(commit), str(lsn)]), "lsn": lsn}
        found = mark(source, {"total_order": order}, "c")
        assert found is not None
        position = FeedPosition("t", 0, len(changes))
        changes.append(RowChange(TABLE, Operation.CREATE, None, (str(number),), position, {"mark": list(found)}))
    return changes


def json_of(positions: dict[tuple[str, int], dict[str, object]]) -> dict[tuple[str, int], dict[str, object]]:
    """Give positions as the store gives them back."""
    return {place: json.loads(json.dumps(position)) for place, position in positions.items()}


def test_connectors_that_share_a_topic_are_told_apart() -> None:
    """Each has a part of the source's rows, and a log of its own: their places do not compare."""

    def sent(name: str, file: int, ts_ms: int, offset: int) -> RowChange:
        source = {"connector": "mysql", "file": f"binlog.{file:06d}", "pos": 4, "row": 0, "name": name}
        position = {"ts_ms": ts_ms, "mark": list(mark(source, None, "c") or ()), "marked_by": reader(source)}
        return RowChange(TABLE, Operation.CREATE, None, (name,), FeedPosition("t", 0, offset), source_position=position)

    one, other = sent("a", 900, 1000, 0), sent("b", 3, 999, 1)
    screen = Screen({}, {})
    found = screen.screen([one, other])
    assert (found.changes, found.skipped, found.rewound) == ([one, other], [], {})
    stored = json_of({place: put_seen({}, seen) for place, seen in found.seen.items()})
    again = Screen({}, stored).screen([one, other, sent("b", 4, 1001, 2)])
    assert [len(again.changes), len(again.skipped), again.rewound] == [1, 2, {}]


def test_what_was_seen_before_connectors_were_told_apart_still_counts() -> None:
    source = {"connector": "mysql", "file": "binlog.000003", "pos": 4, "row": 0, "name": "a"}
    position = {"ts_ms": 5, "mark": list(mark(source, None, "c") or ()), "marked_by": reader(source)}
    change = RowChange(TABLE, Operation.CREATE, None, ("x",), FeedPosition("t", 0, 0), source_position=position)
    before = {("t", 0): {"seen": {TABLE.source: [[3, 4, 0, 1], 5, 0, [3, 4, 0, 1, 1]]}}}
    assert Screen({}, before).screen([change]).changes == []


def test_logs_of_one_sql_server_are_its_databases() -> None:
    assert reader({"connector": "sqlserver", "name": "srv", "db": "a"}) == "srv/a"
    assert reader({"connector": "postgresql", "name": "srv", "db": "a"}) == "srv"
    assert reader({"connector": "mysql"}) == ""
    assert reader({"connector": "mysql", "name": "a\0b"}) == "", "the state cannot hold it"
