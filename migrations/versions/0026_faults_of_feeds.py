"""Let a consumer say what ails the feed that it follows."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None

FAULT = "why it is not followed as it should be, as its consumer said last; NULL: it is"


def upgrade() -> None:
    op.add_column("feed", sa.Column("fault", sa.Text(), comment=FAULT))
    op.add_column("feed", sa.Column("fault_at", sa.DateTime(timezone=True), comment="when it was said last"))


def downgrade() -> None:
    op.drop_column("feed", "fault_at")
    op.drop_column("feed", "fault")
