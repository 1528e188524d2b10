"""Own the second opinion of the bootstrap's tests: what the state must hold, counted cell by cell."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from tests import states

Column = Sequence[str | None]


@dataclass(frozen=True)
class Expected:
    """Hold a state by names; counters are rows, nulls, distinct and repeated values."""

    records: dict[str, dict[str, int]]
    clusters: dict[frozenset[str], int]
    counters: dict[str, tuple[int, int, int, int]]
    inds: set[tuple[str, str]]


def count_cells(columns: Mapping[str, Column]) -> Expected:
    """Count columns (name to cells, None for NULL) as the definitions say."""
    records: dict[str, dict[str, int]] = defaultdict(dict)
    counters = {}
    for name, cells in columns.items():
        counted = Counter(cell for cell in cells if cell is not None)
        for value, frequency in counted.items():
            records[value][name] = frequency
        repeated = sum(frequency > 1 for frequency in counted.values())
        counters[name] = (len(cells), sum(cell is None for cell in cells), len(counted), repeated)
    sets = {name: {value for value, found in records.items() if name in found} for name in columns}
    inds = {(a, b) for a in columns for b in columns if a != b and sets[a] and sets[a] <= sets[b]}
    return Expected(dict(records), dict(Counter(frozenset(found) for found in records.values())), counters, inds)


def read_state(url: str) -> Expected:
    """Read the served state, by names; assert what must hold of it by itself (keys, cluster ids, no gaps, sketches)."""
    with states.one_version(url) as connection, connection.connection.cursor() as cursor:
        rows = partial(states.rows, cursor)
        names = dict(rows("SELECT attribute_id, schema_name || '.' || table_name || '.' || column_name FROM attribute"))
        clusters = {i: (ids, count) for i, ids, count in rows("SELECT * FROM cluster")}
        assert sorted(clusters) == list(range(1, len(clusters) + 1))
        records = {}
        live = {i for (i,) in rows(states.LIVE)} if rows("SELECT FROM sketch_form") else set()
        hashes: dict[int, set[int]] = {i: set() for i in live}
        for key, value, cluster_id, ids, frequencies in rows(
            "SELECT value_key::text, value, cluster_id, attribute_ids, frequencies FROM gen_rec"
        ):
            if len(value.encode()) < 250:
                assert key.replace("-", "") == hashlib.sha256(value.encode()).hexdigest()[:32]
            assert ids == sorted(ids)
            assert clusters[cluster_id][0] == ids
            for i in live.intersection(ids):
                hashes[i].add(int(key.replace("-", "")[:16], 16))
            records[value] = dict(zip([names[i] for i in ids], frequencies or [0] * len(ids), strict=True))
        states.check_sketches(connection, hashes)
        return Expected(
            records,
            {frozenset(names[i] for i in ids): count for ids, count in clusters.values()},
            {
                names[i]: tuple(counters)
                for i, *counters in rows(
                    "SELECT attribute_id, row_count, null_count, distinct_count, repeated_count FROM attribute "
                    "WHERE dropped_version IS NULL"
                )
            },
            {
                (names[a], names[b])
                for a, b in rows("SELECT dependent_id, referenced_id FROM uind WHERE until_version IS NULL")
            },
        )


def query(url: str, statement: str, *parameters: object) -> list[tuple]:
    """Run one statement in a transaction of its own and return its rows, if it has any."""
    with states.transaction(url) as cursor:
        cursor.execute(statement, parameters or None)
        return [] if cursor.description is None else cursor.fetchall()


def write_csv(path, header: Sequence[str], rows: Iterable[Sequence[str | None]], newline: str = "\r\n") -> None:
    """Write RFC 4180: NULL as an empty cell, the empty string as two quotes."""

    def cell(text: str | None) -> str:
        if text is None:
            return ""
        return '"' + text.replace('"', '""') + '"' if text == "" or set(text) & set('",\r\n') else text

    lines = [",".join(cell(text) for text in row) for row in [header, *rows]]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes((newline.join(lines) + newline).encode())
