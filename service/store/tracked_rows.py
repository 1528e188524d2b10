"""Own the rows of a tracked table, as a query for joinable tables: from its row images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
from sqlalchemy import Engine, Row, text

from service.core.errors import NotFoundError, SourceError
from service.store.join_tracked_rows import is_own
from service.usecases.joinable import JoinQuery, key_places, require_rows

COLUMNS = """
select a.column_name, a.ordinal, a.stale_version, t.table_id, t.key_columns,
    coalesce(t.row_images, false) as row_images
from attribute a left join tracked_table t using (source_id, schema_name, table_name)
where a.schema_name = :schema and a.table_name = :table and a.parts is null and a.dropped_version is null
order by a.ordinal
"""
IMAGES = """
select {cells} from row_image where table_id = :table_id and cells is not null and {is_own}
order by row_key limit :limit
"""
SIZE = "select count(*), coalesce(sum({lengths}), 0) from ({images}) as asked ({names})"


class PostgresTrackedRows:
    """Implement usecases.joinable_searches.TrackedRows; NULL is an empty cell."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def __call__(self, schema: str, table: str, key: Sequence[str], most_rows: int, most_bytes: int) -> JoinQuery:
        with self._engine.connect() as connection:
            known = {"schema": schema, "table": table}
            found = [] if "\0" in schema + table else connection.execute(text(COLUMNS), known).all()
            if not found:
                raise NotFoundError(f"No table {schema}.{table} is followed; /api/v1/attributes lists what is.")
            # Of a stale column rows that have changed since it became so have no cells.
            current = [row for row in found if row.stale_version is None]
            chosen = [current[place] for place in key_places([row.column_name for row in current], key)]
            if not found[0].row_images:
                raise SourceError(
                    f"No images of the rows of {schema}.{table} are kept (`subsetd bootstrap --row-images`), and of "
                    "values it is not known which stand in one row: send its rows as a CSV."
                )
            cells = ", ".join(f"coalesce(cells[{row.ordinal + 1}], '')" for row in chosen)
            places = {row.column_name: row.ordinal for row in found}
            own = is_own([places.get(column) for column in found[0].key_columns])
            given = {"table_id": found[0].table_id, "limit": most_rows + 1}
            images = IMAGES.format(cells=cells, is_own=own)
            names = [f"c{place}" for place in range(len(chosen))]
            lengths = " + ".join(f"octet_length({name})" for name in names)
            size = SIZE.format(lengths=lengths, images=images, names=", ".join(names))
            # All of them come at once, and cells may be long.
            count, length = connection.execute(text(size), given).one()
            require_rows(count, most_rows)
            if length > most_bytes:
                raise SourceError(
                    f"The key cells of {schema}.{table} have {length:,} bytes; at most {most_bytes:,} are asked with."
                )
            rows = connection.execute(text(images), given).all()
        columns = _columns(rows, len(chosen))
        return JoinQuery([pa.chunked_array([pa.array(column, pa.large_string())]) for column in columns])


def _columns(rows: Sequence[Row[Any]], count: int) -> list[Sequence[str]]:
    return list(zip(*rows, strict=True)) if rows else [[] for _ in range(count)]
