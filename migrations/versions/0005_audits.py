"""Keep what audits of the tracked tables found."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "audit",
        sa.Column("audit_id", sa.BigInteger(), sa.Identity(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False, comment="of the state that was audited"),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), server_default=sa.func.clock_timestamp(), nullable=False),
        sa.Column("attributes", sa.Integer(), nullable=False),
        sa.Column(
            "value_count", sa.BigInteger(), nullable=False, comment="distinct values of all attributes, added up"
        ),
        sa.Column("inds", sa.BigInteger(), nullable=False, comment="that hold"),
        sa.Column("not_served", sa.BigInteger(), nullable=False, comment="INDs that hold and were not served"),
        sa.Column("not_holding", sa.BigInteger(), nullable=False, comment="INDs that were served and do not hold"),
        sa.Column("report", postgresql.JSONB(), nullable=False, comment="examples, filters, seconds"),
        sa.PrimaryKeyConstraint("audit_id", name=op.f("pk_audit")),
    )


def downgrade() -> None:
    op.drop_table("audit")
