"""Own the models of watches, their alerts, silences, announced loads; `tables` has the others."""

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
    Table,
    Text,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB, UUID

from service.store.table_base import metadata, now

watch = Table(
    "watch",
    metadata,
    Column("watch_id", Integer, Identity(), primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("rule", JSONB, nullable=False, comment="as core.watch_rules.Rule gives it"),
    Column("channel", JSONB, nullable=False, comment="where alerts go; an address may be a secret itself"),
    Column("secret", Text, comment="signs what goes to a webhook"),
    Column("debounce_seconds", Double, nullable=False),
    Column("tell_resolved", Boolean, nullable=False),
    Column("with_values", Boolean, nullable=False),
    Column("created_by", Text, nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False, server_default=now),
    Column("seen_version", BigInteger, nullable=False, comment="up to which it looked at transitions"),
    Column("seen_letter", BigInteger, nullable=False, comment="newest dead letter that needs no telling"),
)

watch_standing = Table(
    "watch_standing",
    metadata,
    Column("watch_id", ForeignKey("watch.watch_id", ondelete="CASCADE"), primary_key=True),
    Column("subject_key", UUID(as_uuid=True), primary_key=True, comment="first 128 bits of SHA-256 of its key"),
    Column("subject", JSONB, nullable=False),
    Column("is_bad", Boolean, nullable=False),
    Column("told", Boolean, nullable=False, comment="whether the last alert said that it is bad"),
    Column("turns", Integer, nullable=False),
    Column("since_version", BigInteger, nullable=False),
    Column("is_muted", Boolean, nullable=False, comment="a silence kept it from being told"),
    Column("detail", JSONB, nullable=False),
    comment="how subjects of watches stand, but for those that are not bad and were not told to be",
)

watch_alert = Table(
    "watch_alert",
    metadata,
    Column("alert_id", BigInteger, Identity(), primary_key=True),
    Column(
        "delivery_id",
        UUID(as_uuid=True),
        nullable=False,
        server_default=func.gen_random_uuid(),
        comment="by which receivers know it, at each attempt",
    ),
    Column("watch_id", ForeignKey("watch.watch_id", ondelete="SET NULL"), comment="NULL: the watch is gone"),
    Column("watch_name", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False, server_default=func.clock_timestamp()),
    Column("body", JSONB, nullable=False),
    Column("state", Text, nullable=False),
    Column("attempts", Integer, nullable=False, server_default="0"),
    Column("fault", Text, comment="why the last attempt failed"),
    Column("ended_at", DateTime(timezone=True)),
    CheckConstraint("kind in ('fired', 'resolved', 'test')", name="kind_known"),
    CheckConstraint("state in ('pending', 'delivered', 'failed', 'silenced')", name="state_known"),
    comment="the outbox of watches, and their history",
)
Index("ix_watch_alert_watch_id", watch_alert.c.watch_id, watch_alert.c.alert_id)
Index(
    "ix_watch_alert_pending",
    watch_alert.c.watch_id,
    watch_alert.c.alert_id,
    postgresql_where=watch_alert.c.state == text("'pending'"),
)

watch_silence = Table(
    "watch_silence",
    metadata,
    Column("silence_id", Integer, Identity(), primary_key=True),
    Column("watch_id", ForeignKey("watch.watch_id", ondelete="CASCADE"), index=True),
    Column("pattern", Text, comment="of names of watches or columns"),
    Column("until", DateTime(timezone=True), nullable=False),
    Column("reason", Text, nullable=False),
    Column("created_by", Text, nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False, server_default=now),
    Column("ended_at", DateTime(timezone=True)),
    CheckConstraint("num_nonnulls(watch_id, pattern) = 1", name="of_one"),
)

announced_load = Table(
    "announced_load",
    metadata,
    Column("load_id", Integer, Identity(), primary_key=True),
    Column("schema_name", Text, nullable=False),
    Column("table_name", Text, comment="NULL: all tables of the schema"),
    Column("until", DateTime(timezone=True), nullable=False),
    Column("until_loaded", Boolean, nullable=False),
    Column("bootstrapped_version", BigInteger, nullable=False, comment="newest of its sources when it was announced"),
    Column("created_by", Text, nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False, server_default=now),
    Column("ended_at", DateTime(timezone=True)),
    comment="tables that are being loaded, for which watches wait",
)

consumer_lag = Table(
    "consumer_lag",
    metadata,
    Column("reporter", Text, primary_key=True, comment="consumer"),
    Column("report", BigInteger, nullable=False, comment="another one with each report"),
    Column("records", BigInteger, comment="behind the feed's end; NULL: not known"),
    Column("seconds", Double, nullable=False),
    Column("unit", Text, nullable=False, server_default="records", comment="of `records`: records or bytes"),
    comment="what a consumer said of its lag last, for watches in other processes",
)
