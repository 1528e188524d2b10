"""Own the proof that sketches of a fixed size are served: uploaded, listed, and in pairs beside those of a state."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations, product
from typing import Any

import httpx
import pytest

from service.core.errors import SketchError
from service.core.sketches.prefixes import HashPrefixes
from service.store import sketch_reading
from service.store.database import make_engine
from service.store.reader import PostgresStateReader
from service.usecases import sketched_columns
from tests import states
from tests.coefficients import API, COLUMNS, FORM, METHODS, NAMES, exact, hashes_of, items, pairs_of, put, serve
from tests.integration.test_coefficients import own_url, stored

__all__ = ["own_url", "stored"]

M, BUDGET = 10, 1500
UPLOADS = {f"sketch:{name}": f"s.{name}.v" for name in COLUMNS}
"""Each column a second time, held elsewhere in 1,500 bytes: up to 187 values are whole, the largest have 12 bits."""
NUMBERS = ("coefficient", "low", "high")


def fixed(name: str) -> HashPrefixes:
    sketch = HashPrefixes(M, BUDGET)
    sketch.update(hashes_of(NAMES[name]))
    return sketch


@pytest.fixture
def client(own_url: str) -> Iterator[httpx.Client]:
    """Serve the state with every column uploaded beside it."""
    for served in serve(own_url):
        for name, column in UPLOADS.items():
            assert put(served, name, fixed(column).to_bytes()).status_code == 201
        yield served


def one_by_one(client: httpx.Client, **asked: Any) -> dict[tuple[str, str], dict[str, Any]]:
    """Ask for each pair of which one side at least is an upload."""
    names = [*NAMES, *UPLOADS]
    pairs = [(x, y) for x, y in permutations(names, 2) if x in UPLOADS or y in UPLOADS]
    return {(x, y): items(client, dependent=x, referenced=y, **asked)[0] for x, y in pairs}


def test_pairs_of_either_kind_are_what_sets_say(client: httpx.Client) -> None:
    missed, errors = [], []
    for (x, y), one in one_by_one(client, level=0.999).items():
        truth = exact(UPLOADS.get(x, x), UPLOADS.get(y, y))
        assert (one["method"], one["exact"]) == ("estimated", None)
        if truth is None:
            assert (one["coefficient"], "has no values" in one["reason"]) == (None, True)
            continue
        errors.append(abs(one["coefficient"] - truth))
        if not one["low"] - 1e-9 <= truth <= one["high"] + 1e-9:
            missed.append((x, y, truth, one))
    assert missed == []
    assert sum(errors) / len(errors) < 0.04


def test_small_columns_are_exact_whichever_sketch_they_have(client: httpx.Client) -> None:
    for x, y in product(("sketch:few", "s.few.v"), ("sketch:some", "s.some.v")):
        (one,) = items(client, dependent=x, referenced=y, method="estimated")
        assert [one[name] for name in NUMBERS] == [20 / 40] * 3
        (other,) = items(client, dependent=x, referenced=y, method="bottom-k")
        assert other["coefficient"] == 20 / 40


@pytest.mark.parametrize("threshold", [0.0, 0.3])
def test_many_pairs_at_once_are_estimated_as_one_is(client: httpx.Client, threshold: float) -> None:
    alone = {
        pair: one for pair, one in one_by_one(client).items() if one["coefficient"] and one["coefficient"] >= threshold
    }
    together = pairs_of(items(client, with_uploaded=True, min_coefficient=threshold))
    together = {pair: one for pair, one in together.items() if one["method"] == "estimated"}
    assert together.keys() == alone.keys()
    for pair, one in alone.items():
        assert [together[pair][name] for name in NUMBERS] == pytest.approx([one[name] for name in NUMBERS])


def test_what_is_uploaded_says_what_it_is(client: httpx.Client) -> None:
    listed = {one["column"]["name"]: one for one in client.get("/api/v1/sketches").json()["items"]}
    for name, column in UPLOADS.items():
        made, one = fixed(column), listed[name]
        assert (one["bucket_bits"], one["most_bytes"], one["prefix_bits"]) == (M, BUDGET, made.bits)
        assert (one["k"], one["spares_left"], one["needs_rescan"], one["fault"]) == (None, None, None, None)
        assert one["low"] <= len(NAMES[column]) <= one["high"]
        assert one["is_complete"] == (len(NAMES[column]) < 100)
        assert client.get(f"/api/v1/sketches/{name}").content == made.to_bytes()
        assert len(made.to_bytes()) <= BUDGET + 52
    kept = listed["s.all.v"]
    assert (kept["k"], kept["prefix_bits"], kept["most_bytes"], kept["needs_rescan"]) == (256, None, None, False)


def test_a_fixed_size_is_made_of_stored_values_or_of_what_a_sketch_tells(
    client: httpx.Client, own_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sketch_reading, "PORTION_RECORDS", 100)
    engine = make_engine(own_url, "test-fixed-size")

    def made() -> dict[str, HashPrefixes]:
        with PostgresStateReader(engine).snapshot(with_values=True) as snapshot:
            with pytest.raises(SketchError, match="sketch:all has a fixed size already, of 1,500 bytes"):
                sketched_columns.fixed_size(snapshot, sketched_columns.resolve(snapshot, "sketch:all"), BUDGET)
            return {
                name: sketched_columns.fixed_size(snapshot, sketched_columns.resolve(snapshot, name), BUDGET)
                for name in NAMES
            }

    stored = made()
    assert {name: one.to_bytes() for name, one in stored.items()} == {name: fixed(name).to_bytes() for name in NAMES}
    states.execute(own_url, "update source set sketch_only = true; update attribute set distinct_count = null")
    for name, one in made().items():
        assert one.is_complete == (len(NAMES[name]) < 100)
        least = min(one.bits, FORM[0])
        assert one.registers(least).tolist() == stored[name].registers(least).tolist()
    engine.dispose()


def test_a_method_that_needs_smallest_hashes_has_no_answer_and_says_so(client: httpx.Client) -> None:
    asked = {"dependent": "s.most.v", "referenced": "sketch:all"}
    refused = client.get(API, params={**asked, "method": "bottom-k"})
    assert (refused.status_code, refused.json()["type"]) == (422, "/docs#refused-sketch")
    assert "choose another method" in refused.json()["detail"]
    body = client.get(API, params={"with_uploaded": True, "method": "bottom-k"}).json()
    large = {name for name, column in UPLOADS.items() if len(NAMES[column]) > 100}
    assert body["left_out"] == len(large)
    compared = client.get(f"{API}/s.most.v/sketch:all").json()
    assert [one["method"] for one in compared["coefficients"]] == [name for name in METHODS if name != "bottom-k"]


def test_a_sketch_of_too_few_buckets_is_refused(client: httpx.Client) -> None:
    tiny = HashPrefixes(3, 100)
    tiny.update(hashes_of(NAMES["s.most.v"]))
    refused = put(client, "sketch:tiny", tiny.to_bytes())
    assert (refused.status_code, "m = 3: 2^3 buckets are too few" in refused.json()["detail"]) == (422, True)
