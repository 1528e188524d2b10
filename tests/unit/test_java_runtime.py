"""A Java 17 or 21 of the machine is used; otherwise the wheel's, which starts with Spark's options too."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from service.core.errors import SourceError
from spark_jobs import java_runtime
from spark_jobs.java_runtime import SPARKS_MODULE, cache_folder, find_java

SAYS = """#!/bin/sh
echo '    java.home = {home}' >&2
echo '    java.specification.version = {version}' >&2
"""


def a_java(home: Path, version: str, text: str = SAYS) -> Path:
    """Make a program that says of itself what a Java of `version` says."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(text.format(home=home, version=version))
    program.chmod(0o755)
    return program


def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    chosen = a_java(tmp_path / "chosen", "17")
    other = a_java(tmp_path / "other", "21")
    found = find_java({"JAVA_HOME": str(tmp_path / "chosen"), "PATH": f"{other.parent}:/bin"})
    assert (found.home, found.java, found.version) == (tmp_path / "chosen", chosen, 17)


@pytest.mark.parametrize("version", ["1.8", "11", "25"])
def test_a_java_of_another_version_is_passed_over(tmp_path: Path, version: str) -> None:
    a_java(tmp_path / "old", version)
    good = a_java(tmp_path / "good", "21")
    found = find_java({"JAVA_HOME": str(tmp_path / "old"), "PATH": f"{good.parent}:/bin"})
    assert found.home == tmp_path / "good"


def test_without_a_java_the_wheels_is_wrapped_and_starts_as_spark_starts_it(tmp_path: Path) -> None:
    found = find_java({"PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "it's a cache")})
    assert found.version == 21
    assert found.java == found.home / "bin" / "java"
    assert found.home.parent == tmp_path / "it's a cache" / "subsetd"
    said = subprocess.run(
        [found.java, SPARKS_MODULE, "-Dname=two words", "-XshowSettings:properties", "-version"],
        check=True,
        capture_output=True,
        text=True,
    )
    assert "name = two words" in said.stderr
    assert find_java({"PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "it's a cache")}) == found
    assert find_java({"PATH": str(tmp_path), "JAVA_HOME": str(found.home)}) == found, "as a process of ours inherits it"


def test_the_cache_is_in_the_home_folder_by_default() -> None:
    assert cache_folder({}) == Path.home() / ".cache" / "subsetd"


def test_what_was_found_is_named_when_nothing_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = a_java(tmp_path / "old", "11")
    broken = a_java(tmp_path / "broken", "17", "#!/bin/sh\necho 'Module jdk.incubator.vector not found'; exit 1\n")
    monkeypatch.setattr(java_runtime, "find_spec", lambda _: None)
    message = (
        rf"only {old} \(version 11\), {broken} \(does not start: Module jdk.incubator.vector not found\); install one"
    )
    with pytest.raises(SourceError, match=message):
        find_java({"JAVA_HOME": str(tmp_path / "old"), "PATH": f"{broken.parent}:/bin"})
