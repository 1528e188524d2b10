"""Own flattened events: what Debezium's transform ExtractNewRecordState leaves of an envelope, made one again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from service.core.errors import RecordError
from service.stream.row_images import TableDecoder

FIELDS = "op,db,table,source.ts_ms,source.snapshot,source.connector,transaction.id,transaction.total_order"
FIELDS_OF = {
    "Postgres": "schema,source.lsn,source.txId,source.sequence",
    "MySQL and MariaDB": "source.file,source.pos,source.row",
    "SQL Server": "schema,source.commit_lsn",
}
"""What the transform is to add to the row: of all connectors, and what more tells the place in the source of each."""

WAY_OUT = (
    f"leave the transform ExtractNewRecordState out, or set its add.fields={FIELDS} and behind them "
    f"{', '.join(f'{fields} (of {connector})' for connector, fields in FIELDS_OF.items())}, and its "
    "delete.tombstone.handling.mode=rewrite, or before Debezium 2.5 its delete.handling.mode=rewrite"
)

OPERATION = "__op"
_PREFIX = "__"
_TRUE = (True, "true")


def is_flattened(event: Mapping[str, Any]) -> bool:
    """Tell whether an event is a flattened one that says which operation it was; its row may have a column `op`."""
    return OPERATION in event and not ("op" in event and type(event.get("source")) is dict)


def unflatten(event: Mapping[str, Any]) -> dict[str, Any]:
    """Give the envelope of a flattened event; its row still has the transform's fields, see `row_of`.

    The transform's fields are read under their default names (`add.fields.prefix` left as it is).
    """
    source = {name.removeprefix("__source_"): value for name, value in event.items() if name.startswith("__source_")}
    for name in ("db", "schema", "table", "lsn", "txId", "sequence", "snapshot", "connector"):
        if event.get(_PREFIX + name) is not None:
            source.setdefault(name, event[_PREFIX + name])
    transaction = None
    if event.get("__transaction_id") is not None:
        transaction = {"id": event["__transaction_id"], "total_order": event.get("__transaction_total_order")}
    letter = "d" if event.get("__deleted") in _TRUE else event[OPERATION]
    return {
        "op": letter,
        "before": event if letter == "d" else None,
        "after": None if letter in ("d", "t") else event,
        "source": source,
        "transaction": transaction,
    }


def row_of(event: Mapping[str, Any] | None, tracked: TableDecoder) -> dict[str, Any] | None:
    """Take the transform's fields out of a flattened row; RecordError where the table cannot be followed by such rows.

    A flattened event has no row before: the table must have row images, or be insert-only. Deletes must be sent as
    rows (`__deleted`), for a tombstone alone is no change.
    """
    if event is None:
        return None
    if not tracked.has_row_images and not tracked.table.insert_only:
        raise RecordError(
            f"is flattened, without the row before, and the state keeps no row images of {tracked.table}: bootstrap it "
            f"again with --replace --row-images always, or leave the transform ExtractNewRecordState out"
        )
    if tracked.has_row_images and "__deleted" not in event:
        raise RecordError(f"is flattened without __deleted, so that deletes would go unseen; {WAY_OUT}")
    return {name: cell for name, cell in event.items() if not name.startswith(_PREFIX) or name in tracked.names}
