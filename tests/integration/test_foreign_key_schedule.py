"""Foreign keys are found anew when their time has come, and not where nothing has changed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy.exc import SQLAlchemyError

from service.core.errors import StateError
from service.foreign_key_runner import _check
from service.scheduler import next_time
from service.store.database import make_engine
from service.store.foreign_key_refreshes import PostgresForeignKeys
from service.store.reader import PostgresStateReader
from service.usecases.foreign_key_answers import ForeignKeyFinder
from service.usecases.foreign_key_schedule import FindingSchedule
from service.usecases.foreign_keys import Question
from tests import states
from tests.states import Tables

NEXT_VERSION = """
insert into state_version (version, generation, kind)
select version + 1, generation, 'batch' from state_version order by version desc limit 1
"""
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
