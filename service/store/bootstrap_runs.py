"""Own what running bootstraps tell of themselves, in Postgres: a row of each, and a lock by which it is known to live.

A row goes when its bootstrap has succeeded. One that failed says why, until its source is bootstrapped again; of one
that died the server has let the lock go, which says so at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg2
from sqlalchemy import Connection, text

from service.core.errors import StateError, first_line
from service.store.database import connect
from service.store.locks import BOOTSTRAP_RUN_LOCK, is_held
from service.usecases.bootstrap_runs import BootstrapRun

PROGRESS_NAME = "subsetd bootstrap progress"

RUNS = f"""
select run_id, source_name, stage, done, total, started_at, stage_started_at, progressed_at, ended_at, fault,
    {is_held(BOOTSTRAP_RUN_LOCK, "r.run_id")} as is_alive
from bootstrap_run r order by run_id desc
"""

TELL = """
update bootstrap_run set done = %(done)s, total = %(total)s, progressed_at = clock_timestamp(), stage = %(stage)s,
    stage_started_at = case when stage = %(stage)s then stage_started_at else clock_timestamp() end
where run_id = %(run_id)s
"""


FAILED = "update bootstrap_run set fault = %s, ended_at = clock_timestamp() where run_id = %s"


class RunningBootstrap:
    """Be the row of a bootstrap that runs. What cannot be written stops nothing: then nobody hears of it any more."""

    def __init__(self, connection: Any, run_id: int) -> None:
        self._connection = connection
        self._run_id = run_id

    def tell(self, stage: str, done: int | None, total: int | None) -> None:
        """Say what the bootstrap is at."""
        with suppress(psycopg2.Error), self._connection, self._connection.cursor() as cursor:
            cursor.execute(TELL, {"run_id": self._run_id, "stage": stage, "done": done, "total": total})


@contextmanager
def told_bootstrap(url: str, source_name: str, *, withholds: bool = False) -> Iterator[RunningBootstrap]:
    """Keep the row of a bootstrap for as long as it runs, on a connection of its own; the bootstrap lock must be held.

    Of a source of which some values are not to be kept (`withholds`), the state is not told why reading it failed, as
    that may quote one. Raises StateError when it cannot be begun.
    """
    with connect(url, PROGRESS_NAME) as connection:
        with connection, connection.cursor() as cursor:
            cursor.execute("delete from bootstrap_run where source_name = %s", (source_name,))
            cursor.execute(
                "insert into bootstrap_run (source_name, stage) values (%s, 'planning') returning run_id",
                (source_name,),
            )
            (run_id,) = cursor.fetchone()
            cursor.execute("select pg_advisory_lock(%s, %s)", (BOOTSTRAP_RUN_LOCK, run_id))
        try:
            yield RunningBootstrap(connection, run_id)
        except BaseException as error:
            _end(connection, FAILED, _fault(error, withholds), run_id)
            raise
        _end(connection, "delete from bootstrap_run where run_id = %s", run_id)


def _fault(error: BaseException, withholds: bool) -> str:
    if isinstance(error, KeyboardInterrupt):
        return str(error) or "It was stopped."
    if withholds and not isinstance(error, StateError):
        return "Why is told where it was called alone, as it may quote values that are not to be kept."
    return first_line(error)


def _end(connection: Any, statement: str, *values: object) -> None:
    with suppress(psycopg2.Error), connection, connection.cursor() as cursor:
        cursor.execute(statement, values)


def read_runs(connection: Connection) -> list[BootstrapRun]:
    """List the bootstraps that run, died or failed, newest first."""
    return [BootstrapRun(**row._mapping) for row in connection.execute(text(RUNS))]
