"""Own what is said of causes: which change of a batch made or broke an inclusion dependency, or turned a contract."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from service.core.canonical import stored_value
from service.core.contracts import ContractTransition
from service.core.model import Cause, Row, RowChange, Table, Transition
from service.core.shown_values import CELL_CHARACTERS, MOST_CELLS, ShownValues
from service.usecases.live_state import StateDelta

Cells = tuple[str | None, ...]


def causes_of(delta: StateDelta, changes: Sequence[RowChange]) -> tuple[list[Cause], dict[int, Cause]]:
    """Find the last change of a batch, of one or more, that brought or took the witness of each transition.

    Gives the causes of the delta's transitions, in their order, and those of contracts by contract_id. Where no row had
    the witness (a truncate) it is the batch's last change.
    """
    turned = _turned(delta)
    if not turned:
        return [], {}
    found = _last_changes(changes, wanted_by(delta))
    last = len(changes) - 1, None
    causes = []
    for of_sides, witness in turned:
        places = [found[side, witness] for side in of_sides if witness is not None and (side, witness) in found]
        place, row = max(places, key=lambda one: one[0], default=last)
        told = None if row is None else _told(changes[place].table, row, delta.shown)
        causes.append(Cause(changes[place].position, told))
    contracts = zip((one.contract_id for one in delta.contracts), causes[len(delta.transitions) :], strict=True)
    return causes[: len(delta.transitions)], dict(contracts)


def wanted_by(delta: StateDelta) -> dict[int, set[str]]:
    """Give the values, by attribute, whose last changes are the causes of a delta's transitions."""
    wanted: dict[int, set[str]] = {}
    for of_sides, witness in _turned(delta):
        if witness is not None:
            for side in of_sides:
                wanted.setdefault(side, set()).add(witness)
    return wanted


def those_that_moved(changes: Sequence[RowChange], wanted: Mapping[int, set[str]]) -> list[RowChange]:
    """Give of changes those, in their order, that brought or took a wanted value last: no other can be a cause."""
    return [changes[place] for place in sorted({place for place, _ in _last_changes(changes, wanted).values()})]


def _turned(delta: StateDelta) -> list[tuple[tuple[int, int], str | None]]:
    """Give of each transition, then of each contract's, its two attributes and its witness."""
    turned: list[Transition | ContractTransition] = [*delta.transitions, *delta.contracts]
    return [
        ((one.dependent_id, one.referenced_id), None if one.witness is None else delta.witnesses[one.witness])
        for one in turned
    ]


def _last_changes(
    changes: Sequence[RowChange], wanted: Mapping[int, set[str]]
) -> dict[tuple[int, str], tuple[int, Row]]:
    """Find, by attribute and value, the place of the last change that brought or took it, and the row that has it."""
    found: dict[tuple[int, str], tuple[int, Row]] = {}
    looked_at: dict[Table, list[tuple[int, Sequence[int], Mapping[Cells, str]]]] = {}
    for place, change in enumerate(changes):
        if change.before is None and change.after is None:
            continue  # a truncate names no row, and its witness comes from the store, which may have cut or hidden it
        if change.table not in looked_at:
            looked_at[change.table] = list(_wanted_of(change.table, wanted))
        for attribute, columns, values in looked_at[change.table]:
            before, after = (_cells(row, columns) for row in (change.before, change.after))
            if before == after:
                continue
            for row, cells in ((change.before, before), (change.after, after)):
                if row is not None and cells is not None and cells in values:
                    found[attribute, values[cells]] = place, row
    return found


def _wanted_of(
    table: Table, wanted: Mapping[int, set[str]]
) -> Iterator[tuple[int, Sequence[int], Mapping[Cells, str]]]:
    """Give the attributes of a table that are looked at: id, columns, and values by their cells."""
    for column, attribute in enumerate(table.attributes):
        if attribute.attribute_id in wanted:
            yield attribute.attribute_id, (column,), {(text,): text for text in wanted[attribute.attribute_id]}
    for derived in table.derived:
        attribute_id = derived.attribute.attribute_id
        if attribute_id in wanted:
            yield attribute_id, derived.places, {tuple(json.loads(text)): text for text in wanted[attribute_id]}


def _cells(row: Row | None, columns: Sequence[int]) -> Cells | None:
    return None if row is None else tuple(row[column] for column in columns)


def _told(table: Table, row: Row, shown: ShownValues) -> dict[str, object]:
    # Of a column that is hidden nothing is told, not even that it is NULL.
    columns = [place for place, one in enumerate(table.attributes) if shown.characters[one.attribute_id]]
    cells = {} if table.key else _texts(table, row, columns[:MOST_CELLS], shown)
    return {
        "table": str(table),
        "key": _texts(table, row, table.key, shown),
        "cells": {name: text and text[:CELL_CHARACTERS] for name, text in cells.items()},
    }


def _texts(table: Table, row: Row, columns: Sequence[int], shown: ShownValues) -> dict[str, str | None]:
    texts = {}
    for column in columns:
        attribute, text = table.attributes[column], row[column]
        text = None if text is None else shown.text(attribute.attribute_id, text)
        texts[attribute.name.column] = None if text is None else stored_value(text)
    return texts
