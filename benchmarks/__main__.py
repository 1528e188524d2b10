"""Own the command `python -m benchmarks`: run rows, keep their results, print the table."""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from service.library_settings import prepare

if __name__ == "__main__":
    prepare()  # so that what rows measure in this process is as fast as in a command of subsetd's

from benchmarks import pages, results_file
from benchmarks.context import WORK, Context
from benchmarks.rows import ROWS, SHORT, module_of


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the rows asked for; return 1 if one could not be measured (a goal that does not hold is a result)."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument("--only", choices=ROWS, metavar="ROW", help=f"one of {', '.join(ROWS)}")
    chosen.add_argument("--short", action="store_true", help=f"the rows that end soon: {', '.join(SHORT)}")
    parser.add_argument("--table", action="store_true", help="print the table of what has a goal, and end")
    parser.add_argument(
        "--pages",
        action="store_true",
        help="put the results into README.md and the pages of docs that show some, and end",
    )
    parser.add_argument("--scale-factor", type=float, default=1, help="of TPC-H; other than 1 is a trial, not kept")
    parser.add_argument("--size", type=float, default=1, help="of all else; other than 1 is a trial, not kept")
    parser.add_argument("--results", type=Path, default=results_file.RESULTS, help="file of results")
    options = parser.parse_args(arguments)
    if options.table:
        print(results_file.markdown_table(results_file.goals_met(results_file.load(options.results))))
        return 0
    if options.pages:
        pages.write(results_file.load(options.results))
        return 0
    console = Console(soft_wrap=True) if sys.stdout.isatty() else Console(width=160)
    WORK.mkdir(exist_ok=True)
    measured, failed = [], []
    for row in [options.only] if options.only else SHORT if options.short else list(ROWS):
        module = module_of(row)
        context = Context(console, module.SEED, WORK.absolute(), scale_factor=options.scale_factor, size=options.size)
        context.say(f"== {row} (seed {module.SEED})")
        started = time.monotonic()
        try:
            objects = results_file.as_objects(row, module.SEED, module.run(context))
        except Exception:  # one row that cannot be measured must not cost the others
            traceback.print_exc()
            failed.append(row)
            continue
        measured += objects
        context.say(f"== {row} took {time.monotonic() - started:.0f} s")
        if context.as_specified:
            results_file.store(row, objects, options.results)
    console.print(results_file.console_table(measured))
    if failed:
        context.say(f"Not measured, see above: {', '.join(failed)}. Their earlier results stay in the file.")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
