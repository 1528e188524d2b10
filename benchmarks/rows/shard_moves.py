"""Own the row `shard-moves`: a state of TPC-H dealt out to shards, sent to another database and brought back."""

from __future__ import annotations

from benchmarks import tpch
from benchmarks.context import Context, subsetd
from benchmarks.processes import run as run_process
from benchmarks.results_file import Result
from benchmarks.state import bootstrap, environment, server, tpch_state

SEED = 23
COPY, ANEW, ELSEWHERE = "shard_moves", "shard_moves_anew", "shard_moves_elsewhere"


def run(context: Context) -> list[Result]:
    """Time `subsetd shards set`, step by step, on one copy of the state, beside a bootstrap anew."""
    folder = tpch.tables(context.work, context.scale_factor)
    found = {}
    with server(context) as postgres:
        database = tpch_state(context, postgres)
        anew = bootstrap(context, postgres, folder, tpch.NAME, ANEW).seconds
        postgres.drop(ANEW)
        servers = context.work / "shards.toml"
        servers.write_text(f"[elsewhere]\naddress = {postgres.create(ELSEWHERE)!r}\nshards = [2, 3]\n")
        try:
            with postgres.clone(database, COPY) as url:
                for what, arguments in (
                    ("dealt out to 4", ["4"]),
                    ("2 of 4 sent to another database", ["4", "--servers", str(servers)]),
                    ("2 of 4 brought back", ["4"]),
                    ("from 4 to 16", ["16"]),
                    ("from 16 to 1", ["1"]),
                ):
                    log = context.logs / f"shards-{what.replace(' ', '-')}.log"
                    command = [subsetd(), "shards", "set", *arguments]
                    found[what] = run_process(command, log=log, environment=environment(url)).seconds
                    context.say(f"{what}: {found[what]:.1f} s")
        finally:
            postgres.drop(ELSEWHERE)
    return [Result(what, seconds, "s", "a bootstrap anew", anew) for what, seconds in found.items()]
