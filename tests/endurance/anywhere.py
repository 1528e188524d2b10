"""Own the jobs that the proofs of Spark on other masters run, and what each has done, to be compared."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from service.store.embedded import EmbeddedPostgres
from tests.endurance.spark_masters import ROOT, run_job
from tests.joinable import ask, no_spark, told
from tests.postgres import TEMPLATE, administer, fresh_database
from tests.refreshing import Lake
from tests.spark.oracle import query

SHOP = ROOT / "service/demo/chinook"
KEPT = ["--key=Album=AlbumId", "--track-key=Album=ArtistId,Title"]
SOURCE = [str(SHOP), "--name=shop"]
STATE = (
    "select value_key::text, attribute_ids, frequencies from gen_rec order by 1",
    "select attribute_ids, value_count from cluster order by 1",
    "select attribute_id, column_name, row_count, null_count, distinct_count, repeated_count from attribute order by 1",
    "select dependent_id, referenced_id from uind where until_version is null order by 1, 2",
)
"""What a state is, but for the numbers of clusters, which are in the order in which tasks come."""
IMAGES = "select table_name, row_key::text, cells from row_image join tracked_table using (table_id) order by 1, 2"
SKETCHES = "select column_name, table_name, sketch from sketch join attribute using (attribute_id) order by 1, 2"
ASKED = [(str(n), f"{n % 5}") for n in range(1, 40)]
"""Rows to which joinable tables are looked for."""
UPLOADS = "select name, sketch from uploaded_sketch order by name"

Run = Callable[..., str]
"""Run a job with its arguments, and give what it said."""

RunOn = Callable[[str, str, Sequence[str]], str]
"""The same of a job on the database at an address: (address, module, arguments)."""


def bootstrap(run: Run, url: str, _: Path) -> Any:
    run("bootstrap", *SOURCE, *KEPT, "--partitions=4", "--task-bytes=40000")
    found = [query(url, statement) for statement in (*STATE, IMAGES, SKETCHES)]
    assert len(found[0]) > 1000
    return found


def audit(run: Run, url: str, _: Path) -> Any:
    return [
        re.sub(r"[\d.]+ s$", "", run("audit", f"--algorithm={algorithm}", "--partitions=4"), flags=re.MULTILINE)
        for algorithm in ("rarest-first", "signatures")
    ]


def key_discovery(run: Run, url: str, _: Path) -> Any:
    return re.sub(r"in [\d.]+ s", "", run("key_discovery", *SOURCE, "--width=2"))


def sketch_lake(run: Run, url: str, _: Path) -> Any:
    run("sketch_lake", *SOURCE, "--task-bytes=40000")
    return query(url, UPLOADS)


def backfill(run: Run, url: str, _: Path) -> Any:
    run("backfill", '--key=["shop", "Track", "AlbumId", "Name"]')
    return [query(url, statement) for statement in STATE]


def refresh(run: Run, url: str, folder: Path, **settings: Any) -> Any:
    """Refresh twice: all of the lake, and what was changed in it."""
    lake = Lake(url, folder, joinable=True, **settings)
    found = []
    for change in (None, "AlbumId,Title\n1,x\n2,y\n"):
        if change is not None:
            (folder / "Album.csv").write_text(change)
        run("many_refresh", f"--refresh-id={lake.queue()}", f"--data-dir={lake.data_dir}", "--on-spark")
        found.append((lake.inds(), told(ask(url, lake.name, ASKED, 5)), lake.report["stored"]))
    return found


def refresh_in_partitions(run: Run, url: str, folder: Path) -> Any:
    return refresh(run, url, folder, partitions=3)


def join_index(run: Run, url: str, folder: Path) -> Any:
    """Index a lake whose refresh has made no index, on Spark, though its cells are few."""
    lake = Lake(url, folder)
    lake.refresh(no_spark)
    run("tests.endurance.join_index_on_spark", f"--corpus={lake.name}")
    return told(ask(url, lake.name, ASKED, 5))


BOOTSTRAPPED = (audit, key_discovery, sketch_lake, backfill)
"""Those that begin with a state."""
JOBS = (bootstrap, *BOOTSTRAPPED, refresh, refresh_in_partitions, join_index)
WRITING = (bootstrap, sketch_lake, backfill, refresh, refresh_in_partitions)

_undisturbed: dict[Any, Any] = {}


def bootstrapped(server: EmbeddedPostgres) -> str:
    """Give the name of a database with a state, to be copied."""
    name = f"{TEMPLATE}_bootstrapped"
    if not query(server.url, f"select 1 from pg_database where datname = '{name}'"):
        administer(server, f"create database {name} template {TEMPLATE}")
        made = run_job("local[2]", "bootstrap", [*SOURCE, *KEPT], [server.url_of(name)], os.environ)
        assert made.returncode == 0, made.stderr
    return name


def run_on(master: str, environment: Mapping[str, str]) -> RunOn:
    """Run jobs as the service does, on a master."""

    def run(url: str, module: str, arguments: Sequence[str]) -> str:
        ended = run_job(master, module, arguments, [url], environment)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout

    return run


def done(job: Any, server: EmbeddedPostgres, folder: Path, run: RunOn) -> Any:
    """Run a job on a database of its own, and give what it has done."""
    lake = folder / "lake"
    lake.mkdir(parents=True)
    for file in SHOP.glob("*.csv"):
        (lake / file.name).write_bytes(file.read_bytes())
    with fresh_database(server, bootstrapped(server) if job in BOOTSTRAPPED else TEMPLATE) as url:
        return job(lambda module, *arguments: run(url, module, arguments), url, lake)


def undisturbed(job: Any, server: EmbeddedPostgres, folder: Path) -> Any:
    """Run a job in one process, once for all proofs."""
    if job not in _undisturbed:
        _undisturbed[job] = done(job, server, folder, run_on("local[2]", os.environ))
    return _undisturbed[job]
