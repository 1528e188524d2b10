"""Own the process from which Spark forks its Python workers: what all of them need is imported once, and here.

A worker of its own would take two seconds of a core to import PySpark, NumPy, Arrow, Numba and our kernels before its
first task, and there is one for each core. What is forked must be the one thread of its process: a child may wait for
ever for what another thread had locked.
"""

from __future__ import annotations

import gc
import sys
import traceback
from importlib import import_module
from importlib.machinery import PathFinder
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from service.library_settings import prepare

IMPORTED = ("pyspark.worker", "spark_jobs.tasks", "spark_jobs.many_tasks")
"""What workers find imported; what only some jobs need beside these they import themselves."""


def main() -> None:
    """Import, then fork a worker whenever Spark asks for one."""
    prepare()
    sys.path[:] = without_zipped_copies(sys.path)
    for name in IMPORTED:
        import_module(name)
    gc.freeze()  # a collection in a worker would write to pages that it shares with all others
    daemon: Any = import_module("pyspark.daemon")
    end_quietly(daemon)
    daemon.manager()


def end_quietly(daemon: Any) -> None:
    """Let workers of a daemon of PySpark's end without a word where Java has closed their socket.

    A worker writes the end of its input back to Java as an error. A Unix socket, unlike one of TCP, refuses that at
    once, and the refusal was printed among what the job says. What a task fails by is told to Java, and not here.
    """

    def print_exc() -> None:
        if not isinstance(sys.exception(), BrokenPipeError | ConnectionResetError | EOFError):
            traceback.print_exc()

    daemon.traceback = SimpleNamespace(print_exc=print_exc, format_exc=traceback.format_exc)


def end_quietly_here() -> None:
    """Let this worker end so though PySpark's own daemon has forked it, as Spark has it for what plans a stream."""
    daemon = sys.modules["__main__"]
    if getattr(daemon.__spec__, "name", None) == "pyspark.daemon":
        end_quietly(daemon)


def without_zipped_copies(path: list[str]) -> list[str]:
    """Give a module path without the zip files that lie inside of the PySpark of one of its folders.

    Spark puts them first. They hold what is in the folder as source alone, which each process would compile.
    """
    installed = PathFinder.find_spec("pyspark", [entry for entry in path if not entry.endswith(".zip")])
    if installed is None or installed.origin is None:
        return path
    zipped = Path(installed.origin).resolve().parent / "python" / "lib"
    return [entry for entry in path if Path(entry).resolve().parent != zipped]


if __name__ == "__main__":
    main()
