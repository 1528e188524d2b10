"""Own how tests run on other Postgres than the embedded one: `pytest -p tests.other_postgres`, told by the environment.

`SUBSETD_TEST_STATE_POSTGRES` and `SUBSETD_TEST_SOURCE_POSTGRES` are folders with a server's programs: of the
databases that hold the state, and of those that are followed. Without one it is the embedded Postgres.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from service.store import embedded
from service.store.embedded import EmbeddedPostgres

SINCE: Mapping[str, int] = {"io_workers": 18}
"""Settings of the embedded Postgres that older ones do not know, with the version that brought them."""

_embedded_programs = embedded.programs


def programs_of(server: EmbeddedPostgres) -> Path:
    """Give the folder of the programs that run `server`: one whose changes can be followed is a source."""
    kind = "SOURCE" if server.settings["wal_level"] == "logical" else "STATE"
    told = os.environ.get(f"SUBSETD_TEST_{kind}_POSTGRES")
    return Path(told) if told else _embedded_programs()


def major_version(programs: Path) -> int:
    """Ask the programs which Postgres they are."""
    said = subprocess.run([programs / "postgres", "--version"], check=True, capture_output=True, text=True).stdout
    found = re.search(r"\(PostgreSQL\) (\d+)", said)
    assert found is not None, said
    return int(found[1])


def pytest_configure() -> None:
    """Let each server start and stop by its own programs."""
    patch = pytest.MonkeyPatch()
    for name in ("start", "stop"):
        patch.setattr(EmbeddedPostgres, name, _by_its_programs(getattr(EmbeddedPostgres, name)))


def _by_its_programs(method: Any) -> Any:
    def call(server: EmbeddedPostgres) -> Any:
        programs = programs_of(server)
        version = major_version(programs)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(embedded, "programs", lambda: programs)
            patch.setattr(embedded, "POSTGRES_MAJOR", str(version))
            patch.setattr(server, "settings", {n: v for n, v in server.settings.items() if SINCE.get(n, 0) <= version})
            return method(server)

    return call
