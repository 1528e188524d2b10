"""Own which keys a bootstrap tracks, and of which columns it follows the tuples for that."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from service.core.errors import SourceError
from service.core.tuples import MOST_PARTS
from service.store.keys import KnownTuple, TrackedKey
from service.usecases.key_values import KeyKind
from spark_jobs.sources import Options, SourceTable


def choose_tuples(
    tables: Sequence[SourceTable],
    options: Options,
    known: Sequence[KnownTuple],
    schema_of: Callable[[SourceTable], str],
) -> list[SourceTable]:
    """Say of each table which of its columns are tracked as keys, and of which the tuples are followed.

    Keys are those that the source declares, those that the options name, and those of `known` (the served state's)
    that somebody chose. Composite foreign keys are followed in the order of the key that they refer to: only then can
    one be seen to be in the other. Known tuples that a contract is on are followed on, whoever declares them. A check
    follows what the state follows. Raises SourceError for a key whose table or columns there are not.
    """
    by_table: dict[tuple[str, str], list[KnownTuple]] = {}
    for one in known:
        by_table.setdefault((one.schema, one.table), []).append(one)
    if options.check:
        return [
            replace(table, tuples=_places(table, [k.columns for k in by_table.get((schema_of(table), table.name), ())]))
            for table in tables
        ]
    given = [(name, _checked(name, columns)) for name, columns in options.tracked_keys]
    for name, _ in given:
        if all(name not in (str(table), table.name) for table in tables):
            raise SourceError(f"--track-key {name}: the source has no such table.")
    keyed = []
    for table in tables:
        of_state = by_table.get((schema_of(table), table.name), ())
        chosen = {columns: KeyKind.PINNED for name, columns in given if name in (str(table), table.name)}
        for columns in chosen:
            _require_columns(table, columns)
        kinds = {one.columns: one.chosen for one in of_state if one.chosen is not None} | chosen
        keys: dict[tuple[str, ...], TrackedKey] = {}
        for key in table.constraints.keys if options.declared_keys else ():
            chosen_as = kinds.get(key.columns)
            keys.setdefault(key.columns, TrackedKey(key.columns, KeyKind.DECLARED, key.is_primary, chosen_as))
        for columns, kind in kinds.items():
            keys.setdefault(columns, TrackedKey(columns, kind))
        there = dict(table.columns).keys()
        keyed.append(replace(table, keys=tuple(key for key in keys.values() if set(key.columns) <= there)))
    return [
        replace(
            table,
            tuples=_places(
                table,
                [
                    *(key.columns for key in table.keys),
                    *_references(table, keyed, options),
                    *(one.columns for one in by_table.get((schema_of(table), table.name), ()) if one.has_contract),
                ],
            ),
        )
        for table in keyed
    ]


def _references(table: SourceTable, tables: Sequence[SourceTable], options: Options) -> list[tuple[str, ...]]:
    """Give the columns of a table's declared foreign keys, each in the order of a tracked key that it refers to."""
    found = []
    for reference in table.constraints.references if options.declared_keys else ():
        beside = dict(zip(reference.referenced, reference.columns, strict=True))
        for other in tables:
            if (other.schema, other.name) == (reference.schema, reference.table):
                keys = [key.columns for key in other.keys if set(key.columns) == beside.keys()]
                found += [tuple(beside[column] for column in key) for key in keys]
    return [columns for columns in found if set(columns) <= dict(table.columns).keys()]


def _places(table: SourceTable, found: Iterable[tuple[str, ...]]) -> tuple[tuple[int, ...], ...]:
    """Give the places of those columns of which tuples are to be followed, each tuple once."""
    names = [name for name, _ in table.columns]
    wanted = (columns for columns in dict.fromkeys(found) if len(columns) > 1 and set(columns) <= set(names))
    return tuple(tuple(names.index(column) for column in columns) for columns in wanted)


def _checked(table: str, columns: tuple[str, ...]) -> tuple[str, ...]:
    if not all(columns) or len(columns) > MOST_PARTS:
        raise SourceError(f"--track-key {table}: give it 1 to {MOST_PARTS} columns, as {table}=COLUMN,...")
    twice = next((column for column in columns if columns.count(column) > 1), None)
    if twice is not None:
        raise SourceError(f"--track-key {table}: the column {twice!r} is named twice.")
    return columns


def _require_columns(table: SourceTable, columns: Sequence[str]) -> None:
    names = [name for name, _ in table.columns]
    unknown = [column for column in columns if column not in names]
    if unknown:
        raise SourceError(f"--track-key {table}: the table has no column {unknown[0]!r}. It has: {', '.join(names)}.")
