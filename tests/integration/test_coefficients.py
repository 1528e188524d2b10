"""Own the proof that coefficients are what sets say, exact or within their intervals, and that sketches come and go."""

from __future__ import annotations

import csv
import io
import struct
import zlib
from collections.abc import Iterator
from itertools import permutations
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pytest

from service.core.sketches.column import ColumnSketch
from service.core.sketches.hll import Hll
from service.store.embedded import EmbeddedPostgres
from service.usecases import coefficients
from tests import states
from tests.coefficients import (
    API,
    BYTES,
    COLUMNS,
    FORM,
    METHODS,
    NAMES,
    NUMBERS,
    exact,
    hashes_of,
    items,
    pairs_of,
    put,
    serve,
    sketch_of,
    store,
)
from tests.postgres import TEMPLATE, fresh_database, name_of


@pytest.fixture(scope="module")
def stored(postgres_server: EmbeddedPostgres) -> Iterator[str]:
    """Give the name of a database with the state, to which nobody is connected, so that it can be copied."""
    with fresh_database(postgres_server, TEMPLATE) as url:
        store(url)
        yield name_of(url)


@pytest.fixture(scope="module")
def shared_url(postgres_server: EmbeddedPostgres, stored: str) -> Iterator[str]:
    with fresh_database(postgres_server, stored) as url:
        yield url


@pytest.fixture(scope="module")
def client(shared_url: str) -> Iterator[httpx.Client]:
    """Serve a state to tests that only read."""
    yield from serve(shared_url)


@pytest.fixture
def own_url(postgres_server: EmbeddedPostgres, stored: str) -> Iterator[str]:
    with fresh_database(postgres_server, stored) as url:
        yield url


@pytest.fixture
def own(own_url: str) -> Iterator[httpx.Client]:
    """Serve a state of the test's own."""
    yield from serve(own_url)


# --- One pair ------------------------------------------------------------------------------------------------


def test_a_pair_is_exact_if_nothing_else_is_asked(client: httpx.Client) -> None:
    for x, y in permutations(NAMES, 2):
        (one,) = items(client, dependent=x, referenced=y)
        assert one["method"] == "exact"
        assert one["coefficient"] == one["low"] == one["high"] == one["exact"] == exact(x, y)
        assert (one["overlap"], one["distinct_count"]) == (len(NAMES[x] & NAMES[y]), len(NAMES[x]))
        assert (one["reason"] is None) == bool(NAMES[x])


@pytest.mark.parametrize("method", METHODS)
def test_every_method_answers_every_pair_with_the_exact_coefficient_beside_it(
    client: httpx.Client, method: str
) -> None:
    errors = []
    for x, y in permutations(NAMES, 2):
        (one,) = items(client, dependent=x, referenced=y, method=method, level=0.999)
        assert (one["method"], one["exact"]) == (method, exact(x, y))
        if not NAMES[x]:
            assert (one["coefficient"], one["low"], one["high"]) == (None, None, None)
            assert "has no values" in one["reason"]
        else:
            assert 0 <= one["low"] <= one["coefficient"] <= one["high"] <= 1
            errors.append(abs(one["coefficient"] - one["exact"]))
            if method in ("joint-mle", "estimated", "bottom-k"):
                assert one["low"] - 1e-9 <= one["exact"] <= one["high"] + 1e-9, (x, y)
    assert np.mean(errors) < (0.12 if method == "bml" else 0.08)


def test_two_small_columns_are_exact_though_they_are_estimated(client: httpx.Client) -> None:
    (one,) = items(client, dependent="s.some.v", referenced="s.few.v", method="estimated")
    assert one["low"] == one["coefficient"] == one["high"] == one["exact"] == 20 / 41


def test_a_pair_is_compared_by_every_method(client: httpx.Client) -> None:
    body = client.get(f"{API}/s.half.v/s.most.v", params={"level": 0.5}).json()
    assert [one["method"] for one in body["coefficients"]] == ["exact", *METHODS]
    assert {one["exact"] for one in body["coefficients"]} == {exact("s.half.v", "s.most.v")}
    left = body["dependent"]
    assert (left["column"]["name"], left["distinct_count"], left["is_complete"]) == ("s.half.v", 3000, False)
    wide = client.get(f"{API}/s.half.v/s.most.v", params={"level": 0.99}).json()
    for narrower, wider in zip(body["coefficients"][1:], wide["coefficients"][1:], strict=True):
        assert wider["low"] <= narrower["low"] <= narrower["high"] <= wider["high"]


# --- Many pairs ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, 3, 100])
@pytest.mark.parametrize("threshold", [0.0, 0.4, 1.0])
def test_pages_hold_every_pair_that_reaches_the_threshold_the_largest_first(
    client: httpx.Client, limit: int, threshold: float
) -> None:
    found = items(client, min_coefficient=threshold, limit=limit)
    wanted = {pair for pair in permutations(NAMES, 2) if (exact(*pair) or 0) >= max(threshold, 1e-12)}
    assert pairs_of(found).keys() == wanted
    by_dependent = [(one["dependent"]["name"], -one["coefficient"]) for one in found]
    assert by_dependent == sorted(by_dependent)


def test_pages_of_estimates_go_on_behind_their_bound(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = items(client, method="estimated", min_coefficient=0.2)
    assert {one["exact"] is None for one in whole} == {False}
    monkeypatch.setattr(coefficients, "MAX_WORK_A_PAGE", 0)
    assert items(client, method="estimated", min_coefficient=0.2, limit=2) == whole


def test_many_pairs_at_once_are_estimated_as_one_is(client: httpx.Client) -> None:
    found = items(client, method="estimated", min_coefficient=0, level=0.8)
    assert len(found) > 10
    for many in found:
        pair = {side: many[side]["name"] for side in ("dependent", "referenced")}
        (one,) = items(client, **pair, method="estimated", level=0.8)
        numbers = ("coefficient", "low", "high")
        assert [many[name] for name in numbers] == pytest.approx([one[name] for name in numbers])
        assert {name: many[name] for name in many if name not in numbers} == {
            name: one[name] for name in one if name not in numbers
        }


def test_one_column_against_all_from_either_side(client: httpx.Client) -> None:
    large = [name for name, values in NAMES.items() if len(values) > 1000]
    for asked, place in (({"dependent": "s.half.v"}, 0), ({"referenced": "s.half.v"}, 1)):
        overlapping = {pair for pair in permutations(NAMES, 2) if pair[place] == "s.half.v" and exact(*pair)}
        assert pairs_of(items(client, **asked, min_coefficient=0)).keys() == overlapping
        estimated = pairs_of(items(client, **asked, min_coefficient=0, method="estimated"))
        assert {pair[place] for pair in estimated} == {"s.half.v"}
        assert {pair for pair in overlapping if set(pair) <= set(large)} <= estimated.keys()
    assert {one["referenced"]["name"] for one in items(client, referenced_table="all", min_coefficient=1)} == {
        "s.all.v"
    }
    assert items(client, dependent_schema="t") == []


def test_columns_with_few_values_are_left_out_on_either_side(client: httpx.Client) -> None:
    for method in ("exact", "estimated"):
        shown = pairs_of(items(client, min_distinct=42, min_coefficient=0, method=method))
        large = {name for name, values in NAMES.items() if len(values) >= 42}
        assert {name for pair in shown for name in pair} <= large
        assert {pair for pair in permutations(large, 2) if (exact(*pair) or 0) > 0.3} <= shown.keys()


def test_the_largest_of_all(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    body = client.get(API, params={"top": 7, "min_coefficient": 0}).json()
    largest = sorted((exact(*pair) or 0 for pair in permutations(NAMES, 2)), reverse=True)[:7]
    assert [one["coefficient"] for one in body["items"]] == largest
    assert body["next_cursor"] is None
    monkeypatch.setattr(coefficients, "MAX_PAIRS", 63)
    refused = client.get(API, params={"top": 7})
    assert (refused.status_code, refused.json()["type"]) == (422, "/docs#too-many-columns")
    assert client.get(API, params={"top": 7, "dependent": "s.few.v"}).status_code == 200
    monkeypatch.setattr(coefficients, "MAX_SKETCHES", 3)
    assert items(client) == items(client, method="exact"), "nothing is estimated where values are"
    refused = client.get(API, params={"method": "estimated"})
    assert (refused.status_code, refused.json()["type"]) == (422, "/docs#too-many-columns")


def test_a_matrix_as_csv_and_as_arrow(client: httpx.Client) -> None:
    text = client.get(f"{API}/matrix")
    assert (text.headers["content-type"], text.headers["etag"]) == ("text/csv; charset=utf-8", '"1-csv"')
    header, *rows = csv.reader(io.StringIO(text.text))
    assert header == ["dependent", *sorted(NAMES)]
    for name, *cells in rows:
        wanted = [1.0 if other == name and NAMES[name] else exact(name, other) for other in sorted(NAMES)]
        assert [float(cell) if cell else None for cell in cells] == wanted
    arrow = client.get(f"{API}/matrix", headers={"Accept": "application/vnd.apache.arrow.stream"})
    table = pa.ipc.open_stream(arrow.content).read_all()
    assert table.schema.metadata == {
        b"version": b"1",
        b"method": b"default",
        b"level": b"0.95",
        b"plane": b"coefficient",
        b"estimated_sizes": b"exact",
    }
    assert [list(row.values()) for row in table.to_pylist()] == [
        [name, *(float(cell) if cell else None for cell in cells)] for name, *cells in rows
    ]
    part = client.get(f"{API}/matrix", params={"dependent": "s.half.v", "referenced_table": "most", "method": "bml"})
    (one,) = items(client, dependent="s.half.v", referenced="s.most.v", method="bml")
    assert part.text.splitlines() == ["dependent,s.most.v", f"s.half.v,{one['coefficient']}"]


@pytest.mark.parametrize("plane", ["low", "high"])
def test_a_matrix_of_an_end_of_the_intervals(own: httpx.Client, plane: str) -> None:
    """Also of columns whose number of values is an estimate, as that of a lake's."""
    occurrences = ColumnSketch(*FORM, counts_values=False)
    occurrences.update(hashes_of(COLUMNS["most"] * 2))
    assert put(own, "sketch:lake", occurrences.to_bytes()).status_code == 201
    asked = {"method": "estimated", "level": 0.8, "with_uploaded": True}
    arrow = own.get(
        f"{API}/matrix", params={**asked, "plane": plane}, headers={"Accept": "application/vnd.apache.arrow.stream"}
    )
    table = pa.ipc.open_stream(arrow.content).read_all()
    assert table.schema.metadata[b"plane"] == plane.encode()
    assert table.schema.metadata[b"estimated_sizes"] == b"estimated"
    cells = {row["dependent"]: row for row in table.to_pylist()}
    for x, y in permutations([*NAMES, "sketch:lake"], 2):
        (one,) = items(own, dependent=x, referenced=y, method="estimated", level=0.8)
        assert cells[x][y] == pytest.approx(one[plane]), (x, y)
    assert cells["s.all.v"]["s.all.v"] == 1.0


@pytest.mark.parametrize(
    ("accept", "given"),
    [
        ("text/csv;q=0.1, application/vnd.apache.arrow.stream", "application/vnd.apache.arrow.stream"),
        ("text/*", "text/csv"),
        ("application/*;q=0.5, */*;q=0.4", "application/vnd.apache.arrow.stream"),
        ("application/json", None),
        ("text/csv;q=0, application/json", None),
    ],
)
def test_a_matrix_is_negotiated(client: httpx.Client, accept: str, given: str | None) -> None:
    answer = client.get(f"{API}/matrix", headers={"Accept": accept})
    assert answer.headers["content-type"].partition(";")[0] == (given or "application/problem+json")
    assert answer.status_code == (406 if given is None else 200)


def test_who_has_a_matrix_in_one_form_is_given_the_other(client: httpx.Client) -> None:
    forms = ["text/csv", "application/vnd.apache.arrow.stream"]
    tags = [client.get(f"{API}/matrix", headers={"Accept": form}).headers["ETag"] for form in forms]
    for form, tag, other in zip(forms, tags, reversed(tags), strict=True):
        known = client.get(f"{API}/matrix", headers={"Accept": form, "If-None-Match": tag})
        assert (known.status_code, known.headers["ETag"], known.headers["Vary"]) == (304, tag, "Accept")
        given = client.get(f"{API}/matrix", headers={"Accept": form, "If-None-Match": other})
        assert (given.status_code, given.headers["content-type"].partition(";")[0]) == (200, form)


# --- Sketch-only sources -------------------------------------------------------------------------------------


def test_what_is_not_stored_is_estimated_and_says_so(own: httpx.Client, own_url: str) -> None:
    states.execute(
        own_url,
        "update source set sketch_only = true; delete from gen_rec; delete from cluster; delete from uind;"
        "update attribute set distinct_count = null, repeated_count = null",
    )
    states.execute(
        own_url,
        "insert into source (name, kind, location, bootstrapped_version) values ('t', 'csv', '-', 1);"
        "update attribute set distinct_count = 9000, source_id = (select max(source_id) from source)"
        " where table_name = 'all'",
    )
    for x, y in permutations(NAMES, 2):
        (one,) = items(own, dependent=x, referenced=y)
        assert (one["method"], one["exact"], one["overlap"]) == ("estimated", None, None)
        refused = own.get(API, params={"dependent": x, "referenced": y, "method": "exact"})
        assert (refused.status_code, refused.json()["type"]) == (409, "/docs#values-not-stored")
    refused = own.get("/api/v1/uinds/s.few.v/s.all.v")
    assert (refused.status_code, refused.json()["type"]) == (409, "/docs#values-not-stored")
    body = own.get(API, params={"method": "exact"}).json()
    assert (body["items"], body["left_out"]) == ([], len(NAMES) - 1)
    attributes = own.get("/api/v1/attributes").json()["items"]
    assert [(one["sketch_only"], one["distinct_count"]) for one in attributes[:2]] == [(False, 9000), (True, None)]
    found = pairs_of(items(own))
    assert found["s.few.v", "s.all.v"]["coefficient"] == pytest.approx(1, abs=0.1)


def test_a_column_without_a_usable_sketch_is_told(own: httpx.Client, own_url: str) -> None:
    states.execute(own_url, "update sketch set fault = 'one went that never came' where attribute_id = 1")
    states.execute(own_url, "delete from sketch where attribute_id = 2")
    body = own.get(API, params={"method": "estimated"}).json()
    assert body["left_out"] == 2
    assert not any("s.all.v" in pair or "s.most.v" in pair for pair in pairs_of(body["items"]))
    for name, word in (("s.all.v", "one went that never came"), ("s.most.v", "SUBSETD_SKETCHES=off")):
        refused = own.get(f"/api/v1/sketches/{name}")
        assert (refused.status_code, refused.json()["type"]) == (409, "/docs#no-sketch")
        assert word in refused.json()["detail"]
    compared = own.get(f"{API}/s.all.v/s.most.v").json()
    assert [one["method"] for one in compared["coefficients"]] == ["exact"]
    listed = {one["column"]["name"]: one["fault"] for one in own.get("/api/v1/sketches").json()["items"]}
    assert {name for name, fault in listed.items() if fault} == {"s.all.v", "s.most.v"}


# --- Sketches that come and go -------------------------------------------------------------------------------


def test_a_column_elsewhere_is_compared_by_its_uploaded_sketch(own: httpx.Client) -> None:
    elsewhere = set(NUMBERS[:5000]) | {f"e{number}" for number in range(5000)}
    sketch = sketch_of(elsewhere)
    before = own.get(API).headers["etag"]
    made = put(own, "sketch:else%2Fwhere", sketch.to_bytes())
    assert (made.status_code, made.json()["distinct_count"], made.json()["bucket_bits"]) == (201, 10_000, 10)
    for x, y, wanted in (("sketch:else/where", "s.all.v", 0.5), ("s.all.v", "sketch:else/where", 5 / 9)):
        (one,) = items(own, dependent=x, referenced=y, level=0.999)
        assert (one["method"], one["exact"]) == ("estimated", None)
        assert one["low"] <= wanted <= one["high"]
        assert abs(one["coefficient"] - wanted) < 0.08
    assert own.get(API).headers["etag"] == before, "an answer without uploads is named by its version alone"
    asked = {"with_uploaded": True, "min_coefficient": 0.3}
    answer = own.get(API, params=asked)
    assert {"sketch:else/where"} < {one["referenced"]["name"] for one in answer.json()["items"]}
    assert items(own, **asked, limit=1) == answer.json()["items"]
    tag = {"If-None-Match": answer.headers["etag"]}
    assert own.get(API, params=asked, headers=tag).status_code == 304
    assert put(own, "sketch:else%2Fwhere", sketch_of(NAMES["s.few.v"]).to_bytes()).status_code == 200
    changed = own.get(API, params=asked, headers=tag)
    assert changed.status_code == 200, "another upload is another answer, of the same version"
    (one,) = items(own, dependent="s.few.v", referenced="sketch:else/where")
    assert one["coefficient"] == one["low"] == 1.0
    compared = own.get(f"{API}/s.few.v/sketch:else%2Fwhere").json()
    assert [each["method"] for each in compared["coefficients"]] == list(METHODS)
    assert own.delete("/api/v1/sketches/sketch:else%2Fwhere").status_code == 204
    assert own.delete("/api/v1/sketches/sketch:else%2Fwhere").status_code == 404
    assert own.get(API, params={"dependent": "sketch:else/where"}).status_code == 404
    assert own.get(API, params=asked).headers["etag"] == before


def test_a_downloaded_sketch_is_the_one_that_anybody_would_make(own: httpx.Client) -> None:
    for name, values in NAMES.items():
        answer = own.get(f"/api/v1/sketches/{name}")
        assert answer.headers["content-type"] == "application/octet-stream"
        assert answer.content == sketch_of(values).to_bytes()
        assert put(own, f"sketch:{name}", answer.content).status_code == 201
    own.put("/api/v1/sketches/sketch:small", content=sketch_of(NUMBERS, (6, 16, 0)).to_bytes(), headers=BYTES)
    (one,) = items(own, dependent="s.half.v", referenced="sketch:small")
    assert abs(one["coefficient"] - 0.5) < 0.35, "sketches of different sizes are compared by the smaller"
    listed: list[str] = []
    cursor = None
    while cursor is not None or not listed:
        params = {"limit": 3, **({"cursor": cursor} if cursor else {})}
        body = own.get("/api/v1/sketches", params=params).json()
        listed += [each["column"]["name"] for each in body["items"]]
        assert all(
            each["fault"] is None and each["low"] <= each["distinct_count"] <= each["high"] for each in body["items"]
        )
        cursor = body["next_cursor"]
    assert listed == [*sorted(NAMES), *sorted(f"sketch:{name}" for name in (*NAMES, "small"))]


def header(data: bytes, **changed: Any) -> bytes:
    """Change fields of a sketch's header, with the checksum that goes with them (docs/sketches.md)."""
    names = ("magic", "version", "kind", "m", "flags", "hash_name", "seed", "k", "spares", "size")
    form = struct.Struct("<4sBBBB16sQIIQ")
    fields = dict(zip(names, form.unpack_from(data), strict=True)) | changed
    body = form.pack(*(fields[name] for name in names)) + data[form.size : -4]
    return body + struct.pack("<I", zlib.crc32(body))


def full_sketch() -> bytes:
    """Fill every bucket to its highest ρ, that of a hash whose other bits are all 0."""
    sketch = ColumnSketch(*FORM, counts_values=False)
    sketch.update(np.arange(1 << FORM[0], dtype=np.uint64) << np.uint64(64 - FORM[0]))
    return sketch.to_bytes()


def repeated_sketch() -> bytes:
    """Feed a sketch of values with occurrences: it would tell a number of values that is none."""
    sketch = ColumnSketch(*FORM)
    sketch.update(np.repeat(np.arange(20, dtype=np.uint64), 3))
    return sketch.to_bytes()


def countless_sketch() -> bytes:
    """Feed it with occurrences above its bound alone, where it does not see which hashes they are of."""
    sketch = ColumnSketch(*FORM)
    sketch.update(np.arange(400, dtype=np.uint64))
    sketch.update(np.array([2**64 - 1, 2**63], np.uint64), np.full(2, 2**63 - 1))
    return sketch.to_bytes()


GOOD = sketch_of(NAMES["s.few.v"]).to_bytes()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (header(GOOD, seed=7), "seed 7"),
        (header(GOOD, hash_name=b"murmur3".ljust(16, b"\0")), "murmur3"),
        (header(GOOD, version=9), "version 9"),
        (header(GOOD, m=19), "m = 19"),
        (sketch_of(NAMES["s.few.v"], (3, 256, 64)).to_bytes(), "m = 3"),
        (Hll(10).to_bytes(), "HLL"),
        (full_sketch(), "full"),
        (repeated_sketch(), "fed with occurrences"),
        (countless_sketch(), "fed with occurrences"),
        (GOOD[:-1], "length"),
        (GOOD[:60] + bytes([GOOD[60] ^ 1]) + GOOD[61:], "checksum"),
        (b"", "no sketch"),
        (b"PK\x03\x04", "no sketch"),
    ],
)
def test_bytes_that_cannot_be_compared_are_refused_by_name(client: httpx.Client, data: bytes, words: str) -> None:
    refused = put(client, "sketch:bad", data)
    assert (refused.status_code, refused.json()["type"]) == (422, "/docs#refused-sketch")
    assert words in refused.json()["detail"]
    assert client.get("/api/v1/sketches/sketch:bad").status_code == 404


@pytest.mark.parametrize(
    ("asked", "bucket_bits"),
    [
        ({"error": 0.02}, 13),
        ({"error": 0.05}, 10),
        ({"error": 0.05, "dependent_count": 10**6, "referenced_count": 10**7}, 13),
        ({"error": 0.05, "dependent_count": 10**7, "referenced_count": 10**6}, 7),
        ({"error": 0.05, "level": 0.5}, 7),
        ({"error": 0.9}, 4),
        ({"error": 0.001}, None),
    ],
)
def test_how_many_buckets_an_error_needs(
    client: httpx.Client, asked: dict[str, float], bucket_bits: int | None
) -> None:
    """Ten times the values on the other side are sqrt(10) times the error, and half the level a third of its width."""
    answer = client.get("/api/v1/sketches/bucket_bits", params=asked).json()
    assert answer == {"error": asked["error"], "level": asked.get("level", 0.95), "bucket_bits": bucket_bits}


def test_an_upload_has_a_name_a_type_and_a_size(client: httpx.Client) -> None:
    for name in ("s.few.v", "sketch:", "sketch:%00", "sketch:" + "x" * 257):
        assert put(client, name, GOOD).json()["type"] == "/docs#refused-sketch"
        assert client.delete(f"/api/v1/sketches/{name}").status_code in (404, 422)
    assert (
        client.put("/api/v1/sketches/sketch:a", content=GOOD, headers={"Content-Type": "text/plain"}).status_code == 415
    )
    assert put(client, "sketch:a", bytes((8 << 20) + 1)).status_code == 413
    assert client.get("/api/v1/sketches").json()["items"][-1]["column"]["name"] == "s.some.v"
