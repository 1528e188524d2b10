"""Own what is said of contracts: where in the feed the change is that violated or mended one."""

from __future__ import annotations

import json
from collections.abc import Sequence

from service.core.contracts import ContractTransition
from service.core.model import FeedPosition, Row, RowChange
from service.usecases.live_state import StateDelta


def positions_of(delta: StateDelta, changes: Sequence[RowChange]) -> dict[int, FeedPosition]:
    """Find, by contract_id, the last change of a batch that brought or took the witness of a contract's transition."""
    return {one.contract_id: _position(one, delta.witnesses[one.witness], changes) for one in delta.contracts}


def _position(one: ContractTransition, witness: str, changes: Sequence[RowChange]) -> FeedPosition:
    sides = one.dependent_id, one.referenced_id
    for change in reversed(changes):
        if change.before is None and change.after is None:
            break  # a truncate names no row, and its witness comes from the store, which may have cut or hidden it
        table = change.table
        for place, attribute in enumerate(table.attributes):
            if attribute.attribute_id in sides and _differs(change, [place], [witness]):
                return change.position
        for derived in table.derived:
            if derived.attribute.attribute_id in sides and _differs(change, derived.places, json.loads(witness)):
                return change.position
    return changes[-1].position


def _differs(change: RowChange, places: Sequence[int], cells: Sequence[str]) -> bool:
    """Tell whether a row had these cells before the change and not behind it, or the other way round."""

    def has(row: Row | None) -> bool:
        return row is not None and [row[place] for place in places] == list(cells)

    return has(change.before) != has(change.after)
