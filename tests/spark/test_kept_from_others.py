"""A job on this machine alone shows nothing of its data to the machine's other users."""

from __future__ import annotations

import stat
from operator import add
from pathlib import Path

from pyspark.sql import SparkSession


def test_nobody_else_reads_what_is_shuffled_or_asks_the_driver(spark: SparkSession) -> None:
    conf = spark.sparkContext.getConf()
    assert conf.get("spark.authenticate") == "true"
    folder = Path(str(conf.get("spark.local.dir")))
    pairs = spark.sparkContext.parallelize(range(90), 3).map(lambda n: (n % 3, n)).reduceByKey(add, 3)
    assert dict(pairs.collect()) == {rest: sum(range(rest, 90, 3)) for rest in range(3)}
    assert list(folder.rglob("shuffle_*.data")), "here it is"
    assert stat.S_IMODE(folder.stat().st_mode) & 0o077 == 0
