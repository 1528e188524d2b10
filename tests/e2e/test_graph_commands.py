"""The graph of INDs as a user types for it."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests import states
from tests.corpora import GivenCorpus, GivenTable
from tests.e2e.test_cli import Command, subsetd
from tests.states import Tables

__all__ = ["subsetd"]


@pytest.fixture
def state(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hold a chain of tables by their ids, a and b and c, and a table that is in no IND."""
    tables = Tables({"a": ["id"], "b": ["id", "c_id"], "c": ["id"], "alone": ["id"]})
    tables.add("a", ["1"], ["2"]).add("b", ["1", "x"], ["2", "y"], ["3", None])
    tables.add("c", ["x"], ["y"], ["z"]).add("alone", ["nobody"])
    states.store(database_url, tables)
    monkeypatch.setenv("SUBSETD_DATABASE_URL", database_url)
    monkeypatch.setenv("SUBSETD_LOG_LEVEL", "error")
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("state")
def test_components_hubs_and_paths(subsetd: Command) -> None:
    lines = subsetd("graph", "show").splitlines()
    assert lines[0] == "3 tables in 1 components, 1 tables in no IND; 2 INDs between 2 pairs of tables"
    assert lines[2].split() == ["0", "3", "2", "2", "s.b"]
    found = json.loads(subsetd("graph", "tables", "--top", "1", "--format", "json"))
    assert found == [{"name": "s.b", "component": 0, "neighbours": 2, "references": 1, "referenced_by": 1, "inds": 2}]
    assert subsetd("graph", "paths", "s.a", "s.c").splitlines() == [
        "s.a - s.b - s.c", "  s.a.id ⊆ s.b.id", "  s.b.c_id ⊆ s.c.id"
    ]  # fmt: skip
    assert subsetd.ended("graph", "show", "--top", "99999999999999999999")[0] == 2
    code, said, _ = subsetd.ended("graph", "paths", "s.c", "s.a", "--along-inds")
    assert (code, said) == (1, "Nothing joins the two.\n")
    code, _, fault = subsetd.ended("graph", "paths", "s.a", "s.nobody")
    assert (code, "No table is named 's.nobody'" in fault) == (1, True)


@pytest.mark.usefixtures("state")
def test_the_graph_as_a_file(subsetd: Command) -> None:
    assert subsetd("graph", "export", "it.csv") == "it.csv: 3 tables, 2 edges\n"
    with Path("it.csv").open(newline="") as file:
        assert list(csv.reader(file))[1:] == [["s.a", "s.b", "1", "0"], ["s.b", "s.c", "1", "0"]]
    subsetd("graph", "export", "it.graphml", "--component", "0")
    assert len(list(ElementTree.parse("it.graphml").iter("{http://graphml.graphdrawing.org/xmlns}node"))) == 3
    code, _, fault = subsetd.ended("graph", "export", "it.gml")
    assert (code, ".graphml or .csv" in fault) == (1, True)
    code, _, fault = subsetd.ended("graph", "export", "it.csv", "--component", "7")
    assert (code, "There is no component 7" in fault) == (1, True)


def test_the_graph_of_a_corpus(subsetd: Command, database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUBSETD_DATABASE_URL", database_url)
    corpus = GivenCorpus(database_url)
    corpus.refresh({(0, 5, 2)}, [GivenTable(0, "a.csv", 0, ["id"]), GivenTable(2, "x/b.csv", 4, ["a_id", "a_id"])])
    corpus.refresh(set(), gone=[2], changed=[5])
    assert subsetd("graph", "show", "--corpus", "lake").startswith("0 tables in 0 components, 1 tables in no IND")
    before = ("--corpus", "lake", "--generation", "1")
    assert subsetd("graph", "paths", "x/b.csv", "a.csv", *before).splitlines()[1] == "  a.csv:0 (id) ⊆ x/b.csv:1 (a_id)"
    code, _, fault = subsetd.ended("graph", "show", "--generation", "1")
    assert (code, "only a corpus has generations" in fault) == (2, True)
