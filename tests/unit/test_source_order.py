"""Say which order events have in their source, and that an event that comes again never stands above what was seen."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.stream.source_order import Mark, mark

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


def test_the_first_transaction_of_a_connector_stands_before_all_others() -> None:
    first = mark({"connector": "postgresql", "sequence": '[null,"99"]', "lsn": 99}, {"total_order": 3}, "c")
    second = mark({"connector": "postgresql", "sequence": '["50","60"]', "lsn": 60}, {"total_order": 1}, "c")
    assert first is not None
    assert second is not None
    assert first < second


def test_mysql_goes_by_file_position_and_row_and_a_key_change_takes_away_first() -> None:
    def at(file: str, pos: int, row: int, letter: str) -> Mark:
        found = mark({"connector": "mysql", "file": file, "pos": pos, "row": row}, None, letter)
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

    assert at("00000027:00000758:0005", 2) == (0x27, 0x758, 5, 2)
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


@st.composite
def sent_by_postgres(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Draw what a Postgres connector sends of interleaved transactions: in the order of commits, LSNs mixed."""
    lsn, open_, done = 100, {}, []
    for txid in range(draw(st.integers(1, 5))):
        open_[txid] = []
        for _ in range(draw(st.integers(1, 6))):
            writer = draw(st.sampled_from(sorted(open_)))
            lsn += draw(st.integers(1, 3))
            # One record of the log may hold several rows (COPY, both halves of a key change).
            open_[writer] += [lsn] * draw(st.integers(1, 3))
        lsn += 1
        committed = draw(st.sampled_from(sorted(open_)))
        done.append((lsn, open_.pop(committed)))
    events, last = [], None
    for commit, lsns in done:
        for order, at in enumerate(lsns, 1):
            sequence = json.dumps([last and str(last), str(at)])
            source = {"connector": "postgresql", "sequence": sequence, "lsn": at}
            events.append({"source": source, "transaction": {"total_order": order}})
        last = commit if lsns else last
    return events


@given(sent_by_postgres(), st.data())
def test_exactly_what_a_restarted_connector_repeats_is_not_above_what_was_seen(
    events: list[dict[str, Any]], data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(events)), "killed after")
    back = data.draw(st.integers(0, at), "begins anew at")
    topic = [i for i in range(len(events)) if data.draw(st.booleans())]  # what of it goes to one topic partition
    arriving = [i for i in topic if i < at] + [i for i in topic if i >= back]
    highest: Mark = ()
    applied = []
    for i in arriving:
        found = mark(events[i]["source"], events[i]["transaction"], "c")
        assert found is not None
        if found > highest:
            applied.append(i)
            highest = found
    assert applied == topic
