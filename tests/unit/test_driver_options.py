"""What Spark's driver is started with, where the temporary directory or the cache has a space in its path."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from spark_jobs import class_archive, session
from spark_jobs.class_archive import MAKING
from spark_jobs.java_runtime import JavaRuntime

JAVA = JavaRuntime(Path("/java"), Path("/java/bin/java"), 17)


def test_paths_with_spaces_are_one_option_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logging, archive = tmp_path / "my temporary" / "log4j2.properties", tmp_path / "my cache" / "spark.jsa"
    monkeypatch.setattr(session, "_logging_file", lambda _: logging)
    monkeypatch.setattr(class_archive, "_found", lambda _: archive)
    options = shlex.split(session._java_options(JAVA, "off"))
    assert {f"-Dlog4j2.configurationFile={logging}", f"-XX:SharedArchiveFile={archive}"} < set(options)
    assert all(option.startswith("-") for option in options)
    monkeypatch.setenv(MAKING, str(archive))
    assert f"-XX:ArchiveClassesAtExit={archive}" in shlex.split(session._java_options(JAVA, "off"))
