"""What Spark's own settings say of the driver's Java counts, beside what we start it with and before it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from service.core.errors import SourceError
from spark_jobs.spark_defaults import spark_defaults

JOB = """
from spark_jobs.session import local_session
spark = local_session(1)
java = spark.sparkContext._jvm.java.lang
print(java.System.getProperty("mine"), java.System.getProperty("defaults"))
print(spark.range(3).count())
bean = java.Class.forName("com.sun.management.HotSpotDiagnosticMXBean")
options = java.management.ManagementFactory.getPlatformMXBean(bean)
for name in ("UseSerialGC", "UseParallelGC", "TieredStopAtLevel"):
    print(name, options.getVMOption(name).getValue())
"""


def test_options_of_the_driver_s_java_are_kept(tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text(
        "# ours\n"
        'spark.driver.extraJavaOptions  -XX:+UseSerialGC -Dmine="two words"\n'
        "spark.driver.defaultJavaOptions=-Ddefaults=too -XX:TieredStopAtLevel=3\n"
    )
    environment = {**os.environ, "SPARK_CONF_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", JOB], env=environment, check=False, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "two words too",
        "3",
        "UseSerialGC true",
        "UseParallelGC false",
        "TieredStopAtLevel 3",
    ]


def test_settings_that_cannot_be_read_are_told_with_their_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert spark_defaults() == {}
    (tmp_path / "spark-defaults.conf").write_bytes(b"spark.jars \xff\n")
    with pytest.raises(SourceError, match=r"spark-defaults\.conf, cannot be read: "):
        spark_defaults()
