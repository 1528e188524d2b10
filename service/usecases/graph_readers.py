"""Own what graphs of INDs are made of: the tracked tables at one version, and a corpus at one generation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from service.core.group_inds import Inds
from service.core.records import Int32s
from service.usecases.answers import EVERY_ATTRIBUTE, AttributeFilter, AttributeInfo
from service.usecases.corpora import ColumnFilter
from service.usecases.corpora_ports import CorpusSnapshot
from service.usecases.ind_graphs import Join, UnknownTableError
from service.usecases.ports import StateSnapshot
from service.usecases.queries import AmbiguousNameError, resolve

_ALL = 2**31 - 1


class TrackedGraphReader:
    """Read the tracked tables at a snapshot's version; a table is `schema.table`, or `id:17` of one of its columns."""

    def __init__(self, snapshot: StateSnapshot) -> None:
        self._snapshot = snapshot

    @property
    def place(self) -> tuple[str, int]:
        return "", self._snapshot.head.version

    @cached_property
    def _attributes(self) -> list[AttributeInfo]:
        return self._snapshot.attributes(EVERY_ATTRIBUTE, None, _ALL)

    @cached_property
    def _numbers(self) -> dict[tuple[str, str], int]:
        """Number the tables by (schema, table) in the order of the attributes."""
        tables = dict.fromkeys((one.name.schema, one.name.table) for one in self._attributes)
        return {table: number for number, table in enumerate(tables)}

    @cached_property
    def _tables(self) -> list[tuple[str, str]]:
        return list(self._numbers)

    @property
    def table_count(self) -> int:
        return len(self._numbers)

    def tables_of_columns(self) -> tuple[Int32s, int]:
        ids = np.array([one.attribute_id for one in self._attributes], np.int64)
        table_of = np.full(int(ids.max(initial=-1)) + 1, -1, np.int32)
        table_of[ids] = [self._numbers[one.name.schema, one.name.table] for one in self._attributes]
        return table_of, len(self._numbers)

    def stream_pairs(self) -> Iterator[Inds]:
        pairs = np.array(self._snapshot.ind_pairs(), np.int32).reshape(-1, 2)
        sizes = {one.attribute_id: one.distinct_count or 0 for one in self._attributes}
        overlaps = np.array([sizes[dependent] for dependent in pairs[:, 0].tolist()], np.int32)
        yield Inds(pairs[:, 0], pairs[:, 1], overlaps)

    def _name(self, table: int) -> str:
        return ".".join(self._tables[table])

    def names(self, tables: Iterable[int]) -> dict[int, str]:
        return {table: self._name(table) for table in tables}

    def all_names(self) -> Callable[[int], str]:
        return self.names(range(len(self._tables))).__getitem__

    def number(self, name: str) -> int:
        if name.startswith("id:"):
            found = resolve(self._snapshot, name).name
            return self._numbers[found.schema, found.table]
        named = [number for number in range(len(self._tables)) if self._name(number) == name]
        if not named:
            raise UnknownTableError(
                f"No table is named {name!r} in state version {self._snapshot.head.version}; write schema.table, or "
                "id:17 of one of its columns."
            )
        if len(named) > 1:
            first = {(one.name.schema, one.name.table): one for one in reversed(self._attributes)}
            raise AmbiguousNameError(name, [first[self._tables[number]] for number in named])
        return named[0]

    def joins(self, dependent: int, referenced: int, limit: int) -> list[Join]:
        sides = [AttributeFilter(*self._tables[table]) for table in (dependent, referenced)]
        ordinals = {one.attribute_id: one.ordinal for one in self._attributes}
        found = [
            Join(
                one.dependent.name.column,
                ordinals[one.dependent.attribute_id],
                one.referenced.name.column,
                ordinals[one.referenced.attribute_id],
            )
            for one in self._snapshot.uinds(sides[0], sides[1], None, after=None, limit=_ALL)
        ]
        return sorted(found, key=lambda join: (join.dependent_position, join.referenced_position))[:limit]


@dataclass(frozen=True)
class CorpusGraphReader:
    """Read a corpus at a snapshot's generation; a table is named by its path."""

    snapshot: CorpusSnapshot

    @property
    def place(self) -> tuple[str, int]:
        # A corpus that is removed and added anew begins with generation 1 again.
        return f"{self.snapshot.corpus.corpus_id}", self.snapshot.generation

    @property
    def table_count(self) -> int:
        return self.snapshot.counts()["tables"]

    def tables_of_columns(self) -> tuple[Int32s, int]:
        found = [
            (block.column_ids(), np.repeat(block.numbers, np.diff(block.starts)), int(block.numbers.max(initial=-1)))
            for block in self.snapshot.stream_tables()
        ]
        table_of = np.full(max((int(ids.max(initial=-1)) for ids, _, _ in found), default=-1) + 1, -1, np.int32)
        for ids, numbers, _ in found:
            table_of[ids] = numbers
        return table_of, max((last for _, _, last in found), default=-1) + 1

    def stream_pairs(self) -> Iterator[Inds]:
        return self.snapshot.stream_pairs()

    def names(self, tables: Iterable[int]) -> dict[int, str]:
        return self.snapshot.paths(list(tables))

    def all_names(self) -> Callable[[int], str]:
        found = [(block.numbers, block.paths) for block in self.snapshot.stream_tables()]
        numbers = np.concatenate([numbers for numbers, _ in found]) if found else np.zeros(0, np.int32)
        paths = pa.chunked_array([paths.cast(pa.large_string()) for _, paths in found], pa.large_string())
        paths = paths.combine_chunks()
        return lambda table: str(paths[int(np.searchsorted(numbers, table))])

    def number(self, name: str) -> int:
        return self.snapshot.table(name).table_number

    def joins(self, dependent: int, referenced: int, limit: int) -> list[Join]:
        # By (dependent column id, referenced column id): those of one table are in the order of their positions.
        paths = self.names((dependent, referenced))
        found = self.snapshot.inds(ColumnFilter(paths[dependent]), ColumnFilter(paths[referenced]), limit=limit)
        return [
            Join(one.dependent.name, one.dependent.position, one.referenced.name, one.referenced.position)
            for one in found
        ]
