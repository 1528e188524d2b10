"""Own the reading of what is new for those who poll: on a connection that the event loop itself waits for.

A thread would have to wait for the interpreter twice for each reading, beside a busy consumer a millisecond each time.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

import psycopg2
from psycopg2.extensions import POLL_OK, POLL_READ
from psycopg2.extras import NamedTupleCursor
from sqlalchemy import Engine

from service.core.errors import StateError
from service.store.database import (
    CONNECT_TIMEOUT_SECONDS,
    LostConnectionError,
    begin_connection,
    cannot_connect,
    place,
    state_error,
)
from service.store.reader import no_state, transition_of
from service.store.reader_sql import NEWS
from service.usecases.answers import NOTHING_KNOWN, News, StateHead

MOST_TRANSITIONS = 1000
"""After more than these the news do not go on."""

ANSWER_SECONDS = 30.0
"""What is new is found in milliseconds: a server that says nothing for so long is away, whatever its machine says."""

LOOK_SECONDS = 0.25
"""After these a connection is looked at unasked: that a dying server reset it uvloop tells once, with more to read."""


class PostgresNews:
    """Read what is new, one reading at a time; see `NewsReader`."""

    def __init__(self, engine: Engine) -> None:
        """Connect as this engine does, when it is asked first and after a connection was lost."""
        self._engine = engine
        self._connection: Any = None
        self._descriptor = -1
        self._loop: asyncio.AbstractEventLoop | None = None
        self._answered: asyncio.Future[None] | None = None

    async def read(self, known: StateHead) -> News:
        """Tell what is new; a connection that a restart of the server cut is replaced once. Raises StateError."""
        values = known.version, known.committed_at, known.first_version, MOST_TRANSITIONS + 1
        try:
            rows = await self._rows(values)
        except LostConnectionError:
            rows = await self._rows(values)
        if not rows:
            return News(NOTHING_KNOWN, False, [], 0)
        fields = StateHead.__dataclass_fields__
        head = StateHead(**{field: getattr(rows[0], f"head_{field}") for field in fields})
        turned = [row for row in rows if row.version is not None]
        goes_on = rows[0].goes_on and len(turned) <= MOST_TRANSITIONS
        of_columns = [transition_of(row) for row in turned if not row.is_of_tuples]
        return News(head, goes_on, of_columns, turned[-1].version if turned else 0)

    def close(self) -> None:
        """Release the connection."""
        if self._connection is None:
            return
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._descriptor)
        os.close(self._descriptor)
        self._connection.close()
        self._connection = None

    async def _rows(self, values: tuple[object, ...]) -> list[Any]:
        url = self._engine.url
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                cursor = (await self._opened()).cursor(cursor_factory=NamedTupleCursor)
                cursor.execute("execute news (%s, %s, %s, %s)", values)
                await self._wait_for_answer()
                return list(cursor.fetchall())
        except TimeoutError:
            self.close()
            raise StateError(
                f"The {place(url)} has not answered for {ANSWER_SECONDS:g} s. Look whether its machine is well; "
                "nothing was lost, try again."
            ) from None
        except psycopg2.Error as error:
            self.close()
            if error.pgcode == "42P01":
                raise no_state(place(url)) from error
            told = state_error(error, url)
            if told is None:
                raise
            raise told from error
        except BaseException:
            self.close()  # an answer that is still on its way would be taken for that of the next question
            raise

    async def _opened(self) -> Any:
        loop = asyncio.get_running_loop()
        if self._connection is not None and self._loop is loop:
            return self._connection
        self.close()
        connection = begin_connection(self._engine)
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_SECONDS):
                await _wait_until_open(connection)
        except (psycopg2.OperationalError, TimeoutError) as error:
            connection.close()
            raise cannot_connect(error, self._engine.url) from error
        except BaseException:
            connection.close()
            raise
        # libpq closes its own descriptor as soon as it reads that the server is gone. A loop must not watch one that is
        # closed: of the next connection, which may get the same number, libuv would hear nothing.
        self._connection, self._loop, self._descriptor = connection, loop, os.dup(connection.fileno())
        loop.add_reader(self._descriptor, self._hear)
        cursor = connection.cursor()  # the connection itself would not keep it
        cursor.execute(NEWS)
        await self._wait_for_answer()
        return connection

    def _hear(self) -> None:
        """Read what has come: (part of) the answer that is waited for, or, unasked, the connection's end.

        It is read here, not by who waits: the loop looks at the socket before it lets him go on, and would call this
        once more for what is no longer there.
        """
        answered, self._answered = self._answered, None
        try:
            if self._connection.poll() != POLL_OK:
                self._answered = answered
            elif answered is not None and not answered.done():
                answered.set_result(None)
        except psycopg2.Error as error:
            if answered is None or answered.done():
                self.close()
            else:
                answered.set_exception(error)

    async def _wait_for_answer(self) -> None:
        """Wait until what was asked is answered; it is short, so it was sent whole."""
        assert self._loop is not None
        answered = self._answered = self._loop.create_future()
        while not answered.done():
            await asyncio.wait([answered], timeout=LOOK_SECONDS)
            if not answered.done():
                self._hear()
        answered.result()


async def _wait_until_open(connection: Any) -> None:
    loop = asyncio.get_running_loop()
    while (wanted := connection.poll()) != POLL_OK:
        ready = loop.create_future()
        add, remove = (
            (loop.add_reader, loop.remove_reader) if wanted == POLL_READ else (loop.add_writer, loop.remove_writer)
        )
        descriptor = connection.fileno()
        add(descriptor, _tell, ready)
        try:
            await asyncio.wait([ready], timeout=LOOK_SECONDS)
        finally:
            remove(descriptor)


def _tell(ready: asyncio.Future[None]) -> None:
    """Say once that a socket is ready: the loop may look at it again before who waits goes on."""
    if not ready.done():
        ready.set_result(None)
