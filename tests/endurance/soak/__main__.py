"""Own the command of a soak: `python -m tests.endurance.soak --minutes 120`."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

from tests.endurance.soak import report
from tests.endurance.soak.soak import WITNESS, Soak


def main() -> int:
    """Run a soak, and say where its report is; exit code 1 if anything differs."""
    parser = argparse.ArgumentParser(prog="soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=120.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--rate", type=float, default=1.0, help="so many times the changes a second, for a busy machine"
    )
    parser.add_argument("--out", type=Path, default=Path("build/soak"), help="folder of the report")
    options = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # or each start compiles all that it imports
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("it was ended"))  # servers are to be ended with it
    options.out.mkdir(parents=True, exist_ok=True)
    lock = threading.Lock()
    began = time.monotonic()
    with (options.out / "soak.jsonl").open("w") as lines:

        def log(event: str, /, **told: object) -> None:
            told = {name: str(value) for name, value in told.items()}
            line = {"time": datetime.now(UTC).isoformat(timespec="seconds"), "event": event, **told}
            with lock:
                print(json.dumps(line), file=lines, flush=True)
                shown = " ".join(f"{name}={value[:200]!r}" for name, value in told.items())
                print(f"{time.monotonic() - began:7.1f} {event} {shown}", flush=True)

        # Below /tmp, for the path of a unix socket is short.
        with tempfile.TemporaryDirectory(prefix="soak-", dir="/tmp") as folder:
            Path(folder).chmod(0o711)
            soak = Soak(options.minutes * 60, options.seed, options.rate, Path(folder), log)
            try:
                soak.run()
            except BaseException as error:
                soak.seen.differences.append(f"the soak itself failed: {error!r}")
                log("failed", error=repr(error))
            finally:
                for path in Path(folder).glob("*.log"):
                    (options.out / path.name).write_bytes(path.read_bytes()[-1_000_000:])
        red = report.write(soak.seen, options.seed, WITNESS, options.out)
    print((options.out / "report.md").read_text())
    return 1 if red else 0


if __name__ == "__main__":
    sys.exit(main())
