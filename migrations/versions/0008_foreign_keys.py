"""Keep the candidates for foreign keys that were found last, by method."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "foreign_key_refresh",
        sa.Column("refresh_id", sa.Integer(), sa.Identity(), nullable=False),
        sa.Column("method", sa.Text(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False, comment="of the state that candidates were found in"),
        sa.Column("made_at", sa.DateTime(timezone=True), server_default=sa.func.clock_timestamp(), nullable=False),
        sa.Column("seconds", sa.Double(), nullable=False),
        sa.Column(
            "left_out", postgresql.ARRAY(sa.Text()), nullable=False, comment="columns without candidates, and why"
        ),
        sa.PrimaryKeyConstraint("refresh_id", name=op.f("pk_foreign_key_refresh")),
        sa.UniqueConstraint("method", name=op.f("uq_foreign_key_refresh_method")),
        comment="the last finding of candidates by each method",
    )
    op.create_table(
        "foreign_key_candidate",
        sa.Column("refresh_id", sa.Integer(), nullable=False),
        sa.Column("place", sa.Integer(), autoincrement=False, nullable=False, comment="from 0, the likeliest first"),
        *(
            sa.Column(f"{side}_{part}", postgresql.ARRAY(sa.Text()) if part == "columns" else sa.Text(), nullable=False)
            for side in ("dependent", "referenced")
            for part in ("schema", "table", "columns")
        ),
        sa.Column("score", sa.Double(), nullable=False),
        sa.Column("suggested", sa.Boolean(), nullable=False),
        sa.Column("implied", sa.Boolean(), nullable=False),
        sa.Column("evidence", postgresql.JSONB(), nullable=False),
        sa.PrimaryKeyConstraint("refresh_id", "place", name=op.f("pk_foreign_key_candidate")),
        sa.ForeignKeyConstraint(
            ["refresh_id"],
            ["foreign_key_refresh.refresh_id"],
            name=op.f("fk_foreign_key_candidate_refresh_id"),
            ondelete="CASCADE",
        ),
    )


def downgrade() -> None:
    op.drop_table("foreign_key_candidate")
    op.drop_table("foreign_key_refresh")
