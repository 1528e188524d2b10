"""Keep keys of the HTTP service, sessions of browsers, and who wrote what."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def _time(name: str, *, is_now: bool = False, comment: str | None = None) -> sa.Column[object]:
    default = sa.text("now()") if is_now else None
    return sa.Column(name, sa.DateTime(timezone=True), server_default=default, nullable=not is_now, comment=comment)


def upgrade() -> None:
    op.create_table(
        "api_key",
        sa.Column("key_id", sa.Integer(), sa.Identity(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("prefix", sa.Text(), nullable=False, comment="public part of the key, by which it is found"),
        sa.Column(
            "digest", postgresql.BYTEA(), nullable=False, comment="SHA-256 of the whole key, which is kept nowhere"
        ),
        _time("created_at", is_now=True),
        _time("expires_at", comment="NULL: never"),
        _time("last_used_at", comment="to about a minute"),
        _time("revoked_at"),
        sa.CheckConstraint("scope in ('read', 'write', 'admin')", name=op.f("ck_api_key_scope_known")),
        sa.PrimaryKeyConstraint("key_id", name=op.f("pk_api_key")),
        sa.UniqueConstraint("prefix", name=op.f("uq_api_key_prefix")),
        comment="keys of the HTTP service; once there is one, a key is wanted",
    )
    op.create_index("uq_api_key_name", "api_key", ["name"], unique=True, postgresql_where=sa.text("revoked_at is null"))
    op.create_table(
        "access_session",
        sa.Column(
            "digest", postgresql.BYTEA(), nullable=False, comment="hash of the id that the browser has in its cookie"
        ),
        sa.Column("key_id", sa.Integer(), comment="NULL: SUBSETD_API_KEY"),
        _time("created_at", is_now=True),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["key_id"], ["api_key.key_id"], name=op.f("fk_access_session_key_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_access_session")),
    )
    op.create_index(op.f("ix_access_session_key_id"), "access_session", ["key_id"])
    op.create_table(
        "write_log",
        sa.Column("write_id", sa.BigInteger(), sa.Identity(), nullable=False),
        _time("written_at", is_now=True),
        sa.Column("who", sa.Text(), nullable=False, comment="name of the key"),
        sa.Column("session", sa.Text(), comment="tells sessions of one key apart; NULL: the key itself was sent"),
        sa.Column("address", sa.Text(), comment="that the request came from"),
        sa.Column("method", sa.Text(), nullable=False),
        sa.Column("route", sa.Text(), nullable=False, comment="template of the path"),
        sa.Column("target", sa.Text(), nullable=False, comment="path of what was changed or made"),
        sa.Column("status", sa.SmallInteger(), comment="of the answer; NULL: it was no request"),
        sa.PrimaryKeyConstraint("write_id", name=op.f("pk_write_log")),
        comment="requests that were to change something",
    )


def downgrade() -> None:
    op.drop_table("write_log")
    op.drop_table("access_session")
    op.drop_table("api_key")
