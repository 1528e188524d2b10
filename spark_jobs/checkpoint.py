"""Own the folder of Spark's log where somebody wants one: each stream begins it anew, as nothing rests on it.

A log that ends before the state's positions comes from a backup, or another has followed since: that is told, once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from service.core.errors import FeedError
from spark_jobs.follow_source import Positions, from_offsets
from spark_jobs.java_runtime import said_by_java

PARTS = ("offsets", "commits", "metadata", "sources", "state")
"""What Spark keeps in a checkpoint."""


def begin_checkpoint(spark: SparkSession, folder: str, stands: Mapping[tuple[str, int], int], is_ours: bool) -> None:
    """Remove what a former stream has left there; raise FeedError, unless it `is_ours`, where the state has gone on."""
    assert spark._jvm is not None
    hadoop = spark._jvm.org.apache.hadoop.fs  # type: ignore[operator]
    try:
        path = hadoop.Path(folder)
        files = path.getFileSystem(spark._jsc.hadoopConfiguration())
        offsets = hadoop.Path(path, "offsets")
        if not files.exists(offsets):
            return
        if not is_ours:
            require_not_older(_newest(spark._jvm, files, offsets), stands, folder)
        for part in PARTS:
            files.delete(hadoop.Path(path, part), True)
    except Py4JJavaError as error:
        raise FeedError(f"The checkpoint in {folder} cannot be begun anew: {said_by_java(error)}") from error


def _newest(jvm: Any, files: Any, offsets: Any) -> Positions:
    """Read where the last micro-batch of a log ends, whether it was taken or not; nothing where that cannot be read."""
    names = [status.getPath().getName() for status in files.listStatus(offsets)]
    numbers = [int(name) for name in names if name.isdigit()]
    if not numbers:
        return {}
    stream = files.open(jvm.org.apache.hadoop.fs.Path(offsets, str(max(numbers))))
    try:
        text = str(jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
    finally:
        stream.close()
    try:
        return from_offsets(json.loads(text.splitlines()[-1]))
    except (ValueError, AttributeError, IndexError):  # its machine died while it was written
        return {}


def require_not_older(ends: Positions, stands: Mapping[tuple[str, int], int], folder: str) -> None:
    """Raise FeedError where a log ends before the state's positions, which count."""
    for (topic, partition), end in ends.items():
        at = stands.get((topic, partition), end)
        if end < at:
            raise FeedError(
                f"The checkpoint in {folder} ends in topic {topic!r}, partition {partition}, at offset {end}, but the "
                f"state stands at {at}: the checkpoint is older than the state. The state's positions count: remove "
                f"the checkpoint, or leave --checkpoint out"
            )
