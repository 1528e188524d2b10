"""An update of the index of joinable tables that dies at any step leaves what is served."""

from __future__ import annotations

from random import Random
from typing import Any
from unittest import mock

import pytest

from service.core.errors import StateError
from service.store import join_merge
from service.store.join_loads import NewIndex, SegmentLoad
from spark_jobs import join_build
from tests import states
from tests.integration.test_join_updates import answers_as_in_memory, dying, lake, write
from tests.joinable import ask, index, no_spark, told
from tests.refreshing import Lake, Tables

__all__ = ["lake"]

STEPS: dict[str, tuple[type | Any, str]] = {
    "reading": (join_build, "make_plan"),
    "a segment is made": (SegmentLoad, "copy_buckets"),
    "buckets are written": (SegmentLoad, "copy_rows"),
    "a segment is written": (join_build, "_report"),
    "merging": (join_merge, "code_range"),
    "merged buckets": (join_merge._Merge, "blocks"),
    "merged": (NewIndex, "land"),
    "landing": (join_build.NewIndex, "land"),
}


@pytest.mark.parametrize("step", STEPS)
def test_what_dies_at_any_step_leaves_what_is_served_and_a_second_try_succeeds(lake: Lake, step: str) -> None:
    tables: Tables = {f"t{n}.csv": [["a", str(n)], ["b", "c"]] for n in range(4)}
    write(lake, tables)
    lake.refresh(no_spark)
    index(lake)
    before = told(ask(lake.url, lake.name, [("a", "b")], 9))
    tables = {"t3.csv": tables["t3.csv"], "t4.csv": [["new", "a"], ["b", "b"]]}
    write(lake, tables)
    lake.refresh(no_spark)
    owner, name = STEPS[step]
    real = getattr(owner, name)
    with mock.patch.object(owner, name, dying(real, after=step == "landing")), pytest.raises(StateError, match="died"):
        index(lake)
    assert told(ask(lake.url, lake.name, [("a", "b")], 9)) == before
    assert index(lake).items() >= {"segments": 1, "tables": 2, "merged": True}.items()
    answers_as_in_memory(lake, tables, Random(1))
    for table in ("join_bucket", "join_rows", "join_table"):
        orphans = f"select count(*) from {table} where segment_id <> all (select unnest(segment_ids) from join_index)"
        assert states.query(lake.url, orphans) == [(0,)]
    assert states.query(lake.url, "select count(*) from join_segment, join_task") == [(0,)]
