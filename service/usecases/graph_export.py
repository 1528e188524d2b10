"""Own the graph of INDs as a file, written piece by piece: GraphML for graph tools, CSV of its edges."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator
from enum import StrEnum
from xml.sax.saxutils import escape

from service.core.ind_graph import IndGraph

PORTION = 1000
"""Tables or edges of one piece."""

_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What no XML document can hold, however it is written (XML 1.0, production 2)."""

_BEGIN = """<?xml version="1.0" encoding="UTF-8"?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
<key id="name" for="node" attr.name="name" attr.type="string"/>
<key id="component" for="node" attr.name="component" attr.type="long"/>
<key id="neighbours" for="node" attr.name="neighbours" attr.type="long"/>
<key id="inds" for="edge" attr.name="inds" attr.type="long"/>
<graph edgedefault="directed">
"""
_END = "</graph>\n</graphml>\n"


class GraphFormat(StrEnum):
    """Name the formats of an exported graph."""

    GRAPHML = "graphml"
    CSV = "csv"


def export(graph: IndGraph, name: Callable[[int], str], format_: GraphFormat, component: int | None) -> Iterator[str]:
    """Write the graph, or one component of it."""
    return (graphml if format_ is GraphFormat.GRAPHML else edges_csv)(graph, name, component)


def graphml(graph: IndGraph, name: Callable[[int], str], component: int | None = None) -> Iterator[str]:
    """Write tables as nodes and pairs of tables with INDs as edges, from the dependent to the referenced table.

    In a name, a character that XML cannot hold becomes U+FFFD.
    """
    yield _BEGIN
    tables = sorted(graph.hubs_of(component).tolist())
    for start in range(0, len(tables), PORTION):
        yield "".join(
            f'<node id="t{table}"><data key="name">{xml_text(name(table))}</data>'
            f'<data key="component">{graph.component_of[table]}</data>'
            f'<data key="neighbours">{graph.degree(table)}</data></node>\n'
            for table in tables[start : start + PORTION]
        )
    for edges in _edges(graph, component):
        yield "".join(
            f'<edge source="t{dependent}" target="t{referenced}"><data key="inds">{inds}</data></edge>\n'
            for dependent, referenced, inds in edges
        )
    yield _END


def edges_csv(graph: IndGraph, name: Callable[[int], str], component: int | None = None) -> Iterator[str]:
    """Write the edges with their numbers of INDs, by the numbers of the dependent and the referenced table."""
    out = io.StringIO()
    # A carriage return in a name would be quoted by itself only if it ended lines.
    writer = csv.writer(out, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
    writer.writerow(["dependent_table", "referenced_table", "inds", "component"])
    for edges in _edges(graph, component):
        writer.writerows(
            (name(dependent), name(referenced), inds, graph.component_of[dependent])
            for dependent, referenced, inds in edges
        )
        yield out.getvalue()
        out.seek(0)
        out.truncate()
    yield out.getvalue()


def _edges(graph: IndGraph, component: int | None) -> Iterator[list[tuple[int, int, int]]]:
    places = graph.edges_of(component)
    for start in range(0, len(places), PORTION):
        taken = places[start : start + PORTION]
        sides = graph.dependent[taken], graph.referenced[taken], graph.inds[taken]
        yield list(zip(*(side.tolist() for side in sides), strict=True))


def xml_text(text: str) -> str:
    """Write a text of an XML document; a character that none can hold becomes U+FFFD."""
    # A parser makes a line feed of a carriage return that is not escaped.
    return escape(_NO_XML.sub("\ufffd", text), {"\r": "&#13;"})
