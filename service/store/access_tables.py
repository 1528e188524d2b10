"""Own the models of who may ask, and of who wrote what; `tables` has the others."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    DateTime,
    ForeignKey,
    Identity,
    Index,
    Integer,
    SmallInteger,
    Table,
    Text,
    text,
)
from sqlalchemy.dialects.postgresql import BYTEA

from service.store.table_base import metadata, now

api_key = Table(
    "api_key",
    metadata,
    Column("key_id", Integer, Identity(), primary_key=True),
    Column("name", Text, nullable=False),
    Column("scope", Text, nullable=False),
    Column("prefix", Text, nullable=False, unique=True, comment="public part of the key, by which it is found"),
    Column("digest", BYTEA, nullable=False, comment="SHA-256 of the whole key, which is kept nowhere"),
    Column("created_at", DateTime(timezone=True), nullable=False, server_default=now),
    Column("expires_at", DateTime(timezone=True), comment="NULL: never"),
    Column("last_used_at", DateTime(timezone=True), comment="to about a minute"),
    Column("revoked_at", DateTime(timezone=True)),
    CheckConstraint("scope in ('read', 'write', 'admin')", name="scope_known"),
    Index("uq_api_key_name", "name", unique=True, postgresql_where=text("revoked_at is null")),
    comment="keys of the HTTP service; once there is one, a key is wanted",
)

access_session = Table(
    "access_session",
    metadata,
    Column("digest", BYTEA, primary_key=True, comment="hash of the id that the browser has in its cookie"),
    Column("key_id", ForeignKey("api_key.key_id", ondelete="CASCADE"), index=True, comment="NULL: SUBSETD_API_KEY"),
    Column("created_at", DateTime(timezone=True), nullable=False, server_default=now),
    Column("expires_at", DateTime(timezone=True), nullable=False),
)

write_log = Table(
    "write_log",
    metadata,
    Column("write_id", BigInteger, Identity(), primary_key=True),
    Column("written_at", DateTime(timezone=True), nullable=False, server_default=now),
    Column("who", Text, nullable=False, comment="name of the key"),
    Column("session", Text, comment="tells sessions of one key apart; NULL: the key itself was sent"),
    Column("address", Text, comment="that the request came from"),
    Column("method", Text, nullable=False),
    Column("route", Text, nullable=False, comment="template of the path"),
    Column("target", Text, nullable=False, comment="path of what was changed or made"),
    Column("status", SmallInteger, comment="of the answer; NULL: it was no request"),
    comment="requests that were to change something",
)
