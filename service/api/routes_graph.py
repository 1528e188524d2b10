"""Own the routes about graphs of INDs, the same for the tracked tables and for a corpus."""

# No postponed annotations here: FastAPI could not read those of functions inside a function.

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Annotated, Any, Protocol, cast

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import StreamingResponse

from service.api import cursors, examples, schemas
from service.api import graph_schemas as shapes
from service.api.asking import Asked, Asking
from service.api.asking_corpora import CorpusAsked, CorpusAsking, CorpusPath
from service.api.problems import documented
from service.usecases import graph_export, ind_graphs
from service.usecases.answers import Key, Page
from service.usecases.graph_export import GraphFormat
from service.usecases.graph_readers import CorpusGraphReader, TrackedGraphReader
from service.usecases.ind_graphs import GraphReader, IndGraphs

COMPONENTS = cursors.Cursors("components", "i")
TABLES = cursors.Cursors("graph_tables", "iii")

# Corpus and generation go before the key of its list: `cursors.in_generation`.
CORPUS_COMPONENTS = cursors.Cursors("corpus-components", "iii")
CORPUS_TABLES = cursors.Cursors("corpus-graph-tables", "iiiii")

CORPUS_ETAG = ("corpus and generation, quoted", '"1-2"')
MEDIA_TYPES = {GraphFormat.GRAPHML: "application/graphml+xml", GraphFormat.CSV: "text/csv"}


class GraphAsking(Protocol):
    """Serve one request about a graph."""

    @property
    def headers(self) -> dict[str, str]:
        """Give the headers that name the answer's version."""

    def reader(self, place: tuple[int, int] | None = None) -> AbstractContextManager[GraphReader]:
        """Open what the whole answer is computed from; a page goes on in a place: the id of a corpus, a generation."""

    def stop_if_known(self) -> None:
        """End here, with 304, when the client has this answer."""


def graph_routes(
    prefix: str,
    tag: str,
    name: str,
    asking: Callable[..., Any],
    answered: Callable[..., dict[int | str, Any]],
    paths_question: type[shapes.PathsQuestion] = shapes.PathsQuestion,
    excerpt_question: type[shapes.ExcerptQuestion] = shapes.ExcerptQuestion,
    component_cursors: cursors.Cursors = COMPONENTS,
    table_cursors: cursors.Cursors = TABLES,
    *,
    in_generations: bool = False,
) -> APIRouter:
    """Make the routes below a prefix; `asking` is the dependency that gives a `GraphAsking`.

    `name` goes into the routes' names, `answered` describes an answer with its tag, and the two questions say how
    tables are called. Where pages go on in the generation that they began in, cursors begin with corpus and generation.
    """
    router = APIRouter(prefix=prefix, tags=[tag])
    asked_graph = Annotated[GraphAsking, Depends(asking)]

    def begin(written: cursors.Cursors, cursor: str | None) -> tuple[tuple[int, int] | None, Key | None]:
        """Give the corpus and generation that a page goes on in, if there are any, and the key behind which it does."""
        key = written.decode(cursor)
        return cursors.generation_of(key) if in_generations else (None, key)

    def going_on(page: Page[Any], reader: GraphReader) -> Page[Any]:
        """Let the next page go on in this one's generation."""
        if not in_generations:
            return page
        corpus_id, generation = reader.place
        return Page(page.items, cursors.in_generation(page.next_key, int(corpus_id), generation))

    @router.get(
        "",
        name=f"get_{name}graph",
        responses=answered("The graph") | documented(404, 422, 500, 503),
    )
    def get_graph(request: Request, asked: asked_graph, _: Annotated[schemas.Question, Query()]) -> shapes.Graph:
        """Count the graph of INDs between tables: tables, edges, connected components and their sizes."""
        with asked.reader() as reader:
            asked.stop_if_known()
            return shapes.Graph.of(reader.place[1], ind_graphs.summary(_graphs(request).graph(reader), reader))

    @router.get(
        "/components",
        name=f"list_{name}graph_components",
        responses=answered("A page of components") | documented(404, 422, 500, 503),
    )
    def list_components(
        request: Request, asked: asked_graph, question: Annotated[schemas.PageQuestion, Query()]
    ) -> shapes.ComponentsPage:
        """List the connected components, largest first, each with its hub."""
        place, after = begin(component_cursors, question.cursor)
        with asked.reader(place) as reader:
            asked.stop_if_known()
            page = going_on(
                ind_graphs.components(_graphs(request).graph(reader), reader, after, question.limit), reader
            )
        return shapes.ComponentsPage.listing(
            component_cursors, page, shapes.Component.model_validate, version=reader.place[1]
        )

    @router.get(
        "/tables",
        name=f"list_{name}graph_tables",
        responses=answered("A page of tables") | documented(404, 422, 500, 503),
    )
    def list_tables(
        request: Request, asked: asked_graph, question: Annotated[shapes.GraphTablesQuestion, Query()]
    ) -> shapes.GraphTablesPage:
        """List the graph's tables, or those of a component, hubs first: those that share INDs with most others."""
        place, after = begin(table_cursors, question.cursor)
        with asked.reader(place) as reader:
            graph = _graphs(request).graph(reader)
            ind_graphs.check_component(graph, question.component)
            asked.stop_if_known()
            page = going_on(
                ind_graphs.tables(graph, reader, question.component, after, question.limit, question.contains), reader
            )
        return shapes.GraphTablesPage.listing(
            table_cursors, page, shapes.GraphTable.model_validate, version=reader.place[1]
        )

    @router.get(
        "/excerpt",
        name=f"get_{name}graph_excerpt",
        responses=answered("A part of the graph") | documented(404, 409, 422, 500, 503),
    )
    def get_excerpt(
        request: Request,
        asked: asked_graph,
        given: Annotated[excerpt_question, Query()],  # type: ignore[valid-type]
    ) -> shapes.Excerpt:
        """Give a part of the graph that can be drawn: hubs, those of a component, or a table with its neighbours."""
        question = cast(shapes.ExcerptQuestion, given)
        with asked.reader() as reader:
            around = None if question.around is None else reader.number(question.around)
            graph = _graphs(request).graph(reader)
            component = question.component
            if question.component_of is not None:
                component = ind_graphs.component_with(graph, reader, reader.number(question.component_of))
            ind_graphs.check_component(graph, component)
            asked.stop_if_known()
            found = ind_graphs.excerpt(graph, reader, component, around, question.most)
        return shapes.Excerpt.of(reader.place[1], found)

    @router.get(
        "/paths",
        name=f"find_{name}graph_paths",
        responses=answered("Paths between two tables") | documented(404, 409, 422, 500, 503),
    )
    def find_paths(
        request: Request,
        asked: asked_graph,
        given: Annotated[paths_question, Query()],  # type: ignore[valid-type]
    ) -> shapes.Paths:
        """Give the shortest paths between two tables, and which columns join each two tables on the way."""
        question = cast(shapes.PathsQuestion, given)
        with asked.reader() as reader:
            ends = reader.number(question.from_table), reader.number(question.to_table)
            asked.stop_if_known()
            graph = _graphs(request).graph(reader)
            found = ind_graphs.paths(graph, reader, *ends, question.limit, along_inds=question.along_inds)
        return shapes.Paths(
            version=reader.place[1],
            length=found.length,
            has_more=found.has_more,
            paths=[shapes.JoinPath.model_validate(one) for one in found.paths],
        )

    @router.get(
        "/export",
        name=f"export_{name}graph",
        response_class=StreamingResponse,
        responses=answered("The graph as a file", *MEDIA_TYPES.values()) | documented(404, 422, 500, 503),
    )
    def export(
        request: Request, asked: asked_graph, question: Annotated[shapes.GraphExportQuestion, Query()]
    ) -> StreamingResponse:
        """Give the graph, or a component of it, as GraphML, or as CSV of its edges.

        In GraphML a character of a name that XML cannot hold becomes U+FFFD.
        """
        with asked.reader() as reader:
            graph = _graphs(request).graph(reader)
            ind_graphs.check_component(graph, question.component)
            asked.stop_if_known()
            pieces = graph_export.export(graph, reader.all_names(), question.format, question.component)
        return StreamingResponse(
            pieces,
            media_type=MEDIA_TYPES[question.format],
            headers={**asked.headers, "Content-Disposition": f'attachment; filename="inds.{question.format}"'},
        )

    return router


class TrackedAsking:
    """Serve one request about the graph of the tracked tables."""

    def __init__(self, asked: Asking) -> None:
        self._asked = asked
        self.stop_if_known = asked.stop_if_known

    @property
    def headers(self) -> dict[str, str]:
        return self._asked.headers

    @contextmanager
    def reader(self, place: tuple[int, int] | None = None) -> Iterator[GraphReader]:
        """Open the newest version of the state."""
        with self._asked.snapshot() as snapshot:
            yield TrackedGraphReader(snapshot)


async def _tracked(asked: Asked) -> TrackedAsking:
    return TrackedAsking(asked)


def _graphs(request: Request) -> IndGraphs:
    graphs: IndGraphs = request.app.state.graphs
    return graphs


class CorpusGraphAsking:
    """Serve one request about the graph of a generation of a corpus."""

    def __init__(self, asked: CorpusAsking, corpus: str) -> None:
        self._asked = asked
        self._corpus = corpus
        self.stop_if_known = asked.stop_if_known

    @property
    def headers(self) -> dict[str, str]:
        return self._asked.headers

    @contextmanager
    def reader(self, place: tuple[int, int] | None = None) -> Iterator[GraphReader]:
        """Open the served generation, or the one that a page goes on in."""
        corpus_id, generation = place or (None, None)
        with self._asked.snapshot(self._corpus, generation, corpus_id) as snapshot:
            yield CorpusGraphReader(snapshot)


async def _of_corpus(asked: CorpusAsked, corpus: CorpusPath) -> CorpusGraphAsking:
    return CorpusGraphAsking(asked, corpus)


router = graph_routes("/api/v1/graph", "graph of inclusion dependencies", "", _tracked, examples.answered)
corpus_router = graph_routes(
    "/api/v1/corpora/{corpus}/graph",
    "corpora",
    "corpus_",
    _of_corpus,
    partial(examples.answered, etag=CORPUS_ETAG),
    shapes.CorpusPathsQuestion,
    shapes.CorpusExcerptQuestion,
    CORPUS_COMPONENTS,
    CORPUS_TABLES,
    in_generations=True,
)
