"""Own copies of tables: in several schemas (tenants, staging) by one name and with the same columns."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping

from service.core.foreign_keys.candidates import Candidate
from service.core.foreign_keys.profiles import ColumnProfile


def by_copies(
    candidates: Collection[Candidate], columns: Mapping[int, ColumnProfile]
) -> dict[Candidate, Candidate | None]:
    """Give the candidates that are there because a table has a copy, and which are meant in their place.

    Who refers to a table's copy means that of its own schema, where it is a candidate, too: nothing else tells one copy
    from the other. None is meant where a column's reference is its own copy.
    """
    places: dict[tuple[str, str], dict[str, int]] = defaultdict(dict)
    for column, of in columns.items():
        places[of.schema, of.table][of.name] = column
    found: dict[Candidate, Candidate | None] = {}
    for candidate in candidates:
        own, key = columns[candidate.dependent[0]], columns[candidate.referenced[0]]
        if own.schema == key.schema or (own.schema, key.table) not in places:
            continue
        copy = places[own.schema, key.table]
        if copy.keys() != places[key.schema, key.table].keys():
            continue
        meant = Candidate(candidate.dependent, tuple(copy[columns[column].name] for column in candidate.referenced))
        if meant.referenced == candidate.dependent:
            found[candidate] = None
        elif meant in candidates:
            found[candidate] = meant
    return found
