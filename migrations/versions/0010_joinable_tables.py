"""Keep an index of the cells of a corpus, by which tables that join on several columns are found."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def _of_segment(table: str) -> list[sa.schema.SchemaItem]:
    """Give the column of the segment, and its key."""
    return [
        sa.Column("segment_id", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["segment_id"],
            ["join_segment.segment_id"],
            name=op.f(f"fk_{table}_segment_id"),
            ondelete="CASCADE",
        ),
    ]


def _of_corpus(table: str) -> sa.ForeignKeyConstraint:
    name = op.f(f"fk_{table}_corpus_id")
    return sa.ForeignKeyConstraint(["corpus_id"], ["corpus.corpus_id"], name=name, ondelete="CASCADE")


def upgrade() -> None:
    op.create_table(
        "join_segment",
        sa.Column("segment_id", sa.Integer(), sa.Identity(), nullable=False),
        sa.Column("corpus_id", sa.Integer(), nullable=False),
        sa.Column(
            "bucket_bits", sa.SmallInteger(), nullable=False, comment="first bits of a value key that name its bucket"
        ),
        sa.Column(
            "layout",
            postgresql.BYTEA(),
            nullable=False,
            comment="rows, columns and functions of its tables: core.join_layout",
        ),
        sa.Column(
            "dead",
            postgresql.BYTEA(),
            server_default="",
            nullable=False,
            comment="places of tables that are no more, 4 bytes each",
        ),
        sa.PrimaryKeyConstraint("segment_id", name=op.f("pk_join_segment")),
        _of_corpus("join_segment"),
        comment="tables of a corpus whose cells are in join_bucket and join_rows; one that join_index lacks is no more",
    )
    op.create_index(op.f("ix_join_segment_corpus_id"), "join_segment", ["corpus_id"])
    op.create_table(
        "join_index",
        sa.Column("corpus_id", sa.Integer(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False, comment="of the corpus, whose tables it has"),
        sa.Column("segment_ids", postgresql.ARRAY(sa.Integer()), nullable=False),
        sa.Column(
            "reading",
            postgresql.JSONB(),
            nullable=False,
            comment="settings of the corpus by which its cells were read",
        ),
        sa.Column("built_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column(
            "report",
            postgresql.JSONB(),
            nullable=False,
            comment="tables, rows, cells, tables left out",
        ),
        sa.PrimaryKeyConstraint("corpus_id", name=op.f("pk_join_index")),
        _of_corpus("join_index"),
        comment="what is searched for tables that join",
    )
    op.create_table(
        "join_table",
        *_of_segment("join_table"),
        sa.Column(
            "place",
            sa.Integer(),
            autoincrement=False,
            nullable=False,
            comment="in the segment's layout, by path",
        ),
        sa.Column("table_number", sa.Integer(), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("column_names", postgresql.ARRAY(sa.Text()), nullable=False),
        sa.Column("file_size", sa.BigInteger(), nullable=False),
        sa.Column("file_modified", sa.BigInteger(), nullable=False, comment="nanoseconds; -1: to be read again"),
        sa.PrimaryKeyConstraint("segment_id", "place", name=op.f("pk_join_table")),
        comment="tables of segments, those alone that are not dead",
    )
    op.create_table(
        "join_bucket",
        *_of_segment("join_bucket"),
        sa.Column("bucket", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column(
            "data",
            postgresql.BYTEA(),
            nullable=False,
            comment="values with their cells' places: core.posting_buckets",
        ),
        sa.PrimaryKeyConstraint("segment_id", "bucket", name=op.f("pk_join_bucket")),
    )
    op.create_table(
        "join_rows",
        *_of_segment("join_rows"),
        sa.Column("first_row", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("super_keys", postgresql.BYTEA(), nullable=False, comment="16 bytes a row"),
        sa.Column("cells", postgresql.BYTEA(), nullable=False, comment="4 bytes a cell: the value's number"),
        sa.PrimaryKeyConstraint("segment_id", "first_row", name=op.f("pk_join_rows")),
        comment="at most core.join_layout.BLOCK_ROWS rows of one table",
    )
    op.create_table(
        "join_task",
        *_of_segment("join_task"),
        sa.Column("task", sa.Integer(), autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("segment_id", "task", name=op.f("pk_join_task")),
        comment="tasks whose rows are in a segment that has not landed yet",
    )


def downgrade() -> None:
    for table in ("join_task", "join_rows", "join_bucket", "join_table", "join_index", "join_segment"):
        op.drop_table(table)
