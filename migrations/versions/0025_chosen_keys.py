"""Keep what a key was chosen as, where its source declares it as well."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None

CHOSEN = "kind that somebody chose it as where its source declares it as well"


def upgrade() -> None:
    op.add_column("tracked_key", sa.Column("chosen", sa.Text(), comment=CHOSEN))


def downgrade() -> None:
    op.drop_column("tracked_key", "chosen")
