"""Own the row `fk-tpc`: foreign keys of TPC-H and TPC-DS, found in their states by values, names and all of it."""

from __future__ import annotations

import json

from benchmarks import tpch
from benchmarks.context import Context, subsetd
from benchmarks.processes import run as run_command
from benchmarks.results_file import Result
from benchmarks.state import Server, environment, server, tpch_state
from benchmarks.tpc_keys import TPCH, TPCH_COMPOSITE, best_f, finding, judged, tpcds_pairs, tpcds_state
from service.core.foreign_keys.ranking import Method
from service.usecases.coefficient_table import MethodName
from service.usecases.foreign_keys import Question

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
        return _tpch_ranked(context, url)


def _tpch_ranked(context: Context, url: str) -> list[Result]:
    """Follow both sides of the composite foreign key too, so that one ranking holds all ten, as the paper's does."""
    log, own = context.logs / "fk-tpc.log", environment(url)
    folder = tpch.tables(context.work, context.scale_factor)
    for table, columns in zip(("lineitem", "partsupp"), TPCH_COMPOSITE, strict=True):
        name = f"{tpch.NAME}.{table}({', '.join(columns)})"
        run_command([subsetd(), "keys", "track", name, f"--source={folder}"], log=log, environment=own)
    found = {}
    with finding(url) as find:
        for method in Method:
            found[method] = find(Question(method))
    by_method = {method: judged(of, TPCH) for method, of in found.items()}
    ranked = found[Method.RANDOMNESS]
    sweet = best_f(ranked, TPCH, [one.score for one in ranked.ranked])
    goals = {
        Method.RANDOMNESS: "value >= 0.95", Method.NAMES: "value >= 1", Method.COMBINED: "value >= 1",
    }  # fmt: skip
    ended = run_command(
        [subsetd(), "keys", "discover", tpch.NAME, f"--source={folder}", "--format", "json"], log=log, environment=own
    )
    discovered = json.loads(ended.output)
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
        Result("TPC-H: keys discover", ended.seconds, "s", goal="value <= 60"),
        Result("TPC-H: keys discover, CPU", ended.usage.cpu_seconds, "s"),
    ]


def _tpcds(context: Context, postgres: Server) -> list[Result]:
    truth = tpcds_pairs()
    results = []
    context.say("TPC-DS             coefficients    P      R      F1")
    with postgres.clone(tpcds_state(context, postgres), "fk_tpcds") as url, finding(url) as find:
        find(Question())  # its histograms, from a lower θ on, serve all that follow
        for method in (Method.CHEN, Method.ROSTIN, Method.COMBINED):
            exact = 0.0
            for estimator, name in ESTIMATORS.items():
                theta = 1.0 if estimator is None else PRUNED_BELOW
                precision, recall, f1 = judged(find(Question(method, theta, estimator=estimator)), truth)
                context.say(f"{method:18} {name:12} {precision:6.3f} {recall:6.3f} {f1:6.3f}")
                exact = f1 if estimator is None else exact
                beside = () if estimator is None else ("exact", exact)
                results.append(Result(f"TPC-DS: F1, {method}, {name}", f1, "", *beside))
    return results
