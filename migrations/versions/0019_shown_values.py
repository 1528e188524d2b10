"""Say of each attribute how many characters of its values are kept and shown; NULL, of all that are there: all."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    comment = "first characters of its values that are kept and shown; NULL: all"
    op.add_column("attribute", sa.Column("shown_characters", sa.Integer(), nullable=True, comment=comment))
    op.create_check_constraint(op.f("ck_attribute_shown_characters_not_negative"), "attribute", "shown_characters >= 0")


def downgrade() -> None:
    op.drop_constraint(op.f("ck_attribute_shown_characters_not_negative"), "attribute")
    op.drop_column("attribute", "shown_characters")
