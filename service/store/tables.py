"""Own the shape of the state in Postgres: the models that the migrations must equal.

`gen_rec` is partitioned by ranges of `value_key`, which is a hash: the ranges are equal shares of the key space, so
this is hash partitioning whose partition anyone can compute from the key's first bits (the bootstrap's reduce tasks, a
shard, a query). Its partitions are made by the bootstrap, one set for each generation, and are no part of the models.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    ForeignKey,
    Identity,
    Index,
    Integer,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    and_,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, BYTEA, JSONB, UUID

import service.store.access_tables
import service.store.contract_tables
import service.store.histogram_tables
import service.store.history_tables
import service.store.join_tables
import service.store.join_tracked_tables
import service.store.shard_tables
import service.store.watch_tables  # noqa: F401 - they are in `metadata` as well
from service.store.table_base import metadata, now

source = Table(
    "source",
    metadata,
    Column("source_id", Integer, Identity(), primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("kind", Text, nullable=False, comment="csv, parquet or postgres"),
    Column("location", Text, nullable=False, comment="folder or address, without a password"),
    Column(
        "settings", JSONB, nullable=False, server_default=text("'{}'::jsonb"), comment="null tokens, delimiter, ..."
    ),
    Column("insert_only", Boolean, nullable=False, server_default=text("false")),
    Column("snapshot", Text, comment="pg_current_snapshot() of a Postgres source's bootstrap"),
    Column("bootstrapped_version", BigInteger, nullable=False),
    Column("bootstrapped_at", DateTime(timezone=True), nullable=False, server_default=now),
    Column(
        "sketch_only",
        Boolean,
        nullable=False,
        server_default=text("false"),
        comment="its attributes are in sketches and counters alone, in no gen_rec",
    ),
)

attribute = Table(
    "attribute",
    metadata,
    Column("attribute_id", Integer, primary_key=True, autoincrement=False),
    Column("source_id", ForeignKey("source.source_id"), nullable=False, index=True),
    Column("schema_name", Text, nullable=False),
    Column("table_name", Text, nullable=False),
    Column("column_name", Text, nullable=False),
    Column("ordinal", Integer, nullable=False, comment="0-based place in its table"),
    Column("data_type", Text, nullable=False, server_default="string"),
    Column("row_count", BigInteger, nullable=False),
    Column("null_count", BigInteger, nullable=False),
    Column("distinct_count", BigInteger, comment="NULL: not counted, as its source is sketch-only"),
    Column("repeated_count", BigInteger, comment="values with a frequency above 1; NULL when insert-only"),
    Column("dropped_version", BigInteger, comment="first version without it; NULL while it is followed"),
    Column("stale_version", BigInteger, comment="version since which its values are no longer kept current"),
    Column("added_version", BigInteger, comment="version of the schema change that made it; NULL: a bootstrap did"),
    Column("renamed_to", Text, comment="column name that it takes when its source's changes show it"),
    Column("parts", ARRAY(Integer), comment="ordinals of the columns whose tuple it is; NULL: a column"),
    Column("snapshot", Text, comment="pg_current_snapshot() of its backfill; NULL: that of its source"),
    Column("shown_characters", Integer, comment="first characters of its values that are kept and shown; NULL: all"),
    CheckConstraint("shown_characters >= 0", name="shown_characters_not_negative"),
)
Index(
    "uq_attribute_name",
    attribute.c.schema_name,
    attribute.c.table_name,
    attribute.c.column_name,
    unique=True,
    postgresql_where=and_(attribute.c.dropped_version.is_(None), attribute.c.parts.is_(None)),
)
Index(
    "uq_attribute_parts",
    attribute.c.schema_name,
    attribute.c.table_name,
    attribute.c.parts,
    unique=True,
    postgresql_where=and_(attribute.c.dropped_version.is_(None), attribute.c.parts.is_not(None)),
)

tracked_key = Table(
    "tracked_key",
    metadata,
    Column("key_id", Integer, Identity(), primary_key=True),
    Column("attribute_id", ForeignKey("attribute.attribute_id", ondelete="CASCADE"), nullable=False, unique=True),
    Column("kind", Text, nullable=False),
    Column("is_primary", Boolean, nullable=False, server_default=text("false")),
    Column("since_version", BigInteger, nullable=False),
    Column("chosen", Text, comment="kind that somebody chose it as where its source declares it as well"),
    CheckConstraint("kind in ('declared', 'discovered', 'pinned')", name="kind_known"),
    comment="columns, or tuples of them, that are said or were seen to tell rows apart",
)

tracked_table = Table(
    "tracked_table",
    metadata,
    Column("table_id", Integer, Identity(), primary_key=True),
    Column("source_id", ForeignKey("source.source_id"), nullable=False, index=True),
    Column("schema_name", Text, nullable=False),
    Column("table_name", Text, nullable=False),
    Column("source_database", Text, comment="database as changes name it; NULL: any"),
    Column("source_schema", Text, nullable=False, comment="schema as changes name it"),
    Column("source_table", Text, nullable=False, comment="table as changes name it"),
    Column(
        "key_columns",
        ARRAY(Text),
        nullable=False,
        server_default=text("'{}'::text[]"),
        comment="columns that tell its rows apart; none where that is not known",
    ),
    Column("replica_identity", Text, comment="full, default, index or nothing; NULL where there is no such thing"),
    Column("row_images", Boolean, nullable=False, server_default=text("false")),
    Column("begun_version", BigInteger, comment="that bootstrapped or emptied it last"),
    UniqueConstraint("schema_name", "table_name"),
)

row_image = Table(
    "row_image",
    metadata,
    Column("table_id", Integer, primary_key=True, autoincrement=False),
    Column(
        "row_key", UUID(as_uuid=True), primary_key=True, comment="first 128 bits of SHA-256 of the key's texts as JSON"
    ),
    Column("cells", ARRAY(Text), comment="canonical texts by ordinals; NULL: gone, kept while there are dead letters"),
    Column("version", BigInteger, nullable=False, server_default="0", comment="that wrote it; 0: a bootstrap"),
    Column("record_offset", BigInteger, nullable=False, server_default="0", comment="of the change that wrote it"),
    # Updated at random, but for its key: as of `cluster`.
    postgresql_with={"fillfactor": "90"},
)

cluster = Table(
    "cluster",
    metadata,
    Column("cluster_id", BigInteger, primary_key=True, autoincrement=False),
    Column("attribute_ids", ARRAY(Integer), nullable=False, comment="ascending"),
    Column("value_count", BigInteger, nullable=False),
    CheckConstraint("value_count > 0", name="value_count_positive"),
    # Counts change with every batch, attribute_ids never: with room on the page these updates stay HOT.
    postgresql_with={"fillfactor": "70"},
)
Index("ix_cluster_attribute_ids", cluster.c.attribute_ids, postgresql_using="gin")

gen_rec = Table(
    "gen_rec",
    metadata,
    Column(
        "value_key", UUID(as_uuid=True), primary_key=True, comment="first 128 bits of SHA-256 of the canonical text"
    ),
    Column("value", Text, nullable=False, comment="canonical text, cut to at most 256 bytes"),
    Column("cluster_id", BigInteger, nullable=False),
    Column("attribute_ids", ARRAY(Integer), nullable=False, comment="ascending"),
    Column(
        "frequencies",
        ARRAY(BigInteger),
        comment="beside attribute_ids; 0 = not counted (insert-only); NULL = none counted",
    ),
    postgresql_partition_by="RANGE (value_key)",
)
Index("ix_gen_rec_cluster_id_value_key", gen_rec.c.cluster_id, gen_rec.c.value_key)

state_version = Table(
    "state_version",
    metadata,
    Column("version", BigInteger, primary_key=True, autoincrement=False, comment="dense: one more for each commit"),
    Column("generation", Integer, nullable=False, comment="one more for each bootstrap"),
    Column("kind", Text, nullable=False, comment="bootstrap or batch"),
    Column("committed_at", DateTime(timezone=True), nullable=False, server_default=func.clock_timestamp()),
    Column("source_name", Text, comment="of a bootstrap"),
    Column("feed", Text, comment="of a batch"),
    Column("records", BigInteger, nullable=False, server_default="0"),
    Column("inserted", BigInteger, nullable=False, server_default="0"),
    Column("updated", BigInteger, nullable=False, server_default="0"),
    Column("deleted", BigInteger, nullable=False, server_default="0"),
    Column("skipped", BigInteger, nullable=False, server_default="0"),
    Column("dead", BigInteger, nullable=False, server_default="0"),
    Column("newest_source_ms", BigInteger, comment="newest ts_ms of the batch's records"),
    Column("transaction_consistent", Boolean, comment="whether it ends with whole transactions; NULL: not known"),
    # What retention dropped from its beginning is in the way of whoever asks for the first version.
    postgresql_with={"autovacuum_vacuum_scale_factor": "0.02"},
)

batch_position = Table(
    "batch_position",
    metadata,
    Column("version", ForeignKey("state_version.version"), primary_key=True),
    Column("feed", Text, primary_key=True),
    Column("topic", Text, primary_key=True),
    Column("partition", Integer, primary_key=True),
    Column("first_offset", BigInteger, nullable=False, comment="where the batch began: the next_offset before it"),
    Column("next_offset", BigInteger, nullable=False),
    postgresql_with={"autovacuum_vacuum_scale_factor": "0.02"},
)

feed_position = Table(
    "feed_position",
    metadata,
    Column("feed", Text, primary_key=True),
    Column("topic", Text, primary_key=True),
    Column("partition", Integer, primary_key=True),
    Column("next_offset", BigInteger, nullable=False),
    Column("source_position", JSONB, nullable=False, server_default=text("'{}'::jsonb")),
    Column("version", BigInteger, nullable=False),
    Column("topic_id", Text, comment="the broker's own id of the topic"),
)

feed = Table(
    "feed",
    metadata,
    Column("feed", Text, primary_key=True, comment="its name among the positions"),
    Column("address", Text, nullable=False, comment="without a password"),
    Column(
        "identity",
        JSONB,
        nullable=False,
        server_default=text("'{}'::jsonb"),
        comment="cluster of brokers, or system, database and slot",
    ),
    Column("paused_at", DateTime(timezone=True), comment="NULL while it is followed"),
    Column("created_at", DateTime(timezone=True), nullable=False, server_default=now),
    Column("fault", Text, comment="why it is not followed as it should be, as its consumer said last; NULL: it is"),
    Column("fault_at", DateTime(timezone=True), comment="when it was said last"),
)

feed_catch_up = Table(
    "feed_catch_up",
    metadata,
    Column("feed", Text, primary_key=True),
    Column("topic", Text, primary_key=True),
    Column("partition", Integer, primary_key=True, autoincrement=False),
    Column("source_id", ForeignKey("source.source_id"), primary_key=True, autoincrement=False),
    Column("until_offset", BigInteger, nullable=False, comment="records before it are in this source's data already"),
)

uind = Table(
    "uind",
    metadata,
    Column("dependent_id", Integer, primary_key=True, autoincrement=False),
    Column("referenced_id", Integer, primary_key=True, autoincrement=False),
    Column("since_version", BigInteger, primary_key=True, autoincrement=False),
    Column("until_version", BigInteger, comment="first version at which it no longer holds; NULL while it holds"),
)
Index(
    "ix_uind_current",
    uind.c.dependent_id,
    uind.c.referenced_id,
    unique=True,
    postgresql_where=uind.c.until_version.is_(None),
)
Index("ix_uind_referenced_id", uind.c.referenced_id)

ind_transition = Table(
    "ind_transition",
    metadata,
    Column(
        "version", BigInteger, primary_key=True, autoincrement=False, comment="may be older than those that are kept"
    ),
    Column("dependent_id", Integer, primary_key=True, autoincrement=False),
    Column("referenced_id", Integer, primary_key=True, autoincrement=False),
    Column("kind", Text, nullable=False),
    Column("witness_key", UUID(as_uuid=True), comment="one of the values that made or broke it"),
    Column("witness_value", Text),
    Column("cause_count", BigInteger, nullable=False, server_default="0", comment="how many values did"),
    Column("position", JSONB, comment="topic, partition, offset of the change that did it; NULL for a bootstrap"),
    Column("changed_row", JSONB, comment="table and key of that change's row, where it names one"),
    CheckConstraint("kind in ('appeared', 'broke')", name="kind_known"),
)
Index("ix_ind_transition_pair", ind_transition.c.dependent_id, ind_transition.c.referenced_id, ind_transition.c.version)

dead_letter = Table(
    "dead_letter",
    metadata,
    Column("dead_letter_id", BigInteger, Identity(), primary_key=True),
    Column("feed", Text, nullable=False),
    Column("topic", Text, nullable=False),
    Column("partition", Integer, nullable=False),
    Column("record_offset", BigInteger, nullable=False),
    Column("error_class", Text, nullable=False),
    Column("message", Text, nullable=False),
    Column("record", Text, nullable=False, comment="as received; bytes that are no UTF-8 and NUL as \\xNN"),
    Column("version", BigInteger, nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False, server_default=now),
    Column("record_key", BYTEA),
    Column("record_value", BYTEA, comment="as received, byte for byte"),
    Column("headers", JSONB, comment="pairs of name and value (base64)"),
    Column("timestamp_ms", BigInteger),
    Column("table_name", Text, comment="schema.table, where the record says it"),
    UniqueConstraint("feed", "topic", "partition", "record_offset"),
)

outgoing = Table(
    "outgoing",
    metadata,
    Column("sink", Text, primary_key=True, comment="where transitions are sent"),
    Column("version", BigInteger, nullable=False, comment="newest version whose transitions were all sent"),
    Column("sent_at", DateTime(timezone=True), nullable=False, server_default=now),
)

sketch_form = Table(
    "sketch_form",
    metadata,
    Column("bucket_bits", Integer, primary_key=True, autoincrement=False, comment="m: a sketch has 2^m buckets"),
    Column("k", Integer, nullable=False, comment="smallest hashes that a sketch answers with"),
    Column("spares", Integer, nullable=False, comment="smallest hashes behind them that it keeps for deletions"),
    comment="one row: of what size all sketches are; none: the state has no sketches",
)

# What is in the sketches is random as seen from outside: the migration keeps Postgres from trying to compress it.
sketch = Table(
    "sketch",
    metadata,
    Column("attribute_id", Integer, primary_key=True, autoincrement=False),
    Column("version", BigInteger, nullable=False, comment="up to which sketch_change is in it already"),
    Column("sketch", BYTEA, nullable=False),
    Column(
        "needs_rescan",
        Boolean,
        nullable=False,
        server_default=text("false"),
        comment="too few of the smallest hashes are left: they are to be read again out of gen_rec",
    ),
    Column("fault", Text, comment="why it is not kept current any more; NULL while it is"),
)

sketch_change = Table(
    "sketch_change",
    metadata,
    Column("version", BigInteger, primary_key=True, autoincrement=False),
    Column("changes", BYTEA, nullable=False, comment="hashes that came to attributes, or left them, in this version"),
)

uploaded_sketch = Table(
    "uploaded_sketch",
    metadata,
    Column("name", Text, primary_key=True),
    Column("sketch", BYTEA, nullable=False),
    Column("uploaded_at", DateTime(timezone=True), nullable=False, server_default=now),
)

corpus = Table(
    "corpus",
    metadata,
    Column("corpus_id", Integer, Identity(), primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("location", Text, nullable=False, comment="folder, bucket or address, without a password"),
    Column("kind", Text, nullable=False, comment="csv, parquet, jsonl or postgres"),
    Column("settings", JSONB, nullable=False, comment="as core.corpus.CorpusSettings gives them"),
    Column("schedule", Text, comment="cron expression; NULL: refreshed on request alone"),
    Column("time_limit_seconds", Integer, comment="of one refresh; NULL: none"),
    Column("retries", Integer, nullable=False, server_default="0"),
    Column("generation", Integer, comment="that is served; NULL before the first refresh landed"),
    Column("next_table", Integer, nullable=False, server_default="0", comment="first table number never given"),
    Column("next_column", Integer, nullable=False, server_default="0", comment="first column id never given"),
    Column("created_at", DateTime(timezone=True), nullable=False, server_default=now),
)

corpus_refresh = Table(
    "corpus_refresh",
    metadata,
    Column("refresh_id", Integer, Identity(), primary_key=True),
    Column("corpus_id", ForeignKey("corpus.corpus_id", ondelete="CASCADE"), nullable=False),
    Column("generation", Integer, comment="as which it landed"),
    Column("state", Text, nullable=False, server_default="queued"),
    Column("full", Boolean, nullable=False, server_default=text("false"), comment="asked to read everything anew"),
    Column("requested_by", Text, nullable=False),
    Column("attempt", Integer, nullable=False, server_default="0", comment="how often it was begun"),
    Column("queued_at", DateTime(timezone=True), nullable=False, server_default=now),
    Column("not_before", DateTime(timezone=True), comment="when it may be tried again"),
    Column("started_at", DateTime(timezone=True)),
    Column("ended_at", DateTime(timezone=True)),
    Column("stage", Text),
    Column("done", BigInteger),
    Column("total", BigInteger),
    Column("stage_started_at", DateTime(timezone=True)),
    Column("progressed_at", DateTime(timezone=True)),
    Column("cancel_requested", Boolean, nullable=False, server_default=text("false")),
    Column("fault", Text, comment="why it, or its last attempt, failed"),
    Column("report", JSONB),
    CheckConstraint("state in ('queued', 'running', 'landed', 'failed', 'cancelled')", name="state_known"),
)
Index("ix_corpus_refresh_corpus_id", corpus_refresh.c.corpus_id, corpus_refresh.c.refresh_id)
# One refresh of a corpus runs at a time, and one waits.
for state in ("queued", "running"):
    is_so = corpus_refresh.c.state == text(f"'{state}'")
    Index(f"uq_corpus_refresh_{state}", corpus_refresh.c.corpus_id, unique=True, postgresql_where=is_so)

corpus_fault = Table(
    "corpus_fault",
    metadata,
    Column("refresh_id", ForeignKey("corpus_refresh.refresh_id", ondelete="CASCADE"), primary_key=True),
    Column("fault_number", Integer, primary_key=True, autoincrement=False),
    Column("path", Text, nullable=False, comment="of a file or table that could not be read"),
    Column("message", Text, nullable=False),
)

# A table's version is visible at generation g when since <= g and not until <= g. Paths can be too long for a B-tree.
corpus_table = Table(
    "corpus_table",
    metadata,
    Column("corpus_id", Integer, primary_key=True, autoincrement=False),
    Column("table_number", Integer, primary_key=True, autoincrement=False),
    Column("since", Integer, primary_key=True, autoincrement=False, comment="first generation with it"),
    Column("until", Integer, comment="first generation without it; NULL while it is served"),
    Column("path", Text, nullable=False, comment="below the folder, or as the corpus names it"),
    Column("row_count", BigInteger, nullable=False),
    Column("first_column", Integer, nullable=False, comment="id of its first column; the others follow"),
    Column("column_count", Integer, nullable=False),
    Column("column_names", ARRAY(Text), nullable=False),
    Column("distinct_counts", ARRAY(Integer), nullable=False),
    Column("dependent_reasons", ARRAY(SmallInteger), nullable=False, comment="bits of core.column_filters.Reason"),
    Column("referenced_reasons", ARRAY(SmallInteger), nullable=False),
)
Index("ix_corpus_table_first_column", corpus_table.c.corpus_id, corpus_table.c.first_column)
Index("ix_corpus_table_path", corpus_table.c.path, postgresql_using="hash")

corpus_load = Table(
    "corpus_load",
    metadata,
    Column("load_id", Integer, primary_key=True, autoincrement=False, comment="the refresh that brought it"),
    Column("corpus_id", ForeignKey("corpus.corpus_id", ondelete="CASCADE"), nullable=False, index=True),
    Column("generation", Integer, nullable=False, comment="first one with its INDs"),
    Column("gone", Integer, comment="first generation without any of them; NULL while some are served"),
    Column("ind_count", BigInteger, nullable=False, comment="rows, with those that are gone"),
    comment="the partitions of corpus_ind that landed",
)

corpus_load_task = Table(
    "corpus_load_task",
    metadata,
    Column("load_id", Integer, primary_key=True, autoincrement=False),
    Column("task", Integer, primary_key=True, autoincrement=False),
    Column("ind_count", BigInteger, nullable=False),
    comment="tasks whose INDs are in a load that has not landed yet",
)

# Its partitions are made by refreshes, each with its own indexes (store/corpus_loads.py): an index without the load
# is a third smaller.
corpus_ind = Table(
    "corpus_ind",
    metadata,
    Column("load_id", Integer, nullable=False),
    Column("dependent", Integer, nullable=False, comment="column id"),
    Column("referenced", Integer, nullable=False, comment="column id"),
    Column("overlap", Integer, nullable=False, comment="distinct values in both"),
    Column("gone", Integer, comment="first generation without it; NULL while it holds"),
    postgresql_partition_by="LIST (load_id)",
)

corpus_change = Table(
    "corpus_change",
    metadata,
    Column("load_id", Integer, nullable=False),
    Column("dependent", Integer, nullable=False, comment="column id"),
    Column("referenced", Integer, nullable=False, comment="column id"),
    Column("overlap", Integer, nullable=False, comment="distinct values in both, where it holds or held"),
    Column("appeared", Boolean, nullable=False, comment="whether it came with the load, or went"),
    comment="what is not as in the generation before; a partition of the load of the served generation alone",
    postgresql_partition_by="LIST (load_id)",
)

audit = Table(
    "audit",
    metadata,
    Column("audit_id", BigInteger, Identity(), primary_key=True),
    Column("version", BigInteger, nullable=False, comment="of the state that was audited"),
    Column("started_at", DateTime(timezone=True), nullable=False),
    Column("ended_at", DateTime(timezone=True), nullable=False, server_default=func.clock_timestamp()),
    Column("attributes", Integer, nullable=False),
    Column("value_count", BigInteger, nullable=False, comment="distinct values of all attributes, added up"),
    Column("inds", BigInteger, nullable=False, comment="that hold"),
    Column("not_served", BigInteger, nullable=False, comment="INDs that hold and were not served"),
    Column("not_holding", BigInteger, nullable=False, comment="INDs that were served and do not hold"),
    Column("report", JSONB, nullable=False, comment="examples, filters, seconds"),
)

SCHEMA_REVISION = "0028"
"""The Alembic revision that this code works with."""
