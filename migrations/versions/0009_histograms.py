"""Keep the histograms of keys and of candidates that refer to them, and log what changes in their values."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "followed_attribute",
        sa.Column("attribute_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column(
            "since_version", sa.BigInteger(), nullable=False, comment="value_change has all that changed behind it"
        ),
        sa.PrimaryKeyConstraint("attribute_id", name=op.f("pk_followed_attribute")),
        comment="attributes of which it is logged what values come and go, for the histograms of key_histogram",
    )
    op.create_table(
        "value_change",
        sa.Column("version", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("total_bytes", sa.BigInteger(), nullable=False, comment="of all changes so far, and these"),
        sa.Column(
            "changes",
            postgresql.BYTEA(),
            nullable=False,
            comment="values that came to followed attributes, or left them",
        ),
        sa.PrimaryKeyConstraint("version", name=op.f("pk_value_change")),
    )
    op.create_table(
        "key_histogram",
        sa.Column("key_id", sa.Integer(), autoincrement=False, nullable=False, comment="attribute"),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column(
            "attribute_ids",
            postgresql.ARRAY(sa.Integer()),
            nullable=False,
            comment="all that the histograms follow",
        ),
        sa.Column(
            "histograms",
            postgresql.BYTEA(),
            nullable=False,
            comment="of the key, its columns, and others over its grids, as JSON",
        ),
        sa.PrimaryKeyConstraint("key_id", name=op.f("pk_key_histogram")),
    )


def downgrade() -> None:
    for table in ("key_histogram", "value_change", "followed_attribute"):
        op.drop_table(table)
