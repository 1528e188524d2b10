"""Own baseline A of the bootstrap: Desbordante's Spider, run in a process of its own.

Desbordante is AGPL. It is no dependency: who wants this baseline installs it by hand (`pip install desbordante`).
"""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from pathlib import Path


def available() -> bool:
    """Tell whether desbordante is installed, without importing it."""
    return find_spec("desbordante") is not None


def main(folder: str) -> None:
    """Find the INDs of a folder of CSV files and print their number as JSON."""
    import desbordante

    spider = desbordante.ind.algorithms.Spider()
    spider.load_data(tables=[(str(path), ",", True) for path in sorted(Path(folder).glob("*.csv"))])
    spider.execute()
    print(json.dumps({"inds": len(spider.get_inds())}))


if __name__ == "__main__":
    main(sys.argv[1])
