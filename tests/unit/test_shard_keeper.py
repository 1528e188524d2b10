"""Keepers of shards: found under a path of any length, and none the worse for who is killed in the middle of a word."""

from __future__ import annotations

import os
import pickle
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import psutil
import pytest

from service.core.errors import StateError
from spark_jobs import shard_keeper
from spark_jobs.shard_keeper import TRIES, kept

pytestmark = pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning")
"""A keeper is to outlive whoever starts it."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give the folder of keepers, in a temporary directory whose path is longer than that of a socket may be."""
    there = tmp_path / ("of-a-container-" * 10)
    monkeypatch.setattr(tempfile, "tempdir", str(there))
    yield there / f"subsetd-keepers-{os.getuid()}"
    for child in psutil.Process().children():
        with suppress(psutil.Error):  # another's child may end just now
            if "spark_jobs.shard_keeper" in child.cmdline():  # and no Java of other tests
                child.kill()
                child.wait()


def test_a_keeper_is_asked_again(folder: Path) -> None:
    keeper = kept(3, os.getpid)
    assert keeper not in (os.getpid(), kept(4, os.getpid))
    with pytest.raises(ZeroDivisionError):
        kept(3, partial(divmod, 1, 0))
    assert kept(3, os.getpid) == keeper
    assert folder.stat().st_mode & 0o777 == 0o700, "others find no way to it"


def test_a_keeper_outlives_who_is_killed_while_asking(folder: Path) -> None:
    keeper = kept(0, os.getpid)
    with socket.socket(socket.AF_UNIX) as half, shard_keeper._address(folder / f"{os.getppid()}-0") as address:
        half.connect(address)
        half.sendall(_half())
    assert kept(0, os.getpid) == keeper


def test_keepers_that_are_killed_while_answering_are_counted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Path] = []
    monkeypatch.setattr(shard_keeper, "_start", started.append)
    folder.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as listener:
        with shard_keeper._address(folder / f"{os.getppid()}-0") as address:
            listener.bind(address)
        listener.listen()

        def answer_half() -> None:
            for _ in range(TRIES):
                connection, _ = listener.accept()
                with connection, connection.makefile("rwb") as stream:
                    pickle.load(stream)
                    stream.write(_half())

        answering = threading.Thread(target=answer_half)
        answering.start()
        with pytest.raises(StateError, match=rf"keeps shard 0 .* ended {TRIES} times"):
            kept(0, os.getpid)
        answering.join()
    assert len(started) == TRIES


def _half() -> bytes:
    return pickle.dumps(partial(divmod, 7, 2))[:-9]
