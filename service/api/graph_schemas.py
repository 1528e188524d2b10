"""Own the shapes of what is asked and answered about graphs of INDs."""

from __future__ import annotations

from pydantic import Field

from service.api import cursors
from service.api.schemas import Answer, Page, PageQuestion, Question, Text
from service.usecases import ind_graphs
from service.usecases.graph_export import GraphFormat

COMPONENT = "a component's number: its rank by size, from 0, in this version or generation"


class GraphTablesQuestion(PageQuestion):
    component: int | None = Field(None, ge=0, le=cursors.LARGEST, description=f"only of {COMPONENT}")
    contains: Text | None = Field(None, description="part of the name, in capitals or not", examples=["cust"])


class ExcerptQuestion(Question):
    component: int | None = Field(None, ge=0, le=cursors.LARGEST, description=f"only {COMPONENT}")
    component_of: Text | None = Field(
        None,
        description="only the component of this table, which may have another number later",
        examples=["demo.orders"],
    )
    around: Text | None = Field(None, description="this table and its neighbours", examples=["demo.orders"])
    most: int = Field(40, ge=1, le=200, description="tables, those with most neighbours")


class CorpusExcerptQuestion(ExcerptQuestion):
    component_of: Text | None = Field(
        None, description="only the component of the table of this path", examples=["customers.csv"]
    )
    around: Text | None = Field(
        None, description="the table of this path and its neighbours", examples=["customers.csv"]
    )


class PathsQuestion(Question):
    from_table: Text = Field(description="schema.table", examples=["demo.orders"])
    to_table: Text = Field(description="schema.table", examples=["demo.regions"])
    along_inds: bool = Field(False, description="each step goes from a dependent table to a referenced one")
    limit: int = Field(10, ge=1, le=100, description="most paths, in the order of their tables")


class CorpusPathsQuestion(PathsQuestion):
    from_table: Text = Field(description="a table's path", examples=["2019/orders.csv"])
    to_table: Text = Field(description="a table's path", examples=["customers.csv"])


class GraphExportQuestion(Question):
    format: GraphFormat = Field(GraphFormat.GRAPHML, description="graphml, or csv of the edges alone")
    component: int | None = Field(None, ge=0, le=cursors.LARGEST, description=f"only {COMPONENT}")


class GraphAnswer(Answer):
    version: int = Field(description="the state version, or of a corpus the generation, that this is of")


class ComponentSize(Answer):
    tables: int
    components: int = Field(description="how many have so many tables")


class Graph(GraphAnswer):
    tables: int = Field(description="tables that are in an IND")
    tables_outside: int = Field(description="tables that are in none: they are not in the graph")
    edges: int = Field(
        description="ordered pairs of tables with INDs; a table with INDs inside it makes one with itself"
    )
    inds: int
    components: int
    sizes: list[ComponentSize] = Field(description="largest first")

    @classmethod
    def of(cls, version: int, one: ind_graphs.GraphSummary) -> Graph:
        sizes = [ComponentSize(tables=tables, components=components) for tables, components in one.sizes]
        counts = {field: getattr(one, field) for field in cls.model_fields if field not in ("version", "sizes")}
        return cls(version=version, sizes=sizes, **counts)


class GraphTable(Answer):
    name: str
    component: int = Field(description=COMPONENT)
    neighbours: int = Field(description="other tables that it shares INDs with")
    references: int = Field(description="other tables that it has INDs into")
    referenced_by: int = Field(description="other tables that have INDs into it")
    inds: int = Field(description="INDs that it is in, on either side")


class GraphTablesPage(Page, GraphAnswer):
    items: list[GraphTable]


class Component(Answer):
    component: int = Field(description=COMPONENT)
    tables: int
    edges: int
    inds: int
    hub: GraphTable = Field(description="the table with most neighbours in it")


class ComponentsPage(Page, GraphAnswer):
    items: list[Component]


class Edge(Answer):
    dependent: int = Field(description="its place in `tables`, from 0")
    referenced: int
    inds: int


class Excerpt(GraphAnswer):
    tables: list[GraphTable]
    edges: list[Edge] = Field(description="all between these tables; from a table to itself for INDs inside it")
    tables_beyond: int = Field(description="tables that were asked for beyond `most`")

    @classmethod
    def of(cls, version: int, one: ind_graphs.Excerpt) -> Excerpt:
        edges = [Edge(dependent=a, referenced=b, inds=inds) for a, b, inds in one.edges]
        tables = [GraphTable.model_validate(table) for table in one.tables]
        return cls(version=version, tables=tables, edges=edges, tables_beyond=one.tables_beyond)


class Join(Answer):
    dependent_column: str
    dependent_position: int = Field(description="from 0")
    referenced_column: str
    referenced_position: int


class Step(Answer):
    dependent: str = Field(description="the table whose columns are contained")
    referenced: str
    inds: int
    joins: list[Join] = Field(description=f"the first {ind_graphs.JOINS_SHOWN} of these INDs")


class JoinPath(Answer):
    tables: list[str] = Field(description="from one to the other")
    steps: list[list[Step]] = Field(
        description="between each two tables: their INDs, of one direction or of both; of one alone: those inside it"
    )


class Paths(GraphAnswer):
    length: int | None = Field(description="steps of the shortest paths; null: nothing joins the two")
    has_more: bool = Field(description="there are more shortest paths than these")
    paths: list[JoinPath]
