"""Own the `subsetd` command: which commands there are, and the loading of the one that a person calls."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Annotated, Any

import typer
import typer.main
from rich.text import Text
from typer.core import TyperCommand, TyperGroup

from service import __version__
from service.command_help import command_of, explained
from service.core.errors import RecordError, SubsetdError
from service.library_settings import prepare
from service.terminal import err

COMMANDS: Mapping[str, tuple[str, ...]] = {
    "demo": (
        "Show it all on real data: bootstrap, follow changes that make and break dependencies, serve the answers.",
        "demo_command:demo",
    ),
    "bootstrap": (
        "Read a source once with a Spark job: clusters, generator records, counters, and the INDs.",
        "bootstrap_command:bootstrap",
    ),
    "follow": (
        "Read a Postgres database once, then follow its changes through a replication slot; a second call goes on.",
        "follow_commands:follow",
    ),
    "follow-spark": (
        "Follow topics of Kafka on a Spark cluster, whose executors apply each batch, each a share of the values.",
        "follow_spark_command:follow_spark",
    ),
    "unfollow": (
        "Drop the replication slot and the publication of a followed source; what was applied stays.",
        "follow_commands:unfollow",
    ),
    "consume": (
        "Follow a change feed and keep the state current; SIGTERM ends it behind the batch in hand.",
        "follow_commands:consume",
    ),
    "pause": (
        "Let the running consumer end its batch and wait, with its place as the state's writer, until it is resumed.",
        "follow_commands:pause",
    ),
    "resume": ("Let a paused feed be followed again.", "follow_commands:resume"),
    "run": (
        "Bring the state's schema up to date, follow a feed and serve the answers, with one command.",
        "serve_commands:run",
    ),
    "serve": (
        "Serve the answers over HTTP, at SUBSETD_HOST and SUBSETD_PORT: http://127.0.0.1:8321 if neither is set.",
        "serve_commands:serve",
    ),
    "status": ("Tell what the state holds, its version, and where its feeds stand.", "answer_commands:status"),
    "attributes": ("List the attributes with their counters.", "answer_commands:attributes"),
    "inds": ("List the inclusion dependencies that hold.", "answer_commands:inds"),
    "explain": (
        "Say of two attributes whether one is in the other, since when, by how much it misses, and which values miss.",
        "answer_commands:explain",
    ),
    "coefficients": (
        "List inclusion coefficients: which share of a column's distinct values is in another; each with its interval.",
        "coefficient_command:coefficients",
    ),
    "foreign-keys": (
        "Foreign keys: candidates ranked, with evidence.",
        "foreign_key_commands:app",
        "evidence_command:explain",
        "contract_commands:accept",
        "contract_commands:reject",
        "contract_commands:pin",
        "contract_commands:decisions",
    ),
    "keys": (
        "Columns, and tuples of them, that tell rows apart: list, track, drop.",
        "key_commands:app",
        "key_discovery_command:discover",
    ),
    "sketch": (
        "Sketches: of a FILE of CSV or Parquet (without a database), of a lake; upload, download, list, drop.",
        "sketch_commands:app",
    ),
    "corpus": (
        "Bodies of many small tables: their inclusion dependencies are found anew at each refresh.",
        "corpus_commands:app",
    ),
    "graph": ("The graph of INDs between tables: components, hubs, paths; export.", "graph_commands:app"),
    "contract": ("Inclusions that are to hold, watched live: add, list, check, remove.", "contract_commands:app"),
    "watch": (
        "Rules that tell somebody: what breaks or comes back, by webhook, Slack, mail or a topic.",
        "watch_commands:app",
    ),
    "backup": (
        "Write the whole state, with the feeds' positions, to a file; a consumer goes on meanwhile.",
        "backup_commands:backup",
    ),
    "restore": (
        "Make the state that of a backup, all or nothing, and bring it to this release's schema; "
        "feeds go on from there.",
        "backup_commands:restore",
    ),
    "verify": (
        "Check the state's invariants, and hold it against a fresh recomputation; exit code 1 when something differs.",
        "verify_command:verify",
    ),
    "audit": (
        "Hold the served INDs against those of all stored values, found anew; exit code 1 when something differs.",
        "audit_command:audit",
    ),
    "joinable": (
        "List the tables that have most of a file's distinct keys in their rows, with the columns that are the key's.",
        "joinable_command:joinable",
    ),
    "join-index": ("Tracked tables that are searched for joins: list, track, untrack.", "join_track_command:app"),
    "preflight": (
        "Say what would go wrong with a feed: source, connector, topics, state; exit code 1 if something would.",
        "preflight_command:preflight",
    ),
    "api-key": ("Keys of the HTTP service: create, list, revoke.", "api_key_commands:app"),
    "write-log": (
        "List who changed what over HTTP, newest first, and what became of it.",
        "api_key_commands:write_log",
    ),
    "doctor": (
        "Say what is wrong and how to mend it: machine, settings, database, what runs, feeds; exit code 1 or 2.",
        "doctor_command:doctor",
    ),
    "dead-letters": ("Records that were set aside: list, show, retry, drop.", "dead_letter_commands:app"),
    "shards": (
        "Shares of the key space, each with clusters and transactions of its own: list, set.",
        "shard_commands:app",
    ),
    "attribute": ("Attributes: drop and rename what changed at its source, mask values.", "attribute_commands:app"),
}
"""What the help says of each command in a line, and where it is; of a group also its commands in other files."""


class LoadedWhenCalled(TyperCommand):
    """Stand for a command: most of what all of them need together, one of them needs not."""

    def __init__(self, name: str, line: str, place: str, *more: str) -> None:
        super().__init__(name, help=line)
        self._places = (place, *more)

    def load(self) -> Any:
        """Make the command, as it is called."""
        found, *more = (_at(place) for place in self._places)
        if not isinstance(found, typer.Typer):
            return explained(_command_of(found, self.name), self.name or "")
        group = typer.main.get_group(found)
        for function in more:
            group.add_command(_command_of(function))
        return explained(group, self.name or "")

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Read a command line as the command does."""
        return self.load().make_context(info_name, args, parent, **extra)


def _at(place: str) -> Any:
    module, _, name = place.partition(":")
    gc.disable()  # what is loaded is kept: looking for garbage in it takes a fifth of a short command's time
    try:
        return getattr(import_module(f"service.{module}"), name)
    finally:
        gc.freeze()
        gc.enable()


def _command_of(function: Callable[..., None], name: str | None = None) -> Any:
    alone = typer.Typer(add_completion=False)
    alone.command(name)(function)
    return typer.main.get_command(alone)


class Commands(TyperGroup):
    """Hold the commands, none of them loaded yet."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = {name: LoadedWhenCalled(name, *told) for name, told in COMMANDS.items()}


app = typer.Typer(
    name="subsetd",
    cls=Commands,
    help="Keeps the inclusion dependencies of changing data current.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)


@app.callback(invoke_without_command=True)
def _options(version: Annotated[bool, typer.Option("--version", help="Print the version and end.")] = False) -> None:
    if version:
        print(f"subsetd {__version__}")
        raise typer.Exit


def main() -> None:
    """Run the command; an error that the user can mend is one message and its exit code, never a stack trace."""
    prepare()
    try:
        command_of(app)()
    except SubsetdError as error:
        err.print("[bold red]error:[/]", Text(str(error)))
        if isinstance(error, RecordError):
            err.print(
                "All before this record is applied, and nothing behind it. --on-error all sets such records aside."
            )
        sys.exit(error.exit_code)
    except UnicodeEncodeError as error:
        name = error.object.encode(errors="backslashreplace").decode()
        if name == error.object:  # no byte of an argument stands in it, so it is not the user's to mend
            raise
        err.print("[bold red]error:[/]", Text(f"{name}: it is not UTF-8, as all names here are."))
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(141)


if __name__ == "__main__":
    main()
