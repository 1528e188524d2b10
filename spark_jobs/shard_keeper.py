"""Own the keepers of an executor: a process for each shard that has the shard in memory, whichever worker is asked.

Spark gives a shard's task to any Python worker that is idle, which would know the shard as it was some batches ago, or
not at all. A worker hands its call to the shard's keeper instead, over a Unix socket that only this user may use. The
first who needs a keeper starts it. It ends with the workers' parent, the executor's daemon, which ends all of its
process group. One that was killed costs nothing but its memory: what was applied, and what not, stands in the shard.
"""

from __future__ import annotations

import fcntl
import os
import pickle
import select
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from service.core.errors import StateError
from service.store.shards import warm_shards
from service.usecases.warm_up import RESTS
from spark_jobs.job_folder import SOCKET_PATH_BYTES
from spark_jobs.kernel_cache import require_own

LOOK_SECONDS = 1.0
"""How often a keeper looks whether its executor is still there."""

TRIES = 3
"""A call whose keeper ends under it is given to another one; so often in all."""

Result = TypeVar("Result")


def kept(shard: int, call: Callable[[], Result]) -> Result:
    """Let the shard's keeper on this executor make a picklable call, and give or raise what came of it.

    Raises StateError when keepers end one after the other.
    """
    folder = Path(tempfile.gettempdir(), f"subsetd-keepers-{os.getuid()}")
    require_own(folder)
    path = folder / f"{os.getppid()}-{shard}"
    for _ in range(TRIES):
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                with _address(path) as address:
                    connection.connect(address)
                with connection.makefile("rwb") as stream:
                    pickle.dump(call, stream)
                    stream.flush()
                    done = pickle.load(stream)
        except (FileNotFoundError, ConnectionError, EOFError, pickle.UnpicklingError):
            _start(path)
            continue
        if isinstance(done, BaseException):
            raise done
        return done  # type: ignore[no-any-return]
    raise StateError(f"The process that keeps shard {shard} on {socket.gethostname()} ended {TRIES} times.")


@contextmanager
def _address(path: Path) -> Iterator[str]:
    """Give the path of a socket as it is, or by its folder's descriptor where the system does not take it as it is."""
    if len(os.fsencode(path)) <= SOCKET_PATH_BYTES:  # temporary directories of clusters are longer
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def _start(path: Path) -> None:
    """Start a keeper and wait until it listens, or has ended, as it does beside another one."""
    keeper = subprocess.Popen(
        [sys.executable, "-m", "spark_jobs.shard_keeper", str(path), str(os.getppid())],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    )
    assert keeper.stdout is not None
    with keeper.stdout:
        keeper.stdout.readline()


def keep(path: Path, executor: int) -> None:
    """Answer calls until the process `executor` has ended; at once where another answers them."""
    for left in path.parent.iterdir():
        if not _lives(int(left.name.partition("-")[0])):
            left.unlink(missing_ok=True)
    with path.with_suffix(".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        path.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX) as listener:
            with _address(path) as address:
                listener.bind(address)
            listener.listen()
            print("listens", flush=True)
            _answer(listener, executor)


def _answer(listener: socket.socket, executor: int) -> None:
    rest = LOOK_SECONDS
    while _lives(executor):
        if not select.select([listener], [], [], rest)[0]:
            begun = time.perf_counter()
            is_cold = warm_shards()
            rest = min(RESTS * (time.perf_counter() - begun), LOOK_SECONDS) if is_cold else LOOK_SECONDS
            continue
        connection, _ = listener.accept()
        # Who has asked may be killed meanwhile.
        with connection, suppress(OSError, EOFError, pickle.UnpicklingError), connection.makefile("rwb") as stream:
            pickle.dump(_done(pickle.load(stream)), stream)
        rest = 0.0


def _done(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except Exception as error:
        return error


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, PermissionError):  # a number that serves somebody else's process by now
        return False
    return True


if __name__ == "__main__":
    keep(Path(sys.argv[1]), int(sys.argv[2]))
