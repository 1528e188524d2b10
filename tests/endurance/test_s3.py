"""Corpora in a bucket, read by Hadoop's s3a from a server that asks for credentials; a long proof alone.

The server is moto's: `make endurance` installs it by tests/s3/requirements.lock, and the jars are those of
tests/s3a_jars.json. Nothing of this is skipped there.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

import psycopg2
import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest
from pyarrow import fs as pafs

from benchmarks.reference import Column
from service.core.corpus import CorpusKind
from tests.commands import Commands
from tests.kafka_jars import HADOOP, S3A, fetch_jars
from tests.ports import free_ports
from tests.refreshing import ROOT, Lake, Tables, expected_inds, refreshing, values_of
from tests.whole import IS_WHOLE

LIBRARIES = ROOT / "build/s3/lib"

WRONG = "not-the-secret-of-anybody"

TABLES: Tables = {
    "orders": [["1", "2", "3"], ["a", "b", "b"]],
    "deep/parts": [["2", "3", "9"]],
    "x y": [["b", "b"]],
    **{f"many/{number}": [[str(n) for n in range(number, number + 3)]] for number in range(40)},
}

pytestmark = pytest.mark.skipif(not IS_WHOLE, reason="a server and jars of its own: make endurance ONLY=s3 runs it")


@dataclass(frozen=True, slots=True)
class Bucket:
    """Be the bucket `lake` of a running server."""

    port: int
    key: str
    secret: str
    files: pafs.S3FileSystem

    def put(self, path: str, data: bytes) -> None:
        """Write an object."""
        with self.files.open_output_stream(f"lake/{path}") as sink:
            sink.write(data)

    def put_tables(self, folder: str, kind: str, tables: Tables) -> None:
        """Write tables, each as an object."""
        ending, text_of = KINDS[kind]
        for name, columns in tables.items():
            self.put(f"{folder}/{name}{ending}", text_of(columns))


@pytest.fixture(scope="module")
def bucket() -> Iterator[Bucket]:
    assert LIBRARIES.is_dir(), "the server of buckets is not there: make endurance installs it"
    assert list(Path(pyspark.__file__).parent.glob(f"jars/hadoop-client-api-{HADOOP}.jar")), "not PySpark's Hadoop"
    with subprocess.Popen(
        [sys.executable, "-m", "tests.s3.server"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(LIBRARIES)},
    ) as server:  # fmt: skip
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            port, key, secret = server.stdout.readline().split()
            files = pafs.S3FileSystem(
                access_key=key, secret_key=secret, endpoint_override=f"127.0.0.1:{port}", scheme="http",
                region="us-east-1", force_virtual_addressing=False, allow_bucket_creation=True,
            )  # fmt: skip
            files.create_dir("lake")
            yield Bucket(int(port), key, secret, files)
        finally:
            server.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                server.wait(60)
            server.kill()


@pytest.fixture
def told(bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Give what writes Spark's settings, some of them others than the right ones, for all commands to come."""
    monkeypatch.setenv("SUBSETD_SPARK_MASTER", "local[2]")
    monkeypatch.setenv("SUBSETD_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    jars = ",".join(map(str, sorted(fetch_jars(jars=S3A).iterdir())))

    def write(**other: str) -> None:
        settings = {
            "endpoint": f"http://127.0.0.1:{bucket.port}",
            "endpoint.region": "us-east-1",
            "path.style.access": "true",
            "access.key": bucket.key,
            "secret.key": bucket.secret,
            "attempts.maximum": "1",
            "retry.limit": "1",
            **{name.replace("_", "."): value for name, value in other.items()},
        }
        lines = [f"spark.jars {jars}", *(f"spark.hadoop.fs.s3a.{name} {value}" for name, value in settings.items())]
        (tmp_path / "spark-defaults.conf").write_text("\n".join(lines))

    write()
    return write


def as_csv(columns: list[list[str]]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerows([[f"c{n}" for n in range(len(columns))], *zip(*columns, strict=True)])
    return text.getvalue().encode()


def as_parquet(columns: list[list[str]]) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({f"c{n}": cells for n, cells in enumerate(columns)}), sink)
    return sink.getvalue()


def as_line(columns: list[list[str]]) -> bytes:
    relation = [[f"c{n}", *cells] for n, cells in enumerate(columns)]
    return json.dumps({"relation": relation, "hasHeader": True}).encode() + b"\n"


KINDS: dict[str, tuple[str, Callable[[list[list[str]]], bytes]]] = {
    "csv": (".csv", as_csv),
    "parquet": (".parquet", as_parquet),
    "jsonl": (".jsonl", as_line),
}


def inds(tables: Tables, kind: str) -> set[tuple[Column, Column]]:
    """Compare all columns with all others."""
    ending = KINDS[kind][0] + ("#1" if kind == "jsonl" else "")
    return set(expected_inds(values_of({name + ending: columns for name, columns in tables.items()})))


def served(subsetd: Commands, folder: Path, name: str) -> set[tuple[Column, Column]]:
    """Give what the service has found."""
    code, said = subsetd.run("corpus", "export", name, str(folder / f"{name}.csv"))
    assert code == 0, said
    with (folder / f"{name}.csv").open(newline="") as source:
        _, *rows = csv.reader(source)
    return {((a, int(m)), (b, int(n))) for a, m, b, n in rows}


def refreshed(subsetd: Commands, name: str) -> str:
    """Refresh a corpus; give what was said."""
    code, said = subsetd.run("corpus", "refresh", name, "--wait")
    assert code == 0, said
    return said


@pytest.mark.parametrize("kind", KINDS)
def test_a_bucket_is_read_and_after_changes_only_what_changed(
    bucket: Bucket, told: Callable[..., None], subsetd: Commands, tmp_path: Path, kind: str
) -> None:
    bucket.put_tables(kind, kind, TABLES)
    bucket.put(f"{kind}/_temporary/left{KINDS[kind][0]}", b"of a job that died")
    index = ["--index", f"s3a://lake/index-{kind}"] if kind == "csv" else []
    code, said = subsetd.run("corpus", "add", kind, f"s3a://lake/{kind}", "--kind", kind, *index)
    assert code == 0, said
    assert f"{len(TABLES)} files read" in refreshed(subsetd, kind)
    assert served(subsetd, tmp_path, kind) == inds(TABLES, kind)

    changed = {**TABLES, "deep/parts": [["1", "2", "3", "4"]], "new": [["9"]]}
    del changed["x y"]
    bucket.put_tables(kind, kind, {name: changed[name] for name in ("deep/parts", "new")})
    bucket.files.delete_file(f"lake/{kind}/x y{KINDS[kind][0]}")
    said = refreshed(subsetd, kind)
    assert "2 files read" in said
    assert f"{len(TABLES) - 2} files unchanged" in said
    assert served(subsetd, tmp_path, kind) == inds(changed, kind)
    assert f"{len(changed)} files unchanged" in refreshed(subsetd, kind)
    assert served(subsetd, tmp_path, kind) == inds(changed, kind)


def test_tasks_of_spark_read_a_bucket(
    bucket: Bucket, told: Callable[..., None], database_url: str, tmp_path: Path
) -> None:
    bucket.put_tables("tasks", "parquet", TABLES)
    lake = Lake(database_url, tmp_path / "lake", CorpusKind.PARQUET, "s3a://lake/tasks")
    with refreshing(lake, "--on-spark") as job:
        said, fault = job.communicate()
    assert job.returncode == 0, said + fault
    assert lake.report["spark"]
    assert lake.inds() == expected_inds(values_of({f"{name}.parquet": columns for name, columns in TABLES.items()}))


def test_arrow_reads_a_bucket_by_the_settings_of_its_libraries(
    bucket: Bucket, told: Callable[..., None], monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest,
    tmp_path: Path,
) -> None:  # fmt: skip
    bucket.put_tables("arrow", "csv", TABLES)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{bucket.port}")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", bucket.key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", bucket.secret)
    subsetd: Commands = request.getfixturevalue("subsetd")
    code, said = subsetd.run("corpus", "add", "arrow", "s3://lake/arrow", "--kind", "csv")
    assert code == 0, said
    refreshed(subsetd, "arrow")
    assert served(subsetd, tmp_path, "arrow") == inds(TABLES, "csv")


def test_what_keeps_a_bucket_from_being_read_is_told_and_nothing_is_lost(
    bucket: Bucket, told: Callable[..., None], subsetd: Commands, database_url: str, tmp_path: Path
) -> None:
    bucket.put_tables("faults", "csv", TABLES)
    for name, address in (("lake", "lake/faults"), ("nowhere", "nosuch/faults"), ("empty", "lake/nosuch")):
        code, said = subsetd.run("corpus", "add", name, f"s3a://{address}", "--kind", "csv")
        assert code == 0, said
    refreshed(subsetd, "lake")

    for name, other, words in (
        ("lake", {"secret_key": WRONG}, "s3a://lake/faults: .*AccessDenied.* Check the end point and credentials "),
        ("lake", {"endpoint": f"http://127.0.0.1:{free_ports(1)[0]}"}, "s3a://lake/faults: .*Connection refused"),
        ("nowhere", {}, "s3a://nosuch/faults: .*bucket does not exist"),
        ("empty", {}, "s3a://lake/nosuch: there is no such file or folder"),
    ):
        told(**other)
        code, said = subsetd.run("corpus", "refresh", name, "--wait")
        assert code == 1, said
        assert re.search(words, said), said
        assert served(subsetd, tmp_path, "lake") == inds(TABLES, "csv"), "what was found before is served"

    told()
    assert f"{len(TABLES)} files unchanged" in refreshed(subsetd, "lake")
    with closing(psycopg2.connect(database_url)) as connection, connection.cursor() as cursor:
        cursor.execute(
            "select to_jsonb(r)::text from corpus_refresh r union all select to_jsonb(c)::text from corpus c"
        )
        kept = [text for (text,) in cursor.fetchall()]
    assert len(kept) > 6
    for text in [*kept, *(subsetd.said(process) for process in subsetd.running)]:
        assert bucket.secret not in text
        assert WRONG not in text
