"""A command of tests that is forked does, says and ends as one that is started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command_forks import CommandForks
from tests.waiting import wait_for


def forked(forks: CommandForks, folder: Path, *arguments: str, **variables: str) -> tuple[int, str]:
    with (folder / "said").open("w") as output:
        process = forks.start(arguments, os.environ | variables, output)
    assert process is not None
    code = process.wait()
    assert process.poll() == code, "it is told as often as it is asked"
    return code, (folder / "said").read_text()


@pytest.mark.parametrize("arguments", [["--version"], ["watch"], ["inds", "--top", "x"], ["nothing"], ["status"]])
def test_it_says_the_same_and_ends_with_the_same_code(
    arguments: list[str], forks: CommandForks, tmp_path: Path
) -> None:
    settings = {"SUBSETD_DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none"}
    started = subprocess.run(
        [sys.executable, "-m", "service.cli", *arguments],
        env=os.environ | settings, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    assert forked(forks, tmp_path, *arguments, **settings) == (started.returncode, started.stdout)


def test_one_that_is_killed_is_told_by_the_signal_and_others_go_on(
    forks: CommandForks, database_url: str, tmp_path: Path
) -> None:
    environment = os.environ | {"SUBSETD_DATABASE_URL": database_url, "SUBSETD_PORT": "0"}
    with (tmp_path / "serve").open("w") as output:
        process = forks.start(["serve"], environment, output)
    assert process is not None
    wait_for(lambda: "http://" in (tmp_path / "serve").read_text())
    assert forked(forks, tmp_path, "--version")[0] == 0
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.01)
    assert process.poll() is None
    process.kill()
    assert process.wait() == -signal.SIGKILL


def test_what_is_read_at_a_start_is_not_the_same_in_a_fork(forks: CommandForks, tmp_path: Path) -> None:
    assert forked(forks, tmp_path, "--version", SPARK_LOCAL_IP="127.0.0.2")[0] == 0
    with (tmp_path / "said").open("w") as output:
        assert forks.start(["--version"], os.environ | {"PYTHONUTF8": "0"}, output) is None
