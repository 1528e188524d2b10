"""Bad input and bad days on a real Postgres: each is said plainly, nothing is lost, and nothing is half applied."""

from __future__ import annotations

import random
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from service.core.canonical import value_key, value_keys
from service.core.errors import RecordError, StateError
from service.core.model import FeedPosition, Operation, RowChange
from service.observe import ConsumerObserver
from service.serving_wiring import consumer_check
from service.store.database import LostConnectionError, make_engine
from service.store.embedded import EmbeddedPostgres
from service.store.writer import PostgresUnitOfWork, PostgresWriter
from service.usecases import follow_feed
from service.usecases.batches import ErrorPolicy
from service.usecases.netting import net, offenders
from tests import states
from tests.asking import http_client
from tests.events import envelope, tracked_table
from tests.following import COLUMNS, Stream, Watch, consume, random_changes
from tests.integration.serving import app_over, serving
from tests.integration.test_verify import findings
from tests.states import Tables
from tests.waiting import BOUND_SECONDS, wait_for


def tables() -> Tables:
    rows = Tables(COLUMNS)
    rows.add("customers", ["1", "Ada"], ["2", "Bob"], ["3", None])
    return rows.add("orders", ["10", "1", "first"], ["11", "2", None], ["12", "1", "Bob"])


def make_stream(url: str, folder: Path) -> Stream:
    stream = Stream(folder / "feed.jsonl", tables())
    states.store(url, stream.tables)
    stream.path.touch()
    return stream


@pytest.fixture
def stream(database_url: str, tmp_path: Path) -> Stream:
    return make_stream(database_url, tmp_path)


@contextmanager
def consuming(url: str, stream: Stream, watch: Watch, **options: int) -> Iterator[list[BaseException]]:
    """Let a consumer follow the stream to its end on a thread; at the end of the block it must have ended well."""
    errors: list[BaseException] = []

    def body() -> None:
        try:
            consume(url, stream, watch=watch, retry_seconds=BOUND_SECONDS, **options)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=body)
    thread.start()
    try:
        yield errors
    finally:
        thread.join(2 * BOUND_SECONDS)
    assert not thread.is_alive()
    assert errors == []


# Records


UNKNOWN = {
    "table": (envelope("c", "s", "refunds", None, {"id": "1"}), r"changes table 's.refunds', which is not tracked"),
    "schema": (envelope("c", "z", "orders", None, {"id": "1"}), r"changes table 'z.orders', which is not tracked"),
    "no op": (b'{"after": {"id": "4", "name": "Dora"}}', r"has no op"),
}


@pytest.mark.parametrize("fault", UNKNOWN)
def test_what_the_state_does_not_know_stops_the_feed_or_is_set_aside(
    database_url: str, stream: Stream, fault: str
) -> None:
    line, words = UNKNOWN[fault]
    stream.change("customers", None, ["5", "Emil"])
    bad = stream.write(line)
    with pytest.raises(RecordError, match=rf"{stream.path}, partition 0, offset {bad}: .*{words}"):
        consume(database_url, stream)
    assert states.read(database_url) == states.expected(stream.tables)
    assert states.query(database_url, "select next_offset from feed_position") == [(bad,)]
    stream.change("customers", None, ["6", "Fritz"])
    totals = consume(database_url, stream, on_error=ErrorPolicy.SET_ASIDE)
    assert (totals.dead, totals.inserted) == (1, 1)
    assert states.read(database_url) == states.expected(stream.tables)
    ((offset, message, record),) = states.query(database_url, "select record_offset, message, record from dead_letter")
    assert (offset, record) == (bad, line.decode())
    assert f"offset {bad}: " in message


def test_cells_and_dead_letters_of_ten_megabytes(database_url: str, stream: Stream) -> None:
    large = "é" * 5_000_000
    stream.change("customers", None, ["4", large])
    stream.change("orders", None, ["13", "4", large + "!"])
    stream.write(b"no JSON" + large.encode())
    assert consume(database_url, stream, on_error=ErrorPolicy.SET_ASIDE).dead == 1
    assert states.read(database_url) == states.expected(stream.tables), "two values of one stored text"
    assert states.query(database_url, "select octet_length(record) from dead_letter") == [(10_000_007,)]


def test_a_row_that_was_there_is_not_blamed_for_rows_that_never_were() -> None:
    """The third delete is true; the others name ids that never were, but share its other cells."""
    table = tracked_table("s", "t", {"id": "string", "a": "string", "b": "string"})
    rows = [("ghost 1", "a", "b"), ("ghost 2", "a", "c"), ("1", "a", "b")]
    changes = [RowChange(table, Operation.DELETE, row, None, FeedPosition("t", 0, i)) for i, row in enumerate(rows)]
    netted = net(changes, value_keys)
    texts = {value_key(text): text for text in netted.texts}
    keys = {text: key for key, text in texts.items()}
    once = [("ghost 1", 1, 1), ("ghost 2", 1, 1), ("a", 2, 2), ("b", 3, 1)]  # beside the one row with 1, a, b and a c
    missing = [(keys[text], attribute_id, count) for text, attribute_id, count in once]
    assert offenders(changes, missing, texts) == {0, 1}


# Any history with bad records in it


WORDS = st.sampled_from(["1", "2", "10", "Ada", "é" * 200, "", None])
ROWS = st.tuples(WORDS, WORDS, WORDS)
BAD_LINES = [line for line, _ in UNKNOWN.values()] + [
    b"{",
    b"[1]",
    b"\xff\xfe",
    envelope("x", "s", "orders"),
    envelope("u", "s", "orders", None, {"id": "1", "customer": "1", "note": None}),
    envelope("c", "s", "customers", None, {"id": "1", "name": "a\0b"}),
]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("insert"), st.sampled_from(list(COLUMNS)), ROWS),
        st.tuples(st.just("update"), st.sampled_from(list(COLUMNS)), ROWS, st.integers(0, 99)),
        st.tuples(st.just("delete"), st.sampled_from(list(COLUMNS)), st.integers(0, 99)),
        st.tuples(st.just("truncate"), st.sampled_from(list(COLUMNS))),
        st.tuples(st.just("bad line"), st.sampled_from(BAD_LINES)),
        st.tuples(st.just("ghost"), st.sampled_from(list(COLUMNS)), st.integers(0, 99), st.none() | ROWS),
    ),
    max_size=25,
)


@hypothesis_settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS, records=st.sampled_from([1, 3, 8, 5000]), cache_bytes=st.sampled_from([0, 2000, 1 << 20]))
def test_any_history_equals_its_good_records_and_the_dead_letters_are_the_bad_ones(
    postgres_server: EmbeddedPostgres, database_url: str, steps: list[tuple], records: int, cache_bytes: int
) -> None:
    """A row that never was has one cell that no row ever had, and else those of a row that is there."""
    empty(database_url)
    with tempfile.TemporaryDirectory() as folder:
        stream = make_stream(database_url, Path(folder))
        bad = [offset for number, step in enumerate(steps) if (offset := take(stream, number, *step)) is not None]
        totals = consume(database_url, stream, records=records, cache_bytes=cache_bytes, on_error=ErrorPolicy.SET_ASIDE)
        size = stream.path.stat().st_size
    assert states.read(database_url) == states.expected(stream.tables)
    letters = states.query(database_url, "select record_offset from dead_letter order by 1")
    assert [offset for (offset,) in letters] == bad
    assert totals.dead == len(bad)
    assert states.query(database_url, "select next_offset from feed_position") == ([(size,)] if size else [])


def take(stream: Stream, number: int, kind: str, *given: object) -> int | None:
    """Write one step into the stream; give its offset if it is a bad record."""
    at = stream.path.stat().st_size
    if kind == "bad line":
        return stream.write(given[0])  # type: ignore[arg-type]
    table, *more = given
    width = len(COLUMNS[table])  # type: ignore[index]
    present = sorted((+stream.tables.rows[table]).elements(), key=repr)  # type: ignore[index]
    match kind, *more:
        case "insert", row:
            stream.change(table, None, row[:width])
        case "update", row, which if present:
            stream.change(table, present[which % len(present)], row[:width])
        case "delete", which if present:
            stream.change(table, present[which % len(present)], None)
        case ("truncate",):
            stream.write(envelope("t", "s", table, None, None))
            stream.tables.rows[table] = Counter()
        case "ghost", which, after:
            ghost = list(present[which % len(present)] if present else [None] * width)
            ghost[which % width] = f"never {number}"
            stream.append(table, ghost, None if after is None else after[:width])
            return at
    return None


def empty(url: str) -> None:
    """Take all of the state away, with whatever refers to it."""
    states.execute(
        url,
        "truncate source, attribute, tracked_table, tracked_key, contract_transition, feed_catch_up, row_image, "
        "cluster, state_version, batch_position, feed_position, uind, ind_transition, dead_letter, sketch_form, "
        "sketch, sketch_change, coefficient_sample, shard, shard_cluster, declared_reference, bootstrap_run "
        "restart identity cascade; "
        "drop table if exists gen_rec_g1_p000",
    )


# A full disk


@contextmanager
def full_disk(server: EmbeddedPostgres, url: str, table: str) -> Iterator[None]:
    """Put the file of an empty table on a disk without room, for the time of the block.

    The kernel itself says "no space left" to whoever writes to /dev/full, so no small disk has to be mounted.
    """
    ((path,),) = states.query(url, f"select pg_relation_filepath('{table}')")
    file = server.cluster / path
    assert file.stat().st_size == 0
    file.unlink()
    file.symlink_to("/dev/full")
    try:
        yield
    finally:
        states.execute(url, f"truncate {table}")  # gives the table a file of its own again


@pytest.mark.parametrize("table", ["ind_transition", "feed_position"])
def test_a_full_disk_stops_the_consumer_with_nothing_half_applied(
    postgres_server: EmbeddedPostgres, database_url: str, stream: Stream, table: str
) -> None:
    before = states.read(database_url)
    stream.change("orders", None, ["13", "9", "breaks a dependency"])
    watch = Watch()
    with (
        full_disk(postgres_server, database_url, table),
        pytest.raises(StateError, match=r"The disk of database 'test_\d+' at .* is full; nothing was applied. Make"),
    ):
        consume(database_url, stream, watch=watch, retry_seconds=0.1)
    assert watch.errors, "it was tried again before that"
    assert states.read(database_url) == before, "the records and clusters had been written by then"
    assert states.query(database_url, "select count(*) from feed_position") == [(0,)]
    assert consume(database_url, stream).version == 2
    assert states.read(database_url) == states.expected(stream.tables)


def test_once_there_is_room_the_consumer_goes_on_by_itself(
    postgres_server: EmbeddedPostgres, database_url: str, stream: Stream
) -> None:
    stream.change("orders", None, ["13", "9", "breaks a dependency"])
    watch = Watch()
    with ExitStack() as following, full_disk(postgres_server, database_url, "feed_position"):
        # Begun only now, as who has the file open writes to it still; its end is waited for when there is room.
        following.enter_context(consuming(database_url, stream, watch))
        wait_for(lambda: len(watch.errors) >= 2)
    assert states.read(database_url) == states.expected(stream.tables)
    assert all(finding.holds for finding in findings(database_url))


def test_a_consumer_waits_for_room_for_as_long_as_it_takes_and_the_overview_says_so(
    postgres_server: EmbeddedPostgres, database_url: str, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow_feed, "ROOM_SECONDS", 0.1)
    stream.change("orders", None, ["13", "9", "breaks a dependency"])
    observer, stop, engine = ConsumerObserver(CollectorRegistry()), threading.Event(), make_engine(database_url, "test")
    totals: list[int] = []

    def follow() -> None:
        totals.append(consume(database_url, stream, watch=observer, retry_seconds=0.0, stop=stop).version)

    thread = threading.Thread(target=follow)
    app = app_over(engine, ready_checks=(lambda: consumer_check(observer, 60.0),))
    with serving(app) as address, http_client(base_url=address, timeout=60) as client:

        def told() -> str:
            return " ".join(check["detail"] for check in client.get("/api/v1/overview").json()["checks"])

        try:
            with full_disk(postgres_server, database_url, "feed_position"):
                thread.start()
                wait_for(lambda: "is full; nothing was applied" in told())
                assert thread.is_alive()
            wait_for(lambda: states.query(database_url, "select max(version) from state_version") == [(2,)])
            wait_for(lambda: "is full" not in told())
        finally:
            stop.set()
            thread.join(BOUND_SECONDS)
            engine.dispose()
    assert totals == [2]
    assert states.read(database_url) == states.expected(stream.tables)


# A database whose answer is lost


class UnheardUnit(PostgresUnitOfWork):
    """Commit, and lose the connection before the answer comes."""

    def commit(self, commit) -> None:  # type: ignore[no-untyped-def]
        super().commit(commit)
        raise LostConnectionError("lost after the commit")


class UnheardWriter(PostgresWriter):
    def begin(self) -> UnheardUnit:
        return UnheardUnit(self)


def test_a_commit_whose_answer_was_lost_counts_as_one_and_not_as_a_failure(database_url: str, stream: Stream) -> None:
    """Else a database that works would be given up, as nothing was heard to be committed."""
    random_changes(stream, random.Random(3), 40)
    watch = Watch()
    consume(database_url, stream, records=10, writer=UnheardWriter(database_url), watch=watch, retry_seconds=0)
    assert len(watch.errors) == 4
    assert states.read(database_url) == states.expected(stream.tables)
