"""Keep what feeds need to be trusted: tracked tables, row images, feeds' identities, catch-ups, whole dead letters."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

EMPTY_DOCUMENT = sa.text("'{}'::jsonb")


def upgrade() -> None:
    for column in (
        sa.Column(
            "stale_version", sa.BigInteger(), comment="version since which its values are no longer kept current"
        ),
        sa.Column(
            "added_version", sa.BigInteger(), comment="version of the schema change that made it; NULL: a bootstrap did"
        ),
        sa.Column("renamed_to", sa.Text(), comment="column name that it takes when its source's changes show it"),
    ):
        op.add_column("attribute", column)
    op.create_table(
        "tracked_table",
        sa.Column("table_id", sa.Integer(), sa.Identity(), nullable=False),
        sa.Column("source_id", sa.Integer(), nullable=False),
        sa.Column("schema_name", sa.Text(), nullable=False),
        sa.Column("table_name", sa.Text(), nullable=False),
        sa.Column("source_database", sa.Text(), comment="database as changes name it; NULL: any"),
        sa.Column("source_schema", sa.Text(), nullable=False, comment="schema as changes name it"),
        sa.Column("source_table", sa.Text(), nullable=False, comment="table as changes name it"),
        sa.Column(
            "key_columns",
            postgresql.ARRAY(sa.Text()),
            server_default=sa.text("'{}'::text[]"),
            nullable=False,
            comment="columns that tell its rows apart; none where that is not known",
        ),
        sa.Column(
            "replica_identity", sa.Text(), comment="full, default, index or nothing; NULL where there is no such thing"
        ),
        sa.Column("row_images", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("begun_version", sa.BigInteger(), comment="that bootstrapped or emptied it last"),
        sa.PrimaryKeyConstraint("table_id", name=op.f("pk_tracked_table")),
        sa.UniqueConstraint("schema_name", "table_name", name=op.f("uq_tracked_table_schema_name_table_name")),
        sa.ForeignKeyConstraint(["source_id"], ["source.source_id"], name=op.f("fk_tracked_table_source_id")),
    )
    op.create_index("ix_tracked_table_source_id", "tracked_table", ["source_id"])
    op.execute(
        "INSERT INTO tracked_table (source_id, schema_name, table_name, source_schema, source_table) "
        "SELECT DISTINCT source_id, schema_name, table_name, schema_name, table_name FROM attribute "
        "WHERE dropped_version IS NULL ORDER BY source_id, schema_name, table_name"
    )
    op.create_table(
        "row_image",
        sa.Column("table_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("row_key", sa.UUID(), nullable=False, comment="first 128 bits of SHA-256 of the key's texts as JSON"),
        sa.Column(
            "cells",
            postgresql.ARRAY(sa.Text()),
            comment="canonical texts by ordinals; NULL: gone, kept while there are dead letters",
        ),
        sa.Column(
            "version", sa.BigInteger(), server_default="0", nullable=False, comment="that wrote it; 0: a bootstrap"
        ),
        sa.Column(
            "record_offset", sa.BigInteger(), server_default="0", nullable=False, comment="of the change that wrote it"
        ),
        sa.PrimaryKeyConstraint("table_id", "row_key", name=op.f("pk_row_image")),
    )

    op.create_table(
        "feed",
        sa.Column("feed", sa.Text(), nullable=False, comment="its name among the positions"),
        sa.Column("address", sa.Text(), nullable=False, comment="without a password"),
        sa.Column(
            "identity",
            postgresql.JSONB(),
            server_default=EMPTY_DOCUMENT,
            nullable=False,
            comment="cluster of brokers, or system, database and slot",
        ),
        sa.Column("paused_at", sa.DateTime(timezone=True), comment="NULL while it is followed"),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.func.now(), nullable=False),
        sa.PrimaryKeyConstraint("feed", name=op.f("pk_feed")),
    )
    op.add_column("feed_position", sa.Column("topic_id", sa.Text(), comment="the broker's own id of the topic"))
    op.create_table(
        "feed_catch_up",
        sa.Column("feed", sa.Text(), nullable=False),
        sa.Column("topic", sa.Text(), nullable=False),
        sa.Column("partition", sa.Integer(), nullable=False),
        sa.Column("source_id", sa.Integer(), nullable=False),
        sa.Column(
            "until_offset",
            sa.BigInteger(),
            nullable=False,
            comment="records before it are in this source's data already",
        ),
        sa.PrimaryKeyConstraint("feed", "topic", "partition", "source_id", name=op.f("pk_feed_catch_up")),
        sa.ForeignKeyConstraint(["source_id"], ["source.source_id"], name=op.f("fk_feed_catch_up_source_id")),
    )

    for column in (
        sa.Column("record_key", postgresql.BYTEA()),
        sa.Column("record_value", postgresql.BYTEA(), comment="as received, byte for byte"),
        sa.Column("headers", postgresql.JSONB(), comment="pairs of name and value (base64)"),
        sa.Column("timestamp_ms", sa.BigInteger()),
        sa.Column("table_name", sa.Text(), comment="schema.table, where the record says it"),
    ):
        op.add_column("dead_letter", column)

    op.create_table(
        "outgoing",
        sa.Column("sink", sa.Text(), nullable=False, comment="where transitions are sent"),
        sa.Column("version", sa.BigInteger(), nullable=False, comment="newest version whose transitions were all sent"),
        sa.Column("sent_at", sa.DateTime(timezone=True), server_default=sa.func.now(), nullable=False),
        sa.PrimaryKeyConstraint("sink", name=op.f("pk_outgoing")),
    )
    op.add_column(
        "state_version",
        sa.Column(
            "transaction_consistent", sa.Boolean(), comment="whether it ends with whole transactions; NULL: not known"
        ),
    )


def downgrade() -> None:
    op.drop_column("state_version", "transaction_consistent")
    op.drop_table("outgoing")
    for column in ("table_name", "timestamp_ms", "headers", "record_value", "record_key"):
        op.drop_column("dead_letter", column)
    op.drop_table("feed_catch_up")
    op.drop_column("feed_position", "topic_id")
    op.drop_table("feed")
    op.drop_table("row_image")
    op.drop_table("tracked_table")
    for name in ("renamed_to", "added_version", "stale_version"):
        op.drop_column("attribute", name)
