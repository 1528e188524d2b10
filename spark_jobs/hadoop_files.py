"""Own the file systems that Hadoop reads (hdfs, viewfs, s3a, wasb, har, ...), as Arrow's: one Java for each process.

    python -m spark_jobs.hadoop_files --scheme s3a

says whether addresses of a scheme can be read, and if not, what would help: exit code 1.

Hadoop's own classes do the work, those of PySpark's jars and of jars that the settings name, so that every setting of
Hadoop counts. Python's workers have no way to Spark's Java: each process starts a small one when it first needs it.
"""

from __future__ import annotations

import argparse
import errno
import io
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from threading import Lock
from typing import Any
from xml.etree import ElementTree

import pyarrow as pa
import pyarrow.fs as pafs
import pyspark
from py4j.java_gateway import GatewayClient, GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import ERROR, REFERENCE_TYPE, Py4JError, Py4JJavaError, get_return_value
from pyspark import SparkFiles, TaskContext

from service.core.errors import SourceError, first_line
from spark_jobs.java_runtime import find_java, said_by_java
from spark_jobs.spark_defaults import spark_defaults

ARROW_SCHEMES = ("file", "s3", "gs", "gcs", "abfs", "abfss")
"""What Arrow reads by itself, unless the settings name a class for it (fs.SCHEME.impl)."""

CONFIGURATIONS = ("core-site.xml", "hdfs-site.xml")

JAVA_OPTIONS = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]

_ADDRESS = re.compile(r"([a-z][a-z0-9+.-]*)://([^/]*)(/.*)?", re.IGNORECASE | re.DOTALL)
_STARTING = Lock()


@dataclass(frozen=True, slots=True)
class HadoopSettings:
    """Hold Hadoop's settings and jars as the driver has them; picklable, so that tasks elsewhere go by the same."""

    properties: tuple[tuple[str, str], ...] = field(default=(), repr=False)  # keys are among them
    jars: tuple[str, ...] = ()

    def reads(self, scheme: str) -> bool:
        """Say whether addresses of a scheme are Hadoop's to read."""
        return scheme not in ARROW_SCHEMES or f"fs.{scheme}.impl" in dict(self.properties)


@cache
def hadoop_settings() -> HadoopSettings:
    """Read the settings of this machine: `spark.hadoop.*` and jars of spark-defaults.conf, and HADOOP_CONF_DIR.

    Raises SourceError for a file that cannot be read.
    """
    properties: dict[str, str] = {}
    jars: list[str] = []
    folder = os.environ.get("HADOOP_CONF_DIR")
    try:
        for name in CONFIGURATIONS if folder else ():
            file = Path(folder or "", name)
            if file.exists():
                for one in ElementTree.parse(file).getroot().iter("property"):
                    properties[one.findtext("name", "").strip()] = one.findtext("value", "")
    except (OSError, ValueError, ElementTree.ParseError) as error:
        raise SourceError(f"The settings of Hadoop cannot be read: {first_line(error)}.") from error
    for key, value in spark_defaults().items():
        if key.startswith("spark.hadoop."):
            properties[key.removeprefix("spark.hadoop.")] = value
        elif key == "spark.jars":
            jars += [jar.strip().removeprefix("file://") for jar in value.split(",")]
        elif key == "spark.driver.extraClassPath":
            jars += value.split(os.pathsep)
    return HadoopSettings(tuple(properties.items()), tuple(jars))


def file_system_of(location: str, settings: HadoopSettings) -> tuple[pafs.FileSystem, str]:
    """Give the file system of a local path or an address, and the path on it, which need not be there.

    Raises SourceError for a scheme that nothing reads, OSError, ValueError and ArrowException for what is no address.
    """
    address = _ADDRESS.fullmatch(location)
    if address is None:
        return pafs.LocalFileSystem(), absolute(location)
    scheme, authority, path = address[1].lower(), address[2], address[3] or "/"
    if not settings.reads(scheme):
        filesystem, below = pafs.FileSystem.from_uri(location)
        return filesystem, below
    return pafs.PyFileSystem(HadoopFiles(scheme, authority, path, settings)), path.rstrip("/") or "/"


def absolute(location: str) -> str:
    """Give a location as tasks take it, whose working folder is another: local paths are absolute."""
    return location if _ADDRESS.fullmatch(location) else os.path.abspath(os.path.expanduser(location))


def require_scheme(scheme: str, settings: HadoopSettings) -> None:
    """Raise SourceError, with the way out, when addresses of a scheme cannot be read."""
    if not settings.reads(scheme):
        return
    java = _java(settings)
    try:
        java.jvm.org.apache.hadoop.fs.FileSystem.getFileSystemClass(scheme, java.configuration)
    except Py4JError as error:
        raise SourceError(
            f"Nothing reads addresses that begin with {scheme}://. Arrow reads {', '.join(ARROW_SCHEMES)}, and Hadoop "
            "what its jars bring: name the jar that has it by spark.jars in the file spark-defaults.conf of the folder "
            f"SPARK_CONF_DIR (as hadoop-aws for s3a), and if need be its class by spark.hadoop.fs.{scheme}.impl there, "
            f"or by fs.{scheme}.impl in core-site.xml of the folder HADOOP_CONF_DIR. Hadoop says: {said_by_java(error)}"
        ) from error


class _Java:
    """Be a running Java with Hadoop's settings, and what it does with many things at once: each call takes its time."""

    def __init__(self, jvm: Any, configuration: Any) -> None:
        self.jvm = jvm
        self.configuration = configuration
        of_class, java_type = jvm.java.lang.Class.forName, jvm.java.lang.invoke.MethodType.methodType
        status, path = (of_class(f"org.apache.hadoop.fs.{name}") for name in ("FileStatus", "Path"))
        number, flag = jvm.java.lang.Long.TYPE, jvm.java.lang.Boolean.TYPE
        handles, proxies = jvm.java.lang.invoke.MethodHandles, jvm.java.lang.invoke.MethodHandleProxies
        operator = of_class("java.util.function.UnaryOperator")
        self._asking = {
            name: proxies.asInterfaceInstance(
                operator, handles.publicLookup().findVirtual(owner, name, java_type(given))
            )
            for name, owner, given in (
                ("getPath", status, path), ("getName", path, of_class("java.lang.String")),
                ("isDirectory", status, flag), ("getLen", status, number), ("getModificationTime", status, number),
            )
        }  # fmt: skip

    def each(self, statuses: Any, *methods: str) -> Any:
        """Give a list of what methods, one after the other, say of each item of a list."""
        found = self.jvm.java.util.ArrayList(statuses)
        for method in methods:
            found.replaceAll(self._asking[method])
        return found


class _Client(GatewayClient):  # type: ignore[misc]
    """Raise Java's errors here: Spark would look their numbers up in its own Java, where other things have them."""

    def send_command(self, command: str, retry: bool = True, binary: bool = False) -> Any:
        answer = super().send_command(command, retry, binary)
        if not binary and answer.startswith(ERROR + REFERENCE_TYPE):
            get_return_value(answer, self)
        return answer


class _Gateway(JavaGateway):  # type: ignore[misc]
    def _create_gateway_client(self) -> _Client:
        return _Client(gateway_parameters=self.gateway_parameters)


def _java(settings: HadoopSettings) -> _Java:
    """Give this process' Java; it ends with the process, however that ends."""
    with _STARTING:
        return _start(settings)


@lru_cache(maxsize=4)
def _start(settings: HadoopSettings) -> _Java:
    jars = Path(os.environ.get("SPARK_HOME", str(Path(pyspark.__file__).parent)), "jars")
    # Spark brings the jars of spark.jars to the tasks of other machines.
    brought = [f"{SparkFiles.getRootDirectory()}/*"] if TaskContext.get() is not None else []
    classpath = os.pathsep.join([*settings.jars, *brought, f"{jars}/*"])
    try:
        port, token = launch_gateway(
            jarpath=str(next(jars.glob("py4j-*.jar"))), classpath=classpath,
            javaopts=JAVA_OPTIONS, java_path=str(find_java().java), die_on_exit=True, enable_auth=True,
        )  # fmt: skip
        jvm = _Gateway(gateway_parameters=GatewayParameters(port=port, auth_token=token)).jvm
        configuration = jvm.org.apache.hadoop.conf.Configuration()
        for name, value in settings.properties:
            configuration.set(name, value)
        jvm.org.apache.hadoop.security.UserGroupInformation.setConfiguration(configuration)
    except (OSError, ValueError, StopIteration, Py4JError) as error:
        raise SourceError(f"The Java that Hadoop's file systems need did not start: {first_line(error)}.") from error
    return _Java(jvm, configuration)


@dataclass(eq=False)
class HadoopFiles(pafs.FileSystemHandler):  # type: ignore[misc]
    """Be one of Hadoop's file systems for Arrow; errors are those of Python's own files."""

    scheme: str
    authority: str
    path: str
    settings: HadoopSettings
    _java: _Java = field(init=False)
    _files: Any = field(init=False)

    def __post_init__(self) -> None:
        require_scheme(self.scheme, self.settings)
        self._java = _java(self.settings)
        with _telling(self.path):
            # A har:// address says by its path where the archive is.
            self._files = self._java.jvm.org.apache.hadoop.fs.FileSystem.get(
                self._at(self.path).toUri(), self._java.configuration
            )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, HadoopFiles):
            return NotImplemented
        return (self.scheme, self.authority, self.settings) == (other.scheme, other.authority, other.settings)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((self.scheme, self.authority, self.settings))

    def get_type_name(self) -> str:
        return self.scheme

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: Sequence[str]) -> list[pafs.FileInfo]:
        return [self._info(path) for path in paths]

    def get_file_info_selector(self, selector: pafs.FileSelector) -> list[pafs.FileInfo]:
        found: list[pafs.FileInfo] = []
        folders = [selector.base_dir]
        while folders:
            folder = folders.pop()
            try:
                listed = self._list(folder)
            except (FileNotFoundError, NotADirectoryError):
                if folder == selector.base_dir and not selector.allow_not_found:
                    raise
                continue  # it has gone while its neighbours were listed
            found += listed
            if selector.recursive:
                folders += [info.path for info in listed if info.type == pafs.FileType.Directory]
        return found

    def create_dir(self, path: str, recursive: bool) -> None:
        with _telling(path):
            self._files.mkdirs(self._at(path))

    def delete_dir(self, path: str) -> None:
        self._delete(path, recursive=True)

    def delete_dir_contents(self, path: str, missing_dir_ok: bool = False) -> None:
        for info in self.get_file_info_selector(pafs.FileSelector(path, allow_not_found=missing_dir_ok)):
            self._delete(info.path, recursive=True)

    def delete_root_dir_contents(self) -> None:
        raise NotImplementedError("a whole file system is not to be emptied")

    def delete_file(self, path: str) -> None:
        self._delete(path, recursive=False)

    def move(self, src: str, dest: str) -> None:
        with _telling(src):
            if not self._files.rename(self._at(src), self._at(dest)):
                raise OSError(errno.EIO, f"it cannot be moved to {dest}", src)

    def copy_file(self, src: str, dest: str) -> None:
        raise NotImplementedError("nothing is copied on Hadoop's file systems")

    def open_input_stream(self, path: str) -> pa.NativeFile:
        return self.open_input_file(path)

    def open_input_file(self, path: str) -> pa.NativeFile:
        with _telling(path):
            size = self._files.getFileStatus(self._at(path)).getLen()
            return pa.PythonFile(_Input(self._java, self._files.open(self._at(path)), path, size), mode="r")

    def open_output_stream(self, path: str, metadata: dict[str, str]) -> pa.NativeFile:
        with _telling(path):
            return pa.PythonFile(_Output(self._java, self._files.create(self._at(path), True), path), mode="w")

    def open_append_stream(self, path: str, metadata: dict[str, str]) -> pa.NativeFile:
        raise NotImplementedError("nothing is appended to on Hadoop's file systems")

    def _at(self, path: str) -> Any:
        return self._java.jvm.org.apache.hadoop.fs.Path(self.scheme, self.authority or None, path or "/")

    def _delete(self, path: str, recursive: bool) -> None:
        with _telling(path):
            if not self._files.delete(self._at(path), recursive):
                raise FileNotFoundError(errno.ENOENT, "it is not there", path)

    def _info(self, path: str) -> pafs.FileInfo:
        try:
            with _telling(path):
                found = self._files.getFileStatus(self._at(path))
                is_folder, size, modified = found.isDirectory(), found.getLen(), found.getModificationTime()
        except (FileNotFoundError, NotADirectoryError):
            return pafs.FileInfo(path, pafs.FileType.NotFound)
        return _file_info(path, is_folder, size, modified)

    def _list(self, folder: str) -> list[pafs.FileInfo]:
        """List a folder with a few calls, however many files are in it."""
        with _telling(folder):
            found = self._java.jvm.org.apache.hadoop.util.functional.RemoteIterators.toList(
                self._files.listStatusIterator(self._at(folder))
            )
            names = self._java.each(found, "getPath", "getName")
            joined = self._java.jvm.org.apache.hadoop.util.StringUtils.join("/", names)
            kinds, sizes, times = (
                self._java.each(found, method).toString().strip("[]").split(", ")
                for method in ("isDirectory", "getLen", "getModificationTime")
            )
        files = zip(joined.split("/"), kinds, map(int, sizes), map(int, times), strict=True) if joined else ()
        return [
            _file_info(f"{folder.rstrip('/')}/{name}", kind == "true", size, modified)
            for name, kind, size, modified in files
        ]


def _file_info(path: str, is_folder: bool, size: int, modified: int) -> pafs.FileInfo:
    kind = pafs.FileType.Directory if is_folder else pafs.FileType.File
    times = {"mtime_ns": modified * 1_000_000} if modified > 0 else {}
    return pafs.FileInfo(path, kind, size=None if is_folder else size, **times)


class _Stream(io.RawIOBase):
    """Pass bytes to and from one of Hadoop's streams through a file without a name, a thing that Java can open, too.

    Py4J would send them as text. One thread at a time.
    """

    def __init__(self, java: _Java, stream: Any, path: str) -> None:
        self._java, self._stream, self._path = java, stream, path
        self._place = 0
        self._passage = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - closed with the stream
        self._passage_name = f"/proc/{os.getpid()}/fd/{self._passage.fileno()}"

    def tell(self) -> int:
        return self._place

    def close(self) -> None:
        if not self.closed:
            self._passage.close()
            with _telling(self._path):
                self._stream.close()
        super().close()

    def _copy(self, source: Any, target: Any, size: int) -> None:
        """Copy so many bytes, or those there are. (Of Hadoop's own function Py4J would take the one without a size.)"""
        self._java.jvm.org.apache.commons.io.IOUtils.copyLarge(source, target, 0, size)


class _Input(_Stream):
    """Read one of Hadoop's streams."""

    def __init__(self, java: _Java, stream: Any, path: str, size: int) -> None:
        super().__init__(java, stream, path)
        self._size = size

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        place = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self._size}[whence]
        if place != self._place:
            with _telling(self._path):
                self._stream.seek(place)
            self._place = place
        return place

    def read(self, size: int | None = -1) -> bytes:
        """Read up to `size` bytes; fewer only at the end, wherever the file was listed to end."""
        wanted = sys.maxsize if size is None or size < 0 else size
        with _telling(self._path):
            sink = self._java.jvm.java.io.FileOutputStream(self._passage_name)
            try:
                self._copy(self._stream, sink, wanted)
            finally:
                sink.close()
        self._passage.seek(0)
        data: bytes = self._passage.readall()
        self._place += len(data)
        return data


class _Output(_Stream):
    """Write one of Hadoop's streams."""

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        self._passage.seek(0)
        self._passage.truncate()
        left = view
        while left:
            left = left[self._passage.write(left) :]
        with _telling(self._path):
            source = self._java.jvm.java.io.FileInputStream(self._passage_name)
            try:
                self._copy(source, self._stream, len(view))
            finally:
                source.close()
        self._place += len(view)
        return len(view)


@contextmanager
def _telling(path: str) -> Iterator[None]:
    """Make of Java's errors those of Python's files."""
    try:
        yield
    except Py4JJavaError as error:
        kind = error.java_exception.getClass().getSimpleName()
        if kind == "FileNotFoundException":
            raise FileNotFoundError(errno.ENOENT, said_by_java(error), path) from error
        if kind in ("AccessControlException", "AccessDeniedException"):
            raise PermissionError(errno.EACCES, said_by_java(error), path) from error
        raise OSError(errno.EIO, said_by_java(error), path) from error
    except Py4JError as error:
        raise OSError(errno.EIO, f"its Java has ended: {first_line(error)}", path) from error


def main(arguments: Sequence[str] | None = None) -> int:
    """Say whether a scheme can be read; exit code 1 with a message on standard error when it cannot."""
    parser = argparse.ArgumentParser(
        prog="python -m spark_jobs.hadoop_files", description="Say whether addresses of a scheme can be read."
    )
    parser.add_argument("--scheme", required=True, help="what addresses begin with, before ://")
    given = parser.parse_args(arguments)
    try:
        require_scheme(given.scheme.lower(), hadoop_settings())
    except SourceError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
