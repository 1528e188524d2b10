"""Own the tables of shards: none of them has a row where the state is one shard."""

from __future__ import annotations

from sqlalchemy import BigInteger, CheckConstraint, Column, Index, Integer, Table
from sqlalchemy.dialects.postgresql import ARRAY, BYTEA

from service.store.table_base import metadata

shard = Table(
    "shard",
    metadata,
    Column("shard", Integer, primary_key=True, autoincrement=False, comment="none at all: the state is one shard"),
    Column("epoch", BigInteger, nullable=False, comment="one for each writer: a batch of the one before is refused"),
    Column("batch", BigInteger, nullable=False, comment="last version that a task of its own applied, or its share"),
    Column("summary", BYTEA, comment="what that batch did, for the state's own version"),
    Column("undo", BYTEA, comment="records as they were before that batch"),
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
