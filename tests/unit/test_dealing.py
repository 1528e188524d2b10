"""How tests are run: in an order for several processes, which loses none, and not looked through for garbage."""

from __future__ import annotations

import gc
from itertools import groupby, pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.dealing import SECONDS, dealt

FOLDERS = st.sampled_from([*SECONDS, "unit"])


@given(files=st.lists(st.tuples(FOLDERS, st.integers(1, 9)), max_size=40), processes=st.integers(2, 5))
def test_each_process_begins_with_long_tests_and_ends_with_short_ones(files: list[Any], processes: int) -> None:
    items: list[Any] = [
        SimpleNamespace(
            path=Path("tests", folder, f"test_{number}.py"), place=place, fixturenames=["running_broker"] * (number % 3)
        )
        for number, (folder, count) in enumerate(files)
        for place in range(count)
    ]
    order: list[Any] = dealt(items, processes)
    assert sorted(map(id, order)) == sorted(map(id, items)), "each test is run, and once"
    long = [item for item in order if item.path.parent.name in SECONDS]
    wholes = [list(tests) for _, tests in groupby(long, lambda item: item.path)]
    assert len(wholes) == len({item.path for item in long}), "what a file's tests share is made once"
    assert all([item.place for item in whole] == list(range(len(whole))) for whole in wholes)
    is_long = [item.path.parent.name in SECONDS for item in order]
    assert sum(before > after for before, after in pairwise(is_long)) <= processes


def test_what_the_tests_are_made_of_is_not_looked_through_for_garbage(request: pytest.FixtureRequest) -> None:
    kept = {id(one) for one in gc.get_objects()}
    assert gc.isenabled()
    assert id(request.session.items) not in kept
