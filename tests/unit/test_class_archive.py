"""An archive of Java's classes is used where there is one, is made for one Java alone, and is none of another's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from spark_jobs import class_archive
from spark_jobs.class_archive import MAKING, archive_options, make_archive
from spark_jobs.java_runtime import JavaRuntime

JOB = f"""
import os, subprocess
subprocess.run([os.environ["JAVA"], "-XX:ArchiveClassesAtExit=" + os.environ[{MAKING!r}], "--list-modules"], check=True)
"""


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> JavaRuntime:
    """Give the Java that Spark runs on, and a cache of this test's own."""
    found = class_archive.find_java()
    if not (found.home / "lib" / "server" / "classes.jsa").exists():
        pytest.skip("this Java makes no archives")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("JAVA", str(found.java))
    return found


def test_an_archive_is_made_once_and_used(java: JavaRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of another job than Spark, which takes a minute: Java refuses an archive that it cannot use."""
    monkeypatch.setattr(class_archive, "JOB", JOB)
    assert archive_options(java) == ""
    archive = make_archive()
    assert archive is not None
    written = archive.stat().st_mtime_ns
    assert make_archive() == archive
    assert archive.stat().st_mtime_ns == written
    options = archive_options(java).split()
    assert f"-XX:SharedArchiveFile={archive}" in options
    subprocess.run([java.java, *options, "-Xshare:on", "--list-modules"], check=True)
    assert archive_options(JavaRuntime(java.home, java.java, java.version + 1)) == ""


def test_a_job_that_fails_leaves_nothing(java: JavaRuntime, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(class_archive, "JOB", f"{JOB}\nraise SystemExit(3)")
    with pytest.raises(subprocess.CalledProcessError):
        make_archive()
    assert not list((tmp_path / "cache" / "subsetd").iterdir())


def test_a_part_of_an_archive_is_left_aside(java: JavaRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(class_archive, "JOB", JOB)
    archive = make_archive()
    assert archive is not None
    archive.chmod(0o600)
    archive.write_bytes(archive.read_bytes()[:1000])
    assert archive_options(java) == ""


def test_a_java_without_an_archive_of_its_own_makes_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(class_archive, "find_java", lambda: JavaRuntime(tmp_path, Path(sys.executable), 21))
    assert make_archive() is None
