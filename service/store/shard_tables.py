"""Own the tables of shards: none of them has a row where the state is one shard."""

from __future__ import annotations

from sqlalchemy import BigInteger, CheckConstraint, Column, Identity, Index, Integer, Table, Text
from sqlalchemy.dialects.postgresql import ARRAY, BYTEA, UUID

from service.store.table_base import metadata

shard = Table(
    "shard",
    metadata,
    Column("shard", Integer, primary_key=True, autoincrement=False, comment="none at all: the state is one shard"),
    Column("epoch", BigInteger, nullable=False, comment="one for each writer: a batch of the one before is refused"),
    Column("batch", BigInteger, nullable=False, comment="last version that a task of its own applied, or its share"),
    Column("server", Text, comment="name of the server that it is on; NULL: the state's own database"),
    Column("address", Text, comment="of that server's database, without a password"),
    Column("state", UUID(as_uuid=True), comment="which state it is of: a server is told"),
)

shard_owner = Table(
    "shard_owner",
    metadata,
    Column("state", UUID(as_uuid=True), primary_key=True, comment="as the column of shard"),
    comment="one row from the first time that the state is dealt out to shards; none on a server",
)

shard_batch = Table(
    "shard_batch",
    metadata,
    Column("shard", Integer, primary_key=True, autoincrement=False),
    Column("batch", BigInteger, primary_key=True, autoincrement=False, comment="the version that it is to be"),
    Column("summary", BYTEA, nullable=False, comment="what that batch did, for the state's own version"),
    Column("undo", BYTEA, nullable=False, comment="records as they were before that batch"),
)

shard_write = Table(
    "shard_write",
    metadata,
    Column("write_id", BigInteger, Identity(always=True), primary_key=True),
    Column("shard", Integer, nullable=False, comment="one that is on a server of its own"),
    Column("version", BigInteger, nullable=False, comment="whose commit it is written behind"),
    Column("previous", BigInteger, nullable=False, comment="version that the shard must be at before"),
    Column("data", BYTEA, nullable=False, comment="records and clusters as they are to be"),
)

shard_cluster = Table(
    "shard_cluster",
    metadata,
    Column("cluster_id", BigInteger, primary_key=True, autoincrement=False, comment="shard * 2^32 + its own number"),
    Column("attribute_ids", ARRAY(Integer), nullable=False, comment="ascending"),
    Column("value_count", BigInteger, nullable=False),
    CheckConstraint("value_count > 0", name="value_count_positive"),
    postgresql_with={"fillfactor": "70"},
)
Index("ix_shard_cluster_attribute_ids", shard_cluster.c.attribute_ids, postgresql_using="gin")
