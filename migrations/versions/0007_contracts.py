"""Keep what was decided of foreign keys, and the contracts that are watched."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def sides() -> list[sa.Column[object]]:
    """Give the columns that name both sides of a foreign key."""
    return [
        sa.Column(
            f"{side}_{part}",
            postgresql.ARRAY(sa.Text()) if part == "columns" else sa.Text(),
            nullable=False,
        )
        for side in ("dependent", "referenced")
        for part in ("schema", "table", "columns")
    ]


def upgrade() -> None:
    op.create_table(
        "foreign_key_decision",
        sa.Column("decision_id", sa.Integer(), sa.Identity(), nullable=False),
        *sides(),
        sa.Column("verdict", sa.Text(), nullable=False),
        sa.Column("decided_by", sa.Text(), nullable=False),
        sa.Column("decided_at", sa.DateTime(timezone=True), server_default=sa.func.now(), nullable=False),
        sa.Column("note", sa.Text()),
        sa.PrimaryKeyConstraint("decision_id", name=op.f("pk_foreign_key_decision")),
        sa.CheckConstraint(
            "verdict in ('accept', 'reject', 'pin')", name=op.f("ck_foreign_key_decision_verdict_known")
        ),
        comment="what people said of foreign keys, which are named by their columns; the newest of a pair counts",
    )
    op.create_table(
        "contract",
        sa.Column("contract_id", sa.Integer(), sa.Identity(), nullable=False),
        sa.Column("decision_id", sa.Integer(), comment="that made it; NULL: it was added by itself"),
        *sides(),
        sa.Column("least_coefficient", sa.Numeric(), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.func.now(), nullable=False),
        sa.Column("violated_since", sa.BigInteger(), comment="version; NULL while it is held"),
        sa.PrimaryKeyConstraint("contract_id", name=op.f("pk_contract")),
        sa.ForeignKeyConstraint(
            ["decision_id"], ["foreign_key_decision.decision_id"], name=op.f("fk_contract_decision_id")
        ),
        sa.CheckConstraint(
            "least_coefficient > 0 and least_coefficient <= 1", name=op.f("ck_contract_least_coefficient_bounded")
        ),
        comment="inclusions that are to hold at least so far, named by their columns",
    )
    op.create_table(
        "contract_transition",
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("contract_id", sa.Integer(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("witness_key", sa.UUID(), comment="one of the values that violated or mended it"),
        sa.Column("witness_value", sa.Text()),
        sa.Column("cause_count", sa.BigInteger(), nullable=False, comment="how many values did"),
        sa.Column(
            "position",
            postgresql.JSONB(),
            comment="topic, partition, offset of the change that brought the witness; NULL: not found by a batch",
        ),
        sa.PrimaryKeyConstraint("version", "contract_id", name=op.f("pk_contract_transition")),
        sa.ForeignKeyConstraint(["version"], ["state_version.version"], name=op.f("fk_contract_transition_version")),
        sa.ForeignKeyConstraint(
            ["contract_id"],
            ["contract.contract_id"],
            name=op.f("fk_contract_transition_contract_id"),
            ondelete="CASCADE",
        ),
        sa.CheckConstraint("kind in ('violated', 'mended')", name=op.f("ck_contract_transition_kind_known")),
    )


def downgrade() -> None:
    op.drop_table("contract_transition")
    op.drop_table("contract")
    op.drop_table("foreign_key_decision")
