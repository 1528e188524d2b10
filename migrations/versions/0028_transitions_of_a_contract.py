"""Find the transitions of one contract: they are asked for, succeed each other, and go with it."""

from __future__ import annotations

from alembic import op

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None

NAME = "ix_contract_transition_contract_id"


def upgrade() -> None:
    op.create_index(NAME, "contract_transition", ["contract_id", "version"])


def downgrade() -> None:
    op.drop_index(NAME, "contract_transition")
