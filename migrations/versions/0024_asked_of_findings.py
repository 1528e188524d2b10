"""Let a finding of foreign keys say what it was asked with."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None

QUESTION = "the options it was asked with, but for the method; NULL: found before they were kept"


def upgrade() -> None:
    op.add_column("foreign_key_refresh", sa.Column("question", postgresql.JSONB(), comment=QUESTION))


def downgrade() -> None:
    op.drop_column("foreign_key_refresh", "question")
