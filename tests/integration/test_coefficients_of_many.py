"""Own the proof that many pairs at once are what each is alone, where numbers of values are themselves estimates."""

from __future__ import annotations

from itertools import permutations

import httpx
import pytest

from service.core.estimators import rows
from service.core.sketches.column import ColumnSketch
from service.store.database import make_engine
from service.store.reader import PostgresStateReader
from service.usecases.coefficient_table import Coefficients, Method, MethodName, Question
from service.usecases.sketched_columns import Choice, choose
from tests.coefficients import API, COLUMNS, FORM, NAMES, NUMBERS, hashes_of, items, pairs_of, put, sketch_of
from tests.integration.test_coefficients import own, own_url, stored

__all__ = ["own", "own_url", "stored"]


def put_without_size(client: httpx.Client) -> None:
    """Upload sketches of the columns as a lake has them, of cells: their number of values is itself an estimate."""
    for name, values in COLUMNS.items():
        sketch = ColumnSketch(*FORM, counts_values=False)
        sketch.update(hashes_of(values * 2))
        assert put(client, f"sketch:{name}", sketch.to_bytes()).status_code == 201


@pytest.mark.parametrize("threshold", [0.0, 0.3, 0.97])
def test_sketches_of_unknown_size_are_estimated_alike_one_by_one_and_together(
    own: httpx.Client, threshold: float
) -> None:
    put_without_size(own)
    together = pairs_of(items(own, with_uploaded=True, method="estimated", min_coefficient=threshold))
    names = [*NAMES, *(f"sketch:{name}" for name in COLUMNS)]
    wanted = {}
    for x, y in permutations(names, 2):
        (one,) = items(own, dependent=x, referenced=y, method="estimated")
        if one["coefficient"] and one["coefficient"] >= threshold:
            wanted[x, y] = one
    assert together.keys() == wanted.keys()
    numbers = ("coefficient", "low", "high")
    for pair, one in wanted.items():
        assert [together[pair][name] for name in numbers] == pytest.approx([one[name] for name in numbers])
    for count in (1, 9, 20, 50, 240):
        asked = {"with_uploaded": True, "method": "estimated", "min_coefficient": threshold, "top": count}
        largest = own.get(API, params=asked).json()["items"]
        best = sorted((one["coefficient"] for one in wanted.values()), reverse=True)[:count]
        assert [one["coefficient"] for one in largest] == pytest.approx(best), "so many as there are"
        for pair, one in pairs_of(largest).items():
            assert [one[name] for name in numbers] == pytest.approx([wanted[pair][name] for name in numbers])


@pytest.mark.parametrize("method", ["estimated", "bottom-k"])
@pytest.mark.parametrize("form", [FORM, (9, 256, 64)], ids=["as many registers", "fewer registers"])
def test_what_just_reaches_the_threshold_shows(own: httpx.Client, form: tuple[int, int, int], method: str) -> None:
    """0.55 times 100 is a little more than 55."""
    values = [f"w{number}" for number in range(145)]
    assert put(own, "sketch:hundred", sketch_of(values[:100]).to_bytes()).status_code == 201
    for name, some in (("contained", values[:55]), ("overlapping", values[45:])):
        assert put(own, f"sketch:{name}", sketch_of(some, form).to_bytes()).status_code == 201
    found = items(own, dependent="sketch:hundred", with_uploaded=True, method=method, min_coefficient=0.55)
    assert {one["referenced"]["name"]: one["coefficient"] for one in found} == {
        "sketch:contained": 0.55, "sketch:overlapping": 0.55,
    }  # fmt: skip


@pytest.mark.parametrize("method", [None, MethodName.ESTIMATED])
@pytest.mark.parametrize("threshold", [None, 0.3])
def test_all_dependents_at_once_say_what_each_says(
    own: httpx.Client, own_url: str, monkeypatch: pytest.MonkeyPatch, method: MethodName | None, threshold: float | None
) -> None:
    """Values and uploaded sketches of known and of unknown size, and one that has fewer registers."""
    put_without_size(own)
    assert put(own, "sketch:narrow", sketch_of(NUMBERS, (8, 16, 0)).to_bytes()).status_code == 201
    monkeypatch.setattr(rows, "BLOCK", 60)
    engine = make_engine(own_url, "test-coefficients")
    with PostgresStateReader(engine).snapshot() as snapshot:
        question = Question(Choice(uploads=None), Choice(uploads=None), Method(method), threshold)
        sides = choose(snapshot, question.dependents), choose(snapshot, question.referenced)
        table = Coefficients(snapshot, *sides, question)
        together = list(table.all())
        assert len(together) == 17 * 16 if threshold is None else 20 < len(together) < 200
        assert together == [each for one in table.dependents for each in table.of(one)[0]]
    engine.dispose()
