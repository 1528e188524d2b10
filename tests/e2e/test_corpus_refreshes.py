"""Corpora as they are lived with: refreshed by hand and by a service, on schedule, cancelled, killed, and taken up."""

from __future__ import annotations

import csv
import random
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import psutil
import psycopg2
import pyarrow.parquet as pq
import pytest

from tests import states
from tests.asking import http_client
from tests.commands import Commands
from tests.e2e.test_cli import Command
from tests.waiting import BOUND_SECONDS, wait_for

Place = tuple[str, int]
HEADER = ["dependent_table", "dependent_position", "referenced_table", "referenced_position"]


class Lake:
    """Be a folder of small CSV files, and know by brute force what is contained in what."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.random = random.Random(20261121)
        self.tables: dict[str, list[list[str]]] = {}

    def write(self, path: str) -> None:
        """Write a table of two or three columns, as many as before, whose values come from a few small ranges."""
        columns = []
        for _ in self.tables.get(path) or range(self.random.choice([2, 3])):
            low, width = self.random.choice([0, 0, 100]), self.random.choice([2, 4, 30])
            columns.append([self.random.choice(["", *map(str, range(low, low + width))]) for _ in range(12)])
        self.tables[path] = columns
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("w", newline="") as sink:
            csv.writer(sink).writerows([[f"c{place}" for place in range(len(columns))], *zip(*columns, strict=True)])

    def remove(self, path: str) -> None:
        del self.tables[path]
        (self.folder / path).unlink()

    def inds(self) -> set[tuple[Place, Place]]:
        """Compare all columns with all others; an empty cell is NULL."""
        columns = {
            (path, place): set(cells) - {""} for path, table in self.tables.items() for place, cells in enumerate(table)
        }
        return {
            (first, second)
            for first, values in columns.items()
            for second, others in columns.items()
            if first != second and values and values <= others
        }


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    found = Lake(tmp_path / "lake")
    for number in range(40):
        found.write(f"{number % 3}/tábla {number}.csv")
    return found


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, database_url: str) -> None:
    """Let the commands' Spark be small, and their indexes be here."""
    monkeypatch.setenv("SUBSETD_DATABASE_URL", database_url)
    monkeypatch.setenv("SUBSETD_LOG_LEVEL", "error")
    monkeypatch.setenv("SUBSETD_SPARK_MASTER", "local[1]")
    monkeypatch.setenv("SUBSETD_DATA_DIR", str(tmp_path / "data"))


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Run the quick commands in this process."""
    return Command(monkeypatch, capsys)


def refreshed(subsetd: Commands) -> str:
    code, said = subsetd.run("corpus", "refresh", "lake", "--wait")
    assert code == 0, said
    return said


def exported(here: Command, folder: Path, name: str) -> set[tuple[Place, Place]]:
    here("corpus", "export", "lake", folder / name)
    if name.endswith(".csv"):
        with (folder / name).open(newline="") as source:
            header, *rows = csv.reader(source)
    else:
        table = pq.read_table(folder / name)
        header, rows = table.column_names, list(zip(*table.to_pydict().values(), strict=True))  # type: ignore[arg-type]
    assert header == HEADER
    found = [((first, int(left)), (second, int(right))) for first, left, second, right in rows]
    assert len(set(found)) == len(found)
    return set(found)


def test_a_lake_is_refreshed_by_hand_and_compared_with_before(
    subsetd: Commands, here: Command, lake: Lake, tmp_path: Path, database_url: str
) -> None:
    here("corpus", "add", "lake", lake.folder)
    assert "generation 1 of lake: 40 tables" in refreshed(subsetd)
    before = lake.inds()
    assert len(before) > 100
    assert exported(here, tmp_path, "first.csv") == before

    lake.write("0/tábla 0.csv")
    lake.remove("1/tábla 1.csv")
    lake.write("new.csv")
    (lake.folder / "broken.csv").write_text("a,b\n1\n")
    said = refreshed(subsetd)
    assert "38 files unchanged" in said
    assert "1 files could not be read" in said
    after = lake.inds()
    assert exported(here, tmp_path, "second.parquet") == after
    header, *rows = csv.reader(here("corpus", "changes", "lake", "--format", "csv").splitlines())
    found = [dict(zip(header, row, strict=True)) for row in rows]
    changes = {
        (one["change"], *((one[f"{side}_table"], int(one[f"{side}_position"])) for side in ("dependent", "referenced")))
        for one in found
    }
    # A changed table keeps its columns, so that its INDs that still hold did not change.
    assert changes == {("appeared", *pair) for pair in after - before} | {("went", *pair) for pair in before - after}
    assert "broken.csv" in here("corpus", "faults", "lake")

    with suspended(lambda: subsetd.start("corpus", "refresh", "lake", "--wait", "--full"), database_url) as job:
        waiting = subsetd.running[-1]
        waiting.send_signal(signal.SIGINT)
        wait_for(lambda: is_asked_to_end(job))
    assert waiting.wait(BOUND_SECONDS) == 130
    assert "is cancelled" in subsetd.said(waiting)
    assert exported(here, tmp_path, "third.csv") == after, "what was found before is served"


def job_of(process: subprocess.Popen[str]) -> psutil.Process | None:
    """Find the job that a command has started."""
    for child in psutil.Process(process.pid).children():
        with suppress(psutil.NoSuchProcess):  # it has ended
            if "spark_jobs.many_refresh" in child.cmdline():
                return child
    return None


@contextmanager
def storing_held(database_url: str) -> Iterator[Callable[[], None]]:
    """Let no refresh store what it finds, so that none lands before anybody looks; give what lets them go on."""
    with closing(psycopg2.connect(database_url)) as connection, connection.cursor() as cursor:
        cursor.execute("lock corpus_load_task in share mode")
        yield connection.rollback


@contextmanager
def suspended(begin: Callable[[], subprocess.Popen[str]], database_url: str) -> Iterator[psutil.Process]:
    """Begin a refresh and stop its job when it is at work; let it go on at the end."""
    with storing_held(database_url):
        process = begin()
        job = wait_for(lambda: job_of(process))
        wait_for(lambda: states.query(database_url, "select from corpus_refresh where state = 'running'"))
        job.suspend()
    yield job
    with suppress(psutil.NoSuchProcess):  # it may have been killed
        job.resume()


def is_asked_to_end(job: psutil.Process) -> bool:
    """Say whether a job that is stopped will find a SIGTERM, or was killed as one that did not obey it in time."""
    try:
        status = Path(f"/proc/{job.pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
    pending = re.findall(r"(?:Sig|Shd)Pnd:\s*(\w+)", status)
    return any(int(mask, 16) >> (signal.SIGTERM - 1) & 1 for mask in pending)


@contextmanager
def service(subsetd: Commands) -> Iterator[tuple[subprocess.Popen[str], httpx.Client]]:
    process = subsetd.start("serve")
    address = wait_for(lambda: re.search(r"http://[\d.:]+", subsetd.said(process)))
    with http_client(base_url=address.group(), timeout=BOUND_SECONDS) as client:
        yield process, client


def refreshes(client: httpx.Client) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.get("/api/v1/corpora/lake/refreshes").json()["items"]
    return found


def newest(client: httpx.Client, *states: str) -> dict[str, Any]:
    """Wait until the newest refresh is in one of these states."""
    return wait_for(lambda: next((one for one in refreshes(client)[:1] if one["state"] in states), None))


def ask(process: subprocess.Popen[str], client: httpx.Client) -> Callable[[], subprocess.Popen[str]]:
    """Give what asks a service for a refresh, when no job is there any more: the one before may still be tidying."""
    wait_for(lambda: job_of(process) is None)

    def post() -> subprocess.Popen[str]:
        assert client.post("/api/v1/corpora/lake/refreshes", json={"full": True}).status_code == 202
        return process

    return post


def test_a_service_refreshes_on_schedule_and_survives_what_happens_to_it(
    subsetd: Commands, here: Command, lake: Lake, database_url: str
) -> None:
    here("corpus", "add", "lake", lake.folder, "--schedule", "0 * * * *", "--filters", "min-values=2")
    with closing(psycopg2.connect(database_url)) as connection, connection, connection.cursor() as cursor:
        cursor.execute("update corpus set created_at = created_at - interval '1 hour'")

    with storing_held(database_url) as let_go, service(subsetd) as (process, client):
        running = newest(client, "running")
        assert running["requested_by"] == "schedule"
        let_go()
        wait_for(lambda: refreshes(client)[0]["stage"])
        landed = newest(client, "landed", "failed")
        assert (landed["generation"], landed["fault"]) == (1, None)
        counts = client.get("/api/v1/corpora/lake").json()["counts"]
        assert counts["tables"] == 40
        assert f'subsetd_corpus_inds{{corpus="lake"}} {counts["inds"]}.0' in client.get("/metrics").text

        with suspended(ask(process, client), database_url):
            path = f"/api/v1/corpora/lake/refreshes/{refreshes(client)[0]['refresh_id']}"
            assert client.post(f"{path}/cancel", json={}).status_code == 202
        newest(client, "cancelled")

        with suspended(ask(process, client), database_url) as job:
            job.kill()
        failed = newest(client, "failed")
        assert "exit code 137" in failed["fault"]
        assert client.get("/api/v1/corpora/lake").json()["generation"] == 1

        with suspended(ask(process, client), database_url) as job:
            process.send_signal(signal.SIGTERM)
            wait_for(lambda: is_asked_to_end(job))
        assert process.wait(BOUND_SECONDS) == 0, subsetd.said(process)

    with storing_held(database_url) as let_go, service(subsetd) as (process, client):
        assert [one["state"] for one in refreshes(client)].count("landed") == 1
        let_go()
        landed = newest(client, "landed", "failed")
        assert (landed["generation"], landed["attempt"]) == (2, 1), "it waited for the next service"

        with suspended(ask(process, client), database_url) as job:
            subsetd.kill(process)
            assert job.is_running(), "which is asked while it is stopped: let go, it is done in seconds"

    with service(subsetd) as (process, client):
        landed = newest(client, "landed", "failed")
        assert (landed["generation"], landed["attempt"]) == (3, 1), "a job goes on when its service is killed"
        ind = client.get("/api/v1/corpora/lake/inds", params={"limit": 1}).json()
        assert ind["generation"] == 3
        wait_for(lambda: not job.is_running())
        subsetd.end(process)
