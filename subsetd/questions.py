"""Own what may be asked of each route, beside what its path names. Made by `make client`: change what it is made of."""

from __future__ import annotations

from typing import Literal, Required, TypedDict


class ListAttributes(TypedDict, total=False):
    schema: str
    table: str
    attribute: str
    contains: str
    arity: int


class ListClusters(TypedDict, total=False):
    attribute: str


class ListDeadLetters(TypedDict, total=False):
    feed: str


class ListUinds(TypedDict, total=False):
    dependent: str
    dependent_schema: str
    dependent_table: str
    referenced: str
    referenced_schema: str
    referenced_table: str
    arity: int
    as_of: int


class ListChanges(TypedDict, total=False):
    dependent: str
    dependent_schema: str
    dependent_table: str
    referenced: str
    referenced_schema: str
    referenced_table: str
    arity: int
    since: int
    kind: Literal["appeared", "broke"]
    newest_first: bool


class ListCoefficients(TypedDict, total=False):
    level: float
    dependent: str
    dependent_schema: str
    dependent_table: str
    referenced: str
    referenced_schema: str
    referenced_table: str
    with_uploaded: bool
    method: Literal["exact", "bml", "bml-exact-load", "joint-mle", "bottom-k", "estimated"]
    min_distinct: int
    min_coefficient: float
    top: int


class GetMatrix(TypedDict, total=False):
    level: float
    dependent: str
    dependent_schema: str
    dependent_table: str
    referenced: str
    referenced_schema: str
    referenced_table: str
    with_uploaded: bool
    method: Literal["exact", "bml", "bml-exact-load", "joint-mle", "bottom-k", "estimated"]
    min_distinct: int
    plane: Literal["coefficient", "low", "high"]


class ListGraphTables(TypedDict, total=False):
    component: int
    contains: str


class GetGraphExcerpt(TypedDict, total=False):
    component: int
    component_of: str
    around: str
    most: int


class FindGraphPaths(TypedDict, total=False):
    from_table: Required[str]
    to_table: Required[str]
    along_inds: bool
    limit: int


class ExportGraph(TypedDict, total=False):
    format: Literal["graphml", "csv"]
    component: int


class ListKeys(TypedDict, total=False):
    schema: str
    table: str
    nearly: float
    tracked_only: bool
    values: int


class ListForeignKeys(TypedDict, total=False):
    method: Literal["randomness", "names", "chen", "rostin", "combined"]
    suggested: bool
    schema: str
    table: str


class ExplainForeignKey(TypedDict, total=False):
    dependent: Required[str]
    referenced: Required[str]
    method: Literal["randomness", "names", "chen", "rostin", "combined"]


class ExportForeignKeys(TypedDict, total=False):
    format: Literal["sql", "dbt", "mermaid", "graphml", "csv", "json"]
    method: Literal["randomness", "names", "chen", "rostin", "combined"]


class ListCorpusInds(TypedDict, total=False):
    generation: int
    dependent_table: str
    dependent_position: int
    referenced_table: str
    referenced_position: int


class ShowCorpusPair(TypedDict, total=False):
    generation: int
    dependent_table: Required[str]
    dependent_position: Required[int]
    referenced_table: Required[str]
    referenced_position: Required[int]


class SearchJoinable(TypedDict, total=False):
    corpus: str
    tracked: bool
    key: Required[list[str]]
    k: int
    min_share: float
    preview: int
    through: int
    near: list[Literal["case", "spaces", "numbers"]]
    schema: str
    table: str


class ListAlerts(TypedDict, total=False):
    watch_id: int
    state: Literal["pending", "delivered", "failed", "silenced"]
