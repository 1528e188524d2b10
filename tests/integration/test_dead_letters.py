"""Records that were set aside: kept whole, shown, tried again in order and once, dropped."""

from __future__ import annotations

import json
import threading
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from service.cli import app
from service.core.errors import SubsetdError
from service.store import dead_letters
from service.store.database import make_engine
from service.usecases.batches import ErrorPolicy
from service.usecases.retry_dead_letters import DeadLetter
from tests import kept_rows, states
from tests.events import envelope
from tests.following import COLUMNS, MakeStream, Stream, Watch, consume
from tests.integration.serving import app_over, serving
from tests.states import Tables
from tests.waiting import wait_for


@pytest.fixture
def stream(make_stream: MakeStream, database_url: str, monkeypatch: pytest.MonkeyPatch) -> Stream:
    tables = Tables(COLUMNS)
    tables.add("customers", ["1", "Ada"], ["2", "Bob"])
    tables.add("orders", ["10", "1", "first"])
    states.store(database_url, tables)
    monkeypatch.setenv("SUBSETD_DATABASE_URL", database_url)
    monkeypatch.setenv("SUBSETD_LOG_LEVEL", "error")
    return make_stream(tables)


def subsetd(*arguments: object, code: int = 0) -> str:
    """Run `subsetd dead-letters ...` and give what it prints."""
    ended = CliRunner().invoke(app, ["dead-letters", *map(str, arguments)])
    if ended.exception is not None and not isinstance(ended.exception, SystemExit):
        raise ended.exception
    assert ended.exit_code == code, ended.output
    return ended.stdout


def letters(url: str) -> list[tuple[int, str]]:
    return [
        (i, message) for i, message in states.query(url, "select dead_letter_id, message from dead_letter order by 1")
    ]


def set_aside(url: str, stream: Stream) -> None:
    consume(url, stream, on_error=ErrorPolicy.SET_ASIDE)


@pytest.mark.parametrize("told", [["--feed", "kafka:one"], ["--format", "json"]])
@pytest.mark.parametrize("command", [["retry", "--all"], ["drop", "1"], ["show", "1"], ["list"]])
def test_what_is_said_of_the_list_before_another_command_is_refused_and_not_passed_over(
    database_url: str, stream: Stream, told: list[str], command: list[str]
) -> None:
    stream.write(b"{")
    set_aside(database_url, stream)
    before = letters(database_url)
    subsetd(*told, *command, code=2)
    assert letters(database_url) == before != []


def test_a_letter_keeps_its_record_byte_for_byte(database_url: str, stream: Stream) -> None:
    record = b'{"op": "c", "source": {"schema": "s", "table": "orders"}, "after": {"id": "\xff\\u0000"}}'
    stream.write(record)
    set_aside(database_url, stream)
    ((value, table, text, key),) = states.query(
        database_url, "select record_value, table_name, record, record_key from dead_letter"
    )
    assert (bytes(value), key and bytes(key)) == (record, stream.key)
    assert table is None, "what is no UTF-8 names no table"
    assert r"\xff" in text


def test_a_letter_names_its_table_where_the_record_says_it(database_url: str, stream: Stream) -> None:
    stream.append("orders", ["99", None, None], None)
    set_aside(database_url, stream)
    assert states.query(database_url, "select table_name from dead_letter") == [("s.orders",)]


def test_letters_are_listed_shown_and_dropped(database_url: str, stream: Stream) -> None:
    stream.write(b'{"op": "c", "note": "first\\u0007"}')
    stream.write(b"[2]")
    set_aside(database_url, stream)
    first, second = [i for i, _ in letters(database_url)]
    assert subsetd() == subsetd("list")
    assert len(json.loads(subsetd("list", "--format", "json"))) == 2
    shown = subsetd("show", first)
    assert 'value: {"op": "c", "note": "first\\u0007"}' in shown
    assert "offset: 0" in shown
    subsetd("drop", first)
    assert [i for i, _ in letters(database_url)] == [second]
    with pytest.raises(SubsetdError, match=f"There is no dead letter {first}"):
        subsetd("drop", second, first)
    assert [i for i, _ in letters(database_url)] == [second], "all or none"


def test_what_has_become_right_is_applied_once_and_is_no_letter_any_more(database_url: str, stream: Stream) -> None:
    # The delete comes before its insert, as from a source with two partitions.
    stream.append("orders", ["11", "2", None], None)
    stream.append("orders", None, ["11", "2", None])
    consume(database_url, stream, records=1, on_error=ErrorPolicy.SET_ASIDE)
    assert len(letters(database_url)) == 1
    assert "1 records tried again: 1 applied" in subsetd("retry", "--all")
    assert letters(database_url) == []
    assert states.read(database_url) == states.expected(stream.tables)
    assert "No record is set aside" in subsetd("retry", "--all")
    assert states.read(database_url) == states.expected(stream.tables)


def test_what_still_fails_stays_with_its_new_message(database_url: str, stream: Stream) -> None:
    stream.append("orders", ["11", "2", None], None)
    stream.append("customers", ["9", None], None)
    set_aside(database_url, stream)
    states.execute(database_url, "update dead_letter set message = 'old'")
    stream.append("orders", None, ["11", "2", None])
    consume(database_url, stream)
    assert "2 records tried again: 1 applied, 0 skipped, 1 still set aside" in subsetd("retry", "--all", code=1)
    ((_, message),) = letters(database_url)
    assert "s.customers.id" in message
    assert states.read(database_url) == states.expected(stream.tables)


def test_letters_are_tried_in_their_order(database_url: str, stream: Stream) -> None:
    stream.append("orders", ["11", "2", None], ["11", "3", None])
    stream.append("orders", ["11", "3", None], ["11", "4", None])
    set_aside(database_url, stream)
    stream.append("orders", None, ["11", "2", None])
    consume(database_url, stream)
    stream.tables.add("orders", ["11", "4", None])
    first, second = [i for i, _ in letters(database_url)]
    subsetd("retry", second, first)
    assert letters(database_url) == []
    assert states.read(database_url) == states.expected(stream.tables)


def test_letters_are_read_in_portions_and_tried_in_batches(
    database_url: str, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [[str(number), "2", "large" * 500] for number in range(20, 25)]
    for row in rows:
        stream.append("orders", row, None)
    set_aside(database_url, stream)
    for row in rows:
        stream.append("orders", None, row)
    consume(database_url, stream)
    read, sizes = dead_letters.read, []

    def counted(*given: Any) -> list[DeadLetter]:
        found = read(*given)
        sizes.append(len(found))
        return found

    monkeypatch.setattr(dead_letters, "read", counted)
    monkeypatch.setattr(dead_letters, "PORTION", 2, raising=False)
    monkeypatch.setenv("SUBSETD_BATCH_BYTES", "1024")
    before = states.query(database_url, "select max(version) from state_version")[0][0]
    assert "5 records tried again: 5 applied" in subsetd("retry", "--all")
    assert states.query(database_url, "select max(version) from state_version") == [(before + 5,)]
    assert (letters(database_url), sizes) == ([], [2, 2, 1, 0])
    assert states.read(database_url) == states.expected(stream.tables)


def test_a_retry_leaves_the_positions_of_the_feed_alone(database_url: str, stream: Stream) -> None:
    stream.append("orders", ["11", "2", None], None)
    stream.append("orders", None, ["11", "2", None])
    consume(database_url, stream, records=1, on_error=ErrorPolicy.SET_ASIDE)
    before = states.query(database_url, "select * from feed_position")
    subsetd("retry", "--all")
    assert states.query(database_url, "select * from feed_position") == before
    stream.change("orders", None, ["12", "2", None])
    assert consume(database_url, stream).records == 1
    ended = CliRunner().invoke(app, ["verify", "--sql-only"])
    assert (ended.exit_code, ended.stdout.count("holds")) == (0, 9)


def test_a_letter_from_before_its_table_was_emptied_is_refused(database_url: str, stream: Stream) -> None:
    kept_rows.keep(database_url, stream.tables, {})
    stream.append("orders", ["10", "1", "first"], ["10", "9", "first"])
    stream.append("orders", ["11", None, None], None)
    stream.write(envelope("t", "s", "orders"))
    stream.append("orders", None, ["11", None, None])
    stream.tables.rows["orders"].clear()
    stream.tables.add("orders", ["11", None, None])
    set_aside(database_url, stream)
    subsetd("retry", "--all", code=1)
    ((_, message),) = letters(database_url)
    assert "bootstrapped or emptied at version" in message
    assert states.read(database_url) == states.expected(stream.tables)


def test_a_letter_from_before_a_bootstrap_of_the_first_release_is_refused(database_url: str, stream: Stream) -> None:
    """It did not keep since when a table is what it is: its source's bootstrap is known."""
    kept_rows.keep(database_url, stream.tables, {})
    stream.append("orders", ["11", "2", None], None)
    set_aside(database_url, stream)
    states.execute(
        database_url,
        "update tracked_table set begun_version = null; "
        "insert into state_version (version, generation, kind) values (9, 1, 'bootstrap'); "
        "update source set bootstrapped_version = 9",
    )
    stream.append("orders", None, ["11", "2", None])
    consume(database_url, stream)
    subsetd("retry", "--all", code=1)
    ((_, message),) = letters(database_url)
    assert "bootstrapped or emptied at version 9" in message


def test_a_letter_of_a_table_that_is_not_known_by_its_name_stays(database_url: str, stream: Stream) -> None:
    stream.append("orders", ["11", "2", None], None)
    stream.append("customers", ["9", "nobody"], None)
    set_aside(database_url, stream)
    states.execute(
        database_url,
        "update tracked_table set source_table = 'bills' where table_name = 'orders'; "
        "update attribute set table_name = 'bills' where table_name = 'orders'; "
        "update tracked_table set table_name = 'bills' where table_name = 'orders'",
    )
    assert "0 applied, 0 skipped, 2 still set aside" in subsetd("retry", "--all", code=1)
    (_, message), _ = letters(database_url)
    assert "is not followed under the name" in message


def test_another_record_at_the_place_of_a_letter_takes_its_place(database_url: str, stream: Stream) -> None:
    stream.append("orders", ["11", "2", None], None)
    set_aside(database_url, stream)
    (first,) = letters(database_url)
    # The source is read anew, and so is the file, which is another.
    states.execute(database_url, "delete from feed_position; update tracked_table set begun_version = 99")
    stream.path.write_text("")
    stream.append("orders", ["12", "2", None], None)
    set_aside(database_url, stream)
    assert letters(database_url)[0][0] == first[0]
    ((value,),) = states.query(database_url, "select record_value from dead_letter")
    assert bytes(value) == stream.path.read_bytes().rstrip(b"\n")


def test_a_truncate_is_not_applied_late(database_url: str, stream: Stream) -> None:
    states.execute(database_url, "update source set insert_only = true")
    stream.write(envelope("t", "s", "orders"))
    set_aside(database_url, stream)
    states.execute(database_url, "update source set insert_only = false")
    subsetd("retry", "--all", code=1)
    ((_, message),) = letters(database_url)
    assert "at a place in the feed that is passed" in message
    assert states.read(database_url) == states.expected(stream.tables)


def test_a_letter_that_a_later_bootstrap_holds_is_skipped(database_url: str, stream: Stream) -> None:
    kept_rows.keep(database_url, stream.tables, {})
    row = dict(zip(COLUMNS["orders"], ["10", "1", "first"], strict=True))
    stream.write(envelope("d", "s", "customers", {"id": "9", "name": "nobody"}, txId=6))
    stream.write(envelope("d", "s", "orders", row | {"id": "99"}, txId=7))
    set_aside(database_url, stream)
    states.execute(database_url, "update source set kind = 'postgres', snapshot = '7:7:'")
    assert "1 skipped, 1 still set aside" in subsetd("retry", "--all", code=1)
    assert states.read(database_url) == states.expected(stream.tables)


def test_a_letter_long_behind_the_bootstrap_is_no_part_of_it(database_url: str, stream: Stream) -> None:
    """Its transaction's 32 bits are those of one that the bootstrap shows, too."""
    kept_rows.keep(database_url, stream.tables, {})
    states.execute(database_url, "update source set kind = 'postgres', snapshot = '3000000000:3000000000:'")
    row = {"id": "9", "name": "Eve"}
    stream.write(envelope("c", "s", "customers", None, row, txId=4_500_000_000 % 2**32))
    set_aside(database_url, stream)
    for _ in range(2):
        stream.write(envelope("d", "s", "customers", row, txId=6_000_000_000 % 2**32))
    set_aside(database_url, stream)
    stream.write(envelope("c", "s", "customers", None, row, txId=6_000_000_001 % 2**32))
    set_aside(database_url, stream)
    assert "1 applied" in subsetd("retry", "--all")
    assert states.read(database_url) == states.expected(stream.tables)


@pytest.fixture
def keyed(database_url: str, stream: Stream) -> Stream:
    """Keep the rows of orders, and set one update of the order 10 aside: it comes without a whole row."""
    kept_rows.keep(database_url, stream.tables, {"orders": ["id"]})
    return stream


def send(stream: Stream, op: str, row: dict[str, str | None]) -> None:
    stream.write(envelope(op, "s", "orders", row if op == "d" else None, None if op == "d" else row))


LACKING: dict[str, str | None] = {"id": "20", "customer": "2", "note": "__debezium_unavailable_value"}


@pytest.mark.parametrize("later", ["update", "delete"])
def test_a_letter_is_refused_where_its_row_was_changed_since(database_url: str, keyed: Stream, later: str) -> None:
    send(keyed, "u", LACKING)
    send(keyed, "c", {"id": "20", "customer": "1", "note": "whole"})
    if later == "delete":
        send(keyed, "d", {"id": "20"})
    else:
        keyed.tables.add("orders", ["20", "1", "whole"])
    set_aside(database_url, keyed)
    assert len(letters(database_url)) == 1
    subsetd("retry", "--all", code=1)
    ((letter_id, message),) = letters(database_url)
    assert "was overtaken" in message
    assert states.read(database_url) == states.expected(keyed.tables)
    subsetd("drop", letter_id)
    assert kept_rows.read(database_url, "orders") == kept_rows.expected(keyed.tables, "orders", ["id"])
    assert states.query(database_url, "select count(*) from row_image where cells is null") == [(0,)]


def test_a_letter_is_applied_where_its_row_was_not_changed_since(database_url: str, keyed: Stream) -> None:
    send(keyed, "u", {"id": "10", "customer": "2", "note": "with a \\ud800"})
    at = keyed.path.stat().st_size
    keyed.path.write_bytes(keyed.path.read_bytes().replace(rb"\\ud800", rb"\ud800"))
    assert keyed.path.stat().st_size < at
    keyed.change("customers", None, ["3", "Cy"])
    set_aside(database_url, keyed)
    assert len(letters(database_url)) == 1
    states.execute(  # mended by hand, as a newer decoder would read it
        database_url, r"update dead_letter set record_value = convert_to(replace(record, '\ud800', 'half'), 'UTF8')"
    )
    subsetd("retry", "--all")
    keyed.tables.remove("orders", ["10", "1", "first"])
    keyed.tables.add("orders", ["10", "2", "with a half"])
    assert letters(database_url) == []
    assert states.read(database_url) == states.expected(keyed.tables)
    assert kept_rows.read(database_url, "orders") == kept_rows.expected(keyed.tables, "orders", ["id"])


def retried(url: str, letter: int) -> httpx.Response:
    """Ask a service for another try."""
    engine = make_engine(url, "test-dead-letters")
    try:
        with serving(app_over(engine)) as address:
            # The first one compiles the kernels.
            return httpx.post(f"{address}/api/v1/dead_letters/{letter}/retry", json={}, timeout=300)
    finally:
        engine.dispose()


def test_over_http_a_letter_is_tried_once(database_url: str, stream: Stream) -> None:
    stream.append("orders", ["11", "2", None], None)
    stream.append("orders", None, ["11", "2", None])
    stream.append("customers", ["9", None], None)
    consume(database_url, stream, records=1, on_error=ErrorPolicy.SET_ASIDE)
    (right, _), (wrong, _) = letters(database_url)
    assert retried(database_url, wrong).json()["outcome"] == "set_aside"
    answer = retried(database_url, right)
    ((version,),) = states.query(database_url, "select max(version) from state_version")
    assert answer.json() == {"dead_letter_id": right, "outcome": "applied", "version": version}
    assert [one for one, _ in letters(database_url)] == [wrong]
    again = retried(database_url, right)
    assert (again.status_code, again.json()["type"]) == (404, "/docs#unknown-dead-letter")


def test_over_http_a_letter_whose_feed_is_set_wrongly_is_no_defect(
    database_url: str, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream.append("customers", ["9", None], None)
    set_aside(database_url, stream)
    ((letter, _),) = letters(database_url)
    monkeypatch.setenv("SUBSETD_FEED_SOURCES", "unknown")
    answer = retried(database_url, letter)
    assert (answer.status_code, answer.json()["type"]) == (503, "/docs#unavailable")
    assert "no table of a source 'unknown'" in answer.json()["detail"]


@pytest.mark.parametrize("over_http", [False, True])
def test_a_running_consumer_hands_the_state_over_to_a_retry(database_url: str, stream: Stream, over_http: bool) -> None:
    stream.append("orders", ["11", "2", None], None)
    stream.append("orders", None, ["11", "2", None])
    consume(database_url, stream, records=1, on_error=ErrorPolicy.SET_ASIDE)
    stop, watch = threading.Event(), Watch()
    consumer = threading.Thread(
        target=consume, args=(database_url, stream), kwargs={"watch": watch, "stop": stop, "retry_seconds": 60.0}
    )
    consumer.start()
    try:
        wait_for(lambda: watch.followed)
        if over_http:
            ((letter, _),) = letters(database_url)
            assert retried(database_url, letter).json()["outcome"] == "applied"
        else:
            assert "1 applied" in subsetd("retry", "--all")
        stream.change("orders", None, ["12", "2", None])
        wait_for(lambda: states.query(database_url, "select next_offset from feed_position") == [(stream.end(),)])
    finally:
        stop.set()
        consumer.join()
    assert states.read(database_url) == states.expected(stream.tables)
    assert letters(database_url) == []
