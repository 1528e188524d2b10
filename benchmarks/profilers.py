"""Own the profilers that find INDs anew beside us, where they are installed: each runs in a process of its own.

Desbordante is AGPL and no dependency of ours: `pip install desbordante` by hand. Metanome is in no registry: who has
built it names the jars of metanome-cli and of an algorithm, as a class path, in METANOME_CLASSPATH; its algorithm is
BINDER's, unless METANOME_ALGORITHM names another class.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from benchmarks import desbordante_spider
from benchmarks.context import Context
from benchmarks.processes import Measured, run
from spark_jobs.java_runtime import find_java

SPIDER = "Desbordante Spider"
BINDER = "de.metanome.algorithms.binder.BINDERFile"
HEAP = "-Xmx12g"


class Rediscovery(NamedTuple):
    """Hold what a profiler took to find INDs of a folder, and how many."""

    name: str
    measured: Measured
    inds: int


def installed(context: Context, folder: Path) -> Iterator[Rediscovery]:
    """Run each profiler that is installed over a folder of CSV files, and say which one is not."""
    if desbordante_spider.available():
        yield run_module(context, folder, SPIDER, "benchmarks.desbordante_spider")
    else:
        context.say("desbordante is not installed (pip install desbordante)")
    if class_path := os.environ.get("METANOME_CLASSPATH"):
        algorithm = os.environ.get("METANOME_ALGORITHM", BINDER)
        with TemporaryDirectory(dir=context.work) as buckets:
            command = metanome_command(str(find_java().java), class_path, algorithm, folder, buckets)
            measured = run(command, log=context.logs / "metanome.log")
        yield Rediscovery(f"Metanome's {algorithm.rpartition('.')[2]}", measured, count_of_metanome(measured.output))
    else:
        context.say("Metanome is not there (METANOME_CLASSPATH)")


def run_module(context: Context, folder: Path, name: str, module: str) -> Rediscovery:
    """Run a module of ours that prints the number of a folder's INDs."""
    measured = run([sys.executable, "-m", module, folder], log=context.logs / f"{module.rpartition('.')[2]}.log")
    return Rediscovery(name, measured, json.loads(measured.output)["inds"])


def metanome_command(java: str, class_path: str, algorithm: str, folder: Path, buckets: str) -> list[str]:
    """Give the command that lets Metanome print the unary INDs of a folder of CSV files with headers."""
    options = [f"TEMP_FOLDER_PATH:{buckets}/binder", "DETECT_NARY:false"] if algorithm == BINDER else []
    return [
        *(java, HEAP, "-Dfile.encoding=UTF-8", "-cp", class_path, "de.metanome.cli.App"),
        *("--algorithm", algorithm, "--file-key", "INPUT_FILES", "--separator", ",", "--header", "--output", "print"),
        *(("--algorithm-config", *options) if options else ()),
        *("--files", *(str(path) for path in sorted(folder.glob("*.csv")))),
    ]


def count_of_metanome(output: str) -> int:
    """Count the INDs that Metanome printed, one a line behind its heading; raise ValueError where there is none."""
    _, heading, results = output.partition("\nResults:\n")
    if not heading:
        raise ValueError("Metanome printed no results")
    return sum("[=" in line for line in results.splitlines())
