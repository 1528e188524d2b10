"""Own the row `api-load`: what 500 clients that poll see of one service that follows a feed meanwhile.

A client asks every second, with the ETag of its last answer: half of them for a page of INDs, half for the transitions
since the version that they know. The feed has 1,000 tuples/s, first one by one, so that nearly every answer is new;
then in transactions of 2,000, so that half of the answers are a 304. The service has filled its memory before, as one
that has been running for some minutes. Then it starts anew and fills its memory beside, which is told without a goal.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from statistics import quantiles

import httpx

from benchmarks import tpch
from benchmarks.context import Context
from benchmarks.feeds import envelope
from benchmarks.http_answers import serving
from benchmarks.http_load import WARM_UP as CLIENTS_WARM_UP
from benchmarks.http_load import Load, polling
from benchmarks.results_file import Result
from benchmarks.rows.freshness import RATE, TOPIC, WARM_UP, broker, offered
from benchmarks.state import environment, server, tpch_state

SEED = 12
CLIENTS = 500
EVERY = 1.0
SECONDS = 20
TRANSACTION = 2_000
PAGE = "/api/v1/uinds?limit=100"
PATHS = (PAGE, "/api/v1/changes?since={known}")


def run(context: Context) -> list[Result]:
    """Let the clients poll through all parts of the feed."""
    seconds = max(6, round(SECONDS * context.size))
    count = RATE * seconds // TRANSACTION * TRANSACTION
    # The first batches find cold caches, and nobody polls yet.
    cold = "", WARM_UP * RATE, 1
    parts = {
        "before": (cold, ("tuple by tuple", count, 1), ("in transactions", count, TRANSACTION)),
        "beside": (cold, ("while memory fills", count, 1)),
    }
    total = sum(of_part for many in parts.values() for _, of_part, _ in many)
    folder = tpch.tables(context.work, context.scale_factor)
    columns = tpch.lineitem_columns(folder)
    by_kind = tpch.lineitem_changes(folder, -(-total // 3), context)
    in_turn = [change for three in zip(*by_kind.values(), strict=True) for change in three]
    records = [envelope(change, tpch.NAME, columns, number) for number, change in enumerate(in_turn, 1)]
    results: list[Result] = []
    done = 0
    with (
        server(context) as postgres,
        broker() as address,
        postgres.clone(tpch_state(context, postgres), "api_load") as url,
    ):
        follow = ["run", "--feed", f"kafka://{address}/{TOPIC}"]
        for warm_up, of_service in parts.items():
            settings = {**environment(url), "SUBSETD_WARM_UP": warm_up}
            with serving(follow, settings, context.logs / f"api-load-{warm_up}.log") as client:
                for part, of_part, at_once in of_service:
                    here = records[done : done + of_part]
                    load, delays = _offered(client, address, part, here, at_once, done, seconds)
                    done += of_part
                    if load is not None:
                        due = round(CLIENTS * seconds / EVERY)
                        results += _results(part, load, delays, due, has_goals=warm_up == "before")
    return results


def _offered(
    client: httpx.Client, address: str, part: str, records: Sequence[bytes], at_once: int, before: int, seconds: float
) -> tuple[Load | None, list[float]]:
    """Offer the records behind `before` others, and let clients poll meanwhile, for so long, if the part has a name."""
    port = client.base_url.port or 0
    clients = polling(port, CLIENTS, seconds + CLIENTS_WARM_UP, EVERY, PATHS) if part else nullcontext()
    with clients as load:
        _, delays = offered(client, address, records, before, at_once, 0.05)
    return load, delays


def _results(part: str, load: Load, delays: Sequence[float], due: int, has_goals: bool) -> list[Result]:
    not_modified, pages = load.of(304), load.of(200, PAGE)
    if not pages:
        raise ValueError(f"{part}: the clients got no page: {load.errors[:3]}")
    told = [Result(f"{part}: p99 of a page of INDs", _p99(pages) * 1000, "ms", goal="value <= 100")]
    if len(not_modified) > len(pages) / 10:  # else there is one now and then, as versions follow each other fast
        told.append(Result(f"{part}: p99 of a 304", _p99(not_modified) * 1000, "ms", goal="value <= 20"))
    answers = len(not_modified + load.of(200))
    told += [
        Result(f"{part}: answers", answers, "", "due", due, "ratio >= 0.95"),
        Result(f"{part}: answers that were 304", len(not_modified) / answers, "share"),
        Result(f"{part}: errors", len(load.errors), "", goal="value = 0"),
        Result(f"{part}: p99 from Kafka to the API", _p99(delays), "s", goal="value <= 1"),
        Result(f"{part}: CPU of the clients", load.cpu_seconds, "s"),
    ]
    return told if has_goals else [replace(one, goal=None) for one in told]


def _p99(many: Sequence[float]) -> float:
    return quantiles(many, n=100)[98]
