"""Keep the foreign keys that sources declare, to show them beside those that are found."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "declared_reference",
        sa.Column("reference_id", sa.Integer(), sa.Identity(), nullable=False),
        sa.Column("source_id", sa.Integer(), nullable=False),
        sa.Column("dependent_ids", postgresql.ARRAY(sa.Integer()), nullable=False, comment="attributes, in order"),
        sa.Column("referenced_ids", postgresql.ARRAY(sa.Integer()), nullable=False, comment="beside them"),
        sa.ForeignKeyConstraint(
            ["source_id"], ["source.source_id"], name=op.f("fk_declared_reference_source_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("reference_id", name=op.f("pk_declared_reference")),
        comment="foreign keys as catalogs of sources have them, as of their bootstraps",
    )
    op.create_index(op.f("ix_declared_reference_source_id"), "declared_reference", ["source_id"])


def downgrade() -> None:
    op.drop_table("declared_reference")
