"""Keep watches: rules that are looked at beside the consumer, their alerts, silences, and loads that they wait for."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def _created() -> list[sa.Column[object]]:
    return [
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
    ]


def upgrade() -> None:
    op.create_table(
        "watch",
        sa.Column("watch_id", sa.Integer(), sa.Identity(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("rule", postgresql.JSONB(), nullable=False, comment="as core.watch_rules.Rule gives it"),
        sa.Column(
            "channel", postgresql.JSONB(), nullable=False, comment="where alerts go; an address may be a secret itself"
        ),
        sa.Column("secret", sa.Text(), comment="signs what goes to a webhook"),
        sa.Column("debounce_seconds", sa.Double(), nullable=False),
        sa.Column("tell_resolved", sa.Boolean(), nullable=False),
        sa.Column("with_values", sa.Boolean(), nullable=False),
        *_created(),
        sa.Column("seen_version", sa.BigInteger(), nullable=False, comment="up to which it looked at transitions"),
        sa.Column("seen_letter", sa.BigInteger(), nullable=False, comment="newest dead letter that needs no telling"),
        sa.PrimaryKeyConstraint("watch_id", name=op.f("pk_watch")),
        sa.UniqueConstraint("name", name=op.f("uq_watch_name")),
    )
    op.create_table(
        "watch_standing",
        sa.Column("watch_id", sa.Integer(), nullable=False),
        sa.Column("subject_key", postgresql.UUID(), nullable=False, comment="first 128 bits of SHA-256 of its key"),
        sa.Column("subject", postgresql.JSONB(), nullable=False),
        sa.Column("is_bad", sa.Boolean(), nullable=False),
        sa.Column("told", sa.Boolean(), nullable=False, comment="whether the last alert said that it is bad"),
        sa.Column("turns", sa.Integer(), nullable=False),
        sa.Column("since_version", sa.BigInteger(), nullable=False),
        sa.Column("is_muted", sa.Boolean(), nullable=False, comment="a silence kept it from being told"),
        sa.Column("detail", postgresql.JSONB(), nullable=False),
        sa.ForeignKeyConstraint(
            ["watch_id"], ["watch.watch_id"], name=op.f("fk_watch_standing_watch_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("watch_id", "subject_key", name=op.f("pk_watch_standing")),
        comment="how subjects of watches stand, but for those that are not bad and were not told to be",
    )
    op.create_table(
        "watch_alert",
        sa.Column("alert_id", sa.BigInteger(), sa.Identity(), nullable=False),
        sa.Column(
            "delivery_id",
            postgresql.UUID(),
            server_default=sa.text("gen_random_uuid()"),
            nullable=False,
            comment="by which receivers know it, at each attempt",
        ),
        sa.Column("watch_id", sa.Integer(), comment="NULL: the watch is gone"),
        sa.Column("watch_name", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.Column("body", postgresql.JSONB(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("attempts", sa.Integer(), server_default="0", nullable=False),
        sa.Column("fault", sa.Text(), comment="why the last attempt failed"),
        sa.Column("ended_at", sa.DateTime(timezone=True)),
        sa.ForeignKeyConstraint(
            ["watch_id"], ["watch.watch_id"], name=op.f("fk_watch_alert_watch_id"), ondelete="SET NULL"
        ),
        sa.PrimaryKeyConstraint("alert_id", name=op.f("pk_watch_alert")),
        sa.CheckConstraint("kind in ('fired', 'resolved', 'test')", name=op.f("ck_watch_alert_kind_known")),
        sa.CheckConstraint(
            "state in ('pending', 'delivered', 'failed', 'silenced')", name=op.f("ck_watch_alert_state_known")
        ),
        comment="the outbox of watches, and their history",
    )
    op.create_index("ix_watch_alert_watch_id", "watch_alert", ["watch_id", "alert_id"])
    op.create_index(
        "ix_watch_alert_pending",
        "watch_alert",
        ["watch_id", "alert_id"],
        postgresql_where=sa.text("state = 'pending'"),
    )
    op.create_table(
        "watch_silence",
        sa.Column("silence_id", sa.Integer(), sa.Identity(), nullable=False),
        sa.Column("watch_id", sa.Integer()),
        sa.Column("pattern", sa.Text(), comment="of names of watches or columns"),
        sa.Column("until", sa.DateTime(timezone=True), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        *_created(),
        sa.Column("ended_at", sa.DateTime(timezone=True)),
        sa.ForeignKeyConstraint(
            ["watch_id"], ["watch.watch_id"], name=op.f("fk_watch_silence_watch_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("silence_id", name=op.f("pk_watch_silence")),
        sa.CheckConstraint("num_nonnulls(watch_id, pattern) = 1", name=op.f("ck_watch_silence_of_one")),
    )
    op.create_index(op.f("ix_watch_silence_watch_id"), "watch_silence", ["watch_id"])
    op.create_table(
        "announced_load",
        sa.Column("load_id", sa.Integer(), sa.Identity(), nullable=False),
        sa.Column("schema_name", sa.Text(), nullable=False),
        sa.Column("table_name", sa.Text(), comment="NULL: all tables of the schema"),
        sa.Column("until", sa.DateTime(timezone=True), nullable=False),
        sa.Column("until_loaded", sa.Boolean(), nullable=False),
        sa.Column(
            "bootstrapped_version",
            sa.BigInteger(),
            nullable=False,
            comment="newest of its sources when it was announced",
        ),
        *_created(),
        sa.Column("ended_at", sa.DateTime(timezone=True)),
        sa.PrimaryKeyConstraint("load_id", name=op.f("pk_announced_load")),
        comment="tables that are being loaded, for which watches wait",
    )
    op.create_table(
        "consumer_lag",
        sa.Column("reporter", sa.Text(), nullable=False, comment="consumer"),
        sa.Column("report", sa.BigInteger(), nullable=False, comment="another one with each report"),
        sa.Column("records", sa.BigInteger(), comment="behind the feed's end; NULL: not known"),
        sa.Column("seconds", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("reporter", name=op.f("pk_consumer_lag")),
        comment="what a consumer said of its lag last, for watches in other processes",
    )


def downgrade() -> None:
    for name in ("consumer_lag", "announced_load", "watch_silence", "watch_alert", "watch_standing", "watch"):
        op.drop_table(name)
