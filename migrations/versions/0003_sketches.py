"""Keep sketches of the attributes, what changed in them since they were written, and sketches from elsewhere."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "source",
        sa.Column(
            "sketch_only",
            sa.Boolean(),
            server_default=sa.text("false"),
            nullable=False,
            comment="its attributes are in sketches and counters alone, in no gen_rec",
        ),
    )
    op.alter_column(
        "attribute", "distinct_count", nullable=True, comment="NULL: not counted, as its source is sketch-only"
    )
    op.create_table(
        "sketch_form",
        sa.Column(
            "bucket_bits", sa.Integer(), autoincrement=False, nullable=False, comment="m: a sketch has 2^m buckets"
        ),
        sa.Column("k", sa.Integer(), nullable=False, comment="smallest hashes that a sketch answers with"),
        sa.Column(
            "spares",
            sa.Integer(),
            nullable=False,
            comment="smallest hashes behind them that it keeps for deletions",
        ),
        sa.PrimaryKeyConstraint("bucket_bits", name=op.f("pk_sketch_form")),
        comment="one row: of what size all sketches are; none: the state has no sketches",
    )
    op.create_table(
        "sketch",
        sa.Column("attribute_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False, comment="up to which sketch_change is in it already"),
        sa.Column("sketch", postgresql.BYTEA(), nullable=False),
        sa.Column(
            "needs_rescan",
            sa.Boolean(),
            server_default=sa.text("false"),
            nullable=False,
            comment="too few of the smallest hashes are left: they are to be read again out of gen_rec",
        ),
        sa.Column("fault", sa.Text(), comment="why it is not kept current any more; NULL while it is"),
        sa.PrimaryKeyConstraint("attribute_id", name=op.f("pk_sketch")),
    )
    op.create_table(
        "sketch_change",
        sa.Column("version", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column(
            "changes",
            postgresql.BYTEA(),
            nullable=False,
            comment="hashes that came to attributes, or left them, in this version",
        ),
        sa.PrimaryKeyConstraint("version", name=op.f("pk_sketch_change")),
    )
    op.create_table(
        "uploaded_sketch",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("sketch", postgresql.BYTEA(), nullable=False),
        sa.Column("uploaded_at", sa.DateTime(timezone=True), server_default=sa.func.now(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_uploaded_sketch")),
    )
    for table, column in (("sketch", "sketch"), ("sketch_change", "changes"), ("uploaded_sketch", "sketch")):
        op.execute(f"ALTER TABLE {table} ALTER COLUMN {column} SET STORAGE EXTERNAL")


def downgrade() -> None:
    for table in ("uploaded_sketch", "sketch_change", "sketch", "sketch_form"):
        op.drop_table(table)
    # What was never counted cannot be counted now: a source that is sketch-only has to be read again.
    op.execute("UPDATE attribute SET distinct_count = 0 WHERE distinct_count IS NULL")
    op.alter_column("attribute", "distinct_count", nullable=False, comment=None)
    op.drop_column("source", "sketch_only")
