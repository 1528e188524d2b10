"""Foreign keys are found anew when their time has come, and not where nothing has changed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from service.scheduler import next_time
from service.store.database import make_engine
from service.store.foreign_key_refreshes import PostgresForeignKeys
from service.store.reader import PostgresStateReader
from service.usecases.foreign_key_answers import ForeignKeyFinder
from service.usecases.foreign_key_schedule import FindingSchedule
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
