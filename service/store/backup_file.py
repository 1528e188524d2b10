"""Own the file of a backup: a ZIP of the schema, one zstd stream of rows for each table, and a manifest at the end.

A file whose writer died has no directory and no manifest, and is refused. Members are stored as they are: they are
compressed already, so `unzip` and `zstd -d` get at a table's rows, which are a binary COPY of Postgres.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

import zstandard

from service.core.errors import StateError

FORMATS = (1, 2)
"""In the second one members may have rows of one table that lay on several servers; a release that knew only the first
would leave them out."""
MANIFEST = "manifest.json"
SECTIONS = ("pre-data", "post-data")
"""What of the schema comes before the rows (tables), and what behind (indexes, keys); as pg_dump names them."""

CHUNK = 1 << 20
COMPRESSION_LEVEL = 1
"""Higher ones take longer than Postgres does to give the rows, and save little: most bytes are hashes."""


class BackupError(StateError):
    """A file is no backup, or not the whole of one."""


@dataclass(frozen=True, slots=True)
class TableRows:
    """Describe a table's rows in the file: how many, their bytes uncompressed, and the SHA-256 of these.

    `into` is the table, where it is not of the member's name.
    """

    name: str
    rows: int
    bytes: int
    sha256: str
    into: str | None = None


@dataclass(frozen=True, slots=True)
class Manifest:
    """Say what a backup holds; `revision` is the schema's, `version` the state's, `sequences` the last numbers."""

    subsetd: str
    postgres: str
    made_at: str
    schema: str
    revision: str
    version: int
    positions: list[list[Any]]
    sequences: dict[str, int]
    sections: dict[str, str]
    """SHA-256 of each part of the schema."""
    tables: tuple[TableRows, ...]
    format: int


class BackupWriter:
    """Write a backup, as a context manager; `finish` makes it one."""

    def __init__(self, file: IO[bytes]) -> None:
        self._zip = zipfile.ZipFile(file, "w", zipfile.ZIP_STORED)

    def __enter__(self) -> BackupWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with suppress(*() if kind is None else (OSError,)):  # on a full disk it fails again, and less is said
            self._zip.close()

    def section(self, name: str, script: str) -> str:
        """Add a part of the schema and return its SHA-256."""
        self._zip.writestr(f"{name}.sql", script)
        return hashlib.sha256(script.encode()).hexdigest()

    @contextmanager
    def table(self, name: str) -> Iterator[_Summed]:
        """Give what a table's rows are written to; it knows their sum and length when they are."""
        with (
            self._zip.open(_member(name), "w", force_zip64=True) as member,
            # A thread of zstd's own compresses while Postgres sends.
            zstandard.ZstdCompressor(COMPRESSION_LEVEL, threads=1).stream_writer(member, closefd=False) as stream,
        ):
            yield _Summed(stream)

    def finish(self, manifest: Manifest) -> None:
        """Add the manifest, without which the file is no backup."""
        self._zip.writestr(MANIFEST, json.dumps(asdict(manifest), indent=1))


class BackupReader:
    """Read a backup, as a context manager; raise BackupError for what is not one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._opened = ExitStack()
        try:
            self._zip = self._opened.enter_context(zipfile.ZipFile(path))
            told = json.loads(self._zip.read(MANIFEST))
        except OSError as error:
            raise BackupError(f"The backup {path} cannot be read: {error.strerror or error}") from error
        except (zipfile.BadZipFile, KeyError, ValueError, EOFError) as error:
            self._opened.close()
            raise BackupError(
                f"{path} is no backup, or not the whole of one ({error}): give a file that `subsetd backup` finished"
            ) from error
        if told.get("format") not in FORMATS:
            self._opened.close()
            raise BackupError(
                f"{path} is a backup of format {told.get('format')}, this release reads up to {FORMATS[-1]}: "
                "use a newer subsetd"
            )
        self.manifest = Manifest(**{**told, "tables": tuple(TableRows(**table) for table in told["tables"])})

    def __enter__(self) -> BackupReader:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def check(self) -> None:
        """Read all of it once, and raise BackupError unless every sum is the manifest's."""
        for name, wanted in self.manifest.sections.items():
            if hashlib.sha256(self.section(name).encode()).hexdigest() != wanted:
                raise self._damaged(f"{name}.sql")
        for table in self.manifest.tables:
            with self.rows(table.name) as rows:
                while rows.read(CHUNK):
                    pass
            if (rows.sum, rows.bytes) != (table.sha256, table.bytes):
                raise self._damaged(table.name)

    def section(self, name: str) -> str:
        """Read a part of the schema."""
        with self._reading(name):
            return self._zip.read(f"{name}.sql").decode()

    @contextmanager
    def rows(self, name: str) -> Iterator[_Summed]:
        """Give a table's rows, uncompressed, as a file."""
        with (
            self._reading(name),
            self._zip.open(_member(name)) as member,
            zstandard.ZstdDecompressor().stream_reader(member) as stream,
        ):
            yield _Summed(stream)

    @contextmanager
    def _reading(self, what: str) -> Iterator[None]:
        try:
            yield
        except (zipfile.BadZipFile, zstandard.ZstdError, KeyError, EOFError, UnicodeDecodeError) as error:
            raise self._damaged(what) from error

    def _damaged(self, what: str) -> BackupError:
        return BackupError(f"The backup {self._path} is damaged in {what}: nothing was restored, take another one")


class _Summed(io.RawIOBase):
    """Pass bytes on to a stream, or from it, and sum them."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._sum = hashlib.sha256()
        self.bytes = 0

    @property
    def sum(self) -> str:
        """SHA-256 of what went through so far."""
        return self._sum.hexdigest()

    def write(self, data: Any) -> int:
        self._note(data)
        self._stream.write(data)
        return len(data)

    def read(self, size: int = -1) -> bytes:
        data: bytes = self._stream.read(size)
        self._note(data)
        return data

    def _note(self, data: Any) -> None:
        self._sum.update(data)
        self.bytes += len(data)


def _member(name: str) -> str:
    return f"tables/{name}.copy.zst"
