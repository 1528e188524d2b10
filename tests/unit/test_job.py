"""A Spark job as a process: no interrupt is lost, and its folder goes with it, or after it when it was killed."""

from __future__ import annotations

import argparse
import gc
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from spark_jobs.job import run_job
from spark_jobs.job_folder import PREFIX, remove_remains

ROOT = Path(__file__).resolve().parents[2]

LOSES_IT = """
import signal, sys, time, weakref
from argparse import Namespace
from spark_jobs.job import run_job

signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs the tests in the background ignores it

def job(start):
    thing = {1}
    seen = weakref.ref(thing, lambda _: signal.raise_signal(int(sys.argv[1])))
    del thing
    time.sleep(60)

sys.exit(run_job(Namespace(), "test", job, lambda _: 0, stopped="stopped: nothing is lost"))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_that_comes_while_a_callback_runs_is_not_lost(number: signal.Signals) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOSES_IT, str(int(number))], cwd=ROOT, check=False, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "stopped: nothing is lost\n")


IS_ASKED_AMID = """
import signal, sys, time
from argparse import Namespace
from numba.core.compiler_lock import global_compiler_lock
from spark_jobs.job import run_job

def job(start):
    with global_compiler_lock:
        signal.raise_signal(signal.SIGTERM)
        print("compiled", flush=True)
    time.sleep(60)

sys.exit(run_job(Namespace(), "test", job, lambda _: 0, stopped="stopped"))
"""


def test_a_signal_waits_until_a_compilation_has_ended() -> None:
    """LLVM calls Python meanwhile, and may not survive what is raised there."""
    done = subprocess.run([sys.executable, "-c", IS_ASKED_AMID], cwd=ROOT, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "compiled\n", "stopped\n")


LOSES_IT_AND_ENDS = """
import signal, sys, time, weakref
from argparse import Namespace
from spark_jobs import job as jobs

def job(start):
    thing = {1}
    seen = weakref.ref(thing, lambda _: signal.raise_signal(signal.SIGTERM))
    del thing

class Slow(jobs.Quiet):
    def close(self):
        time.sleep(4 * jobs.LOST_SECONDS)

code = jobs.run_job(Namespace(), "test", job, lambda _: 0, Slow())
time.sleep(4 * jobs.LOST_SECONDS)
sys.exit(code)
"""


def test_a_job_that_has_ended_is_not_interrupted_again() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOSES_IT_AND_ENDS], cwd=ROOT, check=False, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


HAS_A_FOLDER = """
import sys, time
from spark_jobs.job_folder import job_folder
(job_folder() / "file").write_text("")
print(job_folder(), flush=True)
sys.stdin.read()
"""


def start(temporary: Path) -> tuple[subprocess.Popen[str], Path]:
    """Start a process with a folder, which ends when its standard input does."""
    process = subprocess.Popen(
        [sys.executable, "-c", HAS_A_FOLDER], cwd=ROOT, env={**os.environ, "TMPDIR": str(temporary)}, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_folders_of_jobs_that_were_killed_go_and_no_others(tmp_path: Path) -> None:
    living, kept = start(tmp_path)
    killed, left = start(tmp_path)
    killed.kill()
    killed.communicate()
    others = [tmp_path / name for name in (f"{PREFIX}being-made", "subsetd-other", "else")]
    for other in others:
        other.mkdir()
    (others[1] / "lock").touch()
    assert left.is_dir(), "who is killed removes nothing"
    next_one, its = start(tmp_path)
    assert not left.exists()
    assert {*tmp_path.iterdir()} == {kept, its, *others}
    remove_remains(tmp_path)
    assert (kept / "file").exists(), "its process lives"
    for process in (living, next_one):
        process.communicate("")
        assert process.returncode == 0
    assert {*tmp_path.iterdir()} == {*others}


def test_what_a_job_has_loaded_is_not_looked_through_for_garbage() -> None:
    loaded: list[object] = []
    assert run_job(argparse.Namespace(), "test", lambda _: any(one is loaded for one in gc.get_objects()), int) == 0
