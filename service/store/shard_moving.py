"""Own how shards move between servers and the state's own database: copied, and gone where they were, or nothing of it.

What servers are sent is committed there first: until the state's own commit says that they have it, it is nothing.
What has moved away is dropped behind that commit; where somebody reads it, its table is emptied and goes later. Where
who moved it died, a server loses it when it is next written or sent something.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from typing import Any

import psycopg2

from service.core.errors import StateError, first_line
from service.core.shards import ID_BITS
from service.store.copy_stream import copy_between
from service.store.database import connect
from service.store.locks import SENDING_LOCK, SHARDS_LOCK
from service.store.shard_servers import (
    WAY_OUT,
    ShardServer,
    attach_shard,
    drop_emptied,
    drop_if_unread,
    drop_shard,
    key_condition,
    make_shard,
    reaching,
    read_servers,
    require_schema,
    shard_table,
)

MOVE_NAME = "subsetd shards"

CLUSTERS = "select * from shard_cluster where cluster_id >> {bits} = {shard}"
ARRIVED_HOME = "update shard set server = null, address = null, batch = %s where shard = %s"
ARRIVED = "insert into shard (shard, epoch, batch, state, server) values (%s, %s, %s, %s, %s)"

DROP_SECONDS = 10
"""So long who reads there is waited for, to drop the table of what has left; a backup may read for an hour."""


class ShardMove:
    """Move shards in the state's transaction, and one of each server that has part in it."""

    def __init__(self, cursor: Any, version: int, telling: Callable[[str], None], closing: ExitStack) -> None:
        """Move for this version; `cursor` is the state's, under the writer's lock, `closing` ends the connections."""
        self._cursor = cursor
        self._version = version
        self._telling = telling
        self._closing = closing
        self._connections: dict[str, Any] = {}
        self._left: list[tuple[ShardServer, int]] = []
        self._sent: list[tuple[ShardServer, int, int]] = []

    def bring_home(self, servers: Sequence[ShardServer]) -> None:
        """Copy shards into the state's own database, all but those that stay on the servers that they are on."""
        staying = {(server.name, shard) for server in servers for shard in server.shards}
        for server in read_servers(self._cursor):
            for shard in server.shards:
                if (server.name, shard) in staying:
                    continue
                with reaching(server, self._cursor), self._reach(server).cursor() as other:
                    copy_between(other, f"select * from {shard_table(shard)}", self._cursor, "gen_rec")
                    copy_between(other, CLUSTERS.format(bits=ID_BITS, shard=shard), self._cursor, "shard_cluster")
                self._cursor.execute(ARRIVED_HOME, (self._version, shard))
                self._left.append((server, shard))
                self._telling(f"Shard {shard} comes from server {server.name!r}.")

    def send_away(self, servers: Sequence[ShardServer], of: int) -> None:
        """Copy shards that are in the state's own database to the servers that are to have them."""
        self._cursor.execute("select shard, epoch, state::text from shard where server is null")
        at_home = {shard: (epoch, state) for shard, epoch, state in self._cursor.fetchall()}
        for server in servers:
            going = [shard for shard in server.shards if shard in at_home]
            if going:
                with reaching(server, self._cursor):
                    self._make_room(server, at_home[going[0]][1])
            for shard in going:
                with reaching(server, self._cursor):
                    self._send(server, shard, of, *at_home[shard])

    def commit(self, connection: Any) -> None:
        """Commit everywhere, the state last; then drop what has left, before anybody begins to read records."""
        self._cursor.execute("select pg_advisory_lock(%s)", (SHARDS_LOCK,))
        for server, shard, of in self._sent:
            with reaching(server), self._reach(server).cursor() as other:
                attach_shard(other, shard, of)
        for other in self._connections.values():
            other.commit()
        connection.commit()
        try:
            self._drop_left()
        finally:
            self._cursor.execute("select pg_advisory_unlock(%s)", (SHARDS_LOCK,))
            connection.commit()

    def _drop_left(self) -> None:
        """Drop what has left; a server that fails keeps it for now, as the move has been made."""
        for server, shard in self._left:
            connection = self._reach(server)
            try:
                with reaching(server), connection.cursor() as other:
                    if not drop_if_unread(other, shard, DROP_SECONDS):
                        self._telling(
                            f"Server {server.name!r} keeps the empty table of shard {shard}: somebody reads there."
                        )
                    connection.commit()
            except StateError as error:
                self._telling(
                    f"Server {server.name!r} keeps what it had of shard {shard} until it is next written or sent "
                    f"something: {first_line(error.__cause__)}."
                )
                with suppress(psycopg2.Error):
                    connection.rollback()

    def _make_room(self, server: ShardServer, state: str) -> None:
        """Drop what a server still has of shards that have left it, before anything holds a lock there for long."""
        self._cursor.execute("select shard from shard where server = %s", (server.name,))
        its = {shard for (shard,) in self._cursor.fetchall()}
        its |= {shard for left, shard in self._left if left.name == server.name}
        connection = self._reach(server)
        with connection.cursor() as other:
            other.execute(f"set local lock_timeout = '{DROP_SECONDS}s'")
            for shard in _require_free(other, server, state):
                if shard not in its:
                    drop_shard(other, shard)
            drop_emptied(other)
        connection.commit()

    def _send(self, server: ShardServer, shard: int, of: int, epoch: int, state: str) -> None:
        condition = key_condition(shard, of)
        with self._reach(server).cursor() as other:
            # Of one database under two addresses each session would wait for the other at the commit, and none knows.
            other.execute("select pg_try_advisory_xact_lock(%s)", (SENDING_LOCK,))
            if not other.fetchone()[0]:
                raise StateError(
                    "Somebody sends shards there already: it is the database of another server, too (give each one of "
                    "its own), or another `subsetd shards set` has not ended."
                )
            make_shard(other, shard, of)
            self._sent.append((server, shard, of))
            copy_between(self._cursor, f"select * from gen_rec where {condition}", other, shard_table(shard))
            copy_between(self._cursor, CLUSTERS.format(bits=ID_BITS, shard=shard), other, "shard_cluster")
            other.execute(ARRIVED, (shard, epoch, self._version, state, server.name))
            other.execute(f"analyze {shard_table(shard)}")
        self._cursor.execute(f"delete from gen_rec where {condition}")
        records = self._cursor.rowcount
        self._cursor.execute("delete from shard_cluster where cluster_id >> %s = %s", (ID_BITS, shard))
        self._cursor.execute(
            "update shard set server = %s, address = %s, batch = %s where shard = %s",
            (server.name, server.address, self._version, shard),
        )
        self._telling(f"Shard {shard}, of {records:,} records, goes to server {server.name!r}.")

    def _reach(self, server: ShardServer) -> Any:
        if server.address not in self._connections:
            connection = self._closing.enter_context(connect(server.address, MOVE_NAME))
            with connection.cursor() as cursor:
                require_schema(cursor)
            self._connections[server.address] = connection
        return self._connections[server.address]


def require_free(servers: Sequence[ShardServer], state: str) -> None:
    """Raise StateError where one of these servers cannot take shards of a state."""
    for server in servers:
        with reaching(server), connect(server.address, MOVE_NAME) as other, other.cursor() as cursor:
            require_schema(cursor)
            _require_free(cursor, server, state)


def _require_free(cursor: Any, server: ShardServer, state: str) -> list[int]:
    """Give the shards that a server has; raise StateError where they are of another state, or under another name."""
    cursor.execute("select shard, state::text, server from shard order by shard for update")
    found = cursor.fetchall()
    for shard, its_state, name in found:
        if its_state != state:
            raise StateError(f"It has shard {shard} of another state: give this one a database of its own.")
        if name != server.name:
            raise StateError(f"It is the database of server {name!r}, too: {WAY_OUT}.")
    return [shard for shard, _, _ in found]
