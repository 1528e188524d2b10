"""Own the hierarchy of errors: a message names the thing, the place and the way out."""

from __future__ import annotations


class SubsetdError(Exception):
    """Be the base of every error that a user can mend; the CLI prints its text and exits with `exit_code`."""

    exit_code = 1


class SourceError(SubsetdError):
    """A source of data cannot be read as it is: ragged rows, broken quoting, wrong encoding, ..."""


class DamagedIndexError(SourceError):
    """The index of a corpus is not as its manifest says: everything has to be read anew."""


class RecordError(SubsetdError):
    """One record of a feed cannot be applied; the record is set aside or the feed stops.

    `without_values` says why without a value of the data, for tables whose values are not kept; None where nobody does.
    `change` is the change without its rows (model.RowChange), where so much can be read; None elsewhere.
    """

    def __init__(self, message: str, without_values: str | None = None) -> None:
        super().__init__(message)
        self.without_values = without_values
        self.change: object = None

    @classmethod
    def plain(cls, message: str) -> RecordError:
        """Say something that shows no value, whatever the record holds."""
        return cls(message, message)


class FeedError(SubsetdError):
    """A feed cannot be reached or followed."""


class FeedAwayError(FeedError):
    """What a feed needs is away for now: the same may do in a moment."""


class StateError(SubsetdError):
    """The state's database is away, of another version, full, or held by another process."""


class NoStateError(StateError):
    """No bootstrap has made a state yet."""

    def __init__(self, message: str = "There is no state yet: run `subsetd bootstrap SOURCE --name NAME`.") -> None:
        super().__init__(message)


class FullDiskError(StateError):
    """The disk of the state's database is full: as soon as there is room, the same work succeeds."""


class ShardAwayError(StateError):
    """A server that shards of the state are on is away: as soon as it is there, the same work succeeds."""


class ConflictError(StateError):
    """What is asked does not go with what is there: a name that is taken, something that is at work or has ended."""


class DamagedStateError(StateError):
    """The stored state is not what its one writer left: going on would build on a wrong state."""


class SketchError(SubsetdError):
    """A sketch cannot be read, or not be used as it was to be: another kind, seed, version, or corrupt bytes."""


class NotFoundError(SubsetdError):
    """A name is not known: an attribute, a source, a version."""


LONGEST_MESSAGE = 2000


def cut_message(message: str) -> str:
    """Give a message about a record as it can be stored, whatever the record holds: without NUL, and not too long."""
    message = message.replace("\0", "\\0")
    return message if len(message) <= LONGEST_MESSAGE else message[:LONGEST_MESSAGE] + "..."


def first_line(error: BaseException | None) -> str:
    """Give what an error of a library says, in one line without its full stop, for a message of ours to quote."""
    lines = str(error or "").strip().splitlines()
    return lines[0].strip().rstrip(".") if lines else "no reason was given"


def refusal(error: BaseException) -> str:
    """Give why no connection came about, in one line: what a server said, else why the first address was not reached.

    A host may have several addresses, and at those in front of the server's own nobody may listen.
    """
    said = (line for line in str(error).splitlines() if "FATAL:" in line or "no password supplied" in line)
    return first_line(Exception(next(said, str(error))))
