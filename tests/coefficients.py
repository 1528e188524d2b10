"""Own columns with known coefficients in tests, and what is asked of a service about them."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from typing import Any

import httpx
import numpy as np
import pytest

from service.core.records import UInt64s
from service.core.sketches.column import ColumnSketch
from service.store.database import make_engine
from tests import states
from tests.asking import http_client
from tests.integration.serving import app_over, serving
from tests.states import Tables, key_of
from tests.waiting import BOUND_SECONDS

METHODS = ("bml", "bml-exact-load", "joint-mle", "bottom-k", "estimated")
FORM = (10, 256, 64)
API = "/api/v1/coefficients"
RANDOM = random.Random(20261121)
NUMBERS = [str(number) for number in range(9000)]
COLUMNS: dict[str, list[str]] = {
    "all": NUMBERS,
    "most": RANDOM.sample(NUMBERS, 6000),
    "part": RANDOM.sample(NUMBERS, 3000),
    "half": [*RANDOM.sample(NUMBERS, 1500), *(f"x{number}" for number in range(1500))],
    "apart": [f"y{number}" for number in range(2000)],
    "few": NUMBERS[:40],
    "some": [*NUMBERS[20:60], "z"],
    "empty": [],
}
NAMES = {f"s.{name}.v": set(cells) for name, cells in COLUMNS.items()}


def exact(dependent: str, referenced: str) -> float | None:
    """Compute a coefficient by sets."""
    x, y = NAMES[dependent], NAMES[referenced]
    return len(x & y) / len(x) if x else None


def hashes_of(values: Iterable[str]) -> UInt64s:
    """Hash values as docs/sketches.md says."""
    return np.array([int.from_bytes(key_of(value)[:8], "big") for value in values], np.uint64)


def sketch_of(values: Iterable[str], form: tuple[int, int, int] = FORM) -> ColumnSketch:
    """Sketch values that are not in the state."""
    sketch = ColumnSketch(*form)
    sketch.update(hashes_of(values))
    return sketch


def serve(url: str) -> Iterator[httpx.Client]:
    engine = make_engine(url, "test-coefficients")
    with serving(app_over(engine)) as address, http_client(base_url=address, timeout=BOUND_SECONDS) as client:
        yield client
    engine.dispose()


def store(url: str) -> None:
    tables = Tables({name: ["v"] for name in COLUMNS})
    for name, cells in COLUMNS.items():
        tables.add(name, *([cell] for cell in cells))
    tables.add("empty", [None], [None])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(states, "SKETCH_FORM", FORM)
        states.store(url, tables)


def items(client: httpx.Client, **asked: Any) -> list[dict[str, Any]]:
    """Go through all pages of coefficients."""
    found: list[dict[str, Any]] = []
    cursor = None
    while True:
        body = client.get(API, params={**asked, **({"cursor": cursor} if cursor else {})}).json()
        assert "items" in body, body
        found += body["items"]
        cursor = body["next_cursor"]
        if cursor is None:
            return found


def pairs_of(found: list[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    named = {(one["dependent"]["name"], one["referenced"]["name"]): one for one in found}
    assert len(named) == len(found)
    return named


BYTES = {"Content-Type": "application/octet-stream"}


def put(client: httpx.Client, name: str, data: bytes) -> httpx.Response:
    return client.put(f"/api/v1/sketches/{name}", content=data, headers=BYTES)
