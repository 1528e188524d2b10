"""Keep what running bootstraps tell of themselves."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def _time(name: str) -> sa.Column[object]:
    return sa.Column(name, sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False)


def upgrade() -> None:
    op.create_table(
        "bootstrap_run",
        sa.Column("run_id", sa.Integer(), sa.Identity(), nullable=False),
        sa.Column("source_name", sa.Text(), nullable=False),
        sa.Column("stage", sa.Text(), nullable=False),
        sa.Column("done", sa.BigInteger()),
        sa.Column("total", sa.BigInteger()),
        _time("started_at"),
        _time("stage_started_at"),
        _time("progressed_at"),
        sa.Column("ended_at", sa.DateTime(timezone=True), comment="without success"),
        sa.Column("fault", sa.Text()),
        sa.PrimaryKeyConstraint("run_id", name=op.f("pk_bootstrap_run")),
        sa.UniqueConstraint("source_name", name=op.f("uq_bootstrap_run_source_name")),
        comment="bootstraps that run, died or failed; one that succeeds takes its row away",
    )


def downgrade() -> None:
    op.drop_table("bootstrap_run")
