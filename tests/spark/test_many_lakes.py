"""Whole refreshes of lakes: published INDs, the same bytes in every form of discovery."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import SparkSession

from benchmarks.corpus_refreshes import served_columns
from benchmarks.reference import Column, ind_hash
from tests.lakes import COMBINATIONS, LAKES, On, Reference, unpack
from tests.refreshing import Lake

"""Two executors of their own, a core and 1,024 MiB each."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lakes")
    for name in LAKES:
        unpack(name, folder)
    return folder


@pytest.fixture(scope="module")
def reference(folder: Path) -> Reference:
    return Reference.of(folder)


@cache
def web_tables(folder: Path) -> Reference:
    """Find the INDs of the web tables alone, once."""
    return Reference.of(folder)


def served(lake: Lake) -> np.ndarray:
    """Give the served INDs in their order: dependent, referenced, overlap."""
    with lake.corpora.snapshot(lake.name) as snapshot:
        return np.concatenate([np.stack(block) for block in snapshot.stream_pairs()], axis=1)


def as_places(lake: Lake, inds: np.ndarray, reference: Reference) -> np.ndarray:
    """Give INDs by the places of their columns in the reference, sorted, a row each."""
    place = {name: i for i, name in enumerate(reference.corpus.names)}
    with lake.corpora.snapshot(lake.name) as snapshot:
        columns = served_columns(snapshot)
    place_of = np.full(max(columns) + 1, -1)
    place_of[list(columns)] = [place[column] for column in columns.values()]
    dependent, referenced = place_of[inds[:2]]
    return np.stack([dependent, referenced, inds[2]], axis=1)[np.lexsort((referenced, dependent))]


def require_all(lake: Lake, reference: Reference) -> None:
    """Hold what is served against the INDs of the reference, each with its overlap."""
    expected = [(a, b, len(reference.corpus.values[a])) for a, b in reference.inds]
    assert np.array_equal(as_places(lake, served(lake), reference), expected)


def published_of(lakes: Iterable[str], inds: Iterable[tuple[Column, Column]]) -> None:
    """Hold INDs of several lakes, each a folder, against what is published of each."""
    of_lake: dict[str, list[tuple[Column, Column]]] = {name: [] for name in lakes}
    for (dependent, a), (referenced, b) in inds:
        name, _, path = dependent.partition("/")
        if referenced.startswith(f"{name}/"):
            of_lake[name].append(((path, a), (referenced.removeprefix(f"{name}/"), b)))
    assert {name: ind_hash(found) for name, found in of_lake.items()} == {name: LAKES[name][1:] for name in lakes}


def test_all_lakes_have_the_published_inds_in_one_process_and_over_partitions(
    spark: SparkSession, database_url: str, folder: Path, reference: Reference
) -> None:
    names = reference.corpus.names
    published_of(LAKES, ((names[a], names[b]) for a, b in reference.inds))
    for partitions in (None, 2):
        lake = Lake(database_url, folder, null_tokens=[""], partitions=partitions)
        lake.refresh(spark)
        assert lake.report["partitions"] == (partitions or 1)
        require_all(lake, reference)
        assert lake.report["files"] == {"read": 2_976, "unchanged": 0, "gone": 0, "faults": 0}
        assert lake.report["filters"] == {"dependent": {"no_values": 3}, "referenced": {"no_values": 3}}


def test_every_form_serves_the_same_bytes(spark: SparkSession, database_url: str, folder: Path) -> None:
    """On one lake: which values and columns come together does not depend on how many there are."""
    name = "lake_fivethirtyeight"
    forms: list[tuple[dict[str, Any], str, int]] = [
        ({}, "rarest-first", 1),
        ({"algorithm": "signatures"}, "signatures", 1),
        ({"partitions": 1}, "rarest-first", 1),
        ({"partitions": 2}, "rarest-first", 2),
        ({"partitions": 7}, "rarest-first", 7),
    ]
    found = []
    for chosen, algorithm, partitions in forms:
        lake = Lake(database_url, folder / name, null_tokens=[""], **chosen)
        lake.refresh(spark)
        assert (lake.report["algorithm"], lake.report["partitions"]) == (algorithm, partitions)
        found.append(served(lake))
    assert all(np.array_equal(found[0], other) for other in found[1:])
    assert ind_hash(lake.inds()) == LAKES[name][1:]


@pytest.mark.parametrize("on", COMBINATIONS[1:], ids=str)
def test_all_combinations_of_the_papers_filters(
    spark: SparkSession, database_url: str, folder: Path, reference: Reference, on: On
) -> None:
    """On the web tables; each filter alone, and all of them, on all lakes. Half of the combinations over partitions."""
    if sum(on) in (2, 3):
        folder = folder / "webtables_2k"
        reference = web_tables(folder)
    lake = Lake(database_url, folder, null_tokens=[""], partitions=None if sum(on) % 2 else 2, **on.settings())
    lake.refresh(spark)
    assert np.array_equal(as_places(lake, served(lake), reference)[:, :2], reference.filtered(on))
