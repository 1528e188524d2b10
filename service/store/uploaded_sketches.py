"""Own the sketches that were uploaded under a name: of columns elsewhere, beside all versions of the state."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from sqlalchemy import Connection, Engine, text

from service.core.sketches.comparable import Comparable
from service.usecases.answers import UploadedSketch
from service.usecases.queries import unknown_sketch

NAMES = 'select name, uploaded_at from uploaded_sketch order by name collate "C"'

BYTES = 'select name, sketch from uploaded_sketch where name = any (:names) order by name collate "C"'

# Whatever is uploaded, replaced or deleted makes another one of it.
TAG = """
select md5(string_agg(name || chr(10) || extract(epoch from uploaded_at), chr(10) order by name))
from uploaded_sketch
"""

PUT = """
insert into uploaded_sketch (name, sketch) values (:name, :sketch)
on conflict (name) do update set sketch = excluded.sketch, uploaded_at = clock_timestamp()
returning uploaded_at, xmax = 0
"""


def read_names(connection: Connection) -> list[UploadedSketch]:
    """List what is uploaded, by name."""
    return [UploadedSketch(*row) for row in connection.execute(text(NAMES))]


def read_uploads(connection: Connection, names: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    """Give the bytes of the sketches of these names, by name."""
    query = text(BYTES).execution_options(stream_results=True, yield_per=100)
    for name, data in connection.execute(query, {"names": list(names)}):
        yield name, bytes(data)


def read_tag(connection: Connection) -> str:
    """Name what is uploaded, all of it; an empty text when nothing is."""
    return connection.scalar(text(TAG)) or ""


def put(connection: Connection, name: str, sketch: Comparable) -> tuple[datetime, bool]:
    """Write a sketch under a name; tell when, and whether the name is new. The caller commits."""
    uploaded_at, is_new = connection.execute(text(PUT), {"name": name, "sketch": sketch.to_bytes()}).one()
    return uploaded_at, is_new


def forget_others(engine: Engine, prefix: str, names: Sequence[str]) -> None:
    """Delete sketches whose names begin with a text, but for these."""
    with engine.begin() as connection:
        connection.execute(
            text("delete from uploaded_sketch where starts_with(name, :prefix) and name <> all (:names)"),
            {"prefix": prefix, "names": list(names)},
        )


class PostgresUploads:
    """Implement ports.Uploads."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def put(self, name: str, sketch: Comparable) -> tuple[datetime, bool]:
        with self._engine.begin() as connection:
            return put(connection, name, sketch)

    def delete(self, name: str) -> None:
        with self._engine.begin() as connection:
            deleted = connection.execute(text("delete from uploaded_sketch where name = :name"), {"name": name})
        if not deleted.rowcount:
            raise unknown_sketch(name)
