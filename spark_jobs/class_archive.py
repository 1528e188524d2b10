"""Own the archive of Java's classes with which Spark starts in half the time: Java's class data sharing.

    python -m spark_jobs.class_archive

makes it once for a Java and a PySpark, in the user's cache, where `make env` and the image have it made; without one
Spark starts as ever. It is Java's own to see that an archive fits: what does not, it leaves aside.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pyspark

from spark_jobs.java_runtime import JavaRuntime, cache_folder, find_java

MAKING = "SUBSETD_CLASS_ARCHIVE"
"""In the environment of the Spark job that is run to make an archive: where it goes."""

JOB = """
from spark_jobs.session import local_session, map_in_arrow
spark = local_session(2)
spark.sparkContext.parallelize(range(4), 2).map(lambda n: (n % 2, n)).reduceByKey(int.__add__, 2).collect()
map_in_arrow(spark.range(2), lambda batches: batches, "id long").collect()
gateway = spark.sparkContext._gateway
spark.stop()
gateway.shutdown()
gateway.proc.stdin.close()
raise SystemExit(gateway.proc.wait())
"""


def archive_options(java: JavaRuntime) -> str:
    """Give the options, if any, for a Spark driver that use the archive or, in the job for it, make one.

    They are quoted as a shell wants them, and Spark.
    """
    making = os.environ.get(MAKING)
    if making:
        return f"{shlex.quote(f'-XX:ArchiveClassesAtExit={making}')} -Xlog:cds*=off"
    archive = _found(java)
    return f"{shlex.quote(f'-XX:SharedArchiveFile={archive}')} -Xlog:cds*=off" if archive else ""


def make_archive() -> Path | None:
    """Make the archive for the Java that Spark runs on, unless there is one; takes about 20 seconds of one core.

    None: this Java makes none, for it comes without an archive of its own classes, on which others build. Raises
    CalledProcessError when it ends with an error.
    """
    java = find_java()
    if not (java.home / "lib" / "server" / "classes.jsa").exists():
        return None
    archive = _found(java)
    if archive is None:
        name = _name(java)
        unfinished = cache_folder() / f"{name}.{os.getpid()}"
        unfinished.parent.mkdir(parents=True, exist_ok=True)
        try:
            subprocess.run([sys.executable, "-c", JOB], check=True, env={**os.environ, MAKING: str(unfinished)})
            archive = unfinished.rename(unfinished.with_name(f"{name}-{unfinished.stat().st_size}.jsa"))
        finally:
            unfinished.unlink(missing_ok=True)
    return archive


def _name(java: JavaRuntime) -> str:
    of = f"{java.home}\n{java.version}\n{Path(pyspark.__file__).parent}\n{pyspark.__version__}"
    return f"spark-{hashlib.sha256(of.encode()).hexdigest()[:12]}"


def _found(java: JavaRuntime) -> Path | None:
    """Find an archive that has the size that its name tells: a Java that is given a part of one aborts."""
    archives = cache_folder().glob(f"{_name(java)}-*.jsa")
    return next((path for path in archives if path.stem.endswith(f"-{path.stat().st_size}")), None)


if __name__ == "__main__":
    print(make_archive() or "this Java makes no archive of classes: Spark starts without one")
