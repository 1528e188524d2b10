"""Let a consumer say what its lag is counted in."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "consumer_lag",
        sa.Column(
            "unit", sa.Text(), server_default="records", nullable=False, comment="of `records`: records or bytes"
        ),
    )


def downgrade() -> None:
    op.drop_column("consumer_lag", "unit")
