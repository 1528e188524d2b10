"""Own what a version changes in shards on other servers: kept in the state's commit, and written there behind it.

The state's own transaction holds everything: once it is committed, the version is. What its shards elsewhere are to be
is written to them at once, or by the next writer, once: each says which version it is at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from service.core.clustering import ClusterCounts
from service.core.records import Keys, NewRecords
from service.store import cluster_rows, record_rows
from service.usecases.shards import pack, pack_texts, unpack, unpack_texts

KEEP = """
insert into shard_write (shard, version, previous, data)
select shard, %s, batch, %s from shard where shard = %s
"""
FORGET = "delete from shard_write where version < %s"
KEPT = "select previous, data from shard_write where shard = %s and version = %s order by write_id"


@dataclass(frozen=True, slots=True)
class ShardWrite:
    """Hold records and clusters of a shard as they are to be, with stored ids; `texts` are those of new records."""

    records: NewRecords
    texts: Sequence[str]
    clusters: ClusterCounts

    def to_bytes(self) -> bytes:
        """Give it as it is kept."""
        keys, *rest = self.records
        return pack(*keys, *rest, *pack_texts(self.texts), *self.clusters)

    @staticmethod
    def from_bytes(data: bytes) -> ShardWrite:
        """Read what `to_bytes` gave."""
        high, low, is_new, ids, starts, attribute_ids, frequencies, texts, lengths, *clusters = unpack(data)
        records = NewRecords(Keys(high, low), is_new, ids, starts, attribute_ids, frequencies)
        return ShardWrite(records, unpack_texts(texts, lengths), ClusterCounts(*clusters))


def keep(cursor: Any, shard: int, version: int, write: ShardWrite) -> None:
    """Keep in the state's transaction what a version changes in a shard elsewhere."""
    cursor.execute(KEEP, (version, write.to_bytes(), shard))


def write_again(at_home: Any, cursor: Any, shard: int, batch: int, version: int) -> bool:
    """Bring a shard from version `batch` to that of the state by what is kept; False where that does not lead there.

    What is kept may be of an older version: tasks write to a shard themselves, and keep nothing here.
    """
    with at_home.connection.cursor("kept") as kept:
        kept.itersize = 1
        kept.execute(KEPT, (shard, version))
        is_written = False
        for previous, data in kept:
            if previous != batch:
                return False
            write = ShardWrite.from_bytes(bytes(data))
            cursor.execute("truncate staged_gen_rec, staged_cluster")
            record_rows.write(cursor, write.records, write.texts)
            cluster_rows.write(cursor, write.clusters, "shard_cluster")
            is_written = True
    return is_written
