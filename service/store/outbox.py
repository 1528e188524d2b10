"""Own what the state remembers of transitions that were sent, and the waiting for new versions."""

from __future__ import annotations

import select
from typing import Any

import psycopg2
from sqlalchemy import Engine, text

from service.store.database import state_error
from service.store.versions import NOTIFY_CHANNEL

ADVANCE = """
insert into outgoing (sink, version) values (:sink, :version)
on conflict (sink) do update set version = excluded.version, sent_at = now()
where outgoing.version < excluded.version
"""


class PostgresOutbox:
    """Implement ports.Outbox; a connection of its own hears of commits."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._listening: Any = None

    def sent(self, sink: str) -> int:
        """Give the newest version whose transitions were all sent; 0 for a sink that is new."""
        with self._engine.begin() as connection:
            found = connection.execute(text("select version from outgoing where sink = :sink"), {"sink": sink})
            return int(found.scalar() or 0)

    def advance(self, sink: str, version: int) -> None:
        """Remember that all transitions up to a version were sent; never goes back."""
        with self._engine.begin() as connection:
            connection.execute(text(ADVANCE), {"sink": sink, "version": version})

    def wait(self, seconds: float) -> None:
        """Wait for a commit of the state, at most so long; commits since the last call count."""
        try:
            if self._listening is None:
                self._listening = self._engine.raw_connection()
                self._listening.driver_connection.autocommit = True
                with self._listening.cursor() as cursor:
                    cursor.execute(f"listen {NOTIFY_CHANNEL}")
            connection = self._listening.driver_connection
            if not connection.notifies:
                waiting = select.poll()  # `select` takes no descriptor above 1023
                waiting.register(connection, select.POLLIN)
                waiting.poll(seconds * 1000)
            connection.poll()
            connection.notifies.clear()
        except psycopg2.Error as error:
            self.close()
            raise state_error(error, self._engine.url) or error from error

    def close(self) -> None:
        """Release the connection."""
        listening, self._listening = self._listening, None
        if listening is not None:
            listening.invalidate()  # not back to the pool: it listens
