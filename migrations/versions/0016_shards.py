"""Keep shards: shares of the key space with clusters and transactions of their own."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "shard",
        sa.Column(
            "shard", sa.Integer(), autoincrement=False, nullable=False, comment="none at all: the state is one shard"
        ),
        sa.Column(
            "epoch",
            sa.BigInteger(),
            nullable=False,
            comment="one for each writer: a batch of the one before is refused",
        ),
        sa.Column(
            "batch",
            sa.BigInteger(),
            nullable=False,
            comment="last version that a task of its own applied, or its share",
        ),
        sa.Column("summary", postgresql.BYTEA(), comment="what that batch did, for the state's own version"),
        sa.Column("undo", postgresql.BYTEA(), comment="records as they were before that batch"),
        sa.PrimaryKeyConstraint("shard", name=op.f("pk_shard")),
    )
    op.create_table(
        "shard_cluster",
        sa.Column(
            "cluster_id",
            sa.BigInteger(),
            autoincrement=False,
            nullable=False,
            comment="shard * 2^32 + its own number",
        ),
        sa.Column("attribute_ids", postgresql.ARRAY(sa.Integer()), nullable=False, comment="ascending"),
        sa.Column("value_count", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("value_count > 0", name=op.f("ck_shard_cluster_value_count_positive")),
        sa.PrimaryKeyConstraint("cluster_id", name=op.f("pk_shard_cluster")),
        postgresql_with={"fillfactor": "70"},
    )
    op.create_index(
        "ix_shard_cluster_attribute_ids", "shard_cluster", ["attribute_ids"], unique=False, postgresql_using="gin"
    )


def downgrade() -> None:
    op.execute(
        "do $$ begin if exists (select from shard) then raise exception "
        "'the state is in several shards; run subsetd shards set 1 first'; end if; end $$"
    )
    op.drop_table("shard_cluster")
    op.drop_table("shard")
