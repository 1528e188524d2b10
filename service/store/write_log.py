"""Own the log of writes in Postgres."""

from __future__ import annotations

from dataclasses import asdict

from sqlalchemy import Engine, text

from service.usecases.write_log import LoggedWrite, Write

KEPT_WRITES = 1_000_000
"""Writes that are kept, the newest."""

FORGOTTEN_EACH = 1000
"""After so many writes the oldest beyond those are forgotten."""

ADD = """
insert into write_log (who, session, address, method, route, target, status)
values (:who, :session, :address, :method, :route, :target, :status) returning write_id
"""

FORGET = "delete from write_log where write_id <= :newest - :kept"

READ = """
select who, session, address, method, route, target, status, write_id, written_at
from write_log where write_id < :before order by write_id desc limit :limit
"""


class PostgresWriteLog:
    """Implement write_log.WriteLog."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def add(self, write: Write) -> None:
        with self._engine.begin() as connection:
            write_id = connection.scalar(text(ADD), asdict(write))
            if write_id % FORGOTTEN_EACH == 0:
                connection.execute(text(FORGET), {"newest": write_id, "kept": KEPT_WRITES})

    def writes(self, before: int | None, limit: int) -> list[LoggedWrite]:
        with self._engine.connect() as connection:
            rows = connection.execute(text(READ), {"before": 2**63 - 1 if before is None else before, "limit": limit})
            return [LoggedWrite(**row._mapping) for row in rows]
