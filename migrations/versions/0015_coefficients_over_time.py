"""Keep what looks beside the consumer find of the coefficients of pairs that somebody watches."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "coefficient_sample",
        sa.Column("dependent_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("referenced_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("since_version", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("until_version", sa.BigInteger(), nullable=False, comment="last look that found the same"),
        sa.Column("overlap", sa.BigInteger(), nullable=False, comment="distinct values in both"),
        sa.Column("distinct_count", sa.BigInteger(), nullable=False, comment="of the dependent"),
        sa.PrimaryKeyConstraint("dependent_id", "referenced_id", "since_version", name=op.f("pk_coefficient_sample")),
        comment="what looks found of pairs whose IND does not hold; while it holds, uind says so",
        postgresql_with={"fillfactor": "70"},
    )


def downgrade() -> None:
    op.drop_table("coefficient_sample")
