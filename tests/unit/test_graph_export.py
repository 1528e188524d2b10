"""Exports of graphs: whatever tables are called, a parser reads what was written."""

from __future__ import annotations

import csv
import io
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.group_inds import Inds
from service.core.ind_graph import IndGraph, build_graph
from service.usecases import graph_export
from service.usecases.graph_export import edges_csv, graphml

SPACE = "{http://graphml.graphdrawing.org/xmlns}"
NAMES = st.lists(st.text(st.characters(min_codepoint=1, codec="utf-8"), max_size=12), min_size=3, max_size=3)


def chain(tables: int) -> IndGraph:
    """Make a graph of tables of one column, each contained in the next one."""
    columns = np.arange(tables - 1, dtype=np.int32)
    return build_graph(np.arange(tables, dtype=np.int32), tables, [Inds(columns, columns + 1, columns)])


def is_xml(character: str) -> bool:
    """Tell whether a document can hold a character: XML 1.0, production 2."""
    code = ord(character)
    return code in (0x9, 0xA, 0xD) or 0x20 <= code <= 0xD7FF or 0xE000 <= code <= 0xFFFD or code >= 0x10000


@given(NAMES)
def test_graphml_gives_names_back_but_for_what_xml_cannot_hold(names: list[str]) -> None:
    root = ElementTree.fromstring("".join(graphml(chain(3), names.__getitem__)).encode())
    found = {node.attrib["id"]: node[0].text or "" for node in root.iter(f"{SPACE}node")}
    assert list(found.values()) == ["".join(c if is_xml(c) else "\ufffd" for c in name) for name in names]
    ends = [(edge.attrib["source"], edge.attrib["target"]) for edge in root.iter(f"{SPACE}edge")]
    assert ends == [("t0", "t1"), ("t1", "t2")]


@given(NAMES)
def test_csv_gives_names_back(names: list[str]) -> None:
    written = "".join(edges_csv(chain(3), names.__getitem__))
    rows = list(csv.reader(io.StringIO(written, newline="")))
    assert rows[1:] == [[names[0], names[1], "1", "0"], [names[1], names[2], "1", "0"]]


def test_pieces_put_together_are_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = chain(8)
    for write in (graphml, edges_csv):
        whole = "".join(write(graph, str))
        with monkeypatch.context() as patch:
            patch.setattr(graph_export, "PORTION", 3)
            pieces = list(write(graph, str))
        assert ("".join(pieces), len(pieces) > 3) == (whole, True)
