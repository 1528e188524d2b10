"""Jobs as processes: what they are told, how they end, and what they said last."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from service import consumer_process
from service.job_process import NICE, SAID_BYTES, JobProcess, run_attached
from tests.waiting import wait_for, wait_for_end

SESSION = Path("/proc/self/autogroup")


@contextmanager
def running(code: str, *secrets: str) -> Iterator[JobProcess]:
    job = JobProcess([sys.executable, "-c", code], secrets)
    yield job
    job.kill()
    job.close()


def ended(job: JobProcess) -> int:
    wait_for(lambda: job.exit_code() is not None)
    code = job.exit_code()
    assert code is not None
    return code


def test_secrets_go_to_standard_input_where_no_process_list_shows_them() -> None:
    code = "import sys; print(sys.argv, [line.strip() for line in sys.stdin]); sys.exit(3)"
    with running(code, "postgresql://user:password@host", "second") as job:
        assert ended(job) == 3
        assert job.said() == "['-c'] ['postgresql://user:password@host', 'second']"


def test_a_job_gives_way_to_what_follows_and_answers() -> None:
    with running("import os, sys; sys.stdin.read(); print(os.nice(0))", "secret") as job:
        assert ended(job) == 0
        assert int(job.said()) == min(19, os.nice(0) + NICE)
    assert NICE > consumer_process.NICE > 0


@pytest.mark.skipif(not SESSION.exists(), reason="this system does not share its processors by session")
def test_a_job_gives_way_where_processors_are_shared_by_session() -> None:
    said = []
    for _ in range(5):  # on a whole machine, one in 0.1 s is heard of those who are not root
        with running(f"import sys; sys.stdin.read(); print(open('{SESSION}').read())", "secret") as job:
            assert ended(job) == 0
            said.append(job.said())
    assert any(one.endswith(f" nice {NICE}") for one in said), said


def test_a_job_that_ends_before_it_reads_is_told_by_its_code() -> None:
    with running("import os; os.close(0); os._exit(5)", *["long" * 100_000]) as job:
        assert ended(job) == 5


def test_only_the_end_of_what_was_said_is_kept_in_memory() -> None:
    with running("import sys; sys.stderr.write('x' * 100_000 + ' last')") as job:
        assert ended(job) == 0
        assert len(job.said()) == SAID_BYTES
        assert job.said().endswith("xx last")


def test_a_job_is_asked_to_end_and_may_say_how() -> None:
    code = (  # a signal may come within `print`, which then cannot be called again: what it writes is lost, or mixed
        "import os, signal, sys, time\n"
        "def end(*_):\n    os.write(1, b'ended\\n'); sys.exit(7)\n"
        "signal.signal(signal.SIGTERM, end)\n"
        "os.write(1, b'ready\\n')\n"
        "time.sleep(1000)"
    )
    with running(code) as job:
        wait_for(lambda: job.said() == "ready")
        assert job.exit_code() is None
        job.end()
        assert ended(job) == 7
        assert job.said() == "ready\nended"
        job.end()  # whoever asks late does no harm


def test_a_job_is_killed_with_all_that_it_has_started() -> None:
    code = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(1000)'])\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(1000)"
    )
    with running(code) as job:
        wait_for(job.said)
        child = psutil.Process(int(job.said()))
        job.kill()
        assert job.exit_code() == 137
        wait_for_end(child)


def test_a_job_before_the_users_eyes_is_told_secrets_and_gives_its_code() -> None:
    code = "import sys; sys.exit(int(sys.stdin.readline()) + int(sys.stdin.readline()))"
    assert run_attached([sys.executable, "-c", code], ["3", "4"]) == 7
    killed = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    assert run_attached([sys.executable, "-c", killed], []) == 137


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_what_ends_a_command_ends_its_job_which_is_waited_for(number: signal.Signals) -> None:
    job = (
        "import os, signal, sys, time\n"
        "def end(*_):\n    time.sleep(0.5); os.write(1, b'tidied up\\n'); sys.exit(130)\n"
        "signal.signal(signal.SIGTERM, end)\n"
        "os.write(1, b'ready\\n')\n"
        "time.sleep(1000)"
    )
    command_line = [sys.executable, "-c", job]
    code = f"import sys; from service.job_process import run_attached; sys.exit(run_attached({command_line}, []))"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    ) as command:
        assert command.stdout is not None
        assert command.stdout.readline() == "ready\n"
        (child,) = psutil.Process(command.pid).children()
        command.send_signal(number)
        assert command.stdout.read() == "tidied up\n"
        assert command.wait() == 130
        assert not child.is_running()
