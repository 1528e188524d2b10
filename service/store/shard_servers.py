"""Own the servers that shards of a state are on beside its own database: which shard is where, and what fits that.

The state's own rows of `shard` say where each shard is, and at which version. A server's database has the schema of a
state, and of its shards what the state has of the others: records, clusters and a row of `shard`. Nothing else of a
state is in it, and it is of one state alone.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import psycopg2
import psycopg2.errors

from service.core.errors import ConflictError, FullDiskError, ShardAwayError, StateError, first_line
from service.core.secret_parameters import SECRET_PARAMETERS
from service.core.shards import ID_BITS, shard_bounds
from service.store.bulk import FILL_FACTOR, between, uuid_text
from service.store.database import LostConnectionError, address_of, connect, parse_address, state_error
from service.store.tables import SCHEMA_REVISION

LOOKING_NAME = "subsetd shards"

LOCK_TIMEOUT_MS = 30_000
"""How long who writes to a server, or begins to read it, waits for a lock that somebody has there: then it is away."""

SERVERS = """
select server, address, array_agg(shard order by shard) from shard where server is not null group by 1, 2 order by 1
"""
HAS_SERVERS = """
select exists (select from pg_attribute where attrelid = to_regclass('shard') and attname = 'server')
"""
STANDS = "select shard, epoch, batch, state::text from shard where server = %s order by shard"
FOUND = "select shard, epoch, batch, state::text, server from shard order by shard for update"

# Of each shard that is on a server there is a row, from the commit on that brought it there.
EMPTIED = r"""
select relname from pg_inherits join pg_class c on c.oid = inhrelid
where inhparent = 'gen_rec'::regclass and relname ~ '^gen_rec_shard_\d+$'
    and not exists (select from shard where 'gen_rec_shard_' || shard = relname)
"""

WAY_OUT = "bring back the database that the state was written with, or correct its address with `subsetd shards set`"


class LostShardError(ShardAwayError, LostConnectionError):
    """A connection to a shard's server is gone; the same work on a new connection may succeed."""


@dataclass(frozen=True, slots=True)
class ShardServer:
    """Name a server, its database's address, without a password, and the shards that it has."""

    name: str
    address: str
    shards: tuple[int, ...]

    def __str__(self) -> str:
        several = "s" if len(self.shards) > 1 else ""
        return f"server {self.name!r} (shard{several} {', '.join(map(str, self.shards))})"


class Stand(NamedTuple):
    """Say how the state knows a shard: the epoch of its writer, its last version, and whose it is."""

    epoch: int
    batch: int
    state: str


def read_map(path: Path, of: int) -> list[ShardServer]:
    """Read a shard map: a table of TOML for each server, with its `address` and its `shards`.

    Raises ConflictError, which names the place, for a map that cannot be.
    """
    try:
        tables = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConflictError(f"The shard map {path} cannot be read: {error}.") from error
    servers: list[ShardServer] = []
    for name, table in tables.items():
        if not isinstance(table, dict) or table.keys() != {"address", "shards"}:
            raise ConflictError(f"{path}: server {name!r} needs an address and shards, and nothing else.")
        address, shards = table["address"], table["shards"]
        if not isinstance(address, str) or not isinstance(shards, list) or not shards:
            raise ConflictError(f"{path}: the address of server {name!r} is a text, its shards are a list of numbers.")
        parsed = parse_address(address)
        if parsed.password is not None or parsed.query.keys() & SECRET_PARAMETERS:
            raise ConflictError(
                f"{path}: the address of server {name!r} has a password, which the state does not keep: put it into "
                f"the password file of whoever follows (~/.pgpass, or PGPASSFILE)."
            )
        for shard in shards:
            if type(shard) is not int or not 0 <= shard < of:
                raise ConflictError(f"{path}: server {name!r} has shard {shard}; a state of {of} has 0 to {of - 1}.")
        servers.append(ShardServer(name, address, tuple(sorted(shards))))
    _require_once(path, "Shard", [shard for server in servers for shard in server.shards])
    _require_once(path, "Address", [server.address for server in servers])
    return sorted(servers, key=lambda server: server.name)


def _require_once(path: Path, what: str, named: list[Any]) -> None:
    for one in named:
        if named.count(one) > 1:
            raise ConflictError(f"{path}: {what.lower()} {one} is there more than once.")


def read_servers(cursor: Any) -> list[ShardServer]:
    """Read which servers have shards; none where all are in the state's own database."""
    cursor.execute(SERVERS)
    return [ShardServer(name, address, tuple(shards)) for name, address, shards in cursor.fetchall()]


def read_stands(cursor: Any, server: ShardServer) -> dict[int, Stand]:
    """Read in the state's own database how the shards of a server stand."""
    cursor.execute(STANDS, (server.name,))
    return {shard: Stand(*stand) for shard, *stand in cursor.fetchall()}


@contextmanager
def reaching(server: ShardServer, at_home: Any = None) -> Iterator[None]:
    """Let a failure of a server say which it is, and which shards wait for it.

    What the server itself makes fail, and not what is in it, is a ShardAwayError, but for a full disk. What befalls
    the connection of the cursor `at_home` is told of the state's own database.
    """
    try:
        yield
    except StateError as error:
        kind = _kind(error) if isinstance(error.__cause__, psycopg2.Error) else type(error)
        raise kind(f"{server}: {str(error).replace('SUBSETD_DATABASE_URL', 'its address')}") from error
    except psycopg2.Error as error:
        if at_home is not None and _is_of(at_home.connection, error):
            raise state_error(error, address_of(at_home)) or error from error
        told = state_error(error, parse_address(server.address))
        if isinstance(error, psycopg2.errors.UndefinedTable | psycopg2.errors.UndefinedColumn):
            raise StateError(f"{server}: It lacks tables for shards ({first_line(error)}): {WAY_OUT}.") from error
        if told is None:
            raise
        raise _kind(told)(f"{server}: {told}") from error


def _is_of(connection: Any, error: psycopg2.Error) -> bool:
    """Tell whether an error befell a connection; one that names no cursor, as that of a BEGIN, if it ended it."""
    return bool(connection.closed) if error.cursor is None else error.cursor.connection is connection


def _kind(error: StateError) -> type[StateError]:
    if isinstance(error, FullDiskError):
        return FullDiskError
    return LostShardError if isinstance(error, LostConnectionError) else ShardAwayError


def servers_away(url: str) -> list[str] | None:
    """Say of each server that is of no use why; None where all shards are in the state's own database, at `url`."""
    with connect(url, LOOKING_NAME) as connection, connection.cursor() as cursor:
        stands = [(server, read_stands(cursor, server)) for server in read_servers(cursor)]
    told = []
    for server, its in stands:
        try:
            with reaching(server), connect(server.address, LOOKING_NAME) as other, other.cursor() as elsewhere:
                require_applying(elsewhere, server, its)
        except StateError as error:
            told.append(str(error))
    return told if stands else None


def servers_reached(url: str) -> list[ShardServer]:
    """Give the servers that have shards of a state and can be reached from here; none where there is no state."""
    with connect(url, LOOKING_NAME) as connection, connection.cursor() as cursor:
        cursor.execute(HAS_SERVERS)
        servers = read_servers(cursor) if cursor.fetchone()[0] else []
    return [server for server in servers if why_not_reached(server) is None]


def why_not_reached(server: ShardServer) -> str | None:
    """Say why a server cannot be reached from here; None where it can."""
    try:
        with reaching(server), connect(server.address, LOOKING_NAME):
            return None
    except StateError as error:
        return str(error)


def require_applying(cursor: Any, server: ShardServer, stands: Mapping[int, Stand]) -> None:
    """Raise StateError where a server that answers can apply nothing; waits for nobody, unlike `require_fit`."""
    require_schema(cursor)
    cursor.execute("select from shard where false for update")  # which a standby refuses, too
    cursor.execute("select shard, state::text from shard where server = %s", (server.name,))
    found = dict(cursor.fetchall())
    for shard, stand in stands.items():
        if found.get(shard) != stand.state:
            raise StateError(f"It has no shard {shard} of this state: {WAY_OUT}.")


def require_servers(connection: Any) -> None:
    """Raise StateError where a server that has shards of the connection's state cannot be reached, or apply nothing."""
    with connection.cursor() as cursor:
        stands = [(server, read_stands(cursor, server)) for server in read_servers(cursor)]
    connection.rollback()
    for server, its in stands:
        with reaching(server), connect(server.address, LOOKING_NAME) as other, other.cursor() as elsewhere:
            require_applying(elsewhere, server, its)


def require_fit(cursor: Any, server: ShardServer, stands: Mapping[int, Stand]) -> dict[int, int]:
    """Give the batch of each shard that a server has; a shard too many is one that has moved away.

    Locks the shards. Raises StateError where they are not those of the state, ConflictError where another is writer.
    """
    cursor.execute(FOUND)
    found = {}
    (state,) = {stand.state for stand in stands.values()}
    epoch = max(stand.epoch for stand in stands.values())
    for shard, its_epoch, batch, its_state, name in cursor.fetchall():
        if its_state != state:
            raise StateError(f"It has shard {shard} of another state: {WAY_OUT}.")
        if name != server.name:
            raise StateError(f"It is the database of server {name!r}, too: give each server one of its own.")
        if its_epoch > epoch:
            raise ConflictError(f"Shard {shard} has had another writer than this state's: {WAY_OUT}.")
        found[shard] = batch
    for shard in stands.keys() - found.keys():
        raise StateError(f"It has no shard {shard}: {WAY_OUT}.")
    return found


def require_schema(cursor: Any) -> None:
    """Raise StateError where a server's database does not have the tables that shards need."""
    cursor.execute("select to_regclass('alembic_version') is not null")
    revision = None
    if cursor.fetchone()[0]:
        cursor.execute("select version_num from alembic_version")
        (revision,) = cursor.fetchone() or (None,)
    if revision != SCHEMA_REVISION:
        raise StateError(
            f"Its schema revision is {revision or 'none'}, expected {SCHEMA_REVISION}: run `subsetd shards set` with "
            f"the same servers, which migrates it."
        )
    require_no_state(cursor)


def require_no_state(cursor: Any) -> None:
    """Raise StateError where a server's database, of any release or without tables, holds a state of its own."""
    cursor.execute("select to_regclass('state_version') is not null")
    if not cursor.fetchone()[0]:
        return
    cursor.execute("select exists (select from state_version)")
    if cursor.fetchone()[0]:
        raise StateError("It holds a state of its own: give each server a database that is for shards alone.")


def other_history(shard: int, batch: int, known: int) -> str:
    """Say that a shard is not where the state has it."""
    which = "it" if batch < known else "the state"
    return (
        f"Shard {shard} is at version {batch}, and the state has it at {known}: {which} was restored from an older "
        f"backup, or lost its newest versions in a crash; {WAY_OUT}, or go on from a backup, which needs no server: "
        f"`subsetd restore FILE --replace`."
    )


def shard_table(shard: int) -> str:
    """Name the partition of a shard's records on a server of its own."""
    return f"gen_rec_shard_{shard}"


def make_shard(cursor: Any, shard: int, of: int) -> None:
    """Make the table of a shard's records on its server, without any: a partition once `attach_shard` makes it one.

    As long as it is none, whoever reads the server's other shards is not kept waiting.
    """
    name = shard_table(shard)
    cursor.execute(f"create table {name} (like gen_rec including all) with (fillfactor = {FILL_FACTOR})")
    cursor.execute(f"alter table {name} add constraint {name}_range check ({key_condition(shard, of)})")


def attach_shard(cursor: Any, shard: int, of: int) -> None:
    """Make the table of a shard's records a partition; its constraint says what is in it, so that nothing is read."""
    low, high = key_bounds(shard, of)
    first, end = f"'{low}'" if low else "minvalue", f"'{high}'" if high else "maxvalue"
    name = shard_table(shard)
    cursor.execute(f"alter table gen_rec attach partition {name} for values from ({first}) to ({end})")
    cursor.execute(f"alter table {name} drop constraint {name}_range")


def drop_shard(cursor: Any, shard: int) -> None:
    """Remove all that a server has of a shard."""
    cursor.execute(f"drop table if exists {shard_table(shard)}")
    _forget_shard(cursor, shard)


def drop_if_unread(cursor: Any, shard: int, seconds: float) -> bool:
    """Remove all that a server has of a shard; its table stays, empty, where somebody goes on reading for so long.

    Tells whether the table went. Who waits for a backup's end would keep out all who come behind.
    """
    is_dropped = _drop_tables(cursor, [shard_table(shard)], seconds)
    if not is_dropped:
        cursor.execute(f"delete from {shard_table(shard)}")
    _forget_shard(cursor, shard)
    return is_dropped


def drop_emptied(cursor: Any, seconds: float | None = None) -> None:
    """Drop the empty tables of shards that have left, but for what somebody goes on reading for so long, if given."""
    cursor.execute(EMPTIED)
    names = [name for (name,) in cursor.fetchall()]
    if names and seconds is not None:
        _drop_tables(cursor, names, seconds)
    elif names:
        cursor.execute(f"drop table {', '.join(names)}")


def _drop_tables(cursor: Any, names: Sequence[str], seconds: float) -> bool:
    cursor.execute(f"savepoint dropping; set local lock_timeout = '{seconds:g}s'")
    try:
        cursor.execute(f"drop table if exists {', '.join(names)}")
    except psycopg2.errors.LockNotAvailable:
        cursor.execute("rollback to savepoint dropping")
        return False
    cursor.execute("set local lock_timeout to default")
    return True


def _forget_shard(cursor: Any, shard: int) -> None:
    cursor.execute(f"delete from shard_cluster where cluster_id >> {ID_BITS} = {shard}")
    cursor.execute("delete from shard_batch where shard = %s", (shard,))
    cursor.execute("delete from shard where shard = %s", (shard,))


def key_bounds(shard: int, of: int) -> tuple[str | None, str | None]:
    """Give the first key of a shard, and the first behind it, as uuid texts; None where the key space ends."""
    bounds = [None, *(uuid_text(int(bound) << 64) for bound in shard_bounds(of)), None]
    return bounds[shard], bounds[shard + 1]


def key_condition(shard: int, of: int) -> str:
    """Give the keys of a shard as a condition on value_key."""
    return between(*key_bounds(shard, of))
