"""Own the row `live-lineitem`: inserts, deletes and updates of lineitem on TPC-H's state, each durable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks import tpch
from benchmarks.bare_merge import apply_bare, read_records, record_batches
from benchmarks.context import Context
from benchmarks.feeds import Change, batches, cell_deltas, net, write_feed
from benchmarks.paper_postgres import count_accesses, tuple_by_tuple_rates
from benchmarks.results_file import Result
from benchmarks.state import Consumed, Server, attribute_ids, consume, one, server, tpch_state

SEED = 2
TUPLES = 100_000
PAPER_TUPLES = 300
"""How many tuples of each kind the paper's algorithms are timed on, after as many that warm their caches."""
COMPILING_TUPLES = 100
"""How many of each kind are applied before anything is timed, so that kernels are compiled."""
LIVE, BARE = "live_tuples", "bare_merge"
"""The copies of the state."""

Changes = Mapping[str, Sequence[Change]]


def run(context: Context) -> list[Result]:
    """Apply the same changes three ways, each on a copy of the same state."""
    folder = tpch.tables(context.work, context.scale_factor)
    changes = tpch.lineitem_changes(folder, context.scaled(TUPLES), context)
    with server(context) as postgres:
        database = tpch_state(context, postgres)
        ids = attribute_ids(postgres, database)["lineitem"]
        with postgres.clone(database, LIVE):
            _compile(context, postgres, changes, tpch.lineitem_columns(folder))
        with postgres.clone(database, LIVE):
            ours = _consumed(context, postgres, changes, tpch.lineitem_columns(folder))
            _require_applied(postgres, database, changes)
        with postgres.clone(database, LIVE):
            cold = consume(context, postgres, LIVE, context.work / "lineitem-insert.jsonl", "beside")
        with postgres.clone(database, BARE):
            bare, accesses = _bare(context, postgres, changes, ours, ids)
        with postgres.clone(database, "paper"), postgres.connection("paper") as connection:
            paper = tuple_by_tuple_rates(connection, changes, ids, PAPER_TUPLES)
    filling = ours["insert"]
    return [
        *(result for kind in changes for result in _results(kind, ours[kind], bare[kind], paper[kind], accesses[kind])),
        Result("filling ValCache before", filling.warm_up_seconds, "s"),
        Result("inserts while ValCache is filled", cold.tuples_per_second, "tuples/s", goal="value >= 5000"),
    ]


def _compile(context: Context, postgres: Server, changes: Changes, columns: Sequence[str]) -> None:
    """Apply a few changes of each kind: code that is new here compiles its kernels then, and never again."""
    few = [change for of_kind in changes.values() for change in of_kind[:COMPILING_TUPLES]]
    feed = write_feed(context.work / "lineitem-few.jsonl", few, tpch.NAME, {"lineitem": columns})
    consume(context, postgres, LIVE, feed, "off")


def _consumed(context: Context, postgres: Server, changes: Changes, columns: Sequence[str]) -> dict[str, Consumed]:
    consumed = {}
    for kind, of_kind in changes.items():
        feed = write_feed(context.work / f"lineitem-{kind}.jsonl", of_kind, tpch.NAME, {"lineitem": columns})
        consumed[kind] = done = consume(context, postgres, LIVE, feed)
        steps = ", ".join(f"{step} {seconds:.2f}" for step, seconds in done.steps.items())
        context.say(f"{kind}: {done.tuples_per_second:,.0f} tuples/s in {done.batches} batches; seconds: {steps}")
    return consumed


def _require_applied(postgres: Server, before: str, changes: Changes) -> None:
    """Raise unless lineitem has as many more rows as the feeds say: a fast wrong answer is no result."""
    rows = []
    for database in (before, LIVE):
        with postgres.connection(database) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT row_count FROM attribute WHERE table_name = 'lineitem' AND ordinal = 0")
            rows.append(int(str(one(cursor))))
    expected = rows[0] + len(changes["insert"]) - len(changes["delete"])
    if rows[1] != expected:
        raise ValueError(f"lineitem has {rows[1]} rows after the feeds, not {expected}")


def _bare(
    context: Context, postgres: Server, changes: Changes, ours: Mapping[str, Consumed], ids: Sequence[int]
) -> tuple[dict[str, float], dict[str, tuple[int, int]]]:
    """Return tuples/s of the bare merge and the paper's (accesses with caches, without), both for each kind."""
    everything = [change for of_kind in changes.values() for change in of_kind]
    touched = {value for change in everything for value, _, _ in cell_deltas(change, ids)}
    with postgres.connection(BARE) as connection:
        records = read_records(connection, touched)
        accesses = count_accesses(connection, records, changes, ids)
        rates = {}
        for kind, of_kind in changes.items():
            size = -(-ours[kind].tuples // ours[kind].batches)
            copies = record_batches(records, [net(batch, {"lineitem": ids}) for batch in batches(of_kind, size)])
            rates[kind] = len(of_kind) / apply_bare(connection, copies)
            context.say(f"{kind}: bare COPY and MERGE {rates[kind]:,.0f} tuples/s in {len(copies)} batches")
    return rates, accesses


def _results(kind: str, ours: Consumed, bare: float, paper: float, accesses: tuple[int, int]) -> list[Result]:
    rate, unit = ours.tuples_per_second, "tuples/s"
    with_caches, without_caches = accesses
    return [
        Result(f"{kind}s", rate, unit, goal="value >= 5000"),
        Result(f"{kind}s", rate, unit, "bare COPY and MERGE", bare, "ratio >= 0.7"),
        Result(f"{kind}s", rate, unit, "the paper's algorithms, tuple by tuple", paper, "ratio >= 25"),
        Result(f"{kind}s: accesses to gen_rec", ours.accesses, "", "without caches", ours.without_caches),
        Result(f"{kind}s: the paper's accesses", with_caches, "", "without its caches", without_caches),
    ]
