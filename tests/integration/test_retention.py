"""Old history goes in pieces from its beginning, and nothing that somebody can still ask for goes with it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg2
import pytest
from sqlalchemy import Engine, text

from service.store import retention
from service.store.database import make_engine
from service.store.reader import PostgresStateReader
from service.store.retention import drop_piece
from service.store.writer_lock import take_bootstrap_lock
from service.usecases import queries
from service.usecases.answers import TransitionFilter
from tests import states
from tests.asking import http_client
from tests.following import COLUMNS, Stream, begun, consume, random_changes
from tests.integration.serving import app_over, serving
from tests.integration.test_verify import findings
from tests.states import Tables
from tests.waiting import wait_for

DAY = 24 * 60 * 60.0


@pytest.fixture
def stream(database_url: str, tmp_path: Path) -> Stream:
    tables = Tables(COLUMNS)
    tables.add("customers", ["1", "Ada"], ["2", "Bob"], ["3", "Cid"])
    tables.add("orders", ["10", "1", "first"], ["11", "2", None], ["12", "1", "Bob"])
    return begun(database_url, tables, tmp_path)


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    engine = make_engine(database_url, "test")
    yield engine
    engine.dispose()


def aged(url: str, versions: str) -> None:
    """Let some versions have been committed two days ago."""
    states.execute(url, f"update state_version set committed_at = committed_at - interval '2 days' where {versions}")


def versions(url: str) -> list[int]:
    return [version for (version,) in states.query(url, "select version from state_version order by 1")]


def drop_all(engine: Engine) -> int:
    went = 0
    while of_piece := drop_piece(engine, DAY):
        went += of_piece
    return went


def test_what_can_be_asked_stays_as_it_was(
    database_url: str, engine: Engine, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every version that is left answers as before, the present too, piece by piece, and verify finds no gap."""
    monkeypatch.setattr(retention, "PIECE", 19)
    random_changes(stream, random.Random(5), 50)
    consume(database_url, stream, records=1)
    newest = versions(database_url)[-1]
    first = newest - 20
    aged(database_url, f"version < {first}")
    reader = PostgresStateReader(engine)
    with reader.snapshot(with_values=True) as snapshot:
        held = {at: queries.uinds(snapshot, as_of=at).items for at in range(1, newest + 1)}
        pairs = [(one.dependent, one.referenced) for one in queries.uinds(snapshot).items]
        names = [one.name for one in queries.attributes(snapshot).items]
        resolved = [queries.resolve(snapshot, str(name)) for name in names]
        explained = {
            (str(a.name), str(b.name)): queries.explain(snapshot, a, b)
            for a in resolved
            for b in resolved
            if a is not b
        }
        changes = queries.transitions(snapshot, TransitionFilter(since=first - 1)).items
    assert pairs
    assert changes
    before = states.read(database_url)
    for left in range(first, 1, -1):
        if drop_piece(engine, DAY) == 0:
            break
        assert left > 1
        assert all(finding.holds for finding in findings(database_url))
    assert versions(database_url) == list(range(first, newest + 1))
    assert states.query(database_url, "select min(version) from batch_position") == [(first,)]
    assert states.read(database_url) == before
    with reader.snapshot(with_values=True) as snapshot:
        for at in range(first, newest + 1):
            then = queries.uinds(snapshot, as_of=at).items
            assert [(u.dependent, u.referenced) for u in then] == [(u.dependent, u.referenced) for u in held[at]]
        assert queries.transitions(snapshot, TransitionFilter(since=first - 1)).items == changes
        for a in resolved:
            for b in resolved:
                if a is not b:
                    now, then_ = queries.explain(snapshot, a, b), explained[str(a.name), str(b.name)]
                    assert (now.holds, now.since.version, now.since_reason) == (
                        then_.holds,
                        then_.since.version,
                        then_.since_reason,
                    )
        with pytest.raises(queries.UnknownVersionError):
            queries.uinds(snapshot, as_of=first - 1)
    random_changes(stream, random.Random(6), 20)
    consume(database_url, stream, records=3)
    assert states.read(database_url) == states.expected(stream.tables)
    assert all(finding.holds for finding in findings(database_url))


def test_who_asks_for_changes_that_are_gone_is_told_the_way_out(
    database_url: str, engine: Engine, stream: Stream
) -> None:
    random_changes(stream, random.Random(5), 30)
    consume(database_url, stream, records=1)
    aged(database_url, "version < 20")
    drop_all(engine)
    with PostgresStateReader(engine).snapshot() as snapshot:
        assert snapshot.head.first_version == 20
        for since in (0, 19, 20):
            queries.check_since(snapshot, since)
        with pytest.raises(queries.HistoryGoneError, match=r"begins with version 20\. Read what holds now"):
            queries.transitions(snapshot, TransitionFilter(since=18))
    with serving(app_over(engine)) as address, http_client(base_url=f"{address}/api/v1", timeout=60) as client:
        for path in ("/changes?since=18", "/contracts/transitions?since=18"):
            answer = client.get(path)
            assert (answer.status_code, answer.json()["type"]) == (410, "/docs#history-gone"), path
        head = client.get("/uinds").json()["version"]
        assert client.get("/changes", params={"since": head}).json()["items"] == []
        assert client.get("/uinds?as_of=19").status_code == 404
        assert client.get("/uinds?as_of=20").status_code == 200


def test_what_ends_without_a_version_is_not_told_to_be_as_it_was(
    database_url: str, engine: Engine, stream: Stream
) -> None:
    random_changes(stream, random.Random(5), 30)
    consume(database_url, stream, records=1)
    pair = "/uinds/s.orders.customer/s.customers.id"
    paths = ["/changes", "/changes?newest_first=true", "/uinds", pair, "/contracts/transitions"]
    with serving(app_over(engine)) as address, http_client(base_url=f"{address}/api/v1", timeout=60) as client:
        head = versions(database_url)[-1]
        known = {path: client.get(path).headers["ETag"] for path in paths}
        for first in (10, 20):
            aged(database_url, f"version < {first}")
            drop_all(engine)
            for path in paths:
                answer = client.get(path, headers={"If-None-Match": known[path]})
                assert (answer.status_code, answer.headers["ETag"] != known[path]) == (200, True), (path, first)
                known[path] = answer.headers["ETag"]
                assert client.get(path, headers={"If-None-Match": known[path]}).status_code == 304, path
            # Who follows names the version alone, as its answer does.
            assert client.get(f"/changes?since={head}", headers={"If-None-Match": f'"{head}"'}).status_code == 304


def test_the_witness_of_a_violated_contract_stays(database_url: str, engine: Engine, stream: Stream) -> None:
    side = [("s", "orders", ("customer",)), ("s", "customers", ("id",))]
    columns = ", ".join(f"{s}_{part}" for s in ("dependent", "referenced") for part in ("schema", "table", "columns"))
    with closing(psycopg2.connect(database_url)) as connection, connection, connection.cursor() as cursor:
        cursor.execute(
            f"insert into contract ({columns}, least_coefficient, created_by) values (%s, %s, %s, %s, %s, %s, 1, 'me')",
            [list(part) if isinstance(part, tuple) else part for one in side for part in one],
        )
    for name in ("97", "98", "99"):
        stream.change("orders", None, [name, name, None])
        consume(database_url, stream)
        stream.change("orders", [name, name, None], None)
        consume(database_url, stream)
    stream.change("orders", None, ["100", "no such customer", None])
    consume(database_url, stream)
    ((violated,),) = states.query(database_url, "select violated_since from contract")
    for i in range(5):
        stream.change("customers", None, [str(100 + i), "Eve"])
        consume(database_url, stream)
    aged(database_url, "true")
    assert drop_all(engine) == versions(database_url)[0] - 1
    kept = "select version, kind, witness_value from contract_transition order by 1"
    assert states.query(database_url, kept) == [(violated, "violated", "no such customer")]
    with PostgresStateReader(engine).snapshot() as snapshot:
        (event,) = snapshot.contract_events(None, (0, 0), 10)
        assert (event.version, event.committed_at, event.witness_value) == (violated, None, "no such customer")


def test_a_piece_reads_nothing_of_what_stays_of_earlier_ones(database_url: str, engine: Engine, stream: Stream) -> None:
    random_changes(stream, random.Random(5), 30)
    consume(database_url, stream, records=1)
    states.execute(
        database_url,
        "insert into ind_transition (version, dependent_id, referenced_id, kind) "
        "select 0, 1000 + i, 1, 'broke' from generate_series(1, 20000) as i; analyze ind_transition",
    )
    with engine.begin() as connection:
        for statement in retention.DROPPED:
            explained = text(f"explain (analyze, format json) {statement}")
            (found,) = connection.scalar(explained, {"oldest": 1, "first": 20})
            assert rows_read(found["Plan"]) < 5000, statement


def rows_read(plan: dict[str, Any]) -> float:
    """Add up what all parts of a plan read, also what they then left out."""
    left_out = sum(rows for name, rows in plan.items() if name.startswith("Rows Removed"))
    return plan["Actual Loops"] * (plan["Actual Rows"] + left_out) + sum(map(rows_read, plan.get("Plans", [])))


def test_what_was_not_sent_yet_and_the_newest_batch_stay(database_url: str, engine: Engine, stream: Stream) -> None:
    random_changes(stream, random.Random(5), 30)
    consume(database_url, stream, records=1)
    newest = versions(database_url)[-1]
    aged(database_url, "true")
    states.execute(
        database_url, "insert into outgoing (sink, version) values ('kafka://b/t', 12), ('kafka://b/t contracts', 1)"
    )
    states.execute(
        database_url,
        "insert into watch (name, rule, channel, debounce_seconds, tell_resolved, with_values, created_by, "
        "seen_version, seen_letter) values ('w', '{}', '{}', 0, true, true, 'me', 9, 0)",
    )
    drop_all(engine)
    assert versions(database_url) == list(range(10, newest + 1)), "a watch has not looked at them yet"
    states.execute(database_url, "update watch set seen_version = 1000000")
    drop_all(engine)
    assert versions(database_url) == list(range(13, newest + 1))
    states.execute(database_url, "update outgoing set version = 1000000")
    drop_all(engine)
    assert versions(database_url) == [newest]
    assert all(finding.holds for finding in findings(database_url))


def test_beside_a_bootstrap_or_another_who_drops_nothing_goes(
    database_url: str, engine: Engine, stream: Stream
) -> None:
    random_changes(stream, random.Random(5), 10)
    consume(database_url, stream, records=1)
    aged(database_url, "true")
    with closing(psycopg2.connect(database_url)) as bootstrap:
        take_bootstrap_lock(bootstrap)
        assert drop_piece(engine, DAY) == 0
    with closing(psycopg2.connect(database_url)) as other, other.cursor() as cursor:
        cursor.execute("select pg_advisory_xact_lock(%s)", (retention.RETENTION_LOCK,))
        assert drop_piece(engine, DAY) == 0
    wait_for(lambda: drop_all(engine) > 0)  # the locks go with their backends, which end a moment later


def test_an_empty_state_and_a_young_one_lose_nothing(database_url: str, engine: Engine, tmp_path: Path) -> None:
    assert drop_piece(engine, DAY) == 0
    stream = begun(database_url, Tables(COLUMNS).add("customers", ["1", "Ada"]), tmp_path)
    stream.change("customers", None, ["2", "Bob"])
    consume(database_url, stream)
    assert drop_piece(engine, DAY) == 0
    assert versions(database_url) == [1, 2]
