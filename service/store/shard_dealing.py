"""Own how records are dealt out to shards: to another number of them, in one transaction, nothing read anew."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from service.core.errors import ConflictError, NoStateError, StateError
from service.core.shards import ID_BITS, MOST_SHARDS
from service.store import migrate
from service.store.database import connect
from service.store.schema_changes import write_version
from service.store.shard_moving import ShardMove, require_free
from service.store.shard_reading import RECORD_CLUSTERS
from service.store.shard_servers import (
    ShardServer,
    key_condition,
    reaching,
    read_servers,
    read_stands,
    require_applying,
    require_no_state,
)
from service.store.shown_values import refuse_shards
from service.store.versions import NEWEST, read_served
from service.store.writer_lock import releasing_locks, take_writer_lock

COMMAND_NAME = "subsetd shards"

SHARDS = f"""
select coalesce(shard, 0), count(cluster_id), coalesce(sum(value_count), 0)::bigint,
       case when batch > {NEWEST} then batch end
from shard full join {RECORD_CLUSTERS} c on cluster_id >> {ID_BITS} = shard group by shard, batch order by 1
"""

ON_SERVER = f"""
select shard, count(cluster_id), coalesce(sum(value_count), 0)::bigint, batch
from shard left join shard_cluster on cluster_id >> {ID_BITS} = shard group by shard, batch
"""

# By this servers know whose shards they have: it outlives the rows of shards, and is kept before a server hears of it.
OWNER = "insert into shard_owner select gen_random_uuid() where not exists (select from shard_owner)"

READDRESS = "update shard set address = %(address)s where server = %(name)s and address <> %(address)s"

MOVING = f"""
create temporary table moving on commit drop as
select old.cluster_id as old_id, cluster.cluster_id as new_id
from {RECORD_CLUSTERS} old join cluster using (attribute_ids)
"""

MOVE = """
update gen_rec set cluster_id = new_id + {first} from moving
where cluster_id = old_id and cluster_id <> new_id + {first} and {condition}
"""

COUNT = """
insert into shard_cluster
select counted.cluster_id, attribute_ids, records
from (select cluster_id, count(*) as records from gen_rec where {condition} group by cluster_id) counted
join cluster on cluster.cluster_id = counted.cluster_id - {first}
"""


def read_number(cursor: Any) -> int:
    """Read how many shards there are."""
    cursor.execute("select count(*) from shard")
    (number,) = cursor.fetchone()
    return max(int(number), 1)


def deal(cursor: Any, of: int, telling: Callable[[str], None]) -> None:
    """Deal the records out to so many shards, in the cursor's transaction; commits nothing.

    Nothing is read again: records get the ids of the new shards' clusters, and those are counted. The connection must
    hold the writer's lock, no shard be ahead, and none on another server. Raises ConflictError for a number that cannot
    be.
    """
    if not 1 <= of <= MOST_SHARDS:
        raise ConflictError(f"A state is of 1 to {MOST_SHARDS} shards, not of {of}.")
    cursor.execute(MOVING)
    cursor.execute("analyze moving")
    cursor.execute("delete from shard_cluster")
    for shard in range(of):
        part = {"condition": key_condition(shard, of), "first": shard << ID_BITS}
        cursor.execute(MOVE.format(**part))
        moved = cursor.rowcount
        if of > 1:
            cursor.execute(COUNT.format(**part))
        telling(f"Shard {shard} of {of}: {moved:,} records have another cluster's number.")
    cursor.execute("delete from shard")
    if of > 1:
        cursor.execute(OWNER)
        cursor.execute(
            "insert into shard (shard, epoch, batch, state) select shard, pg_current_xact_id()::text::bigint, "
            f"coalesce({NEWEST}, 0), state "
            "from shard_owner, generate_series(0, %s) as shard",
            (of - 1,),
        )
    cursor.execute("drop table moving")
    refuse_shards(cursor)


def deal_again(cursor: Any) -> None:
    """Deal records out that a bootstrap wrote with the ids of the whole's clusters, to as many shards as there are."""
    of = read_number(cursor)
    if of > 1:
        cursor.execute("delete from shard; delete from shard_cluster")
        deal(cursor, of, lambda _: None)


@dataclass(frozen=True, slots=True)
class ShardInfo:
    """Describe a shard; `ahead` is the version that it holds and the state does not, None as a rule.

    `server` is that which has it, None: the state's own database. With `away`, which says why it is of no use,
    nothing is known of its clusters and values.
    """

    shard: int
    clusters: int | None
    values: int | None
    ahead: int | None
    server: str | None = None
    away: str | None = None


def read_shards(url: str) -> list[ShardInfo]:
    """Say how the shards stand; the whole as one, where the state is in no more."""
    with connect(url, COMMAND_NAME) as connection, connection.cursor() as cursor:
        return find_shards(cursor)


def find_shards(cursor: Any) -> list[ShardInfo]:
    """Say how the shards stand, all servers asked; see `read_shards`."""
    cursor.execute(SHARDS)
    found = [ShardInfo(*row) for row in cursor.fetchall()]
    for server in read_servers(cursor):
        stands = read_stands(cursor, server)
        try:
            with reaching(server), connect(server.address, COMMAND_NAME) as other, other.cursor() as elsewhere:
                require_applying(elsewhere, server, stands)
                elsewhere.execute(ON_SERVER)
                told = {shard: row for shard, *row in elsewhere.fetchall()}
        except StateError as error:
            for shard in server.shards:
                found[shard] = ShardInfo(shard, None, None, None, server.name, str(error))
            continue
        for shard, stand in stands.items():
            clusters, values, batch = told.get(shard, (None, None, stand.batch))  # it may be on its way elsewhere
            found[shard] = ShardInfo(shard, clusters, values, batch if batch != stand.batch else None, server.name)
    return found


def set_shards(url: str, of: int, telling: Callable[[str], None], servers: Sequence[ShardServer] = ()) -> int:
    """Deal the state out to so many shards on these servers, as a version of its own, and return it.

    Shards that no server has are in the state's own database. A server is known by its name: of another address it is
    taken at its word, and its shards must be there. With another number all of them come home first, as a version of
    its own before that. `telling` hears what is done. Waits for a consumer to hand the state over. Raises StateError
    when another writes it, there is none yet, or a server is away or does not fit; ConflictError for a number that
    cannot be. Then nothing has changed; of what is to go to servers all may have come home.
    """
    for server in servers:
        with reaching(server), connect(server.address, COMMAND_NAME) as other, other.cursor() as elsewhere:
            require_no_state(elsewhere)  # its release would not open it any more
    for server in servers:
        with reaching(server):
            migrate.upgrade(server.address)
    with connect(url, COMMAND_NAME) as connection:
        with connection.cursor() as cursor:
            known = read_servers(cursor)
            stands = {server.name: read_stands(cursor, server) for server in known}
        # Whoever follows or answers meanwhile goes there as soon as it is committed.
        for server in servers:
            if server.address not in {one.address for one in known if one.name == server.name}:
                with reaching(server), connect(server.address, COMMAND_NAME) as other, other.cursor() as elsewhere:
                    require_applying(elsewhere, server, stands.get(server.name, {}))
        _readdress(connection, servers)
        try:
            take_writer_lock(connection, telling)
        except StateError:
            _readdress(connection, known)
            raise
        with releasing_locks(connection):
            return move_shards(connection, of, telling, servers)


def _readdress(connection: Any, servers: Sequence[ShardServer]) -> None:
    connection.rollback()
    with connection.cursor() as cursor:
        for server in servers:
            cursor.execute(READDRESS, {"name": server.name, "address": server.address})
    connection.commit()


def move_shards(connection: Any, of: int | None, telling: Callable[[str], None], servers: Sequence[ShardServer]) -> int:
    """Do what `set_shards` does, under the writer's lock of a connection, which is to be rolled back where it raises.

    `of` None leaves the number of shards as it is.
    """
    with ExitStack() as closing, connection.cursor() as cursor:
        if not read_served(cursor)[0]:
            raise NoStateError
        cursor.execute(f"{OWNER}; select state::text from shard_owner")
        (state,) = cursor.fetchone()
        connection.commit()
        now = read_number(cursor)
        wanted = now if of is None else of
        if wanted != now:
            # All of them come home first, in a version of its own: a server has one shard of a number, so what is to
            # go there cannot stand beside what comes from there.
            require_free(servers, state)
            version = write_version(cursor, None)
            moving = ShardMove(cursor, version, telling, closing)
            moving.bring_home([])
            deal(cursor, wanted, telling)
            moving.commit(connection)
        if wanted == now or servers:
            version = write_version(cursor, None)
            moving = ShardMove(cursor, version, telling, closing)
            moving.bring_home(servers)
            moving.send_away(servers, wanted)
            moving.commit(connection)
    return version
