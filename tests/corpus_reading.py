"""What the tests of reading share: refreshes of a folder without Spark, and what a manifest holds, by names."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from service.core.canonical import value_key
from service.core.column_filters import Filters, exclude
from service.core.corpus import CorpusKind, CorpusSettings
from service.usecases.corpora import TableVersions
from spark_jobs.corpus_index import CorpusIndex, Manifest
from spark_jobs.corpus_sources import ReadingPlan, ReadResult, ReadTask, list_corpus, plan_reading, reading_settings
from spark_jobs.corpus_state import CorpusState, corpus_state

Columns = dict[tuple[str, int], frozenset[bytes]]
"""Value keys by (path of the table, position)."""

A_WHILE_AGO = 1_700_000_000_123_456_789
"""A time of change that no clock of a file system takes for now."""


@dataclass
class Reading:
    """Read one corpus again and again; the last `state` is what the service would keep in Postgres."""

    location: Path | str
    kind: CorpusKind
    index: CorpusIndex
    settings: CorpusSettings = field(default_factory=CorpusSettings)
    cores: int = 2
    task_bytes: int = 32 << 20
    generation: int = 0
    next_table: int = 0
    next_column: int = 0
    state: CorpusState | None = None
    plan: ReadingPlan | None = None
    results: list[ReadResult] = field(default_factory=list)

    def refresh(self, full: bool = False) -> CorpusState:
        previous = None
        if self.generation and not full:
            previous = self.index.load(self.generation, reading_settings(self.settings))
        listing = list_corpus(str(self.location), self.kind, self.settings)
        try:
            self.plan = plan_reading(self.kind, listing, previous, self.cores, self.task_bytes)
            task = ReadTask(
                str(self.location), self.kind, self.settings, self.index,
                previous.generation if previous else None,
                listing.database.reader() if listing.database else None,
            )  # fmt: skip
            self.results = [task(pieces) for pieces in self.plan.tasks]
            listing.confirm()
        finally:
            listing.close()
        self.generation += 1
        served = [] if self.state is None else [all_versions(self.state)]
        state = self.state = corpus_state(
            self.plan, self.results, self.settings, self.generation, served, self.next_table, self.next_column
        )
        tables = state.manifest.tables
        self.next_table = max([self.next_table, *(number + 1 for number in tables["table_number"].to_pylist())])
        self.next_column = max([self.next_column, *(state.column_ids + 1).tolist()])
        self.index.save(state.manifest)
        self.index.keep_only(state.manifest)
        return state


def all_versions(state: CorpusState) -> TableVersions:
    """Give all tables of a state, as the store gives those that are served."""
    every = replace(state, is_new=np.ones(len(state.manifest.tables), np.bool_))
    return every.new_versions(exclude(state.facts, Filters()))


def column_names(manifest: Manifest) -> dict[int, tuple[str, int]]:
    """Give (path, position) of each column id; no id may come twice."""
    named = [
        (first + position, (path, position))
        for path, first, names in zip(
            *(manifest.tables[name].to_pylist() for name in ("path", "first_column", "names")), strict=True
        )
        for position in range(len(names))
    ]
    assert len({each for each, _ in named}) == len(named)
    return dict(named)


def held(index: CorpusIndex, manifest: Manifest) -> Columns:
    """Give all columns with their keys, out of the parts."""
    names = column_names(manifest)
    found: dict[tuple[str, int], list[bytes]] = {name: [] for name in names.values()}
    ids, starts, keys = index.columns(manifest.part_columns())
    assert len(set(ids.tolist())) == len(ids)
    for place, column in enumerate(ids.tolist()):
        found[names[column]] = [keys.key(cell) for cell in range(starts[place], starts[place + 1])]
    assert all(len(set(each)) == len(each) for each in found.values())
    return {name: frozenset(each) for name, each in found.items()}


def keys_of(columns: Mapping[tuple[str, int], set[str]]) -> Columns:
    """Give the keys that columns of these texts have."""
    return {name: frozenset(map(value_key, texts)) for name, texts in columns.items()}


def put(path: Path, data: bytes, change: int = 0) -> None:
    """Write a file as one that was changed a while ago; of two contents of equal length the later `change` is newer."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    os.utime(path, ns=(A_WHILE_AGO + change, A_WHILE_AGO + change))


def changed_columns(state: CorpusState) -> set[tuple[str, int]]:
    """Name the columns that a state marks as changed."""
    names = column_names(state.manifest)
    return {names[column] for column in state.column_ids[np.flatnonzero(state.changed)].tolist()}


def fault_of(state: CorpusState) -> dict[str, str]:
    """Give the message of each fault by its path."""
    return {fault.path: fault.message for fault in state.faults}
