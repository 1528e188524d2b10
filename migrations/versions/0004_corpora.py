"""Keep corpora: their register and refreshes, versions of their tables, and the INDs that refreshes brought."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "corpus",
        sa.Column("corpus_id", sa.Integer(), sa.Identity(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("location", sa.Text(), nullable=False, comment="folder, bucket or address, without a password"),
        sa.Column("kind", sa.Text(), nullable=False, comment="csv, parquet, jsonl or postgres"),
        sa.Column("settings", postgresql.JSONB(), nullable=False, comment="as core.corpus.CorpusSettings gives them"),
        sa.Column("schedule", sa.Text(), comment="cron expression; NULL: refreshed on request alone"),
        sa.Column("time_limit_seconds", sa.Integer(), comment="of one refresh; NULL: none"),
        sa.Column("retries", sa.Integer(), server_default="0", nullable=False),
        sa.Column("generation", sa.Integer(), comment="that is served; NULL before the first refresh landed"),
        sa.Column(
            "next_table", sa.Integer(), server_default="0", nullable=False, comment="first table number never given"
        ),
        sa.Column(
            "next_column", sa.Integer(), server_default="0", nullable=False, comment="first column id never given"
        ),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.func.now(), nullable=False),
        sa.PrimaryKeyConstraint("corpus_id", name=op.f("pk_corpus")),
        sa.UniqueConstraint("name", name=op.f("uq_corpus_name")),
    )
    op.create_table(
        "corpus_refresh",
        sa.Column("refresh_id", sa.Integer(), sa.Identity(), nullable=False),
        sa.Column("corpus_id", sa.Integer(), nullable=False),
        sa.Column("generation", sa.Integer(), comment="as which it landed"),
        sa.Column("state", sa.Text(), server_default="queued", nullable=False),
        sa.Column(
            "full",
            sa.Boolean(),
            server_default=sa.text("false"),
            nullable=False,
            comment="asked to read everything anew",
        ),
        sa.Column("requested_by", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), server_default="0", nullable=False, comment="how often it was begun"),
        sa.Column("queued_at", sa.DateTime(timezone=True), server_default=sa.func.now(), nullable=False),
        sa.Column("not_before", sa.DateTime(timezone=True), comment="when it may be tried again"),
        sa.Column("started_at", sa.DateTime(timezone=True)),
        sa.Column("ended_at", sa.DateTime(timezone=True)),
        sa.Column("stage", sa.Text()),
        sa.Column("done", sa.BigInteger()),
        sa.Column("total", sa.BigInteger()),
        sa.Column("stage_started_at", sa.DateTime(timezone=True)),
        sa.Column("progressed_at", sa.DateTime(timezone=True)),
        sa.Column("cancel_requested", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("fault", sa.Text(), comment="why it, or its last attempt, failed"),
        sa.Column("report", postgresql.JSONB()),
        sa.PrimaryKeyConstraint("refresh_id", name=op.f("pk_corpus_refresh")),
        sa.ForeignKeyConstraint(
            ["corpus_id"], ["corpus.corpus_id"], name=op.f("fk_corpus_refresh_corpus_id"), ondelete="CASCADE"
        ),
        sa.CheckConstraint(
            "state in ('queued', 'running', 'landed', 'failed', 'cancelled')",
            name=op.f("ck_corpus_refresh_state_known"),
        ),
    )
    op.create_index("ix_corpus_refresh_corpus_id", "corpus_refresh", ["corpus_id", "refresh_id"])
    for state in ("queued", "running"):
        op.create_index(
            f"uq_corpus_refresh_{state}",
            "corpus_refresh",
            ["corpus_id"],
            unique=True,
            postgresql_where=sa.text(f"state = '{state}'"),
        )
    op.create_table(
        "corpus_fault",
        sa.Column("refresh_id", sa.Integer(), nullable=False),
        sa.Column("fault_number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("path", sa.Text(), nullable=False, comment="of a file or table that could not be read"),
        sa.Column("message", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("refresh_id", "fault_number", name=op.f("pk_corpus_fault")),
        sa.ForeignKeyConstraint(
            ["refresh_id"], ["corpus_refresh.refresh_id"], name=op.f("fk_corpus_fault_refresh_id"), ondelete="CASCADE"
        ),
    )
    op.create_table(
        "corpus_table",
        sa.Column("corpus_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("table_number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("since", sa.Integer(), autoincrement=False, nullable=False, comment="first generation with it"),
        sa.Column("until", sa.Integer(), comment="first generation without it; NULL while it is served"),
        sa.Column("path", sa.Text(), nullable=False, comment="below the folder, or as the corpus names it"),
        sa.Column("row_count", sa.BigInteger(), nullable=False),
        sa.Column("first_column", sa.Integer(), nullable=False, comment="id of its first column; the others follow"),
        sa.Column("column_count", sa.Integer(), nullable=False),
        sa.Column("column_names", postgresql.ARRAY(sa.Text()), nullable=False),
        sa.Column("distinct_counts", postgresql.ARRAY(sa.Integer()), nullable=False),
        sa.Column(
            "dependent_reasons",
            postgresql.ARRAY(sa.SmallInteger()),
            nullable=False,
            comment="bits of core.column_filters.Reason",
        ),
        sa.Column("referenced_reasons", postgresql.ARRAY(sa.SmallInteger()), nullable=False),
        sa.PrimaryKeyConstraint("corpus_id", "table_number", "since", name=op.f("pk_corpus_table")),
    )
    op.create_index("ix_corpus_table_first_column", "corpus_table", ["corpus_id", "first_column"])
    op.create_index("ix_corpus_table_path", "corpus_table", ["path"], postgresql_using="hash")
    op.create_table(
        "corpus_load",
        sa.Column("load_id", sa.Integer(), autoincrement=False, nullable=False, comment="the refresh that brought it"),
        sa.Column("corpus_id", sa.Integer(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False, comment="first one with its INDs"),
        sa.Column("gone", sa.Integer(), comment="first generation without any of them; NULL while some are served"),
        sa.Column("ind_count", sa.BigInteger(), nullable=False, comment="rows, with those that are gone"),
        sa.PrimaryKeyConstraint("load_id", name=op.f("pk_corpus_load")),
        sa.ForeignKeyConstraint(
            ["corpus_id"], ["corpus.corpus_id"], name=op.f("fk_corpus_load_corpus_id"), ondelete="CASCADE"
        ),
        comment="the partitions of corpus_ind that landed",
    )
    op.create_index("ix_corpus_load_corpus_id", "corpus_load", ["corpus_id"])
    op.create_table(
        "corpus_load_task",
        sa.Column("load_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("task", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("ind_count", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("load_id", "task", name=op.f("pk_corpus_load_task")),
        comment="tasks whose INDs are in a load that has not landed yet",
    )
    op.create_table(
        "corpus_ind",
        sa.Column("load_id", sa.Integer(), nullable=False),
        sa.Column("dependent", sa.Integer(), nullable=False, comment="column id"),
        sa.Column("referenced", sa.Integer(), nullable=False, comment="column id"),
        sa.Column("overlap", sa.Integer(), nullable=False, comment="distinct values in both"),
        sa.Column("gone", sa.Integer(), comment="first generation without it; NULL while it holds"),
        postgresql_partition_by="LIST (load_id)",
    )
    op.create_table(
        "corpus_change",
        sa.Column("load_id", sa.Integer(), nullable=False),
        sa.Column("dependent", sa.Integer(), nullable=False, comment="column id"),
        sa.Column("referenced", sa.Integer(), nullable=False, comment="column id"),
        sa.Column("overlap", sa.Integer(), nullable=False, comment="distinct values in both, where it holds or held"),
        sa.Column("appeared", sa.Boolean(), nullable=False, comment="whether it came with the load, or went"),
        comment="what is not as in the generation before; a partition of the load of the served generation alone",
        postgresql_partition_by="LIST (load_id)",
    )


def downgrade() -> None:
    for table in (
        "corpus_change",
        "corpus_ind",
        "corpus_load_task",
        "corpus_load",
        "corpus_table",
        "corpus_fault",
        "corpus_refresh",
        "corpus",
    ):
        op.drop_table(table)
