"""The graph of INDs over HTTP: of tracked tables whose names are as hard as names can be."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from xml.etree import ElementTree

import httpx
import pytest

from service.core.model import AttributeName
from service.store.database import make_engine
from service.store.embedded import EmbeddedPostgres
from tests.asking import http_client
from tests.corpora import GivenCorpus, GivenTable
from tests.hand_made_state import HandMadeState
from tests.integration.serving import app_over, serving
from tests.postgres import TEMPLATE, fresh_database

HARD = "b<\"&'>\x01\r\n\ud7ff\uffff,é😀"
"""A table's name that is nothing which XML takes as it is, or at all."""

COLUMNS = {
    AttributeName("s", "a", "id"): ["1", "2"],
    AttributeName("s", HARD, "a_id"): ["1", "2", "3"],
    AttributeName("s", HARD, "c_id"): ["x", "y"],
    AttributeName("s", "c", "id"): ["x", "y", "z"],
    AttributeName("s", "c", "again"): ["x", "y", "z"],
    AttributeName("s", "d", "c_id"): ["z"],
    AttributeName("s", "alone", "id"): ["nobody", "else"],
    AttributeName("s", "p.q", "left"): ["7"],
    AttributeName("s.p", "q", "right"): ["7", "8"],
}
"""a - b - c - d by ids; c has INDs inside it; two tables have one full name."""


@pytest.fixture(scope="module")
def client(postgres_server: EmbeddedPostgres) -> Iterator[httpx.Client]:
    with fresh_database(postgres_server, TEMPLATE) as url:
        HandMadeState(url, COLUMNS).close()
        engine = make_engine(url, "test")
        with serving(app_over(engine)) as address, http_client(base_url=address, timeout=60) as client:
            yield client
        engine.dispose()


def test_the_graph_is_counted(client: httpx.Client) -> None:
    body = client.get("/api/v1/graph").json()
    assert body == {
        "version": 1, "tables": 6, "tables_outside": 1, "edges": 5, "inds": 8, "components": 2,
        "sizes": [{"tables": 4, "components": 1}, {"tables": 2, "components": 1}],
    }  # fmt: skip


def test_components_come_largest_first_with_their_hubs(client: httpx.Client) -> None:
    first = client.get("/api/v1/graph/components", params={"limit": 1}).json()
    assert [(one["component"], one["tables"], one["edges"], one["inds"]) for one in first["items"]] == [(0, 4, 4, 7)]
    # c and b both have two neighbours; c is in more INDs.
    assert first["items"][0]["hub"] == {
        "name": "s.c", "component": 0, "neighbours": 2, "references": 0, "referenced_by": 2, "inds": 6,
    }  # fmt: skip
    second = client.get("/api/v1/graph/components", params={"limit": 1, "cursor": first["next_cursor"]}).json()
    assert [(one["component"], one["hub"]["name"]) for one in second["items"]] == [(1, "s.p.q")]
    assert second["next_cursor"] is None


def test_pages_of_tables_put_together_are_all_of_them(client: httpx.Client) -> None:
    names, cursor = [], None
    while True:
        question = {"component": 0, "limit": 1} | ({"cursor": cursor} if cursor else {})
        page = client.get("/api/v1/graph/tables", params=question).json()
        names += [one["name"] for one in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert names == ["s.c", f"s.{HARD}", "s.d", "s.a"]
    assert len(client.get("/api/v1/graph/tables").json()["items"]) == 6


def test_paths_name_the_columns_that_join(client: httpx.Client) -> None:
    question = {"from_table": "s.a", "to_table": "s.d"}
    body = client.get("/api/v1/graph/paths", params=question).json()
    assert (body["length"], body["has_more"]) == (3, False)
    assert [path["tables"] for path in body["paths"]] == [["s.a", f"s.{HARD}", "s.c", "s.d"]]
    first, second, third = body["paths"][0]["steps"]
    assert [(one["dependent"], one["referenced"], one["inds"]) for one in first] == [("s.a", f"s.{HARD}", 1)]
    assert [(one["dependent"], one["referenced"], one["inds"]) for one in third] == [("s.d", "s.c", 2)]
    assert second[0]["joins"] == [
        {"dependent_column": "c_id", "dependent_position": 2, "referenced_column": column, "referenced_position": at}
        for column, at in (("id", 3), ("again", 4))
    ]
    along = client.get("/api/v1/graph/paths", params={**question, "along_inds": True}).json()
    assert (along["length"], along["paths"]) == (None, [])
    itself = client.get("/api/v1/graph/paths", params={"from_table": "s.alone", "to_table": "s.alone"}).json()
    assert (itself["length"], itself["paths"]) == (0, [{"tables": ["s.alone"], "steps": []}])
    inside = client.get("/api/v1/graph/paths", params={"from_table": "s.c", "to_table": "s.c"}).json()
    (((step,),),) = (one["steps"] for one in inside["paths"])
    assert (step["dependent"], step["referenced"], step["inds"]) == ("s.c", "s.c", 2)
    columns = [(join["dependent_column"], join["referenced_column"]) for join in step["joins"]]
    assert columns == [("id", "again"), ("again", "id")]


def test_graphml_is_xml_for_any_name(client: httpx.Client) -> None:
    answer = client.get("/api/v1/graph/export", params={"format": "graphml"})
    assert answer.headers["content-type"] == "application/graphml+xml"
    assert answer.headers["etag"] == '"1"'
    space = "{http://graphml.graphdrawing.org/xmlns}"
    root = ElementTree.fromstring(answer.content)
    nodes = {node.attrib["id"]: {data.attrib["key"]: data.text for data in node} for node in root.iter(f"{space}node")}
    shown = f"s.{HARD}".replace("\x01", "\ufffd").replace("\uffff", "\ufffd")
    assert sorted(str(node["name"]) for node in nodes.values()) == sorted(
        ["s.a", shown, "s.c", "s.d", "s.p.q", "s.p.q"]
    )
    edges = {
        (nodes[edge.attrib["source"]]["name"], nodes[edge.attrib["target"]]["name"]): edge[0].text
        for edge in root.iter(f"{space}edge")
    }
    assert edges == {
        ("s.a", shown): "1", (shown, "s.c"): "2", ("s.d", "s.c"): "2", ("s.c", "s.c"): "2", ("s.p.q", "s.p.q"): "1",
    }  # fmt: skip
    assert {key.attrib["id"] for key in root.iter(f"{space}key")} == {
        data.attrib["key"] for data in root.iter(f"{space}data")
    }


def test_csv_has_the_edges_with_their_names_as_they_are(client: httpx.Client) -> None:
    answer = client.get("/api/v1/graph/export", params={"format": "csv", "component": 0})
    rows = list(csv.reader(io.StringIO(answer.text, newline="")))
    assert rows[0] == ["dependent_table", "referenced_table", "inds", "component"]
    assert sorted(rows[1:]) == sorted([
        ["s.a", f"s.{HARD}", "1", "0"], [f"s.{HARD}", "s.c", "2", "0"],
        ["s.c", "s.c", "2", "0"], ["s.d", "s.c", "2", "0"],
    ])  # fmt: skip


def test_what_is_not_there_is_said_so(client: httpx.Client) -> None:
    for path, question in (
        ("paths", {"from_table": "s.nobody", "to_table": "s.a"}),
        ("tables", {"component": 2}),
        ("export", {"component": 2}),
    ):
        answer = client.get(f"/api/v1/graph/{path}", params=question)
        assert (answer.status_code, answer.json()["type"]) == (404, "/docs#unknown-table"), path
    ambiguous = client.get("/api/v1/graph/paths", params={"from_table": "s.p.q", "to_table": "s.a"})
    assert ambiguous.status_code == 409
    ids = [one["attribute_id"] for one in ambiguous.json()["candidates"]]
    one_of_them = {"from_table": f"id:{ids[0]}", "to_table": f"id:{ids[1]}"}
    assert client.get("/api/v1/graph/paths", params=one_of_them).json()["length"] == 1


def test_a_state_without_anything_has_an_empty_graph(database_url: str) -> None:
    engine = make_engine(database_url, "test")
    with serving(app_over(engine)) as address, http_client(base_url=address, timeout=60) as client:
        assert client.get("/api/v1/graph").json()["tables"] == 0
        for path in ("components", "tables"):
            assert client.get(f"/api/v1/graph/{path}").json()["items"] == []
        assert client.get("/api/v1/graph/tables?component=0").status_code == 404
        assert (
            len(list(ElementTree.fromstring(client.get("/api/v1/graph/export").content).iter())) == 6
        )  # a graph and four keys
    engine.dispose()


def test_an_answer_is_polled_by_its_version(client: httpx.Client) -> None:
    for path in ("", "/components", "/tables", "/paths?from_table=s.a&to_table=s.d", "/export", "/export?format=csv"):
        again = client.get(f"/api/v1/graph{path}", headers={"If-None-Match": '"1"'})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", '"1"'), path


@pytest.fixture
def corpus(database_url: str) -> GivenCorpus:
    """Land a corpus: numbers of tables and ids of columns have gaps, and one path is a hard one."""
    corpus = GivenCorpus(database_url)
    tables = [
        GivenTable(0, "a.csv", 0, ["id"]),
        GivenTable(2, HARD, 5, ["a_id", "b_id"]),
        GivenTable(3, "x/b.csv", 9, ["id", "again"]),
        GivenTable(7, "alone.csv", 12, ["id"]),
    ]
    corpus.refresh({(0, 5, 2), (6, 9, 3), (6, 10, 3), (9, 10, 4), (10, 9, 4)}, tables)
    return corpus


@pytest.fixture
def lake(corpus: GivenCorpus) -> Iterator[httpx.Client]:
    """Serve the corpus."""
    engine = make_engine(corpus.url, "test")
    with serving(app_over(engine)) as address, http_client(base_url=address, timeout=60) as client:
        yield client
    engine.dispose()


def test_the_graph_of_a_corpus(lake: httpx.Client, corpus: GivenCorpus) -> None:
    graph = "/api/v1/corpora/lake/graph"
    first = lake.get(graph)
    assert first.json() == {
        "version": 1, "tables": 3, "tables_outside": 1, "edges": 3, "inds": 5, "components": 1,
        "sizes": [{"tables": 3, "components": 1}],
    }  # fmt: skip
    assert [one["name"] for one in lake.get(f"{graph}/tables").json()["items"]] == [HARD, "x/b.csv", "a.csv"]
    paths = lake.get(f"{graph}/paths", params={"from_table": "a.csv", "to_table": "x/b.csv"}).json()
    assert [path["tables"] for path in paths["paths"]] == [["a.csv", HARD, "x/b.csv"]]
    (step,) = paths["paths"][0]["steps"][1]
    assert (step["dependent"], step["referenced"], step["inds"]) == (HARD, "x/b.csv", 2)
    assert [tuple(join.values()) for join in step["joins"]] == [("b_id", 1, "id", 0), ("b_id", 1, "again", 1)]
    rows = list(csv.reader(io.StringIO(lake.get(f"{graph}/export?format=csv").text, newline="")))[1:]
    assert rows == [["a.csv", HARD, "1", "0"], [HARD, "x/b.csv", "2", "0"], ["x/b.csv", "x/b.csv", "2", "0"]]
    known = {"If-None-Match": first.headers["etag"]}
    assert lake.get(graph, headers=known).status_code == 304
    corpus.refresh(set(), gone=[2], changed=[5, 6])
    second = lake.get(graph, headers=known)
    assert (second.status_code, second.json()["version"], second.json()["edges"]) == (200, 2, 1)
    assert second.json()["tables_outside"] == 2
    absent = lake.get(f"{graph}/paths", params={"from_table": "a.csv", "to_table": HARD})
    assert absent.status_code == 404
    assert lake.get("/api/v1/corpora/nobody/graph").status_code == 404


def test_a_part_of_the_graph_comes_with_all_of_its_edges(client: httpx.Client) -> None:
    every = client.get("/api/v1/graph/excerpt").json()
    names = [one["name"] for one in every["tables"]]
    assert (every["version"], every["tables_beyond"], len(names)) == (1, 0, 6)
    edges = {(names[one["dependent"]], names[one["referenced"]]): one["inds"] for one in every["edges"]}
    assert edges[f"s.{HARD}", "s.c"] == 2
    assert edges["s.c", "s.c"] == 2
    near = client.get("/api/v1/graph/excerpt", params={"around": "s.d", "most": 1}).json()
    assert ([one["name"] for one in near["tables"]], near["edges"], near["tables_beyond"]) == (["s.d"], [], 1)
    assert client.get("/api/v1/graph/excerpt", params={"component": 1}).json()["tables"][0]["component"] == 1
    of_d = client.get("/api/v1/graph/excerpt", params={"component_of": "s.d"}).json()
    assert [one["name"] for one in of_d["tables"]] == ["s.c", f"s.{HARD}", "s.d", "s.a"]
    assert of_d == client.get("/api/v1/graph/excerpt", params={"component": 0}).json()


@pytest.mark.parametrize(
    ("question", "status"),
    [
        ({"around": "s.nothing"}, 404),
        ({"around": "s.alone"}, 404),
        ({"around": "s.p.q"}, 409),
        ({"component": 2}, 404),
        ({"component_of": "s.nothing"}, 404),
        ({"component_of": "s.alone"}, 404),
        ({"component_of": "s.p.q"}, 409),
    ],
)
def test_what_there_is_no_part_around_is_said(client: httpx.Client, question: dict[str, str], status: int) -> None:
    answer = client.get("/api/v1/graph/excerpt", params=question)
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")


def test_tables_are_found_by_a_part_of_their_names(client: httpx.Client) -> None:
    found = client.get("/api/v1/graph/tables", params={"contains": "S.C"}).json()
    assert [one["name"] for one in found["items"]] == ["s.c"]
