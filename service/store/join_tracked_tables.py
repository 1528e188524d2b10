"""Own the models of the index of joinable tables over tracked tables; `tables` has the others."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, ForeignKey, SmallInteger, Table
from sqlalchemy.dialects.postgresql import BYTEA

from service.store.table_base import metadata

join_tracked = Table(
    "join_tracked",
    metadata,
    Column("table_id", ForeignKey("tracked_table.table_id", ondelete="CASCADE"), primary_key=True, autoincrement=False),
    Column("built_version", BigInteger, comment="as of which all of its rows were indexed last; NULL: never yet"),
    Column("functions", SmallInteger, nullable=False, server_default="1", comment="of the super keys of its rows"),
    Column("row_count", BigInteger, nullable=False, server_default="0", comment="rows as of built_version"),
    comment="tables whose rows are indexed for joins, and kept so by the consumer",
)

join_change = Table(
    "join_change",
    metadata,
    Column("table_id", ForeignKey("join_tracked.table_id", ondelete="CASCADE"), primary_key=True, autoincrement=False),
    Column("version", BigInteger, primary_key=True, autoincrement=False),
    Column("row_keys", BYTEA, nullable=False, comment="of the rows that it changed, 16 bytes each"),
    comment="rows that changed since they were indexed: as they are now, row_image has them",
)

join_row_keys = Table(
    "join_row_keys",
    metadata,
    Column("segment_id", ForeignKey("join_segment.segment_id", ondelete="CASCADE"), primary_key=True),
    Column("first_row", BigInteger, primary_key=True, autoincrement=False),
    Column("row_keys", BYTEA, nullable=False, comment="16 bytes a row"),
    comment="which rows the blocks of join_rows have, of tracked tables",
)

join_cover = Table(
    "join_cover",
    metadata,
    Column("segment_id", ForeignKey("join_segment.segment_id", ondelete="CASCADE"), primary_key=True),
    Column("row_keys", BYTEA, nullable=False, comment="16 bytes each: no older segment speaks of these rows"),
)
