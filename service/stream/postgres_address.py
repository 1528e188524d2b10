"""Own the addresses of Postgres feeds, their connections, and what is said when one cannot be had."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

import psycopg2
import psycopg2.errors
import psycopg2.extensions
from psycopg2.extras import LogicalReplicationConnection

from service.core.canonical import POSTGRES_SESSION_SETTINGS
from service.core.errors import FeedError, refusal
from service.core.secret_parameters import SECRET_PARAMETERS
from service.core.sql_names import sql_name

WAY_OUT = "give postgresql://user@host:port/database?name=NAME, where NAME is the source's name"
FEED_NAME = "subsetd feed"
LONGEST_SLOT_NAME = 63

# A server whose machine vanished is noticed in about 20 s, also while a question is on its way, for which nobody keeps
# a connection alive. The settings of the session see to the same on the other side, in the place of the sender's own
# timeout: its pings would be answered even for what is not yet stored. A source with synchronous standbys also pings
# for each transaction that has nothing for the feed, unless that is local.
_CONNECT = {
    "connect_timeout": "5",
    "keepalives_idle": "5",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "20000",
}
_SENDER_SETTINGS = {
    "idle_in_transaction_session_timeout": "0",  # in which a new slot's snapshot is kept
    "lock_timeout": "0",  # a new slot waits for all transactions that are running
    "wal_sender_timeout": "0",
    "synchronous_commit": "local",
    "tcp_keepalives_idle": "30",
    "tcp_keepalives_interval": "10",
    "tcp_keepalives_count": "3",
}


@dataclass(frozen=True, slots=True)
class PostgresAddress:
    """Say where a source database is and what it is called; `parameters` are libpq's and may hold a password."""

    name: str
    parameters: Mapping[str, str] = field(repr=False)

    @property
    def slot(self) -> str:
        """Name the source's replication slot and publication: letters, digits and underscores of its name."""
        plain = re.sub(r"[^a-z0-9_]", "_", self.name.lower())
        if plain != self.name or len(plain) > LONGEST_SLOT_NAME - len("subsetd_"):
            plain = f"{plain[:40]}_{hashlib.sha256(self.name.encode()).hexdigest()[:8]}"
        return f"subsetd_{plain}"

    @property
    def place(self) -> str:
        """Name the database for a message: never user or password."""
        host, port = self.parameters.get("host", "the default socket"), self.parameters.get("port", "5432")
        where = f"socket {host}" if host.startswith("/") else f"{host}:{port}"
        return f"source database {self.parameters.get('dbname', self.parameters.get('user', ''))!r} at {where}"

    @property
    def shown(self) -> str:
        """Give the address as it may be shown and kept, as one that is understood again."""
        return self._written(self._public(), named=True)

    @property
    def follow_command(self) -> str:
        """Give the command that follows the source, for a shell and without secrets."""
        return shlex.join(["subsetd", "follow", self._written(self._public(), named=False), "--name", self.name])

    @property
    def way_out(self) -> str:
        """Say what to do where the slot does not lead on from what the state holds."""
        return f"Read the source anew: {self.follow_command} --replace"

    @property
    def url(self) -> str:
        """Give the database's own address, with its password: not to be shown."""
        return self._written(dict(self.parameters), named=False)

    def _public(self) -> dict[str, str]:
        return {key: value for key, value in self.parameters.items() if key not in SECRET_PARAMETERS}

    def _written(self, kept: dict[str, str], named: bool) -> str:
        query = {key: kept[key] for key in sorted(kept) if key not in ("user", "password", "host", "port", "dbname")}
        host, user = kept.get("host", ""), quote(kept.get("user", ""), safe="")
        user += f":{quote(kept['password'], safe='')}" if "password" in kept else ""
        if host.startswith("/") or "," in host:
            query |= {key: kept[key] for key in ("host", "port") if key in kept}
            host = ""
        else:
            host = f"[{host}]" if ":" in host else host
            host += f":{kept['port']}" if "port" in kept else ""
        text = urlencode({**query, "name": self.name} if named else query, safe="/,", quote_via=quote)
        place = f"postgresql://{user + '@' if user else ''}{host}/{quote(kept.get('dbname', ''), safe='')}"
        return f"{place}?{text}" if text else place

    def connect(self) -> Any:
        """Open a connection that commits each statement; raise FeedError when there is none to be had."""
        return self._open(None)

    def connect_for_replication(self) -> Any:
        """Open a replication connection whose texts are canonical's; raise FeedError when there is none to be had."""
        return self._open(LogicalReplicationConnection)

    def _open(self, factory: Any) -> Any:
        parameters: dict[str, Any] = {
            **_CONNECT,
            **self.parameters,
            "application_name": f"{FEED_NAME} {self.name}"[:63],
        }
        connection = None
        try:
            connection = psycopg2.connect(connection_factory=factory, **parameters)
            if factory is None:
                connection.autocommit = True  # a replication connection always does
            settings = {**POSTGRES_SESSION_SETTINGS, **({} if factory is None else _SENDER_SETTINGS)}
            if connection.server_version >= 140000:
                settings["idle_session_timeout"] = "0"
            if connection.server_version >= 170000:
                settings["transaction_timeout"] = "0"
            with connection.cursor() as cursor:
                for name, value in settings.items():
                    cursor.execute(f"SET {name} = '{value}'")
        except psycopg2.Error as error:
            if connection is not None:
                connection.close()
            raise self._unreachable(error) from error
        return connection

    def _unreachable(self, error: psycopg2.Error) -> FeedError:
        text, user = refusal(error), self.parameters.get("user", "the user")
        if "permission denied to start WAL sender" in text or "replication role" in text:
            return FeedError(
                f"The {self.place} refused replication: {text}. Grant it as a superuser: {grant_replication(user)}"
            )
        if "max_wal_senders" in text:
            return FeedError(
                f"The {self.place} has no free WAL sender: {text}. Raise it and restart the server: "
                f"ALTER SYSTEM SET max_wal_senders = 10"
            )
        if "password authentication failed" in text or "no password supplied" in text or "pg_hba.conf" in text:
            return FeedError(f"The {self.place} refused the user {user!r}: {text}; correct the source's address.")
        return SourceAway(f"Cannot reach the {self.place}: {text}. Start the server, or correct the source's address.")


def grant_replication(user: str) -> str:
    """Give the statement that lets a user read changes."""
    name = sql_name(user)
    return f"ALTER ROLE {name} WITH REPLICATION (on Amazon RDS: GRANT rds_replication TO {name})"


class SourceAway(FeedError):
    """A source cannot be reached now; a later attempt may succeed."""


def parse_address(address: str, name: str | None = None) -> PostgresAddress:
    """Read `postgresql://...?name=NAME`; a `name` that is given goes first. Raise FeedError for what is none."""
    address = re.sub(r"^postgres(ql)?(\+\w+)?://", "postgresql://", address)
    try:
        parts = urlsplit(address)
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        named = query.pop("name", None)
        parameters = psycopg2.extensions.parse_dsn(urlunsplit(parts._replace(query=urlencode(query, quote_via=quote))))
    except (ValueError, psycopg2.Error):
        raise FeedError(f"The feed's address cannot be read as one of Postgres; {WAY_OUT}.") from None
    if not (name or named):
        raise FeedError(f"The feed's address does not name its source; {WAY_OUT}.")
    return PostgresAddress(name or named or "", parameters)


def source_of(feed: str) -> str | None:
    """Give the source's name of a Postgres feed, by the feed's name or its address; None for another feed."""
    if feed.startswith("postgres:"):
        return feed.removeprefix("postgres:")
    return parse_address(feed).name if re.match(r"postgres(ql)?(\+\w+)?://", feed) else None


def lsn_text(lsn: int) -> str:
    """Write a place of the log as Postgres does."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def lsn_number(text: str) -> int:
    """Read a place of the log as Postgres writes it."""
    high, low = text.split("/")
    return int(high, 16) << 32 | int(low, 16)
