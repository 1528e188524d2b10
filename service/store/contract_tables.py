"""Own the models of foreign keys: declared ones, candidates, decisions, contracts; `tables` has the others."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Double,
    ForeignKey,
    Identity,
    Index,
    Integer,
    Numeric,
    Table,
    Text,
    func,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB, UUID

from service.store.table_base import metadata, now


def _sides() -> list[Column[object]]:
    """Give the columns that name both sides of a foreign key."""
    return [
        Column(f"{side}_{part}", ARRAY(Text) if part == "columns" else Text, nullable=False)
        for side in ("dependent", "referenced")
        for part in ("schema", "table", "columns")
    ]


foreign_key_decision = Table(
    "foreign_key_decision",
    metadata,
    Column("decision_id", Integer, Identity(), primary_key=True),
    *_sides(),
    Column("verdict", Text, nullable=False),
    Column("decided_by", Text, nullable=False),
    Column("decided_at", DateTime(timezone=True), nullable=False, server_default=now),
    Column("note", Text),
    CheckConstraint("verdict in ('accept', 'reject', 'pin')", name="verdict_known"),
    comment="what people said of foreign keys, which are named by their columns; the newest of a pair counts",
)

contract = Table(
    "contract",
    metadata,
    Column("contract_id", Integer, Identity(), primary_key=True),
    Column(
        "decision_id",
        ForeignKey("foreign_key_decision.decision_id"),
        comment="that made it; NULL: it was added by itself",
    ),
    *_sides(),
    Column("least_coefficient", Numeric, nullable=False),
    Column("created_by", Text, nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False, server_default=now),
    Column("violated_since", BigInteger, comment="version; NULL while it is held"),
    CheckConstraint("least_coefficient > 0 and least_coefficient <= 1", name="least_coefficient_bounded"),
    comment="inclusions that are to hold at least so far, named by their columns",
)

contract_transition = Table(
    "contract_transition",
    metadata,
    Column(
        "version", BigInteger, primary_key=True, autoincrement=False, comment="may be older than those that are kept"
    ),
    Column("contract_id", ForeignKey("contract.contract_id", ondelete="CASCADE"), primary_key=True),
    Column("kind", Text, nullable=False),
    Column("witness_key", UUID(as_uuid=True), comment="one of the values that violated or mended it"),
    Column("witness_value", Text),
    Column("cause_count", BigInteger, nullable=False, comment="how many values did"),
    Column(
        "position",
        JSONB,
        comment="topic, partition, offset of the change that brought the witness; NULL: not found by a batch",
    ),
    Column("changed_row", JSONB, comment="table and key of that change's row, where it names one"),
    CheckConstraint("kind in ('violated', 'mended')", name="kind_known"),
)
Index("ix_contract_transition_contract_id", contract_transition.c.contract_id, contract_transition.c.version)

declared_reference = Table(
    "declared_reference",
    metadata,
    Column("reference_id", Integer, Identity(), primary_key=True),
    Column("source_id", ForeignKey("source.source_id", ondelete="CASCADE"), nullable=False, index=True),
    Column("dependent_ids", ARRAY(Integer), nullable=False, comment="attributes, in order"),
    Column("referenced_ids", ARRAY(Integer), nullable=False, comment="beside them"),
    comment="foreign keys as catalogs of sources have them, as of their bootstraps",
)

foreign_key_refresh = Table(
    "foreign_key_refresh",
    metadata,
    Column("refresh_id", Integer, Identity(), primary_key=True),
    Column("method", Text, nullable=False, unique=True),
    Column("version", BigInteger, nullable=False, comment="of the state that candidates were found in"),
    Column("made_at", DateTime(timezone=True), nullable=False, server_default=func.clock_timestamp()),
    Column("seconds", Double, nullable=False),
    Column("left_out", ARRAY(Text), nullable=False, comment="columns without candidates, and why"),
    Column(
        "question",
        JSONB,
        comment="the options it was asked with, but for the method; NULL: found before they were kept",
    ),
    comment="the last finding of candidates by each method",
)

foreign_key_candidate = Table(
    "foreign_key_candidate",
    metadata,
    Column("refresh_id", ForeignKey("foreign_key_refresh.refresh_id", ondelete="CASCADE"), primary_key=True),
    Column("place", Integer, primary_key=True, autoincrement=False, comment="from 0, the likeliest first"),
    *_sides(),
    Column("score", Double, nullable=False),
    Column("suggested", Boolean, nullable=False),
    Column("implied", Boolean, nullable=False),
    Column("evidence", JSONB, nullable=False),
)
