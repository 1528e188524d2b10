"""Foreign keys are found anew when their time has come, and not where nothing has changed."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from threading import Event

import pytest
from sqlalchemy.exc import SQLAlchemyError

from service.config import Settings
from service.core.errors import StateError
from service.core.foreign_keys.candidates import THETA
from service.foreign_key_runner import _check, finding_foreign_keys
from service.scheduler import next_time
from service.store.database import make_engine
from service.store.foreign_key_refreshes import PostgresForeignKeys
from service.store.locks import FINDING_NAME
from service.store.reader import PostgresSnapshot, PostgresStateReader
from service.usecases.finding_progress import FindingCancelledError
from service.usecases.foreign_key_answers import ForeignKeyFinder
from service.usecases.foreign_key_schedule import FindingSchedule
from service.usecases.foreign_keys import Question
from service.usecases.kept_candidates import NewCandidate
from tests import states
from tests.states import Tables
from tests.waiting import BOUND_SECONDS, wait_for

NEXT_VERSION = """
insert into state_version (version, generation, kind)
select version + 1, generation, 'batch' from state_version order by version desc limit 1
"""
WAITS = "select from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
FOUND = "select method, version from foreign_key_refresh order by 1, 2"


def test_what_is_due_is_found_once_for_each_state(database_url: str) -> None:
    clock = [datetime(2026, 11, 24, 1, 0, tzinfo=UTC)]
    engine = make_engine(database_url, "test")
    reader, finder = PostgresStateReader(engine), ForeignKeyFinder(PostgresForeignKeys(engine))
    schedule = FindingSchedule("30 2 * * *", reader, finder, next_time, lambda: clock[0])

    def found_after(hours: float) -> list[tuple[object, ...]]:
        clock[0] += timedelta(hours=hours)
        schedule.look()
        return states.query(database_url, FOUND)

    assert found_after(2) == [], "there is no state yet"
    tables = Tables({"customers": ["id"], "orders": ["customer_id"]})
    tables.add("customers", *([str(i)] for i in range(20))).add("orders", *([str(i % 9)] for i in range(40)))
    states.store(database_url, tables)
    assert found_after(0) == [("combined", 1)], "it was due"
    assert found_after(24) == [("combined", 1)], "nothing has changed"
    states.execute(database_url, NEXT_VERSION)
    assert found_after(0) == [("combined", 2)], "which was made up for"
    states.execute(database_url, NEXT_VERSION)
    assert found_after(1) == [("combined", 2)], "it is not due yet"
    assert found_after(24) == [("combined", 3)]
    asked = "select question ->> 'min_coefficient' from foreign_key_refresh"
    finder.refresh(Question(theta=1.0))
    assert states.query(database_url, asked) == [("1.0",)]
    assert found_after(24) == [("combined", 3)]
    assert states.query(database_url, asked) == [(str(THETA),)], "it was asked with options of its own"
    engine.dispose()


def test_a_finding_that_somebody_asked_for_ends_with_the_service_and_is_known_by_its_name_meanwhile(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    states.store(database_url, Tables({"customers": ["id"]}).add("customers", ["1"]))
    engine = make_engine(database_url, "test")
    keys, goes_on = PostgresForeignKeys(engine), Event()

    @contextmanager
    def waiting() -> Iterator[PostgresSnapshot]:
        with PostgresForeignKeys(engine).snapshot() as snapshot:
            assert goes_on.wait(BOUND_SECONDS)
            yield snapshot

    monkeypatch.setattr(keys, "snapshot", waiting)
    finder = ForeignKeyFinder(keys)
    holding = (
        "select application_name from pg_locks join pg_stat_activity a using (pid) "
        "where relation = 'gen_rec'::regclass and a.datname = current_database()"
    )
    with ThreadPoolExecutor() as threads:
        try:
            with finding_foreign_keys(engine, Settings(), finder):
                finding = threads.submit(finder.refresh, Question())
                wait_for(lambda: states.query(database_url, holding) == [(FINDING_NAME,)])
        finally:
            goes_on.set()
        with pytest.raises(FindingCancelledError):
            finding.result(BOUND_SECONDS)
    engine.dispose()


def test_what_was_due_while_nobody_was_here_is_made_up_for(database_url: str) -> None:
    engine = make_engine(database_url, "test")
    reader, finder = PostgresStateReader(engine), ForeignKeyFinder(PostgresForeignKeys(engine))
    states.store(database_url, Tables({"customers": ["id"]}).add("customers", ["1"]))
    finder.refresh(Question())
    states.execute(database_url, f"update foreign_key_refresh set made_at = '2026-11-24T02:30Z'; {NEXT_VERSION}")

    def found_at(day: int, hour: int) -> list[tuple[object, ...]]:
        begun = datetime(2026, 11, day, hour, 31, tzinfo=UTC)
        FindingSchedule("30 2 * * *", reader, finder, next_time, lambda: begun).look()
        return states.query(database_url, FOUND)

    assert found_at(25, 1) == [("combined", 1)], "it was not due since the last one"
    assert found_at(25, 2) == [("combined", 2)]
    engine.dispose()


def test_one_that_fails_is_told_until_there_is_another(database_url: str) -> None:
    clock = [datetime(2026, 11, 24, 1, 0, tzinfo=UTC)]
    engine = make_engine(database_url, "test")
    reader, finder = PostgresStateReader(engine), ForeignKeyFinder(PostgresForeignKeys(engine))
    schedule = FindingSchedule("30 2 * * *", reader, finder, next_time, lambda: clock[0])
    tables = Tables({"customers": ["id"], "orders": ["customer_id"]})
    tables.add("customers", *([str(i)] for i in range(20))).add("orders", *([str(i % 9)] for i in range(40)))
    states.store(database_url, tables)
    assert _check(schedule).ok
    states.execute(database_url, "alter table foreign_key_candidate add constraint refused check (false)")
    clock[0] += timedelta(hours=2)
    with pytest.raises((StateError, SQLAlchemyError), match="refused"):
        schedule.look()
    check = _check(schedule)
    assert (check.ok, check.detail.startswith("The last finding failed: ")) == (False, True)
    states.execute(database_url, "alter table foreign_key_candidate drop constraint refused")
    schedule.look()
    assert not _check(schedule).ok, "it is not tried again before its time"
    finder.refresh(Question())
    schedule.look()
    assert _check(schedule).ok, "somebody has found them"
    engine.dispose()


@pytest.mark.parametrize("is_first", [False, True])
def test_two_services_may_find_at_one_time(database_url: str, is_first: bool) -> None:
    states.store(database_url, Tables({"customers": ["id"]}).add("customers", ["1"]))
    store = PostgresForeignKeys(make_engine(database_url, "test", statement_timeout_ms=10_000))
    if not is_first:
        store.keep(Question(), 1, 0.0, [], iter(()))
    others: list[Future[int]] = []
    with ThreadPoolExecutor(1) as pool:

        def found() -> Iterator[NewCandidate]:
            others.append(pool.submit(store.keep, Question(), 1, 0.0, ["the other's"], iter(())))
            wait_for(lambda: others[0].done() or states.query(database_url, WAITS))
            yield from ()

        store.keep(Question(), 1, 0.0, ["one's"], found())
        kept = others[0].result()
    assert states.query(database_url, "select refresh_id, left_out from foreign_key_refresh") == [
        (kept, ["the other's"])
    ]
