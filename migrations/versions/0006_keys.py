"""Keep tuples of columns as attributes, and say which attributes are keys."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

FOLLOWED = "dropped_version IS NULL"
OF_TUPLES = "(SELECT attribute_id FROM attribute WHERE parts IS NOT NULL)"


def upgrade() -> None:
    op.add_column(
        "attribute",
        sa.Column(
            "parts", postgresql.ARRAY(sa.Integer()), comment="ordinals of the columns whose tuple it is; NULL: a column"
        ),
    )
    op.add_column(
        "attribute",
        sa.Column("snapshot", sa.Text(), comment="pg_current_snapshot() of its backfill; NULL: that of its source"),
    )
    op.drop_index("uq_attribute_name", "attribute")
    op.create_index(
        "uq_attribute_name",
        "attribute",
        ["schema_name", "table_name", "column_name"],
        unique=True,
        postgresql_where=sa.text(f"{FOLLOWED} AND parts IS NULL"),
    )
    op.create_index(
        "uq_attribute_parts",
        "attribute",
        ["schema_name", "table_name", "parts"],
        unique=True,
        postgresql_where=sa.text(f"{FOLLOWED} AND parts IS NOT NULL"),
    )
    op.create_table(
        "tracked_key",
        sa.Column("key_id", sa.Integer(), sa.Identity(), nullable=False),
        sa.Column("attribute_id", sa.Integer(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("is_primary", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("since_version", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("key_id", name=op.f("pk_tracked_key")),
        sa.UniqueConstraint("attribute_id", name=op.f("uq_tracked_key_attribute_id")),
        sa.ForeignKeyConstraint(
            ["attribute_id"], ["attribute.attribute_id"], name=op.f("fk_tracked_key_attribute_id"), ondelete="CASCADE"
        ),
        sa.CheckConstraint("kind in ('declared', 'discovered', 'pinned')", name=op.f("ck_tracked_key_kind_known")),
        comment="columns, or tuples of them, that are said or were seen to tell rows apart",
    )


def downgrade() -> None:
    """Take the tuples out of the state: no record, cluster or IND is of tuples and of columns."""
    op.drop_table("tracked_key")
    op.execute(f"DELETE FROM ind_transition WHERE dependent_id IN {OF_TUPLES}")
    op.execute(f"DELETE FROM uind WHERE dependent_id IN {OF_TUPLES}")
    op.execute(f"DELETE FROM sketch WHERE attribute_id IN {OF_TUPLES}")
    op.execute(
        f"CREATE TEMPORARY TABLE gone ON COMMIT DROP AS SELECT cluster_id FROM cluster "
        f"WHERE attribute_ids <@ ARRAY{OF_TUPLES}"
    )
    op.execute("DELETE FROM gen_rec WHERE cluster_id IN (SELECT cluster_id FROM gone)")
    op.execute("DELETE FROM cluster WHERE cluster_id IN (SELECT cluster_id FROM gone)")
    op.execute("DELETE FROM attribute WHERE parts IS NOT NULL")
    op.execute("DROP TABLE gone")
    op.drop_index("uq_attribute_parts", "attribute")
    op.drop_index("uq_attribute_name", "attribute")
    op.create_index(
        "uq_attribute_name",
        "attribute",
        ["schema_name", "table_name", "column_name"],
        unique=True,
        postgresql_where=sa.text(FOLLOWED),
    )
    op.drop_column("attribute", "snapshot")
    op.drop_column("attribute", "parts")
