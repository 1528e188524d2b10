"""Own how the tests run a server of Kafka's: started, stopped in good order, killed, and started again."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from spark_jobs.java_runtime import find_java
from tests.waiting import BOUND_SECONDS

STOP_SECONDS = 60.0

LOGGING = """
rootLogger.level=WARN
rootLogger.appenderRef.console.ref=console
appender.console.type=Console
appender.console.name=console
appender.console.layout.type=PatternLayout
appender.console.layout.pattern=%d %p %c{1}: %m%n
logger.server.name=kafka.server.KafkaRaftServer
logger.server.level=INFO
logger.debezium.name=io.debezium.connector.postgresql
logger.debezium.level=INFO
"""


class JavaServer:
    """Run `main` (a class and its arguments) of a folder of jars, in a folder of its own, where its log is, too.

    One that runs `as_a_service` has a session of its own, as Postgres has: a Linux that shares processors by session
    would start it with what is left of the share of whoever starts it. And its first end in good order makes an archive
    of Java's classes, with which it starts in half the time from then on.
    """

    as_a_service = False

    def __init__(self, folder: Path, jars: Path, main: list[str]) -> None:
        self.folder = folder
        self.jars = jars
        self._main = main
        self._java = find_java().java
        self._log = folder / "server.log"
        self._process: subprocess.Popen[bytes] | None = None
        (folder / "log4j2.properties").write_text(LOGGING)

    def is_up(self) -> bool:
        """Tell whether it serves; raise RuntimeError when it never will."""
        raise NotImplementedError

    def start(self) -> None:
        """Start the server and wait until it serves; does nothing when it runs."""
        if self._process is not None:
            return
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                self._command(*self._main),
                cwd=self.folder,
                stdout=log,
                stderr=log,
                start_new_session=self.as_a_service,
            )
        deadline = time.monotonic() + BOUND_SECONDS
        try:
            while not self.is_up():
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError("it ended, or takes too long")
                time.sleep(0.05)
        except RuntimeError as error:
            self.kill()
            told = self._log.read_text(errors="replace")[-3000:]
            raise RuntimeError(f"{self._main[0]} does not start: {error}\n{told}") from error

    def stop(self) -> None:
        """Let the server end in good order."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(STOP_SECONDS)
            finally:
                self.kill()

    def kill(self) -> None:
        """End the server at once, as a lost machine would: what it has not written is lost."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    @contextmanager
    def hanging(self) -> Iterator[None]:
        """Let the server take connections and answer none, as one whose machine has come to a stop."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def _command(self, main: str, *arguments: str) -> list[str]:
        options = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        options.append(f"-Dlog4j2.configurationFile={self.folder / 'log4j2.properties'}")
        if self.as_a_service:
            archive = self.folder / "classes.jsa"
            options.append(f"-XX:{'SharedArchiveFile' if archive.exists() else 'ArchiveClassesAtExit'}={archive}")
        return [str(self._java), *options, "-cp", f"{self.jars}/*", main, *arguments]
