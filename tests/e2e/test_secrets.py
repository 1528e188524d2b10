"""Own the proof that secrets are nowhere but where they are used: not in logs, answers, errors, files or the state."""

from __future__ import annotations

import json
import os
import pty
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from service.config import Settings
from service.store.tables import metadata
from tests import states
from tests.asking import http_client
from tests.e2e.test_cli import Command, subsetd
from tests.states import Tables
from tests.waiting import BOUND_SECONDS, wait_for

__all__ = ["subsetd"]

SECRET = "hunter2secret"
"""Part of every secret here, so that whatever shows one of them is found."""

KEY = f"{SECRET}-key"
PASSWORD = f"{SECRET}-password"
WATCH = {
    "name": "orders",
    "rule": {"kind": "ind", "dependent": "*", "referenced": "*"},
    "channel": {"kind": "webhook", "url": f"https://alerts.example/{SECRET}-path", "secret": f"{SECRET}-webhook"},
}
REFUSING = """
create function refuse() returns trigger language plpgsql as $$ begin raise 'somebody wants none of these'; end $$;
create trigger refuse before insert on watch for each row when (new.name = 'refused') execute function refuse()
"""
"""Makes the database fail at a watch in a way that nobody expects: a defect, with a traceback in the log."""

COMMAND = [sys.executable, "-m", "service.cli"]
NOWHERE = f"postgresql://somebody:{PASSWORD}@127.0.0.1:1/shop"


@pytest.fixture
def environment(database_url: str, tmp_path: Path) -> dict[str, str]:
    """Give a state, and settings with a secret in each that can have one."""
    tables = Tables({"orders": ["id"]})
    tables.add("orders", ["1"])
    states.store(database_url, tables)
    given = {
        "SUBSETD_API_KEY": KEY,
        "SUBSETD_SMTP": f"smtp://somebody:{PASSWORD}@127.0.0.1:1",
        "SUBSETD_SMTP_FROM": "subsetd@localhost",
        "SUBSETD_DATABASE_URL": database_url.replace("postgres@", f"postgres:{PASSWORD}@", 1),
        "SUBSETD_SCHEMA_REGISTRY": f"http://somebody:{PASSWORD}@127.0.0.1:1",
        "SUBSETD_DATA_DIR": str(tmp_path / "data"),
        "SUBSETD_PORT": "0",
        "SUBSETD_LOG_LEVEL": "debug",
        "SUBSETD_DATABASE_RETRY_SECONDS": "0",
        "SUBSETD_FEED_START_SECONDS": "0.1",
    }
    secrets = {f"SUBSETD_{name.upper()}" for name, of in Settings.model_fields.items() if "SecretStr" in str(of)}
    assert secrets <= given.keys(), "each setting that is a secret is here"
    return {**os.environ, **given}


@pytest.fixture
def feed(tmp_path: Path) -> str:
    (tmp_path / "feed.jsonl").touch()
    return f"file:{tmp_path / 'feed.jsonl'}"


class Said:
    """Read what a process says, as a terminal or through a pipe, while it runs."""

    def __init__(self, command: list[str], environment: dict[str, str], *, on_terminal: bool) -> None:
        ours, its = pty.openpty() if on_terminal else os.pipe()
        self.process = subprocess.Popen(command, env=environment, stdout=its, stderr=its)
        os.close(its)
        self._read: list[bytes] = []
        self._ours = ours
        self._reader = threading.Thread(target=self._all)
        self._reader.start()

    def _all(self) -> None:
        with suppress(OSError):  # a terminal of which nobody is left
            while part := os.read(self._ours, 65_536):
                self._read.append(part)

    @property
    def has_ended(self) -> bool:
        return self.process.poll() is not None

    @property
    def text(self) -> str:
        return b"".join(self._read).decode(errors="replace")

    @property
    def lines(self) -> str:
        """What is whole of it by now."""
        return self.text.rpartition("\n")[0]

    def end(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(BOUND_SECONDS)
        self._reader.join(BOUND_SECONDS)
        return code

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join(BOUND_SECONDS)
        os.close(self._ours)


def answers(base: str) -> Iterator[tuple[str, str]]:
    """Ask for all that tells of the service itself, well and badly; give each address with the whole answer."""
    with http_client(base_url=base, timeout=60) as client:
        bearer = {"Authorization": f"Bearer {KEY}"}
        asked = [
            *(client.get(path, headers=bearer) for path in (
                "/metrics", "/api/v1/openapi.json", "/docs", "/api/v1/state", "/api/v1/overview", "/readyz", "/healthz",
                "/api/v1/attributes", "/api/v1/dead_letters", "/nowhere",
            )),
            client.get("/api/v1/state", headers={"Authorization": f"Bearer {KEY}-wrong"}),
            client.get("/api/v1/state", headers={"Cookie": f"subsetd_session_{client.base_url.port}={SECRET}"}),
            client.post("/api/v1/session", json={"key": f"{KEY}-wrong"}),
            client.post("/api/v1/session", json={"key": [KEY]}),
            client.post("/api/v1/session", content=f'{{"key": "{KEY}"'.encode()),
            client.post("/api/v1/session", json={"key": KEY}),
            client.post("/api/v1/corpora", headers=bearer, json={"name": "c", "kind": "postgres", "location": NOWHERE}),
            client.get("/api/v1/corpora", headers=bearer),
            client.post("/api/v1/watches", headers=bearer, json=WATCH),
            client.post("/api/v1/watches", headers=bearer, json={**WATCH, "name": "refused"}),
            client.get("/api/v1/watches", headers=bearer),
            client.get("/api/v1/api-keys", headers=bearer),
            client.get("/api/v1/write-log", headers=bearer),
        ]  # fmt: skip
        assert {200, 201, 401, 404, 422, 500} <= {one.status_code for one in asked}
        for one in asked:
            yield str(one.url), f"{one.headers!r} {one.text}"


def kept(database_url: str, folder: Path) -> Iterator[tuple[str, str]]:
    """Give all that is in the state, by table, but for where alerts go, and all files below a folder."""
    for table in metadata.tables:
        text = repr(states.query(database_url, f"select to_jsonb(t)::text from {table} t"))
        yield table, text.replace(f"{SECRET}-path", "").replace(f"{SECRET}-webhook", "") if table == "watch" else text
    for path in folder.rglob("*"):
        if path.is_file():
            yield str(path), path.read_bytes().decode("latin-1")


@pytest.mark.parametrize("on_terminal", [False, True])
def test_a_service_shows_and_keeps_no_secret(
    environment: dict[str, str], feed: str, database_url: str, tmp_path: Path, on_terminal: bool
) -> None:
    states.execute(database_url, REFUSING)
    with ExitStack() as opened:
        said = Said([*COMMAND, "run", "--feed", feed], environment, on_terminal=on_terminal)
        opened.callback(said.close)
        base = wait_for(
            lambda: next((word for word in said.lines.split() if word.startswith("http://")), said.has_ended)
        )
        assert isinstance(base, str), said.text
        shown = dict(answers(base))
        (command_line,) = [Path(f"/proc/{said.process.pid}/cmdline").read_bytes().decode()]
        assert said.end() == 0, said.text
    shown |= {"the log": said.text, "the command line": command_line, **dict(kept(database_url, tmp_path))}
    assert '"event"' in said.text or on_terminal, "lines of JSON"
    assert "somebody wants none of these" in said.text, "the cause of a defect is in the log"
    assert [where for where, text in shown.items() if SECRET in text] == []
    assert urlsplit(base).hostname == "127.0.0.1"


@pytest.mark.parametrize(
    "command",
    [
        ["bootstrap", "{}", "--name", "shop"],
        ["verify", "--source", "s={}"],
        ["sketch", "lake", "{}", "--name", "shop"],
    ],
)
def test_the_command_line_of_a_job_shows_no_password_of_its_source(
    environment: dict[str, str], command: list[str]
) -> None:
    with ExitStack() as opened:
        silent = opened.enter_context(socket.create_server(("127.0.0.1", 0)))  # it holds the job, as it never answers
        address = NOWHERE.replace(":1/", f":{silent.getsockname()[1]}/")
        said = Said([*COMMAND, *(word.format(address) for word in command)], environment, on_terminal=False)
        opened.callback(said.close)
        job = wait_for(lambda: said.has_ended or next((line for line in children(said) if "spark_jobs" in line), None))
        assert isinstance(job, str), said.text
        silent.close()
        said.end()
        assert SECRET not in job + said.text


def children(of: Said) -> list[str]:
    """Give the command lines of a process's children, as others see them."""
    numbers = Path(f"/proc/{of.process.pid}/task/{of.process.pid}/children").read_text().split()
    with suppress(FileNotFoundError, ProcessLookupError):  # one that has ended meanwhile
        return [Path(f"/proc/{number}/cmdline").read_text() for number in numbers]
    return []


def test_no_error_of_a_command_shows_a_secret(
    environment: dict[str, str], subsetd: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each command fails, or tells what is wrong, and what it says names the thing without its secret."""
    broken = {
        "away": {"SUBSETD_DATABASE_URL": NOWHERE},
        "no address": {"SUBSETD_DATABASE_URL": f"postgresql://u:{PASSWORD}@host:port/x"},
        "no postgres": {"SUBSETD_DATABASE_URL": f"mysql://u:{PASSWORD}@host/x"},
        "bad settings": {"SUBSETD_PORT": f"http://u:{PASSWORD}@x", "SUBSETD_ON_ERROR": "perhaps"},
    }
    calls = [
        *((changed, ["status"]) for changed in broken.values()),
        (broken["away"], ["doctor"]),
        ({}, ["consume", "--feed", f"{NOWHERE}?name=shop"]),
        ({}, ["follow", NOWHERE, "--name", "shop"]),
        ({}, ["preflight", "--source", NOWHERE]),
        ({}, ["unfollow", "shop", "--source", NOWHERE]),
        ({}, ["corpus", "add", "c", NOWHERE]),
    ]
    for changed, arguments in calls:
        for name, value in {**environment, **changed}.items():
            monkeypatch.setenv(name, value)
        _, out, said = subsetd.ended(*arguments)
        assert out + said, arguments
        assert SECRET not in out + said, (arguments, out, said)


def test_a_key_that_is_made_is_shown_though_the_database_goes_before_it_is_logged(
    environment: dict[str, str], database_url: str, subsetd: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    statement = (
        "create function go_away() returns trigger language plpgsql as "
        "$$ begin raise exception 'gone' using errcode = 'admin_shutdown'; end $$;"
        "create trigger goes_away before insert on write_log execute function go_away()"
    )
    states.execute(database_url, statement)
    code, out, said = subsetd.ended("api-key", "create", "grafana", "--scope", "read")
    assert (code, "gone" in said) == (1, True)
    assert out.startswith("subsetd_")
    assert f"grafana,read,{out.split('_')[1]}," in subsetd("api-key", "list", "--format", "csv")


def test_a_key_is_shown_once_and_revoked(
    environment: dict[str, str], database_url: str, tmp_path: Path, subsetd: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    code, out, said = subsetd.ended("api-key", "create", "grafana", "--scope", "read", "--expires", "12h")
    assert code == 0, said
    key = out.strip()
    assert key.startswith("subsetd_")
    assert len(key.split("_", 2)[2]) >= 43
    assert "scope read and expires at" in said
    again = subsetd.ended("api-key", "create", "grafana", "--scope", "read")
    assert (again[0], "There is a key 'grafana' already" in again[2]) == (1, True)
    assert subsetd.ended("api-key", "create", "x", "--scope", "read", "--expires", "soon")[0] == 2
    assert subsetd("api-key", "create", "for ever", "--scope", "admin", "--expires", "never")
    listed = subsetd("api-key", "list", "--format", "csv")
    assert f"grafana,read,{key.split('_')[1]}," in listed
    assert "for ever" in subsetd("api-key", "list")
    assert "revoked" in subsetd("api-key", "revoke", "grafana")
    assert subsetd.ended("api-key", "revoke", "grafana")[0] == 1
    log = subsetd("write-log", "--format", "csv").splitlines()
    assert [line.split(",", 1)[1] for line in log[1:]] == [
        "cli,,,command,subsetd api-key revoke,/api/v1/api-keys/grafana,",
        "cli,,,command,subsetd api-key create,/api/v1/api-keys/for ever,",
        "cli,,,command,subsetd api-key create,/api/v1/api-keys/grafana,",
    ]
    assert json.loads(subsetd("write-log", "--limit", "1", "--format", "json"))[0]["who"] == "cli"
    shown = {"list": listed, "log": str(log), **dict(kept(database_url, tmp_path))}
    assert [where for where, text in shown.items() if key.split("_", 2)[2] in text] == []
