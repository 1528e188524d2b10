"""Own `subsetd graph`: the graph of INDs between tables on the terminal, and as a file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from service import corpus_wiring, wiring
from service.core.errors import SourceError
from service.core.ind_graph import IndGraph
from service.terminal import Format, FormatOption, out, print_list
from service.usecases import graph_export, ind_graphs, queries
from service.usecases.graph_export import GraphFormat
from service.usecases.graph_readers import CorpusGraphReader, TrackedGraphReader
from service.usecases.ind_graphs import GraphReader, IndGraphs

app = typer.Typer(help="The graph of INDs between tables: components, hubs, paths; export.", no_args_is_help=True)

CorpusOption = Annotated[
    str | None, typer.Option("--corpus", help="Of this corpus, whose tables are paths; default: the tracked tables.")
]
GenerationOption = Annotated[
    int | None, typer.Option("--generation", help="Of the corpus: the one before the served one.")
]
ComponentOption = Annotated[int | None, typer.Option("--component", min=0, help="Only of this component.")]
TopOption = Annotated[int, typer.Option("--top", min=1, max=1_000_000, help="How many to list at most.")]

TABLE_FIELDS = ("name", "component", "neighbours", "references", "referenced_by", "inds")


@app.command()
def show(
    top: TopOption = 10,
    format_: FormatOption = Format.TABLE,
    corpus: CorpusOption = None,
    generation: GenerationOption = None,
) -> None:
    """Count the graph, and list its largest components, each with the table that has most neighbours."""
    with _opened(corpus, generation) as (graph, reader):
        if format_ is Format.TABLE:
            counts = ind_graphs.summary(graph, reader)
            out.print(
                f"{counts.tables:,} tables in {counts.components:,} components, {counts.tables_outside:,} tables in no "
                f"IND; {counts.inds:,} INDs between {counts.edges:,} pairs of tables"
            )
        found = queries.walk(lambda key: ind_graphs.components(graph, reader, key, queries.MAX_LIMIT))
        rows = ([one.component, one.tables, one.edges, one.inds, one.hub.name] for one in islice(found, top))
        print_list(["component", "tables", "edges", "inds", "hub"], rows, format_)


@app.command()
def tables(
    component: ComponentOption = None,
    top: TopOption = 20,
    format_: FormatOption = Format.TABLE,
    corpus: CorpusOption = None,
    generation: GenerationOption = None,
) -> None:
    """List tables, hubs first: those that share INDs with most other tables."""
    with _opened(corpus, generation) as (graph, reader):
        found = queries.walk(lambda key: ind_graphs.tables(graph, reader, component, key, queries.MAX_LIMIT))
        print_list(
            list(TABLE_FIELDS), ([getattr(one, field) for field in TABLE_FIELDS] for one in islice(found, top)), format_
        )


@app.command()
def paths(
    from_table: Annotated[
        str, typer.Argument(metavar="FROM", help="schema.table, id:N of one of its columns, or a path")
    ],
    to_table: Annotated[str, typer.Argument(metavar="TO", help="schema.table, id:N of one of its columns, or a path")],
    along_inds: Annotated[
        bool, typer.Option("--along-inds", help="Each step goes from a dependent to a referenced table.")
    ] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="Most paths.")] = 10,
    corpus: CorpusOption = None,
    generation: GenerationOption = None,
) -> None:
    """Show the shortest paths between two tables, and which columns join each two tables on the way."""
    with _opened(corpus, generation) as (graph, reader):
        ends = reader.number(from_table), reader.number(to_table)
        found = ind_graphs.paths(graph, reader, *ends, limit, along_inds=along_inds)
    if found.length is None:
        out.print("Nothing joins the two.")
        raise typer.Exit(1)
    for path in found.paths:
        out.print(Text(" - ".join(path.tables), style="bold"))
        for step in (each for both in path.steps for each in both):
            for join in step.joins:
                left = _told(step.dependent, join.dependent_column, join.dependent_position, corpus)
                right = _told(step.referenced, join.referenced_column, join.referenced_position, corpus)
                out.print(Text(f"  {left} ⊆ {right}"))
            if step.inds > len(step.joins):
                out.print(f"  ... and {step.inds - len(step.joins):,} more")
    if found.has_more:
        out.print("... and more paths of this length")


@app.command()
def export(
    to: Annotated[Path, typer.Argument(metavar="FILE", help="A file to write: .graphml, or .csv of the edges.")],
    component: ComponentOption = None,
    corpus: CorpusOption = None,
    generation: GenerationOption = None,
) -> None:
    """Write the graph, or a component of it, to a file."""
    try:
        format_ = GraphFormat(to.suffix.removeprefix(".").lower())
    except ValueError:
        raise SourceError(f"{to}: name a file that ends in .graphml or .csv.") from None
    with _opened(corpus, generation) as (graph, reader):
        ind_graphs.check_component(graph, component)
        pieces = graph_export.export(graph, reader.all_names(), format_, component)
        try:
            with to.open("w", encoding="utf-8", newline="") as file:
                file.writelines(pieces)
        except OSError as error:
            raise SourceError(f"{to}: it cannot be written: {error.strerror}.") from error
    out.print(Text(f"{to}: {len(graph.hubs_of(component)):,} tables, {len(graph.edges_of(component)):,} edges"))


@contextmanager
def _opened(corpus: str | None, generation: int | None) -> Iterator[tuple[IndGraph, GraphReader]]:
    if corpus is None and generation is not None:
        raise typer.BadParameter("only a corpus has generations", param_hint="--generation")
    with ExitStack() as stack:
        reader: GraphReader
        if corpus is not None:
            register = stack.enter_context(corpus_wiring.corpus_register())
            reader = CorpusGraphReader(stack.enter_context(register.corpora.snapshot(corpus, generation)))
        else:
            url = stack.enter_context(wiring.state_database(wiring.configured_settings()))
            engine = stack.enter_context(wiring.reading_engine(url))
            reader = TrackedGraphReader(stack.enter_context(wiring.make_reader(engine).snapshot()))
        yield IndGraphs().graph(reader), reader


def _told(table: str, column: str, position: int, corpus: str | None) -> str:
    """Name a column; in a corpus by its position, too, for names of columns repeat there."""
    return f"{table}.{column}" if corpus is None else f"{table}:{position} ({column})"
