"""Let a state keep which row made or broke a dependency, or turned a contract."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None

ROW = "table and key of that change's row, where it names one"
LAST = "topic, partition, offset of the batch's last record; NULL for a bootstrap"
OF_CHANGE = "topic, partition, offset of the change that did it; NULL for a bootstrap"


def upgrade() -> None:
    for table in ("ind_transition", "contract_transition"):
        op.add_column(table, sa.Column("changed_row", postgresql.JSONB(), comment=ROW))
    op.alter_column("ind_transition", "position", comment=OF_CHANGE, existing_comment=LAST)


def downgrade() -> None:
    op.alter_column("ind_transition", "position", comment=LAST, existing_comment=OF_CHANGE)
    for table in ("ind_transition", "contract_transition"):
        op.drop_column(table, "changed_row")
