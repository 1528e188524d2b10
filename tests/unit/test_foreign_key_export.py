"""Exports of foreign keys: whatever columns are called, a parser of each format reads what was written."""

from __future__ import annotations

import csv
import json
import re
from hashlib import sha256
from io import StringIO
from itertools import groupby
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from service.core.foreign_keys.sides import ForeignKey, Side
from service.usecases.foreign_key_decisions import Verdict
from service.usecases.foreign_key_export import KeyFormat, as_dbt, as_graphml, as_mermaid, export_keys
from service.usecases.kept_candidates import Candidate

SPACE = "{http://graphml.graphdrawing.org/xmlns}"
NAME = st.text(st.characters(min_codepoint=1, codec="utf-8"), min_size=1, max_size=8)
HARD = [
    'a"b',
    "it's",
    "back\\slash",
    "{{ jinja }}",
    "{% raw %}",
    "{#",
    "größe",
    "顧客",
    "%",
    "#;",
    "line\nfeed",
    "\x85",
    "\u2028",
    "😀",
    "a: b",
]
NAMES = NAME | st.sampled_from(HARD)


@st.composite
def keys(draw: st.DrawFn) -> ForeignKey:
    """Make foreign keys of one column, or of two."""
    width = draw(st.integers(1, 2))
    columns = st.lists(NAMES, min_size=width, max_size=width, unique=True).map(tuple)
    return ForeignKey(*(Side(draw(NAMES), draw(NAMES), draw(columns)) for _ in range(2)))


FEW = st.lists(keys(), max_size=4)
CUSTOMER = ForeignKey(Side("shop", "orders", ("customer_id",)), Side("shop", "customers", ("id",)))


def table_of(side: Side) -> str:
    return f"{side.schema}.{side.table}"


@given(FEW)
def test_dbts_tests_are_read_as_they_are_meant(found: list[ForeignKey]) -> None:
    ordered = sorted(set(found))
    document = rendered(yaml.safe_load(as_dbt(ordered)))
    assert document["version"] == 2
    read = [
        (source["name"], table["name"], column, test["relationships"])
        for source in document["sources"]
        for table in source["tables"]
        for column in table.get("columns", ())
        for test in column["data_tests"]
    ]
    declared = [(source["name"], table["name"]) for source in document["sources"] for table in source["tables"]]
    assert declared == sorted(set(declared))
    called = [
        (source.get("schema", source["name"]), table.get("identifier", table["name"]))
        for source in document["sources"]
        for table in source["tables"]
    ]
    assert [tuple(identifier(f'"{name}"') for name in names) for names in called] == declared
    wanted = []
    for one in ordered:
        # dbt writes these two names between quotes of its own, and escapes nothing in them.
        if len(one.dependent.columns) == 1 and not re.search(r"['\\]", one.dependent.schema + one.dependent.table):
            (dependent,), (referenced,) = one.dependent.names, one.referenced.names
            wanted.append((*dependent, referenced))
    assert [(*names, identifier(f'"{column["name"]}"')) for *names, column, _ in read] == [tuple(d) for *d, _ in wanted]
    given = [of_test["name"] for *_, of_test in read if "name" in of_test]
    assert len(set(given)) == len(given)
    for (schema, table, column, of_test), (*_, referenced) in zip(read, wanted, strict=True):
        assert column["quote"] is True
        # dbt makes the name of a test of these two where it has none, and refuses one with a space.
        assert re.fullmatch(r"\w+", of_test.get("name", schema + table))
        assert of_test.keys() - {"name"} == {"arguments"}
        arguments = of_test["arguments"]
        assert arguments.keys() == {"to", "field"}
        assert identifier(arguments["field"]) == referenced.column
        assert jinja_call(arguments["to"]) == ("source", [referenced.schema, referenced.table])
        assert (referenced.schema, referenced.table) in declared, "dbt runs no test of a source that is not declared"


def identifier(sql: str) -> str:
    """Read a quoted identifier of SQL."""
    (inner,) = re.fullmatch(r'"((?:[^"]|"")*)"', sql).groups()
    return inner.replace('""', '"')


def test_a_test_of_dbt_quotes_columns_and_declares_both_tables() -> None:
    key = ForeignKey(Side("shop", "orders", ("CustomerId",)), Side("crm", "customers", ("order",)))
    assert as_dbt([key]) == (
        """version: 2
sources:
  - name: "crm"
    tables:
      - name: "customers"
  - name: "shop"
    tables:
      - name: "orders"
        columns:
          - name: "CustomerId"
            quote: true
            data_tests:
              - relationships:
                  arguments:
                    to: "source(\\"crm\\", \\"customers\\")"
                    field: "\\"order\\""
"""
    )


def test_what_dbt_cannot_quote_or_name_by_itself_is_told() -> None:
    key = ForeignKey(Side('The "EU"', "order lines", ("id",)), Side('The "EU"', 'a"b', ("id",)))
    assert as_dbt([key]) == (
        """version: 2
sources:
  - name: "The \\"EU\\""
    schema: "The \\"\\"EU\\"\\""
    tables:
      - name: "a\\"b"
        identifier: "a\\"\\"b"
      - name: "order lines"
        columns:
          - name: "id"
            quote: true
            data_tests:
              - relationships:
                  name: relationships_order_lines_HASH
                  arguments:
                    to: "source(\\"The \\\\\\"EU\\\\\\"\\", \\"a\\\\\\"b\\")"
                    field: "\\"id\\""
""".replace("HASH", sha256(repr(key).encode()).hexdigest()[:10])
    )


def rendered(document: Any) -> Any:
    """Render the values that dbt renders, all but the call that its test makes: strings of Jinja become their text."""
    if isinstance(document, dict):
        return {name: of if name == "to" else rendered(of) for name, of in document.items()}
    if isinstance(document, list):
        return list(map(rendered, document))
    if isinstance(document, str) and re.search("{[{%#]", document):
        string = re.fullmatch(r'\{\{ "((?:[^"\\]|\\.)*)" \}\}', document, re.DOTALL)
        assert string, f"dbt would read more than a string in {document!r}"
        return unescaped(string[1])
    return document


def unescaped(string: str) -> str:
    return string.encode("ascii", "backslashreplace").decode("unicode-escape")


def jinja_call(text: str) -> tuple[str, list[str]]:
    """Read a call with strings as Jinja's lexer does: ASCII with backslashes is unescaped, the rest as it is."""
    name, arguments = re.fullmatch(r'(\w+)\(("(?:[^"\\]|\\.)*"(?:, "(?:[^"\\]|\\.)*")*)\)', text, re.DOTALL).groups()
    strings = re.findall(r'"((?:[^"\\]|\\.)*)"', arguments, re.DOTALL)
    return name, list(map(unescaped, strings))


@given(FEW)
def test_a_csv_gives_every_foreign_key_back(found: list[ForeignKey]) -> None:
    lines = list(csv.DictReader(StringIO(export_keys(found, KeyFormat.CSV), newline="")))
    read = set()
    for _, of_key in groupby(lines, lambda one: one["foreign_key"]):
        columns = list(of_key)
        sides = (
            Side(
                *(columns[0][f"{side}_{part}"] for part in ("schema", "table")),
                tuple(one[f"{side}_column"] for one in columns),
            )
            for side in ("dependent", "referenced")
        )
        read.add(ForeignKey(*sides))
    assert read == set(found)


def test_json_has_what_was_found_and_what_was_accepted_without_being_found() -> None:
    other = ForeignKey(CUSTOMER.dependent, Side("shop", "people", ("id",)))
    found = Candidate(CUSTOMER, 0.9, True, False, {"coverage": 0.5}, 0, Verdict.PIN)
    sides = {"dependent": [["shop", "orders", "customer_id"]], "referenced": [["shop", "customers", "id"]]}
    assert json.loads(export_keys([CUSTOMER, other], KeyFormat.JSON, {CUSTOMER: found, other: None})) == [
        {**sides, "score": 0.9, "suggested": True, "implied": False, "verdict": "pin", "evidence": {"coverage": 0.5}},
        {
            **sides,
            "referenced": [["shop", "people", "id"]],
            "score": None,
            "suggested": False,
            "implied": False,
            "verdict": "accept",
            "evidence": None,
        },
    ]


@given(FEW)
def test_graphml_has_a_node_for_each_table_and_an_edge_for_each_key(found: list[ForeignKey]) -> None:
    graph = ElementTree.fromstring(as_graphml(found).encode())
    names = [node.find(f"{SPACE}data").text or "" for node in graph.iter(f"{SPACE}node")]
    assert len(names) == len({(side.schema, side.table) for one in found for side in one})
    assert len(list(graph.iter(f"{SPACE}edge"))) == len(found)


def test_graphml_goes_from_the_dependent_to_the_referenced() -> None:
    graph = ElementTree.fromstring(as_graphml([CUSTOMER]).encode())
    names = {node.get("id"): node.find(f"{SPACE}data").text for node in graph.iter(f"{SPACE}node")}
    (edge,) = graph.iter(f"{SPACE}edge")
    assert (names[edge.get("source")], names[edge.get("target")]) == ("shop.orders", "shop.customers")
    assert [data.text for data in edge] == ["customer_id", "id"]


ENTITY = re.compile(r'  (t\d+)\["([^"%\r\n\v\b\\]+)"\]')
RELATION = re.compile(r'  (t\d+) \|\|--o\{ (t\d+) : "([^"\r\n]+)"')
"""Lines of Mermaid's grammar of erDiagram (erDiagram.jison): what may stand in the quotes of a name and a label."""


@given(FEW)
def test_a_diagram_is_of_mermaids_grammar_and_loses_no_name(found: list[ForeignKey]) -> None:
    begin, *lines = as_mermaid(found).split("\n")[:-1]
    assert begin == "erDiagram"
    entities = dict(match.groups() for match in map(ENTITY.fullmatch, lines) if match)
    relations = [match.groups() for match in map(RELATION.fullmatch, lines) if match]
    assert len(entities) + len(relations) == len(lines)

    def shown(text: str) -> str:
        return re.sub(r"#(\d+);", lambda code: chr(int(code[1])), text)

    assert [(shown(entities[b]), shown(entities[a]), shown(label)) for a, b, label in relations] == [
        (
            table_of(one.dependent),
            table_of(one.referenced),
            f"{', '.join(one.dependent.columns)} → {', '.join(one.referenced.columns)}",
        )
        for one in found
    ]


@pytest.mark.parametrize("format_", KeyFormat)
def test_keys_are_in_one_order_and_each_is_there_once(format_: KeyFormat) -> None:
    other = ForeignKey(CUSTOMER.referenced, Side("shop", "people", ("id",)))
    assert export_keys([CUSTOMER, other], format_) == export_keys([other, CUSTOMER, CUSTOMER], format_)
