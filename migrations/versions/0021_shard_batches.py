"""Let a shard keep what several batches did in it: it may be that far ahead of another one, whose server is away."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "shard_batch",
        sa.Column("shard", sa.Integer(), nullable=False),
        sa.Column("batch", sa.BigInteger(), nullable=False, comment="the version that it is to be"),
        sa.Column(
            "summary", postgresql.BYTEA(), nullable=False, comment="what that batch did, for the state's own version"
        ),
        sa.Column("undo", postgresql.BYTEA(), nullable=False, comment="records as they were before that batch"),
        sa.PrimaryKeyConstraint("shard", "batch", name=op.f("pk_shard_batch")),
    )
    op.execute(
        "insert into shard_batch select shard, batch, summary, undo from shard "
        "where summary is not null and undo is not null"
    )
    op.drop_column("shard", "undo")
    op.drop_column("shard", "summary")


def downgrade() -> None:
    op.execute(
        "do $$ begin if exists (select from shard_batch group by shard having count(*) > 1) then raise exception "
        "'shards are several batches ahead of another; let subsetd consume catch up first'; end if; end $$"
    )
    op.add_column(
        "shard", sa.Column("summary", postgresql.BYTEA(), comment="what that batch did, for the state's own version")
    )
    op.add_column("shard", sa.Column("undo", postgresql.BYTEA(), comment="records as they were before that batch"))
    op.execute(
        "update shard set summary = kept.summary, undo = kept.undo from shard_batch kept "
        "where kept.shard = shard.shard and kept.batch = shard.batch"
    )
    op.drop_table("shard_batch")
