"""Own the reading of a tracked table's kept rows as value keys, which Postgres makes, by a statement for the table.

What the rows are is the caller's snapshot. Only a row that is under its own key is there: between the two halves of a
key change, a row waits under another one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from service.core.canonical import POSTGRES_KEY_EXPRESSION
from service.core.join_parts import CellRows
from service.core.records import Keys

# Stale columns are among them.
SHAPE = """
with present as (
    select ordinal, column_name from attribute join tracked_table using (source_id, schema_name, table_name)
    where table_id = %(table_id)s and dropped_version is null and parts is null
), key as (
    select column_name, place from tracked_table, unnest(key_columns) with ordinality as of_key (column_name, place)
    where table_id = %(table_id)s
)
select (select coalesce(max(ordinal), -1) + 1 from present),
    (select array_agg(ordinal order by place) from key left join present using (column_name))
"""
# One value for all rows: each row by itself costs its reader more than what is in it.
READ = """
select string_agg(row_data, '') from (
    select uuid_send(row_key) || {cells} as row_data {kept} {among} order by row_key {limit}
) in_order
"""
CELL = """case when cells[{n}] <> '' then substring(sha256(convert_to(cells[{n}], 'UTF8')) for 16) else %(empty)s end"""
KEPT = "from row_image where table_id = %(table_id)s and cells is not null and {is_own}"


class KeptRows:
    """Read kept rows of a table, the cells of each at its ordinals below `width`."""

    def __init__(self, cursor: Any, table_id: int) -> None:
        self._cursor = cursor
        self._asked: dict[str, Any] = {"table_id": table_id, "empty": bytes(16)}
        cursor.execute(SHAPE, self._asked)
        self.width, key_places = cursor.fetchone()
        self._kept = KEPT.format(is_own=is_own(key_places))
        self._cells = _joined([CELL.format(n=n) for n in range(1, self.width + 1)]) if self.width else "''::bytea"

    def some(self, row_keys: Keys) -> CellRows:
        """Read those of some rows that are there, by ascending row key."""
        listed = row_keys_to_bytes(row_keys).hex()
        among = "{" + ",".join(listed[at : at + 32] for at in range(0, len(listed), 32)) + "}"
        return self._read("and row_key = any (%(row_keys)s)", "", row_keys=among)

    def all(self, portion: int) -> Iterator[CellRows]:
        """Read all rows by ascending row key, so many at a time: at least one portion."""
        found = self._read("", "limit %(portion)s", portion=portion)
        yield found
        while len(found.row_keys.high) == portion:
            last = row_keys_to_bytes(found.row_keys.take(slice(-1, None))).hex()
            found = self._read("and row_key > %(last)s", "limit %(portion)s", portion=portion, last=last)
            if len(found.row_keys.high):
                yield found

    def count(self) -> int:
        """Count all rows."""
        self._cursor.execute(f"select count(*) {self._kept}", self._asked)
        return int(self._cursor.fetchone()[0])

    def _read(self, among: str, limit: str, **asked: Any) -> CellRows:
        statement = READ.format(cells=self._cells, kept=self._kept, among=among, limit=limit)
        self._cursor.execute(statement, self._asked | asked)
        halves = np.frombuffer(self._cursor.fetchone()[0] or b"", ">u8").reshape(-1, 1 + self.width, 2)
        halves = halves.astype(np.uint64)
        return CellRows(
            Keys(*(halves[:, 0, half].copy() for half in (0, 1))),
            Keys(*(halves[:, 1:, half].ravel() for half in (0, 1))),
            self.width,
        )


def row_keys_to_bytes(keys: Keys) -> bytes:
    """Give keys as 16 bytes each."""
    return np.stack([keys.high, keys.low], axis=1).astype(">u8").tobytes()


def row_keys_of(data: Any) -> Keys:
    """Take what `row_keys_to_bytes` gives."""
    return Keys.of([bytes(data)])


def is_own(key_places: Sequence[int | None] | None) -> str:
    """Give the condition that a row is under the key of its cells, as `core.row_key` makes it."""
    places = [place for place in key_places or () if place is not None]
    if not places or len(places) < len(key_places or ()):
        return "false"
    cells = " || ',' || ".join(f"coalesce(to_json(cells[{place + 1}])::text, 'null')" for place in places)
    text = f"('[' || {cells} || ']')"
    return f"row_key = {POSTGRES_KEY_EXPRESSION(text)}"


def _joined(parts: Sequence[str]) -> str:
    """Put texts end to end, halves by halves: of many each is copied a few times only."""
    if len(parts) == 1:
        return parts[0]
    middle = len(parts) // 2
    return f"({_joined(parts[:middle])} || {_joined(parts[middle:])})"
