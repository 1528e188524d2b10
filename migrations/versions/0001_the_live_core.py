"""Make the state of the live core: sources, attributes, clusters, records, versions, positions, transitions."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

EMPTY_DOCUMENT = sa.text("'{}'::jsonb")


def upgrade() -> None:
    op.create_table(
        "source",
        sa.Column("source_id", sa.Integer(), sa.Identity(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False, comment="csv, parquet or postgres"),
        sa.Column("location", sa.Text(), nullable=False, comment="folder or address, without a password"),
        sa.Column(
            "settings",
            postgresql.JSONB(),
            server_default=EMPTY_DOCUMENT,
            nullable=False,
            comment="null tokens, delimiter, ...",
        ),
        sa.Column("insert_only", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("snapshot", sa.Text(), comment="pg_current_snapshot() of a Postgres source's bootstrap"),
        sa.Column("bootstrapped_version", sa.BigInteger(), nullable=False),
        sa.Column("bootstrapped_at", sa.DateTime(timezone=True), server_default=sa.func.now(), nullable=False),
        sa.PrimaryKeyConstraint("source_id", name=op.f("pk_source")),
        sa.UniqueConstraint("name", name=op.f("uq_source_name")),
    )

    op.create_table(
        "attribute",
        sa.Column("attribute_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("source_id", sa.Integer(), nullable=False),
        sa.Column("schema_name", sa.Text(), nullable=False),
        sa.Column("table_name", sa.Text(), nullable=False),
        sa.Column("column_name", sa.Text(), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False, comment="0-based place in its table"),
        sa.Column("data_type", sa.Text(), server_default="string", nullable=False),
        sa.Column("row_count", sa.BigInteger(), nullable=False),
        sa.Column("null_count", sa.BigInteger(), nullable=False),
        sa.Column("distinct_count", sa.BigInteger(), nullable=False),
        sa.Column("repeated_count", sa.BigInteger(), comment="values with a frequency above 1; NULL when insert-only"),
        sa.Column("dropped_version", sa.BigInteger(), comment="first version without it; NULL while it is followed"),
        sa.PrimaryKeyConstraint("attribute_id", name=op.f("pk_attribute")),
        sa.ForeignKeyConstraint(["source_id"], ["source.source_id"], name=op.f("fk_attribute_source_id")),
    )
    op.create_index(
        "uq_attribute_name",
        "attribute",
        ["schema_name", "table_name", "column_name"],
        unique=True,
        postgresql_where=sa.text("dropped_version IS NULL"),
    )
    op.create_index(op.f("ix_attribute_source_id"), "attribute", ["source_id"])

    op.create_table(
        "cluster",
        sa.Column("cluster_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("attribute_ids", postgresql.ARRAY(sa.Integer()), nullable=False, comment="ascending"),
        sa.Column("value_count", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("cluster_id", name=op.f("pk_cluster")),
        sa.CheckConstraint("value_count > 0", name=op.f("ck_cluster_value_count_positive")),
        postgresql_with={"fillfactor": "70"},
    )
    op.create_index("ix_cluster_attribute_ids", "cluster", ["attribute_ids"], postgresql_using="gin")

    op.create_table(
        "gen_rec",
        sa.Column(
            "value_key",
            sa.UUID(),
            nullable=False,
            comment="first 128 bits of SHA-256 of the canonical text",
        ),
        sa.Column("value", sa.Text(), nullable=False, comment="canonical text, cut to at most 256 bytes"),
        sa.Column("cluster_id", sa.BigInteger(), nullable=False),
        sa.Column("attribute_ids", postgresql.ARRAY(sa.Integer()), nullable=False, comment="ascending"),
        sa.Column(
            "frequencies",
            postgresql.ARRAY(sa.BigInteger()),
            comment="beside attribute_ids; 0 = not counted (insert-only); NULL = none counted",
        ),
        sa.PrimaryKeyConstraint("value_key", name=op.f("pk_gen_rec")),
        postgresql_partition_by="RANGE (value_key)",
    )
    op.create_index("ix_gen_rec_cluster_id_value_key", "gen_rec", ["cluster_id", "value_key"])

    op.create_table(
        "state_version",
        sa.Column(
            "version", sa.BigInteger(), autoincrement=False, nullable=False, comment="dense: one more for each commit"
        ),
        sa.Column("generation", sa.Integer(), nullable=False, comment="one more for each bootstrap"),
        sa.Column("kind", sa.Text(), nullable=False, comment="bootstrap or batch"),
        sa.Column("committed_at", sa.DateTime(timezone=True), server_default=sa.func.clock_timestamp(), nullable=False),
        sa.Column("source_name", sa.Text(), comment="of a bootstrap"),
        sa.Column("feed", sa.Text(), comment="of a batch"),
        sa.Column("records", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("inserted", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("updated", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("deleted", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("skipped", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("dead", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("newest_source_ms", sa.BigInteger(), comment="newest ts_ms of the batch's records"),
        sa.PrimaryKeyConstraint("version", name=op.f("pk_state_version")),
    )

    op.create_table(
        "batch_position",
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("feed", sa.Text(), nullable=False),
        sa.Column("topic", sa.Text(), nullable=False),
        sa.Column("partition", sa.Integer(), nullable=False),
        sa.Column(
            "first_offset",
            sa.BigInteger(),
            nullable=False,
            comment="where the batch began: the next_offset before it",
        ),
        sa.Column("next_offset", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("version", "feed", "topic", "partition", name=op.f("pk_batch_position")),
        sa.ForeignKeyConstraint(["version"], ["state_version.version"], name=op.f("fk_batch_position_version")),
    )

    op.create_table(
        "feed_position",
        sa.Column("feed", sa.Text(), nullable=False),
        sa.Column("topic", sa.Text(), nullable=False),
        sa.Column("partition", sa.Integer(), nullable=False),
        sa.Column("next_offset", sa.BigInteger(), nullable=False),
        sa.Column("source_position", postgresql.JSONB(), server_default=EMPTY_DOCUMENT, nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("feed", "topic", "partition", name=op.f("pk_feed_position")),
    )

    op.create_table(
        "uind",
        sa.Column("dependent_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("referenced_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("since_version", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column(
            "until_version",
            sa.BigInteger(),
            comment="first version at which it no longer holds; NULL while it holds",
        ),
        sa.PrimaryKeyConstraint("dependent_id", "referenced_id", "since_version", name=op.f("pk_uind")),
    )
    op.create_index(
        "ix_uind_current",
        "uind",
        ["dependent_id", "referenced_id"],
        unique=True,
        postgresql_where=sa.text("until_version IS NULL"),
    )
    op.create_index("ix_uind_referenced_id", "uind", ["referenced_id"])

    op.create_table(
        "ind_transition",
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("dependent_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("referenced_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("witness_key", sa.UUID(), comment="one of the values that made or broke it"),
        sa.Column("witness_value", sa.Text()),
        sa.Column("cause_count", sa.BigInteger(), server_default="0", nullable=False, comment="how many values did"),
        sa.Column(
            "position",
            postgresql.JSONB(),
            comment="topic, partition, offset of the batch's last record; NULL for a bootstrap",
        ),
        sa.PrimaryKeyConstraint("version", "dependent_id", "referenced_id", name=op.f("pk_ind_transition")),
        sa.ForeignKeyConstraint(["version"], ["state_version.version"], name=op.f("fk_ind_transition_version")),
        sa.CheckConstraint("kind in ('appeared', 'broke')", name=op.f("ck_ind_transition_kind_known")),
    )
    op.create_index("ix_ind_transition_pair", "ind_transition", ["dependent_id", "referenced_id", "version"])

    op.create_table(
        "dead_letter",
        sa.Column("dead_letter_id", sa.BigInteger(), sa.Identity(), nullable=False),
        sa.Column("feed", sa.Text(), nullable=False),
        sa.Column("topic", sa.Text(), nullable=False),
        sa.Column("partition", sa.Integer(), nullable=False),
        sa.Column("record_offset", sa.BigInteger(), nullable=False),
        sa.Column("error_class", sa.Text(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("record", sa.Text(), nullable=False, comment="as received; bytes that are no UTF-8 and NUL as \\xNN"),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.func.now(), nullable=False),
        sa.PrimaryKeyConstraint("dead_letter_id", name=op.f("pk_dead_letter")),
        sa.UniqueConstraint(
            "feed",
            "topic",
            "partition",
            "record_offset",
            name=op.f("uq_dead_letter_feed_topic_partition_record_offset"),
        ),
    )


def downgrade() -> None:
    for table in (
        "dead_letter",
        "ind_transition",
        "uind",
        "feed_position",
        "batch_position",
        "state_version",
        "gen_rec",
        "cluster",
        "attribute",
        "source",
    ):
        op.drop_table(table)
