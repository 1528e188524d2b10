"""Let shards be on servers of their own: where each is, and what is written there behind the commit of a version."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "shard",
        sa.Column("server", sa.Text(), comment="name of the server that it is on; NULL: the state's own database"),
    )
    op.add_column("shard", sa.Column("address", sa.Text(), comment="of that server's database, without a password"))
    op.add_column(
        "shard", sa.Column("state", postgresql.UUID(as_uuid=True), comment="which state it is of: a server is told")
    )
    op.execute("update shard set state = of_all.state from (select gen_random_uuid() as state) as of_all")
    op.create_table(
        "shard_write",
        sa.Column("write_id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("shard", sa.Integer(), nullable=False, comment="one that is on a server of its own"),
        sa.Column("version", sa.BigInteger(), nullable=False, comment="whose commit it is written behind"),
        sa.Column("previous", sa.BigInteger(), nullable=False, comment="version that the shard must be at before"),
        sa.Column("data", postgresql.BYTEA(), nullable=False, comment="records and clusters as they are to be"),
        sa.PrimaryKeyConstraint("write_id", name=op.f("pk_shard_write")),
    )


def downgrade() -> None:
    op.execute(
        "do $$ begin if exists (select from shard where server is not null) then raise exception "
        "'shards are on servers of their own; run subsetd shards set 1 first'; end if; end $$"
    )
    op.drop_table("shard_write")
    for column in ("state", "address", "server"):
        op.drop_column("shard", column)
