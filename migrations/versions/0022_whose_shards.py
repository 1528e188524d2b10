"""Let a state keep by which name servers know it, also while no shard of it is on any."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "shard_owner",
        sa.Column("state", postgresql.UUID(as_uuid=True), nullable=False, comment="as the column of shard"),
        sa.PrimaryKeyConstraint("state", name=op.f("pk_shard_owner")),
        comment="one row from the first time that the state is dealt out to shards; none on a server",
    )
    op.execute(
        "insert into shard_owner select distinct state from shard "
        "where state is not null and exists (select from state_version)"
    )


def downgrade() -> None:
    op.drop_table("shard_owner")
