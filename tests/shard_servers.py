"""Own servers that shards are on in tests: Postgres of their own, which a test may kill and start again."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from service.store.embedded import EmbeddedPostgres
from service.store.shard_dealing import set_shards
from service.store.shard_servers import ShardServer
from tests.in_memory import IN_MEMORY
from tests.postgres import TEMPLATE, fresh_database, with_template


def _server(folder: Path) -> EmbeddedPostgres:
    """Make a server that keeps what it has committed when it is killed: that is in the kernel's hands by then."""
    return EmbeddedPostgres(folder, throw_away=True, extra_settings={"synchronous_commit": "on"})


@pytest.fixture(scope="session")
def east_server() -> Iterator[EmbeddedPostgres]:
    """Run one more real Postgres for the whole session; a test that kills it starts it again."""
    with with_template(_server(Path(tempfile.mkdtemp(prefix="subsetd-east-", dir=IN_MEMORY)))) as server:
        yield server


@pytest.fixture
def east_url(east_server: EmbeddedPostgres) -> Iterator[str]:
    """Give a fresh database on the other server."""
    with fresh_database(east_server, TEMPLATE) as url:
        yield url


@pytest.fixture
def west_url(postgres_server: EmbeddedPostgres) -> Iterator[str]:
    """Give a fresh database of its own beside the state's."""
    with fresh_database(postgres_server, TEMPLATE) as url:
        yield url


def spread(url: str, of: int, **servers: tuple[str, Sequence[int]]) -> int:
    """Deal a state out to shards on servers, given their addresses and shards by name."""
    made = [ShardServer(name, address, tuple(shards)) for name, (address, shards) in servers.items()]
    return set_shards(url, of, lambda _: None, made)


@contextmanager
def killed(server: EmbeddedPostgres) -> Iterator[None]:
    """Let a server be dead for a while: no process of it ends in peace."""
    pid = int((server.cluster / "postmaster.pid").read_text().splitlines()[0])
    parent = psutil.Process(pid)
    parent.suspend()  # and makes no more of them meanwhile
    for process in [parent, *parent.children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs([parent])
    try:
        yield
    finally:
        with _server(server.data_dir):
            pass
