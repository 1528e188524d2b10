"""The page of the architecture is held to the code: what it names exists, and no walk comes into a room twice."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tools import architecture_picture

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text()
NAMED = sorted(set(re.findall(r"`([\w/]+\.py)::([\w.]+)`", PAGE)))
WALKS = {title: body for title, _, body in (part.partition("\n") for part in PAGE.split("\n## ")) if "| step |" in body}


@cache
def names_of(path: str) -> frozenset[str]:
    """Give the functions, classes and methods of a file, these as `Class.method`."""
    return frozenset(_names(ast.parse((ROOT / path).read_text()), ""))


def _names(node: ast.AST, prefix: str) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield prefix + child.name
            if isinstance(child, ast.ClassDef):
                yield from _names(child, f"{prefix}{child.name}.")


def rooms(walk: str) -> list[list[str]]:
    """Give the files of each step of a walk; those behind the first of a step are there in its place."""
    rows = [line.split("|")[2] for line in walk.splitlines() if re.match(r"\| \d+ \|", line)]
    return [list(dict.fromkeys(re.findall(r"`([\w/]+\.py)::", row))) for row in rows]


@pytest.mark.parametrize(("path", "name"), NAMED)
def test_what_the_page_names_exists(path: str, name: str) -> None:
    assert name in names_of(path), f"docs/architecture.md names {path}::{name}"


def test_all_four_walks_are_there() -> None:
    assert [title.partition(",")[0] for title in WALKS] == ["A change", "A bootstrap", "A question", "A refresh"]


@pytest.mark.parametrize("title", WALKS)
def test_no_walk_comes_into_a_room_twice(title: str) -> None:
    steps = rooms(WALKS[title])
    assert all(steps), "each step names its room"
    seen = [path for step in steps for path in step]
    assert len(seen) == len(set(seen))


def test_a_change_goes_through_eight_rooms_at_most() -> None:
    (walk,) = (body for title, body in WALKS.items() if title.startswith("A change"))
    assert len(rooms(walk)) <= 8


def test_the_picture_is_that_of_the_code() -> None:
    assert architecture_picture.drawn(PAGE) == PAGE, "run `make picture`"
    found = architecture_picture.edges()
    assert {("usecases", "core"), ("store", "postgres"), ("stream", "kafka"), ("api", "http")} <= found
    assert not [edge for edge in found if edge[0] == "core"], "the core imports nothing of the house"


def test_each_part_of_the_service_is_in_one_layer() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = [module for layer in contracts[0]["layers"] for module in layer.split(" | ")]
    parts = {path.stem for path in (ROOT / "service").iterdir() if not path.stem.startswith("__")}
    assert sorted(layers) == sorted(["spark_jobs", *(f"service.{part}" for part in parts)])


def test_an_arrow_that_follows_from_others_is_left_out() -> None:
    chain = {("a", "b"), ("b", "c"), ("c", "d"), ("a", "e")}
    assert architecture_picture.without_shortcuts(chain | {("a", "c"), ("a", "d"), ("b", "d")}) == chain


def test_imports_for_types_alone_are_none() -> None:
    code = "import a.b\nif TYPE_CHECKING:\n    import c\ndef f():\n    from service import wiring, __version__\n"
    assert list(architecture_picture.imports_of(ast.parse(code))) == ["a.b", "service.wiring", "service"]
