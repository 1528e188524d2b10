"""Where tracked tables lead that join: foreign keys as people decided of them, then what is suggested, then INDs."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import psycopg2
import pytest

from service import corpus_wiring
from service.core.errors import StateError
from service.core.foreign_keys.ranking import Method
from service.core.foreign_keys.sides import ForeignKey, Side
from service.core.near_matches import Near
from service.join_tracking import index_tables
from service.store import candidates, join_tracked_search
from service.store.contracts import PostgresContracts
from service.store.database import make_engine
from service.usecases.foreign_key_decisions import Verdict
from service.usecases.foreign_keys import Question
from service.usecases.joinable import JoinQuery, JoinQuestion, LeadsTo
from service.usecases.joinable_details import TooLongError
from service.usecases.kept_candidates import NewCandidate
from tests import kept_rows, states
from tests.states import Tables
from tests.waiting import BOUND_SECONDS, wait_for

LOGGED = """
insert into join_change select table_id, 1, string_agg(uuid_send(row_key), '') from row_image group by table_id
"""
CANCELLED = """
select pg_cancel_backend(pid) from pg_locks join pg_stat_activity using (pid)
where not granted and datname = current_database()
"""

COLUMNS = {
    "items": ["id", "customer", "order_id", "line"],
    "customers": ["id", "name"],
    "lines": ["order_id", "line", "note"],
    "towns": ["number"],
}
ROWS = {
    "items": [["1", "7", "5", "1"], ["2", "8", "5", "2"], ["3", "7", "6", "1"]],
    "customers": [["7", "Ada"], ["8", "Bob"], ["9", "Eve"], ["4", "Joe"]],
    "lines": [["5", "1", "x"], ["5", "2", "y"], ["6", "1", "z"], ["6", "2", "1"]],
    "towns": [["7"], ["8"], ["1"], ["2"], ["3"]],
}


@pytest.fixture
def url(database_url: str) -> str:
    """Index `items`; `towns` hold the values of three of its columns by chance."""
    tables = Tables(dict(COLUMNS), tuples={"items": [("order_id", "line")], "lines": [("order_id", "line")]})
    for table, rows in ROWS.items():
        tables.add(table, *rows)
    states.store(database_url, tables)
    kept_rows.keep(database_url, tables, {"items": ["id"]})
    assert [one.rows for one in index_tables(database_url, ["s.items"])] == [3]
    return database_url


def reference(columns: str, table: str, referenced: str) -> ForeignKey:
    """Name columns of items, and those that they refer to."""
    return ForeignKey(Side("s", "items", tuple(columns.split())), Side("s", table, tuple(referenced.split())))


TO_CUSTOMERS, TO_LINES = reference("customer", "customers", "id"), reference("order_id line", "lines", "order_id line")
TO_TOWNS = reference("customer", "towns", "number")


def decide(url: str, foreign_key: ForeignKey, verdict: Verdict) -> None:
    """Say of a pair whether it is a foreign key."""
    engine = make_engine(url, "test")
    PostgresContracts(engine).decide(foreign_key, verdict, "Ada")
    engine.dispose()


def suggest(url: str, *foreign_keys: ForeignKey) -> None:
    """Keep a finding that suggests these."""
    engine = make_engine(url, "test")
    found = (NewCandidate(one, 0.9, True, False, {}) for one in foreign_keys)
    candidates.keep(engine, Question(Method.COMBINED), 1, 0.1, [], found)
    engine.dispose()


def leads(url: str, **question: Any) -> list[LeadsTo]:
    """Search for items, and give where it leads."""
    engine = make_engine(url, "test", pool_size=2, max_overflow=0)
    try:
        answer = corpus_wiring.make_join_search(engine).answer(
            JoinQuery([["7"], ["5"]]), JoinQuestion(None, **{"through": 9, **question})
        )
    finally:
        engine.dispose()
    (found,) = answer.tables
    assert (found.table, found.columns) == ("s.items", ("customer", "order_id"))
    return list(found.leads_to or ())


def told(found: list[LeadsTo]) -> list[tuple[str, str, str, str, float | None]]:
    return [(one.reason, one.table, " ".join(one.through), " ".join(one.columns), one.coverage) for one in found]


def test_a_tracked_table_leads_by_inds_where_nothing_else_is_known(url: str) -> None:
    """To each table by the column that is covered most: of the values 7, 8, 9 and 4 items has two, of 1 to 3 all."""
    found = leads(url)
    assert told(found) == [
        ("ind", "s.lines", "order_id", "order_id", 1.0),
        ("ind", "s.towns", "id", "number", 3 / 5),
        ("ind", "s.customers", "customer", "id", 2 / 4),
    ]
    assert [(one.through_positions, one.positions) for one in found] == [((2,), (0,)), ((0,), (0,)), ((1,), (0,))]
    assert leads(url, through=1) == found[:1]
    assert leads(url, through=0) == []


def test_where_a_tracked_table_leads_is_not_looked_for_beyond_the_seconds_left(url: str) -> None:
    engine = make_engine(url, "test", pool_size=2, max_overflow=0)
    question = JoinQuestion(None, through=9)
    with pytest.raises(TooLongError):
        corpus_wiring.make_join_search(engine).answer(JoinQuery([["7"], ["5"]]), question, left=lambda: -1.0)
    engine.dispose()


def test_foreign_keys_come_before_inds_and_what_was_rejected_is_not_told(url: str) -> None:
    suggest(url, TO_TOWNS, TO_LINES)
    assert told(leads(url))[:2] == [
        ("suggested", "s.lines", "order_id line", "order_id line", 3 / 4),
        ("suggested", "s.towns", "customer", "number", 2 / 5),
    ]
    decide(url, TO_CUSTOMERS, Verdict.ACCEPT)
    decide(url, TO_TOWNS, Verdict.REJECT)
    found = leads(url)
    assert told(found) == [
        ("accepted", "s.customers", "customer", "id", 2 / 4),
        ("suggested", "s.lines", "order_id line", "order_id line", 3 / 4),
        ("ind", "s.towns", "id", "number", 3 / 5),
    ]
    assert (found[1].through_positions, found[1].positions) == ((2, 3), (0, 1))
    for column in ("id", "line"):
        decide(url, reference(column, "towns", "number"), Verdict.REJECT)
    assert [one.table for one in leads(url)] == ["s.customers", "s.lines"]


@pytest.mark.parametrize(("near", "tables"), [(None, []), ([], []), ([Near.NUMBERS], ["s.items"])])
def test_decimals_of_a_file_are_those_of_a_column_of_numbers_where_that_is_said(
    url: str, near: list[Near] | None, tables: list[str]
) -> None:
    """Columns of numbers have canonical texts: neither 7.0 nor 5.00 is in them, but 7 and 5 are."""
    engine = make_engine(url, "test", pool_size=2, max_overflow=0)
    answer = corpus_wiring.make_join_search(engine).answer(
        JoinQuery([["7.0"], ["5.00"]]), JoinQuestion(None, near=near, preview=1)
    )
    engine.dispose()
    assert ([one.table for one in answer.tables], answer.near) == (tables, near or [])
    assert [row.key for one in answer.tables for row in one.preview] == [("7", "5") for _ in tables]


def test_the_last_of_two_decisions_counts(url: str) -> None:
    decide(url, TO_CUSTOMERS, Verdict.REJECT)
    assert "s.customers" not in [one.table for one in leads(url)]
    decide(url, TO_CUSTOMERS, Verdict.ACCEPT)
    assert told(leads(url))[0][:2] == ("accepted", "s.customers")


def test_columns_that_are_not_kept_current_lead_nowhere(url: str) -> None:
    suggest(url, TO_TOWNS)
    states.execute(url, "update attribute set stale_version = 1 where table_name = 'towns'")
    assert "s.towns" not in [one.table for one in leads(url)]


def test_how_much_tuples_cover_is_told_where_they_are_followed(url: str) -> None:
    suggest(url, reference("order_id line", "lines", "line order_id"))
    assert told(leads(url))[0] == ("suggested", "s.lines", "order_id line", "line order_id", None)


@contextmanager
def locked(url: str) -> Iterator[None]:
    """Let whoever reads kept rows wait."""
    with psycopg2.connect(url) as connection:
        connection.cursor().execute("lock table row_image in access exclusive mode")
        yield


def test_rows_of_a_long_log_are_read_in_portions(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    indexed = leads(url)
    states.execute(url, LOGGED)
    assert leads(url) == indexed
    monkeypatch.setattr(join_tracked_search, "CHANGED_AT_ONCE", 2)
    assert leads(url) == indexed


def test_a_log_that_takes_longer_to_read_than_a_statement_may_is_told_as_such(url: str) -> None:
    """The server cancels such a statement as anybody may."""
    states.execute(url, LOGGED)
    with ThreadPoolExecutor(1) as other, locked(url):
        asked = other.submit(leads, url)
        wait_for(lambda: states.query(url, CANCELLED) != [])
        with pytest.raises(StateError, match="took longer than its time limit"):
            asked.result(BOUND_SECONDS)


def test_the_log_of_a_table_is_read_when_the_table_is_searched_and_not_before(url: str) -> None:
    states.execute(url, LOGGED)
    engine = make_engine(url, "test", pool_size=2, max_overflow=0, lock_timeout_ms=1000)
    with locked(url):
        corpus_wiring.make_join_search(engine).require_index(None, None)
        with join_tracked_search.PostgresTrackedTables(engine).snapshot() as snapshot:
            assert len(snapshot.segments) == 1
    engine.dispose()
