"""Be the job that indexes a corpus, whose tasks run on Spark however few the cells are."""

from __future__ import annotations

import sys

from spark_jobs import join_build, join_index

if __name__ == "__main__":
    join_build.DRIVER_BYTES = -1
    sys.exit(join_index.main())
