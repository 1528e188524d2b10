"""Own the row `fk-cost`: from a finished bootstrap to ranked foreign keys with their evidence, by the command."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

from benchmarks.context import Context, subsetd
from benchmarks.processes import run as run_command
from benchmarks.results_file import Result
from benchmarks.state import Server, bootstrap, environment, server, tpch_state

SEED = 22
TABLES = 100
ROWS = 10_000
"""Of a made table of ten columns: an id that counts, three that refer, six that do not."""

MANY_TABLES, MANY_ROWS = 750, 1000
"""Of the tables with a million candidates: each of their columns is contained in nearly all ids, by 0.9 or more."""


def run(context: Context) -> list[Result]:
    """Rank the candidates of TPC-H, then those of a thousand made columns."""
    with server(context) as postgres:
        results = _cost(context, postgres, "TPC-H", tpch_state(context, postgres))
        bootstrap(context, postgres, _thousand_columns(context), "made", "fk_made")
        results += _cost(context, postgres, f"{10 * TABLES:,} columns", "fk_made")
        bootstrap(context, postgres, _million_candidates(context), "made", "fk_many")
        return results + _cost(context, postgres, "a million candidates", "fk_many", goal=None)


def _cost(
    context: Context, postgres: Server, name: str, database: str, goal: str | None = "value <= 60"
) -> list[Result]:
    measured = run_command(
        [subsetd(), "foreign-keys", "--format", "json"],
        log=context.logs / "fk-cost.log",
        environment=environment(postgres.url(database)),
        beside={"postgres": postgres.pid},
    )
    return [
        Result(f"{name}: ranked candidates with evidence", measured.seconds, "s", goal=goal),
        Result(f"{name}: CPU without Postgres", measured.usage.cpu_seconds, "s"),
        Result(f"{name}: CPU of Postgres", measured.beside["postgres"].cpu_seconds, "s"),
        Result(f"{name}: ranked", measured.output.count("\n{"), ""),
        Result(f"{name}: peak without Postgres", measured.usage.peak_bytes / 1e9, "GB"),
    ]


def _million_candidates(context: Context) -> Path:
    """Make tables of an id that counts, and a column whose values are in every one of these."""
    folder = _emptied(context.work / "fk-many")
    for table in range(context.scaled(MANY_TABLES)):
        ids = range(1, MANY_ROWS + table + 1)
        lines = "".join(f"{one},{(one * 7 + table) % MANY_ROWS + 1}\n" for one in ids)
        (folder / f"t{table}.csv").write_text(f"id,t{table + 1}_id\n{lines}")
    return folder


def _emptied(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def _thousand_columns(context: Context) -> Path:
    random = context.random("made tables")
    folder = _emptied(context.work / "fk-made")
    most = context.scaled(ROWS)
    sizes = [random.randint(most // 10, most) for _ in range(TABLES)]
    for table, rows in enumerate(sizes):
        others = random.sample([one for one in range(TABLES) if one != table], 3)
        with (folder / f"t{table}.csv").open("w", newline="") as lines:
            writer = csv.writer(lines)
            writer.writerow(
                ["id", *(f"t{other}_id" for other in others), "name", "note", "price", "day", "quantity", "flag"]
            )
            for row in range(1, rows + 1):
                writer.writerow(
                    [
                        row,
                        *(random.randint(1, sizes[other]) for other in others),
                        f"{table} {row}",
                        f"note {random.randrange(10**6)}",
                        f"{random.randrange(10**5) / 100:.2f}",
                        f"2026-{random.randint(1, 12):02}-{random.randint(1, 28):02}",
                        random.randint(1, 100),
                        random.randrange(2),
                    ]
                )
    return folder
