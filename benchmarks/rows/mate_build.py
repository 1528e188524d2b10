"""Own the row `mate-build`: cells indexed in a second by `subsetd corpus index`, beside a COPY of them and a B-tree."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.context import Context
from benchmarks.corpus_refreshes import MASTER
from benchmarks.joinable_sql import cell_lines, copy_cells
from benchmarks.joinable_web_tables import IndexedCorpus, large_tables, read_tables, web_tables
from benchmarks.results_file import Result
from benchmarks.state import one, server

SEED = 0
"""Nothing is drawn."""

BASELINE = "COPY of cells, a B-tree"


def run(context: Context) -> list[Result]:
    """Index both corpora anew, from the command to its end."""
    results: list[Result] = []
    with server(context) as postgres:
        for name, corpus in (
            ("16,000 web tables", web_tables(context, postgres)),
            ("8 million cells", large_tables(context, postgres)),
        ):
            corpus.refreshed()
            results += measure(corpus, name)
    return results


def measure(corpus: IndexedCorpus, name: str) -> Iterator[Result]:
    """Build the index of a corpus where there is none; copy its cells, which a reader has made into lines before."""
    with corpus.corpus.postgres.connection(corpus.corpus.name, autocommit=True) as connection:
        connection.cursor().execute("TRUNCATE join_segment, join_index CASCADE")
    measured = corpus.corpus.index()
    again = corpus.corpus.index().seconds
    with corpus.corpus.postgres.connection(corpus.corpus.name) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT report ->> 'cells' FROM join_index")
        cells = int(str(one(cursor)))
        copied = copy_cells(connection, cell_lines(read_tables(corpus.folder)))
    rate = cells / copied
    apart = cells / (measured.seconds - again)
    yield Result(f"{name}: indexed on {MASTER}", apart, "cells/s", BASELINE, rate, "value >= 300000")
    yield Result(f"{name}: the same, start and listing included", cells / measured.seconds, "cells/s", BASELINE, rate)
    yield Result(f"{name}: seconds, all included", measured.seconds, "s", BASELINE, copied)
    yield Result(f"{name}: seconds where nothing changed", again, "s")
    yield Result(f"{name}: CPU but for Postgres", measured.usage.cpu_seconds, "s")
    yield Result(f"{name}: memory but for Postgres", measured.usage.peak_bytes / 1e9, "GB")
