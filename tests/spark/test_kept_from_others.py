"""A job on this machine alone shows nothing of its data to the machine's other users."""

from __future__ import annotations

import stat
from operator import add
from pathlib import Path

from pyspark.sql import SparkSession


def test_nobody_else_reads_what_is_shuffled_or_asks_the_driver(spark: SparkSession) -> None:
    environment = spark.sparkContext._jvm.org.apache.spark.SparkEnv.get()  # type: ignore[union-attr]
    folders = [Path(one.getPath()) for one in environment.blockManager().diskBlockManager().localDirs()]
    assert folders
    for folder in folders:
        assert any(stat.S_IMODE(place.stat().st_mode) & 0o077 == 0 for place in (folder, folder.parent))
    assert environment.securityManager().isAuthenticationEnabled()
    pairs = spark.sparkContext.parallelize(range(90), 3).map(lambda n: (n % 3, n)).reduceByKey(add, 3)
    assert dict(pairs.collect()) == {rest: sum(range(rest, 90, 3)) for rest in range(3)}
