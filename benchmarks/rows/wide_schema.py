"""Own the row `wide-schema`: 400 attributes and 250,000 clusters, cost per value beside TPC-H's."""

from __future__ import annotations

import shutil
from contextlib import ExitStack

from benchmarks import tpch, wide
from benchmarks.context import Context
from benchmarks.feeds import write_feed
from benchmarks.http_answers import answers_in_turn, serving
from benchmarks.results_file import Result
from benchmarks.state import Consumed, Server, bootstrap, consume, counts, environment, server, tpch_state

SEED = 4
ROWS = 6_000
"""Changed rows of 50 cells; lineitem gets as many changes as carry about as many cells."""

APPLYING = ("net", "look_up", "apply")
"""The steps that lead from decoded changes to the new state in memory and its transitions."""

ANSWERS = {"page of INDs": "uinds?limit=100", "page of attributes": "attributes?limit=100", "one pair": "uinds/{pair}"}
ASKED = 200
"""How often for each answer: some milliseconds, of which a busy machine doubles some."""

PAIRS = {
    tpch.NAME: "tpch.lineitem.l_partkey/tpch.part.p_partkey",
    wide.NAME: "wide.t0.c0/wide.t0.c1",
}


def run(context: Context) -> list[Result]:
    """Ask both states, then apply changes to both."""
    data = wide.make(context)
    changes = wide.changes(data, context.scaled(ROWS), context)
    feed = write_feed(context.work / "wide.jsonl", changes, wide.NAME, data.columns)
    folder = context.work / "wide"
    shutil.rmtree(folder, ignore_errors=True)
    with server(context) as postgres:
        narrow_state = tpch_state(context, postgres)
        bootstrap(context, postgres, wide.write(data, folder), wide.NAME, wide.NAME)
        found = counts(postgres, wide.NAME)
        context.say(f"made: {found}")
        answers = _answer_seconds(context, postgres, narrow_state)
        consumed = consume(context, postgres, wide.NAME, feed)
        with postgres.clone(narrow_state, "narrow"):
            narrow = _consume_lineitem(context, postgres, "narrow", wide.cells_of(changes))
    return [
        Result("attributes", found["attributes"], "", goal=f"value = {wide.FEW_TABLES.attributes}"),
        Result("clusters", found["clusters"], "", goal=f"value = {data.clusters}"),
        Result("INDs", found["inds"], "", goal=f"value = {wide.FEW_TABLES.inds}"),
        _per_value("the consumer", "ratio <= 2", consumed, narrow),
        _per_value("applying and deriving", "ratio <= 2", consumed, narrow, *APPLYING),
        _per_value("of it merging and deriving alone", None, consumed, narrow, "apply"),
        *(
            Result(f"answer: {kind}", wide_one * 1e3, "ms", "TPC-H", narrow_one * 1e3, "ratio <= 2")
            for kind, (narrow_one, wide_one) in answers.items()
        ),
    ]


def _per_value(metric: str, goal: str | None, consumed: Consumed, narrow: Consumed, *steps: str) -> Result:
    """Compare the microseconds for each netted value: of all, or of some steps of the consumer."""
    ours, beside = (
        (sum(one.steps[step] for step in steps) if steps else one.seconds) / one.values * 1e6
        for one in (consumed, narrow)
    )
    return Result(metric, ours, "µs/value", "TPC-H lineitem", beside, goal)


def _consume_lineitem(context: Context, postgres: Server, database: str, cells: int) -> Consumed:
    """Apply as many inserts, deletes and updates of lineitem as carry about `cells` cells."""
    folder = tpch.tables(context.work, context.scale_factor)
    columns = tpch.lineitem_columns(folder)
    of_each_kind = max(1, cells // (4 * len(columns)))
    by_kind = tpch.lineitem_changes(folder, of_each_kind, context)
    changes = (change for of_kind in by_kind.values() for change in of_kind)
    feed = write_feed(context.work / "narrow.jsonl", changes, tpch.NAME, {"lineitem": columns})
    return consume(context, postgres, database, feed)


def _answer_seconds(context: Context, postgres: Server, narrow_state: str) -> dict[str, list[float]]:
    """Return the median seconds of each kind of answer about TPC-H, and about the wide schema."""
    databases = {tpch.NAME: narrow_state, wide.NAME: wide.NAME}
    with ExitStack() as services:
        clients = {
            name: services.enter_context(
                serving(["serve"], environment(postgres.url(database)), context.logs / f"serve-{name}.log")
            )
            for name, database in databases.items()
        }
        return {
            kind: answers_in_turn(
                [(client, f"/api/v1/{path.format(pair=PAIRS[name])}") for name, client in clients.items()], ASKED
            )
            for kind, path in ANSWERS.items()
        }
