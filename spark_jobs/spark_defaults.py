"""Own the reading of Spark's own settings where no Java is there yet that would read them."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pyspark

from service.core.errors import SourceError, first_line


def spark_defaults() -> dict[str, str]:
    """Read spark-defaults.conf of the folder SPARK_CONF_DIR, or else of Spark's own; where there is none: nothing.

    Raises SourceError for a file that cannot be read.
    """
    spark_home = os.environ.get("SPARK_HOME", str(Path(pyspark.__file__).parent))
    file = Path(os.environ.get("SPARK_CONF_DIR", f"{spark_home}/conf"), "spark-defaults.conf")
    try:
        lines = file.read_text().splitlines() if file.exists() else []
    except (OSError, ValueError) as error:
        raise SourceError(f"The settings of Spark, {file}, cannot be read: {first_line(error)}.") from error
    pairs = (re.sub(r"[\s=:]+", " ", line.strip(), count=1).partition(" ") for line in lines)
    return {key: value for key, _, value in pairs if key and not key.startswith(("#", "!"))}
