"""Own the jobs as spark-submit runs them: one file of Python that names the job, `subsetd_job.py` of `make dist`.

spark-submit --master spark://... --archives subsetd-environment.tar.gz#environment subsetd_job.py bootstrap ...
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module

from service.library_settings import prepare

JOBS = {
    "audit": "audit",
    "backfill": "backfill",
    "bootstrap": "bootstrap",
    "follow": "follow",
    "join-index": "join_index",
    "key-discovery": "key_discovery",
    "refresh": "many_refresh",
    "sketch-lake": "sketch_lake",
}
"""The modules of jobs by their names; each has a `main` that takes its arguments."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a job by its name; what stands behind the name are its own arguments."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser(
        prog="subsetd_job.py", description="Run a job of subsetd; JOB --help tells its own arguments."
    )
    parser.add_argument("job", choices=JOBS, help="the job")
    job = parser.parse_args(given[:1]).job
    if "numpy" not in sys.modules:  # else it is too late, and the settings would be those of its children alone
        prepare()
    # Imported by its name, not run as the main module, so that executors find its classes by that name, too.
    code: int = import_module(f"spark_jobs.{JOBS[job]}").main(given[1:])
    return code
