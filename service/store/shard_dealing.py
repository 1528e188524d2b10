"""Own how records are dealt out to shards: to another number of them, in one transaction, nothing read anew."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from service.core.errors import ConflictError, StateError
from service.core.shards import ID_BITS, MOST_SHARDS, shard_bounds
from service.store.bulk import uuid_text
from service.store.database import connect
from service.store.schema_changes import write_version
from service.store.shard_reading import RECORD_CLUSTERS
from service.store.shown_values import refuse_shards
from service.store.versions import read_served
from service.store.writer_lock import release_locks, take_writer_lock

COMMAND_NAME = "subsetd shards"

SHARDS = f"""
select coalesce(shard, 0), count(cluster_id), coalesce(sum(value_count), 0)::bigint,
       case when batch > (select max(version) from state_version) then batch end
from shard full join {RECORD_CLUSTERS} c on cluster_id >> {ID_BITS} = shard group by shard, batch order by 1
"""

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
    hold the writer's lock, and no shard be ahead. Raises ConflictError for a number that cannot be.
    """
    if not 1 <= of <= MOST_SHARDS:
        raise ConflictError(f"A state is of 1 to {MOST_SHARDS} shards, not of {of}.")
    cursor.execute(MOVING)
    cursor.execute("analyze moving")
    cursor.execute("delete from shard_cluster")
    for shard in range(of):
        part = {"condition": _condition(shard, of), "first": shard << ID_BITS}
        cursor.execute(MOVE.format(**part))
        moved = cursor.rowcount
        if of > 1:
            cursor.execute(COUNT.format(**part))
        telling(f"Shard {shard} of {of}: {moved:,} records have another cluster's number.")
    cursor.execute("delete from shard")
    if of > 1:
        cursor.execute(
            "insert into shard (shard, epoch, batch) select shard, pg_current_xact_id()::text::bigint, "
            "(select coalesce(max(version), 0) from state_version) from generate_series(0, %s) as shard",
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
    """Describe a shard; `ahead` is the version that it holds and the state does not, None as a rule."""

    shard: int
    clusters: int
    values: int
    ahead: int | None


def read_shards(url: str) -> list[ShardInfo]:
    """Say how the shards stand; the whole as one, where the state is in no more."""
    with connect(url, COMMAND_NAME) as connection, connection.cursor() as cursor:
        cursor.execute(SHARDS)
        return [ShardInfo(*row) for row in cursor]


def set_shards(url: str, of: int, telling: Callable[[str], None]) -> int:
    """Deal the state out to so many shards, as a version of its own, and return it; `telling` hears what is done.

    Waits for a consumer to hand the state over. Raises StateError when another writes it, or there is none yet;
    ConflictError for a number that cannot be. Then nothing has changed.
    """
    with connect(url, COMMAND_NAME) as connection:
        take_writer_lock(connection, telling)
        try:
            with connection.cursor() as cursor:
                if not read_served(cursor)[0]:
                    raise StateError("There is no state yet: run `subsetd bootstrap SOURCE --name NAME` first.")
                version = write_version(cursor, None)
                deal(cursor, of, telling)
            connection.commit()
        finally:
            release_locks(connection)
    return version


def _condition(shard: int, of: int) -> str:
    """Give the keys of a shard as a condition on value_key."""
    bounds = [uuid_text(int(bound) << 64) for bound in shard_bounds(of)]
    parts = [f"value_key >= '{bounds[shard - 1]}'"] if shard else []
    parts += [f"value_key < '{bounds[shard]}'"] if shard < of - 1 else []
    return " and ".join(parts) or "true"
