"""Own states written by hand: whole columns in, the rows of the state out, by the definitions and nothing cleverer."""

from __future__ import annotations

import hashlib
import uuid
from collections import Counter
from collections.abc import Mapping
from itertools import permutations

import psycopg2
from psycopg2.extras import Json, execute_values

from service.core.model import AttributeName

Columns = Mapping[AttributeName, list[str | None]]

# Table 1 of Incremental INDs (2017), and the state of it that paper-notes.md gives (item 1, corrected).
TABLE_1: Columns = {
    AttributeName("paper", "r", "A"): ["a", "b", "b", "d"],
    AttributeName("paper", "r", "B"): ["a", "b", "c", "d"],
    AttributeName("paper", "r", "C"): ["f", "e", "f", "f"],
    AttributeName("paper", "r", "D"): ["a", "a", "c", "c"],
}


def value_key(value: str) -> str:
    """Give the key under which a value is stored."""
    return str(uuid.UUID(bytes=hashlib.sha256(value.encode()).digest()[:16]))


def inds_of(columns: Columns) -> set[tuple[AttributeName, AttributeName]]:
    """Find the INDs by comparing sets."""
    sets = {name: {cell for cell in cells if cell is not None} for name, cells in columns.items()}
    return {(one, other) for one, other in permutations(sets, 2) if sets[one] and sets[one] <= sets[other]}


class HandMadeState:
    """Commit versions of a state, each given as the whole content of its columns."""

    def __init__(self, url: str, columns: Columns, source: str = "hand") -> None:
        """Write version 1, a bootstrap of these columns."""
        self.names = list(columns)
        self.ids = {name: number for number, name in enumerate(self.names)}
        self.version = 0
        self._holding: set[tuple[AttributeName, AttributeName]] = set()
        self._cluster_ids: dict[tuple[int, ...], int] = {}
        self._connection = psycopg2.connect(url)
        with self._connection, self._connection.cursor() as cursor:
            cursor.execute(
                "create table gen_rec_g1_p000 partition of gen_rec for values from (minvalue) to"
                " ('80000000-0000-0000-0000-000000000000');"
                "create table gen_rec_g1_p001 partition of gen_rec for values from"
                " ('80000000-0000-0000-0000-000000000000') to (maxvalue);"
                "insert into source (name, kind, location, bootstrapped_version) values (%s, 'csv', 'by hand', 1)"
                " returning source_id",
                (source,),
            )
            (source_id,) = cursor.fetchone() or (None,)
            execute_values(
                cursor,
                "insert into attribute values %s",
                [(self.ids[name], source_id, *name, at, "string", 0, 0, 0, 0) for at, name in enumerate(self.names)],
            )
        self.commit(columns)

    def commit(self, columns: Columns) -> int:
        """Write the next version in one transaction and give its number."""
        self.version += 1
        kind = "bootstrap" if self.version == 1 else "batch"
        frequencies = {name: Counter(cell for cell in cells if cell is not None) for name, cells in columns.items()}
        members: dict[str, tuple[int, ...]] = {}
        for name in self.names:
            for value in frequencies[name]:
                members[value] = (*members.get(value, ()), self.ids[name])
        sizes = Counter(members.values())
        with self._connection, self._connection.cursor() as cursor:
            cursor.execute(
                "insert into state_version (version, generation, kind) values (%s, 1, %s);"
                "delete from gen_rec; delete from cluster",
                (self.version, kind),
            )
            clusters = [(self._cluster_id(attributes), list(attributes), size) for attributes, size in sizes.items()]
            execute_values(cursor, "insert into cluster values %s", clusters)
            execute_values(
                cursor,
                "insert into gen_rec values %s",
                [
                    (
                        value_key(value),
                        value.encode()[:256].decode(errors="ignore"),
                        self._cluster_id(attributes),
                        list(attributes),
                        [frequencies[self.names[one]][value] for one in attributes],
                    )
                    for value, attributes in members.items()
                ],
            )
            for name, counts in frequencies.items():
                cursor.execute(
                    "update attribute set row_count = %s, null_count = %s, distinct_count = %s, repeated_count = %s"
                    " where attribute_id = %s",
                    (
                        len(columns[name]),
                        sum(cell is None for cell in columns[name]),
                        len(counts),
                        sum(count > 1 for count in counts.values()),
                        self.ids[name],
                    ),
                )
            self._write_transitions(cursor, columns, kind)
        return self.version

    def close(self) -> None:
        """Leave the database."""
        self._connection.close()

    def _cluster_id(self, attributes: tuple[int, ...]) -> int:
        return self._cluster_ids.setdefault(attributes, len(self._cluster_ids) + 1)

    def _write_transitions(self, cursor: psycopg2.extensions.cursor, columns: Columns, kind: str) -> None:
        holding = inds_of(columns)
        position = None if kind == "bootstrap" else Json({"topic": "t", "partition": 0, "offset": self.version})
        for pair in sorted(holding ^ self._holding):
            ids = self.ids[pair[0]], self.ids[pair[1]]
            lacking = sorted({cell for cell in columns[pair[0]] if cell is not None} - set(columns[pair[1]]))
            witness = lacking[0] if lacking else None
            cursor.execute(
                "insert into ind_transition values (%s, %s, %s, %s, %s, %s, %s, %s, %s)",
                (
                    self.version,
                    *ids,
                    "appeared" if pair in holding else "broke",
                    value_key(witness) if witness is not None else None,
                    witness,
                    len(lacking),
                    position,
                    position and Json({"table": f"{pair[0].schema}.{pair[0].table}", "key": {"id": "17"}}),
                ),
            )
            if pair in holding:
                cursor.execute("insert into uind values (%s, %s, %s, null)", (*ids, self.version))
            else:
                cursor.execute(
                    "update uind set until_version = %s"
                    " where dependent_id = %s and referenced_id = %s and until_version is null",
                    (self.version, *ids),
                )
        self._holding = holding
