"""Own the models of histograms that are kept, and of the log by which they follow changes; `tables` has the others."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Integer, Table
from sqlalchemy.dialects.postgresql import ARRAY, BYTEA

from service.store.table_base import metadata

followed_attribute = Table(
    "followed_attribute",
    metadata,
    Column("attribute_id", Integer, primary_key=True, autoincrement=False),
    Column("since_version", BigInteger, nullable=False, comment="value_change has all that changed behind it"),
    comment="attributes of which it is logged what values come and go, for the histograms of key_histogram",
)

value_change = Table(
    "value_change",
    metadata,
    Column("version", BigInteger, primary_key=True, autoincrement=False),
    Column("total_bytes", BigInteger, nullable=False, comment="of all changes so far, and these"),
    Column("changes", BYTEA, nullable=False, comment="values that came to followed attributes, or left them"),
)

key_histogram = Table(
    "key_histogram",
    metadata,
    Column("key_id", Integer, primary_key=True, autoincrement=False, comment="attribute"),
    Column("version", BigInteger, nullable=False),
    Column("attribute_ids", ARRAY(Integer), nullable=False, comment="all that the histograms follow"),
    Column("histograms", BYTEA, nullable=False, comment="of the key, its columns, and others over its grids, as JSON"),
)
