"""The embedded Postgres: shared by its users, survives their deaths and its own, says what keeps it from starting."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg2
import pytest

from service.core.errors import StateError
from service.store import embedded
from service.store.embedded import EmbeddedPostgres
from tests.ports import free_ports

ANOTHER_USER = """
import sys, time
from pathlib import Path
from service.store.embedded import EmbeddedPostgres
from tests.ports import free_ports
server = EmbeddedPostgres(Path(sys.argv[1]))
print(server.start(), flush=True)
time.sleep(600)
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """Give a folder that other users can pass into: pytest closes its own to them whenever another session starts."""
    with tempfile.TemporaryDirectory(prefix="subsetd-test-") as name:
        yield Path(name)


@contextmanager
def another_user(folder: Path) -> Iterator[str]:
    """Let another process use the server, give its address, and kill that process at the end."""
    with subprocess.Popen([sys.executable, "-c", ANOTHER_USER, folder], stdout=subprocess.PIPE, text=True) as user:
        try:
            assert user.stdout is not None
            yield user.stdout.readline().strip()
        finally:
            user.kill()


def ask(url: str, statement: str) -> object:
    connection = psycopg2.connect(url)
    try:
        with connection, connection.cursor() as cursor:
            cursor.execute(statement)
            return cursor.fetchone()[0] if cursor.description else None
    finally:
        connection.close()


def server_pid(folder: Path) -> int | None:
    file = folder / "postgres" / "postmaster.pid"
    return int(file.read_text().split()[0]) if file.exists() else None


def test_what_was_written_is_there_after_a_restart(folder: Path) -> None:
    with EmbeddedPostgres(folder) as server:
        ask(server.url, "create table kept as select 42 as answer")
    assert server_pid(folder) is None
    with EmbeddedPostgres(folder) as server:
        assert ask(server.url, "select answer from kept") == 42


def test_it_is_durable_and_spares_the_log_of_bulk_loads(folder: Path) -> None:
    with EmbeddedPostgres(folder, extra_settings={"work_mem": "17MB"}) as server:
        settings = {name: ask(server.url, f"show {name}") for name in ("fsync", "synchronous_commit", "wal_level")}
        assert settings == {"fsync": "on", "synchronous_commit": "on", "wal_level": "minimal"}
        assert ask(server.url, "show work_mem") == "17MB"
        assert int(str(ask(server.url, "show max_connections"))) > 50, "it grows with the machine, as Spark's jobs do"
        assert ask(server.url, "show server_encoding") == "UTF8"
        # Text sorts by code point, as Python and Spark sort it.
        assert ask(server.url, "select array_agg(c order by c)::text from unnest(array['a', 'B', 'ä']) c") == "{B,a,ä}"


def test_its_log_has_no_text_of_a_statement_and_is_its_owner_s(folder: Path) -> None:
    with EmbeddedPostgres(folder) as server:
        with pytest.raises(psycopg2.Error, match="nowhere"):
            ask(server.url, "select 'hunter2' from nowhere")
        assert "nowhere" in server.log.read_text()
        assert "hunter2" not in server.log.read_text()
        assert server.log.stat().st_mode & 0o077 == 0


def test_a_throw_away_server_leaves_nothing(folder: Path) -> None:
    with EmbeddedPostgres(folder / "passing", throw_away=True) as server:
        assert ask(server.url, "show fsync") == "off"
    assert not (folder / "passing").exists()


def test_the_last_user_stops_the_server(folder: Path) -> None:
    first, second = EmbeddedPostgres(folder), EmbeddedPostgres(folder)
    assert first.start() == second.start()
    first.stop()
    assert ask(second.url, "select 1") == 1
    second.stop()
    second.stop()
    assert server_pid(folder) is None
    with pytest.raises(StateError, match="start it first"):
        _ = second.url


def test_a_killed_user_leaves_a_server_that_the_next_one_takes_over(folder: Path) -> None:
    with another_user(folder) as url:
        ask(url, "create table kept as select 42 as answer")
        pid = server_pid(folder)
    with EmbeddedPostgres(folder) as server:
        assert server_pid(folder) == pid
        assert ask(server.url, "select answer from kept") == 42
    assert server_pid(folder) is None


def test_a_user_that_lives_keeps_the_server(folder: Path) -> None:
    with another_user(folder) as url:
        with EmbeddedPostgres(folder):
            pass
        assert ask(url, "select 1") == 1
    with EmbeddedPostgres(folder):
        pass
    assert server_pid(folder) is None


def test_a_killed_server_recovers_at_the_next_start(folder: Path) -> None:
    killed = EmbeddedPostgres(folder)
    ask(killed.start(), "create table kept as select 42 as answer")
    pid = server_pid(folder)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    with EmbeddedPostgres(folder) as server:
        assert ask(server.url, "select answer from kept") == 42
        killed.stop()
        assert ask(server.url, "select 1") == 1


def test_a_pid_file_whose_number_is_another_programs_by_now_is_no_hindrance(folder: Path) -> None:
    with EmbeddedPostgres(folder):
        pid_file = folder / "postgres" / "postmaster.pid"
        lines = pid_file.read_text().splitlines()
    pid_file.write_text("\n".join([str(os.getppid()), *lines[1:]]) + "\n")
    with EmbeddedPostgres(folder) as server:
        assert ask(server.url, "select 1") == 1


def test_a_pid_file_whose_number_is_another_folder_s_server_s_by_now_is_no_hindrance(folder: Path) -> None:
    with EmbeddedPostgres(folder / "one"):
        pid_file = folder / "one" / "postgres" / "postmaster.pid"
        lines = pid_file.read_text().splitlines()
    with EmbeddedPostgres(folder / "other", throw_away=True) as other:
        pid_file.write_text("\n".join([str(server_pid(folder / "other")), *lines[1:]]) + "\n")
        with EmbeddedPostgres(folder / "one") as server:
            assert ask(server.url, "select 1") == 1
        assert ask(other.url, "select 1") == 1


@pytest.mark.parametrize("said", ["in recovery mode", "not yet accepting connections", "shutting down"])
def test_a_server_that_takes_no_connection_for_a_moment_is_joined(
    folder: Path, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    connect, refused = psycopg2.connect, []

    def refuse_once(**given: object) -> object:
        if not refused:
            refused.append(said)
            raise psycopg2.OperationalError(f"FATAL:  the database system is {said}")
        return connect(**given)

    with EmbeddedPostgres(folder, throw_away=True) as first:
        pid = server_pid(folder)
        monkeypatch.setattr(psycopg2, "connect", refuse_once)
        second = EmbeddedPostgres(folder)
        assert second.start() == first.url
        second.stop()
        assert (refused, server_pid(folder)) == ([said], pid)
        monkeypatch.undo()


def test_a_server_that_has_all_connections_that_it_bears_is_joined(folder: Path) -> None:
    held: list[psycopg2.extensions.connection] = []
    with EmbeddedPostgres(folder, throw_away=True, extra_settings={"max_connections": "4"}) as first:
        while len(held) < 4:
            with suppress(psycopg2.OperationalError):  # the one of the start may still be closing
                held.append(psycopg2.connect(first.url))
        assert first.cause_of_death() is None
        with EmbeddedPostgres(folder) as second:
            assert second.url == first.url
        for connection in held:
            connection.close()


def test_an_initdb_that_was_killed_half_way_is_begun_again(folder: Path) -> None:
    (folder / "postgres.unfinished" / "base").mkdir(parents=True)
    (folder / "postgres.unfinished" / "PG_VERSION").write_text("18\n")
    with EmbeddedPostgres(folder) as server:
        assert ask(server.url, "select 1") == 1


def test_a_long_path_gets_its_socket_in_a_short_folder(folder: Path) -> None:
    with EmbeddedPostgres(folder / ("long" * 20) / "a folder, 100 %") as server:
        assert ask(server.url, "select 1") == 1
        socket_dir = Path(str(ask(server.url, "show unix_socket_directories")))
        assert len(str(socket_dir)) < 40
    assert not socket_dir.exists()


@pytest.mark.parametrize("name", ["a$HOME", "a`touch run`", 'a"b', "a\\b"])
def test_a_path_that_a_shell_would_read_is_refused(folder: Path, name: str) -> None:
    (folder / name).mkdir()
    with pytest.raises(StateError, match=r"in its path.*set SUBSETD_DATA_DIR to another folder"):
        EmbeddedPostgres(folder / name).start()
    assert [*(folder / name).iterdir()] == []


@pytest.mark.parametrize("name", ["away/../state", "link", "state, old"])
def test_a_folder_may_be_written_in_any_way(folder: Path, name: str) -> None:
    (folder / "state").mkdir()
    (folder / "state" / "kept").touch()
    (folder / "link").symlink_to("state")
    with EmbeddedPostgres(folder / name) as server:
        ask(server.url, "create table kept as select 42 as answer")
        with EmbeddedPostgres((folder / name).resolve()) as other:
            server.stop()
            assert ask(other.url, "select answer from kept") == 42
    with EmbeddedPostgres(folder / name) as server:
        assert ask(server.url, "select answer from kept") == 42
    assert ((folder / name).resolve() / "postgres" / "PG_VERSION").exists()
    assert (folder / "state" / "kept").exists()


def test_a_copy_of_the_folder_of_a_running_server_is_a_server_of_its_own(folder: Path) -> None:
    with EmbeddedPostgres(folder / "one") as server:
        ask(server.url, "create table kept as select 42 as answer")
        ask(server.url, "checkpoint")
        subprocess.run(["cp", "-a", folder / "one", folder / "copy"], check=True)
        with EmbeddedPostgres(folder / "copy") as copy:
            assert server_pid(folder / "copy") != server_pid(folder / "one")
            ask(copy.url, "update kept set answer = 43")
        assert ask(server.url, "select answer from kept") == 42
        assert (folder / "one" / "postgres" / ".s.PGSQL.5432.lock").exists()


def test_a_port_is_open_on_loopback_for_those_who_know_the_password(folder: Path) -> None:
    (port,) = free_ports(1)
    with EmbeddedPostgres(folder, port=port) as server:
        assert ask(server.url, "select host(inet_server_addr())") == "127.0.0.1"
        with pytest.raises(psycopg2.OperationalError, match="password authentication failed"):
            psycopg2.connect(host="127.0.0.1", port=port, user="postgres", password="guessed")


def test_a_port_in_use_is_reported_with_the_servers_own_words(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            StateError, match=rf"(?s)does not start.*postgres\.log ends with.*Address already in use.*{port}"
        ):
            EmbeddedPostgres(folder, port=port).start()


def test_a_port_cannot_be_added_to_a_running_server(folder: Path) -> None:
    with EmbeddedPostgres(folder), pytest.raises(StateError, match="without the port 5999"):
        EmbeddedPostgres(folder, port=5999).start()


def test_a_setting_that_postgres_refuses_is_reported_with_the_end_of_its_log(folder: Path) -> None:
    with pytest.raises(StateError, match=r'(?s)does not start.*invalid value for parameter "shared_buffers"'):
        EmbeddedPostgres(folder, extra_settings={"shared_buffers": "plenty"}).start()
    with EmbeddedPostgres(folder) as server:
        assert ask(server.url, "select 1") == 1


def test_a_folder_that_cannot_be_written_is_named_with_the_way_out(folder: Path) -> None:
    (folder / "file").write_text("no folder")
    with pytest.raises(StateError, match=r"data folder .*/file/state cannot be written.*SUBSETD_DATA_DIR"):
        EmbeddedPostgres(folder / "file" / "state").start()


def test_a_disk_that_fills_up_at_the_start_is_told_as_such(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(folder / "postgres.unfinished"))

    monkeypatch.setattr(EmbeddedPostgres, "_make_cluster", full)
    with pytest.raises(StateError, match=r"cannot be written \(.*unfinished: No space left.*make room"):
        EmbeddedPostgres(folder).start()


def test_a_root_whose_path_has_no_sbin_makes_the_user_of_the_server(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So it is behind `su` alone; here the user's name is one that is refused, so that no user is left behind."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(embedded, "SERVER_USER", "no name")
    monkeypatch.setenv("PATH", str(folder))
    with pytest.raises(StateError, match=r"user no name could not be made \(useradd: .*no name.*as another user"):
        EmbeddedPostgres(folder).start()


def test_the_data_of_another_major_version_is_left_alone(folder: Path) -> None:
    version_file = folder / "postgres" / "PG_VERSION"
    version_file.parent.mkdir()
    version_file.write_text("16\n")
    with pytest.raises(StateError, match="was made by Postgres 16, the embedded one is 18: dump it with Postgres 16"):
        EmbeddedPostgres(folder).start()
    assert [path.name for path in version_file.parent.iterdir()] == ["PG_VERSION"]
