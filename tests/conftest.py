"""Own what every test may ask for: a database, a broker, the command, a shop whose changes are sent."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator

import pytest
import structlog
from hypothesis import settings

from tests.broker import broker, running_broker, topic
from tests.cluster import cluster
from tests.commands import forks, subsetd
from tests.dealing import dealt
from tests.following import make_stream
from tests.in_memory import stay_in_memory
from tests.postgres import database_url, empty_database_url, followed_url, logical_server, postgres_server
from tests.shard_servers import east_server, east_url, west_url
from tests.shop import shop

__all__ = [
    "broker",
    "cluster",
    "database_url",
    "east_server",
    "east_url",
    "empty_database_url",
    "followed_url",
    "forks",
    "logical_server",
    "make_stream",
    "postgres_server",
    "running_broker",
    "shop",
    "subsetd",
    "topic",
    "west_url",
]


@pytest.fixture(scope="session", autouse=True)
def _own_data_folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep commands that name no folder for their data away from the user's, and from those of other runs."""
    os.environ["XDG_DATA_HOME"] = str(tmp_path_factory.mktemp("data-home"))


@pytest.fixture(autouse=True)
def _plain_log() -> Iterator[None]:
    """Undo what a test's command made of the log: it would go to a stream that is closed by then."""
    yield
    structlog.reset_defaults()


def _set_aside() -> None:
    """Leave all that there is out of every search for garbage, of which each consumer's end makes one."""
    gc.collect()
    gc.freeze()
    gc.collect()  # from here on it is looked again when there is something new, not a quarter of what is kept


@pytest.fixture(scope="module", autouse=True)
def _what_lasts_is_set_aside() -> None:
    """Look no more through what earlier modules loaded."""
    _set_aside()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Look no more through what the tests are made of: it is a million objects."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        _set_aside()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Order the tests as several processes are to run them, each of which orders them alike."""
    processes = getattr(config, "workerinput", {}).get("workercount", 1)
    if processes > 1:
        items[:] = dealt(items, processes)


stay_in_memory()

# Hundreds of tests start commands, jobs and workers, each of which would compile all that it imports.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# No test asserts a time, and the first call of a compiled function takes long.
settings.register_profile("subsetd", deadline=None)
settings.load_profile("subsetd")
