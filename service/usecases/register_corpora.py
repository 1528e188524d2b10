"""Own what a corpus may be: its name, where it is, and when it is refreshed."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from service.core.corpus import CorpusKind
from service.core.errors import SourceError
from service.usecases.corpora import Corpus, NewCorpus
from service.usecases.corpora_ports import Corpora

LONGEST_NAME = 128


class CorpusRegister:
    """Register and remove corpora; `next_time` gives a schedule's next time behind another, or raises SourceError.

    `remove_index` removes what the service keeps beside a corpus; `require_scheme` raises SourceError for what
    addresses that nothing can read begin with.
    """

    def __init__(
        self,
        corpora: Corpora,
        next_time: Callable[[str, datetime], datetime | None],
        now: Callable[[], datetime],
        remove_index: Callable[[Corpus], None],
        require_scheme: Callable[[str], None],
    ) -> None:
        self.corpora = corpora
        self._next_time = next_time
        self._now = now
        self._remove_index = remove_index
        self._require_scheme = require_scheme

    def add(self, new: NewCorpus) -> Corpus:
        """Register a corpus; nothing of it is read yet. Raises as `Corpora.add` does.

        Raises SourceError for a name that can be no folder's, a location or index that is relative or has a
        password, a kind that does not go with it, addresses that nothing can read, another corpus' index, and a
        schedule that is none or never comes.
        """
        _check_name(new.name)
        _check_location(new.location, new.kind)
        if new.settings.index is not None:
            _check_folder("index", new.settings.index)
            self._check_own_index(new.name, new.settings.index)
        self._check_schedule(new.schedule)
        folders = [new.settings.index or "", new.location if new.kind is not CorpusKind.POSTGRES else ""]
        for scheme in sorted({folder.partition("://")[0] for folder in folders if "://" in folder}):
            self._require_scheme(scheme)
        return self.corpora.add(new)

    def change(self, name: str, changes: Mapping[str, Any]) -> Corpus:
        """Change a corpus; the next refresh goes by it.

        `changes` may have schedule, time_limit_seconds and retries, and `settings`, an object of those settings that
        are to be others. Raises SourceError for what cannot be, and for another index; NotFoundError.
        """
        if "index" in changes.get("settings", {}):
            raise SourceError("The index stays where it is: to have another one, remove the corpus and add it again.")
        self._check_schedule(changes.get("schedule"))

        def changed(corpus: Corpus) -> NewCorpus:
            settings = corpus.settings.changed(changes.get("settings", {}))
            return replace(corpus, **{**changes, "settings": settings})

        return self.corpora.change(name, changed)

    def _check_schedule(self, schedule: str | None) -> None:
        if schedule is not None and self._next_time(schedule, self._now()) is None:
            raise SourceError(f"The schedule {schedule!r} never comes: there is no such day.")

    def _check_own_index(self, name: str, index: str) -> None:
        """Refuse the index of another corpus: each would take the other's values for its own."""
        for other in self.corpora.all():
            if other.name != name and (other.settings.index or "").rstrip("/") == index.rstrip("/"):
                raise SourceError(f"The index {index!r} is that of the corpus {other.name}: give each its own folder.")

    def remove(self, name: str) -> None:
        """Forget a corpus, what was found in it, and its index; its files stay. Raises as `Corpora.remove` does."""
        self._remove_index(self.corpora.remove(name))


def _check_name(name: str) -> None:
    if (
        not name.isprintable()
        or not 0 < len(name.encode()) <= LONGEST_NAME
        or name.startswith(".")
        or set(name) & set("/\\")
    ):
        raise SourceError(
            f"The name {name!r} cannot be a corpus's: give 1 to {LONGEST_NAME} bytes of printable text without a "
            "slash, not beginning with a dot."
        )


def _check_location(location: str, kind: CorpusKind) -> None:
    is_database = location.startswith(("postgresql://", "postgres://"))
    if is_database and _has_password(location):
        raise SourceError(
            "The state keeps no passwords: leave it out of the location, and give it to the processes that refresh, in "
            "PGPASSWORD or ~/.pgpass."
        )
    _check_folder("location", location)
    if is_database != (kind is CorpusKind.POSTGRES):
        raise SourceError(f"The location {location!r} is no corpus of kind {kind}: a database is of kind postgres.")


def _check_folder(name: str, folder: str) -> None:
    if "\0" in folder or any("\ud800" <= character <= "\udfff" for character in folder):
        raise SourceError(f"The {name} {folder!r} has a character that no path has.")
    if "://" not in folder and not PurePosixPath(folder).is_absolute():
        raise SourceError(f"The {name} {folder!r} is relative: give a path from the root, or an address.")
    if "://" in folder and has_key(folder):
        raise SourceError(
            f"The state keeps no passwords: leave user and key out of the {name}, and give them to the processes that "
            "refresh, in their settings: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY for s3://, AZURE_CLIENT_SECRET "
            "for abfs://, "
            "spark.hadoop.fs.s3a.access.key and .secret.key in spark-defaults.conf or core-site.xml for s3a://."
        )


def has_key(folder: str) -> bool:
    """Say whether an address names a user and a key; a slash in a key ends what comes before a path.

    Azure's may have a secret, or a signature, among the options behind the path.
    """
    if {"client_secret", "sig"} & {name.lower() for name, _ in parse_qsl(folder.partition("?")[2], True)}:
        return True
    authority, _, rest = folder.partition("://")[2].partition("/")
    user, at, _ = authority.rpartition("@")
    return ":" in (user if at else "") or ("@" in rest and re.fullmatch(r"[^@:]*:(?!\d*$).*", authority) is not None)


def _has_password(location: str) -> bool:
    try:
        address = urlsplit(location)
        return address.password is not None or "password=" in address.query
    except ValueError as error:
        raise SourceError(f"The location is no address of a Postgres: {error}.") from error
