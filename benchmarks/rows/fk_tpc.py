"""Own the row `fk-tpc`: foreign keys of TPC-H and TPC-DS, found in their states by values, names and all of it."""

from __future__ import annotations

import json

from benchmarks import tpch
from benchmarks.context import Context, subsetd
from benchmarks.processes import run as run_command
from benchmarks.results_file import Result
from benchmarks.state import Server, environment, server, tpch_state
from benchmarks.tpc_keys import TPCH, TPCH_COMPOSITE, best_f, judged, reading, tpcds_pairs, tpcds_state
from service.core.foreign_keys.ranking import Method
from service.usecases.coefficient_table import MethodName
from service.usecases.foreign_keys import Question, find_foreign_keys

SEED = 21
ESTIMATORS = {None: "exact", MethodName.BOTTOM_K: "bottom-k", MethodName.BML: "bml", MethodName.ESTIMATED: "estimated"}
"""As in Figures 23 and 24 of the BML paper, and our own estimator."""
PRUNED_BELOW = 0.95
"""Of estimates, as there."""


def run(context: Context) -> list[Result]:
    """Rank both states' candidates by each method; of TPC-H also what several columns have."""
    with server(context) as postgres:
        return [*_tpch(context, postgres), *_tpcds(context, postgres)]


def _tpch(context: Context, postgres: Server) -> list[Result]:
    with postgres.clone(tpch_state(context, postgres), "fk_tpc") as url:
        return _tpch_ranked(context, postgres, "fk_tpc", environment(url))


def _tpch_ranked(context: Context, postgres: Server, database: str, own: dict[str, str]) -> list[Result]:
    """Follow both sides of the composite foreign key too, so that one ranking holds all ten, as the paper's does."""
    log = context.logs / "fk-tpc.log"
    folder = tpch.tables(context.work, context.scale_factor)
    for table, columns in zip(("lineitem", "partsupp"), TPCH_COMPOSITE, strict=True):
        name = f"{tpch.NAME}.{table}({', '.join(columns)})"
        run_command([subsetd(), "keys", "track", name, f"--source={folder}"], log=log, environment=own)
    found = {}
    with reading(postgres, database) as snapshot:
        for method in Method:
            found[method] = find_foreign_keys(snapshot, Question(method))
    by_method = {method: judged(of, TPCH) for method, of in found.items()}
    ranked = found[Method.RANDOMNESS]
    sweet = best_f(ranked, TPCH, [one.score for one in ranked.ranked])
    goals = {
        Method.RANDOMNESS: "value >= 0.95", Method.NAMES: "value >= 1", Method.COMBINED: "value >= 1",
    }  # fmt: skip
    discovered = json.loads(
        run_command(
            [subsetd(), "keys", "discover", tpch.NAME, f"--source={folder}", "--format", "json"],
            log=log,
            environment=own,
        ).output
    )
    keys = {(key["table"][1], tuple(key["columns"])) for key in discovered["keys"]}
    pairs = [
        tuple(tuple(name[2] for name in one[side]) for side in ("dependent", "referenced"))
        for one in discovered["foreign_keys"]
    ]
    has_key = ("partsupp", TPCH_COMPOSITE[1]) in keys
    return [
        *(Result(f"TPC-H: F1, {method}", of[2], "", goal=goals.get(method)) for method, of in by_method.items()),
        Result("TPC-H: best F1 of a cut, randomness", sweet, ""),
        Result("TPC-H: partsupp's key found", float(has_key), "", goal="value = 1"),
        Result("TPC-H: composite foreign key found", float(TPCH_COMPOSITE in pairs), "", goal="value = 1"),
        Result("TPC-H: composite candidates", discovered["candidates"], ""),
        Result("TPC-H: of them that hold", len(pairs), ""),
    ]


def _tpcds(context: Context, postgres: Server) -> list[Result]:
    truth = tpcds_pairs()
    results = []
    context.say("TPC-DS             coefficients    P      R      F1")
    with reading(postgres, tpcds_state(context, postgres)) as snapshot:
        for method in (Method.CHEN, Method.ROSTIN, Method.COMBINED):
            exact = 0.0
            for estimator, name in ESTIMATORS.items():
                theta = 1.0 if estimator is None else PRUNED_BELOW
                precision, recall, f1 = judged(
                    find_foreign_keys(snapshot, Question(method, theta, estimator=estimator)), truth
                )
                context.say(f"{method:18} {name:12} {precision:6.3f} {recall:6.3f} {f1:6.3f}")
                exact = f1 if estimator is None else exact
                beside = () if estimator is None else ("exact", exact)
                results.append(Result(f"TPC-DS: F1, {method}, {name}", f1, "", *beside))
    return results
