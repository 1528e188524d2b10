"""Own the foreign keys of TPC-H and TPC-DS as their specifications have them, and states to find them in."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.context import Context
from benchmarks.data_sets import write_tpcds
from benchmarks.fk_judge import f_measure
from benchmarks.state import Server, bootstrap, finished
from service.core.foreign_keys.candidates import Candidate
from service.store.database import make_engine
from service.store.foreign_key_refreshes import PostgresForeignKeys
from service.usecases.foreign_keys import ForeignKeys, Question, find_foreign_keys

Pair = tuple[str, str]
"""`table.column` or `table.(column, column)` of both sides."""

TPCH: frozenset[Pair] = frozenset(
    {
        ("nation.n_regionkey", "region.r_regionkey"),
        ("supplier.s_nationkey", "nation.n_nationkey"),
        ("customer.c_nationkey", "nation.n_nationkey"),
        ("partsupp.ps_partkey", "part.p_partkey"),
        ("partsupp.ps_suppkey", "supplier.s_suppkey"),
        ("orders.o_custkey", "customer.c_custkey"),
        ("lineitem.l_orderkey", "orders.o_orderkey"),
        ("lineitem.l_partkey", "part.p_partkey"),
        ("lineitem.l_suppkey", "supplier.s_suppkey"),
        ("lineitem.(l_partkey, l_suppkey)", "partsupp.(ps_partkey, ps_suppkey)"),
    }
)
"""With the parts of the composite one beside it, as the specification has them."""

TPCH_COMPOSITE = (("l_partkey", "l_suppkey"), ("ps_partkey", "ps_suppkey"))
"""Of lineitem, and of partsupp's key."""

TPCDS = "tpcds"


def tpcds_pairs() -> frozenset[Pair]:
    """Give the foreign keys of TPC-DS that have one column."""
    with Path(__file__).with_name("tpcds_foreign_keys.csv").open() as lines:
        return frozenset(
            (f"{row['table']}.{row['columns']}", f"{row['referenced_table']}.{row['referenced_columns']}")
            for row in csv.DictReader(lines)
            if " " not in row["columns"]
        )


def tpcds_state(context: Context, postgres: Server) -> str:
    """Return the database with TPC-DS' state, bootstrapping it when an earlier row has not."""
    database = f"tpcds_{context.scale_factor:g}".replace(".", "_")
    folder = context.work / f"tpcds-{context.scale_factor:g}"
    if not folder.exists():
        write_tpcds(context.scale_factor, folder)
    if not finished(postgres, database):
        context.say("bootstrapping TPC-DS first")
        bootstrap(context, postgres, folder, TPCDS, database)
    return database


@contextmanager
def finding(url: str) -> Iterator[Callable[[Question], ForeignKeys]]:
    """Give a finder of foreign keys that keeps what its first answer has measured, as the service does."""
    engine = make_engine(url, "subsetd benchmark")
    keys = PostgresForeignKeys(engine)
    kept: list[ForeignKeys] = []

    def find(question: Question) -> ForeignKeys:
        with keys.snapshot() as snapshot:
            found = find_foreign_keys(snapshot, question)
        if not kept:
            kept.append(found)
            keys.follow(found.version, found.histograms, found.statistics)
        return found

    try:
        keys.follow_all()
        yield find
    finally:
        engine.dispose()


def pair_of(found: ForeignKeys, candidate: Candidate) -> Pair:
    """Name a candidate."""
    names = [[found.attributes[column].name for column in side] for side in candidate]
    own, key = (
        f"{of[0].table}.({', '.join(name.column for name in of)})" if len(of) > 1 else f"{of[0].table}.{of[0].column}"
        for of in names
    )
    return own, key


def judged(found: ForeignKeys, truth: frozenset[Pair]) -> tuple[float, float, float]:
    """Give precision, recall and F1 of what is suggested; a foreign key without values is neither found nor missed."""
    empty = {f"{one.table}.{one.name}" for one in found.profiles.values() if not one.distinct}
    wanted = {pair for pair in truth if pair[0] not in empty}
    picked = {pair_of(found, one.candidate) for one in found.ranked if one.suggested} - (truth - wanted)
    right = len(picked & wanted)
    return (
        right / max(len(picked), 1),
        right / max(len(wanted), 1),
        f_measure(right, len(picked) - right, len(wanted) - right),
    )


def best_f(found: ForeignKeys, truth: frozenset[Pair], scores: Sequence[float]) -> float:
    """Give the best F1 of all cuts of a ranking: the paper's sweet spot."""
    pairs = [pair_of(found, one.candidate) for one in found.ranked]
    best = 0.0
    for cut in range(1, len(pairs) + 1):
        if cut == len(pairs) or scores[cut] != scores[cut - 1]:
            right = len(set(pairs[:cut]) & truth)
            best = max(best, f_measure(right, cut - right, len(truth) - right))
    return best
