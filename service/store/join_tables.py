"""Own the models of the index of joinable tables, as core.joinability searches it; `tables` has the others."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    DateTime,
    ForeignKey,
    Identity,
    Integer,
    SmallInteger,
    Table,
    Text,
)
from sqlalchemy.dialects.postgresql import ARRAY, BYTEA, JSONB

from service.store.table_base import metadata, now

join_segment = Table(
    "join_segment",
    metadata,
    Column("segment_id", Integer, Identity(), primary_key=True),
    Column("corpus_id", ForeignKey("corpus.corpus_id", ondelete="CASCADE"), index=True, comment="NULL: of table_id"),
    Column("bucket_bits", SmallInteger, nullable=False, comment="first bits of a value key that name its bucket"),
    Column("layout", BYTEA, nullable=False, comment="rows, columns and functions of its tables: core.join_layout"),
    Column("dead", BYTEA, nullable=False, server_default="", comment="places of tables that are no more, 4 bytes each"),
    Column("table_id", ForeignKey("join_tracked.table_id", ondelete="CASCADE"), index=True, comment="tracked table"),
    CheckConstraint("num_nonnulls(corpus_id, table_id) = 1", name="of_one"),
    comment="tables of a corpus whose cells are in join_bucket and join_rows; one that join_index lacks is no more",
)

join_index = Table(
    "join_index",
    metadata,
    Column("corpus_id", ForeignKey("corpus.corpus_id", ondelete="CASCADE"), primary_key=True),
    Column("generation", Integer, nullable=False, comment="of the corpus, whose tables it has"),
    Column("segment_ids", ARRAY(Integer), nullable=False),
    Column("reading", JSONB, nullable=False, comment="settings of the corpus by which its cells were read"),
    Column("built_at", DateTime(timezone=True), nullable=False, server_default=now),
    Column("report", JSONB, nullable=False, comment="tables, rows, cells, tables left out"),
    comment="what is searched for tables that join",
)


def _of_segment() -> Column[int]:
    key = ForeignKey("join_segment.segment_id", ondelete="CASCADE")
    return Column("segment_id", key, primary_key=True)


join_table = Table(
    "join_table",
    metadata,
    _of_segment(),
    Column("place", Integer, primary_key=True, autoincrement=False, comment="in the segment's layout, by path"),
    Column("table_number", Integer, nullable=False),
    Column("path", Text, nullable=False),
    Column("column_names", ARRAY(Text), nullable=False),
    Column("file_size", BigInteger, nullable=False),
    Column("file_modified", BigInteger, nullable=False, comment="nanoseconds; -1: to be read again"),
    comment="tables of segments, those alone that are not dead",
)

join_bucket = Table(
    "join_bucket",
    metadata,
    _of_segment(),
    Column("bucket", Integer, primary_key=True, autoincrement=False),
    Column("data", BYTEA, nullable=False, comment="values with their cells' places: core.posting_buckets"),
)

join_rows = Table(
    "join_rows",
    metadata,
    _of_segment(),
    Column("first_row", BigInteger, primary_key=True, autoincrement=False),
    Column("super_keys", BYTEA, nullable=False, comment="16 bytes a row"),
    Column("cells", BYTEA, nullable=False, comment="4 bytes a cell: the value's number"),
    comment="at most core.join_layout.BLOCK_ROWS rows of one table",
)

join_task = Table(
    "join_task",
    metadata,
    _of_segment(),
    Column("task", Integer, primary_key=True, autoincrement=False),
    comment="tasks whose rows are in a segment that has not landed yet",
)
