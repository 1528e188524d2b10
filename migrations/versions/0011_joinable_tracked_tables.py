"""Keep an index of the rows of tracked tables, by which tables that join on several columns are found."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def _referring(table: str, column: str, to: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint([column], [f"{to}.{column}"], name=op.f(f"fk_{table}_{column}"), ondelete="CASCADE")


def upgrade() -> None:
    op.create_table(
        "join_tracked",
        sa.Column("table_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column(
            "built_version", sa.BigInteger(), comment="as of which all of its rows were indexed last; NULL: never yet"
        ),
        sa.Column(
            "functions",
            sa.SmallInteger(),
            server_default="1",
            nullable=False,
            comment="of the super keys of its rows",
        ),
        sa.Column("row_count", sa.BigInteger(), server_default="0", nullable=False, comment="rows as of built_version"),
        _referring("join_tracked", "table_id", "tracked_table"),
        sa.PrimaryKeyConstraint("table_id", name=op.f("pk_join_tracked")),
        comment="tables whose rows are indexed for joins, and kept so by the consumer",
    )
    op.create_table(
        "join_change",
        sa.Column("table_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("version", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("row_keys", postgresql.BYTEA(), nullable=False, comment="of the rows that it changed, 16 bytes each"),
        _referring("join_change", "table_id", "join_tracked"),
        sa.PrimaryKeyConstraint("table_id", "version", name=op.f("pk_join_change")),
        comment="rows that changed since they were indexed: as they are now, row_image has them",
    )
    op.alter_column("join_segment", "corpus_id", nullable=True, comment="NULL: of table_id")
    op.add_column("join_segment", sa.Column("table_id", sa.Integer(), nullable=True, comment="tracked table"))
    op.create_foreign_key(
        op.f("fk_join_segment_table_id"), "join_segment", "join_tracked", ["table_id"], ["table_id"], ondelete="CASCADE"
    )
    op.create_index(op.f("ix_join_segment_table_id"), "join_segment", ["table_id"])
    op.create_check_constraint(op.f("ck_join_segment_of_one"), "join_segment", "num_nonnulls(corpus_id, table_id) = 1")
    op.create_table(
        "join_row_keys",
        sa.Column("segment_id", sa.Integer(), nullable=False),
        sa.Column("first_row", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("row_keys", postgresql.BYTEA(), nullable=False, comment="16 bytes a row"),
        _referring("join_row_keys", "segment_id", "join_segment"),
        sa.PrimaryKeyConstraint("segment_id", "first_row", name=op.f("pk_join_row_keys")),
        comment="which rows the blocks of join_rows have, of tracked tables",
    )
    op.create_table(
        "join_cover",
        sa.Column("segment_id", sa.Integer(), nullable=False),
        sa.Column(
            "row_keys",
            postgresql.BYTEA(),
            nullable=False,
            comment="16 bytes each: no older segment speaks of these rows",
        ),
        _referring("join_cover", "segment_id", "join_segment"),
        sa.PrimaryKeyConstraint("segment_id", name=op.f("pk_join_cover")),
    )


def downgrade() -> None:
    op.drop_table("join_cover")
    op.drop_table("join_row_keys")
    op.execute("delete from join_segment where corpus_id is null")
    op.drop_constraint(op.f("ck_join_segment_of_one"), "join_segment")
    op.drop_column("join_segment", "table_id")
    op.alter_column("join_segment", "corpus_id", nullable=False, comment=None, existing_comment="NULL: of table_id")
    op.drop_table("join_change")
    op.drop_table("join_tracked")
