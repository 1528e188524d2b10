"""Own who may ask: keys with a scope, sessions of browsers, and for how long a look at either is believed."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import NamedTuple, Protocol

from service.core.errors import StateError, SubsetdError

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._@+-]{0,63}")
ANYONE, ENVIRONMENT = "anyone", "SUBSETD_API_KEY"
RESERVED = frozenset({ANYONE, ENVIRONMENT, "cli"})
"""Names by which the log of writes means somebody without a key of his own."""

BELIEVED_SECONDS = 5.0
"""A key that was found good is not looked up again for so long: this is how late a revocation may come to a service."""

OPEN_SECONDS = 2.0
"""How late a service that wants no key learns that there is one now."""

MOST_BELIEVED = 10_000

PREFIX_BYTES, SECRET_BYTES = 4, 32


class Scope(StrEnum):
    """Say what a key is for; each scope holds those before it."""

    READ = "read"
    WRITE = "write"
    ADMIN = "admin"

    def holds(self, needed: Scope) -> bool:
        """Tell whether who has this scope may do what needs that one."""
        order = list(Scope)
        return order.index(self) >= order.index(needed)


class AccessError(SubsetdError):
    """Somebody shows nothing by which he may ask."""


class UnknownKeyError(AccessError):
    """Nobody has this key."""


class ExpiredKeyError(AccessError):
    """The time of the key, or of the session, is over."""


class RevokedKeyError(AccessError):
    """The key was taken back."""


class KeyNameError(SubsetdError):
    """A key cannot have this name."""


@dataclass(frozen=True, slots=True)
class ApiKey:
    """Describe a key, of which only the hash is kept; `prefix` is its beginning, by which its owner knows it."""

    key_id: int
    name: str
    scope: Scope
    prefix: str
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    revoked_at: datetime | None


@dataclass(frozen=True, slots=True)
class Caller:
    """Say who asks; `session` and `csrf_token` are of a browser that logged in."""

    name: str
    scope: Scope
    expires_at: datetime | None = None
    session: str | None = None
    csrf_token: str | None = None


class Credential(NamedTuple):
    """Hold what somebody shows: a key, or the id of a session."""

    secret: bytes
    is_session: bool = False


class Login(NamedTuple):
    """Hold a new session: its id goes to the browser, and is kept nowhere else."""

    session_id: str
    caller: Caller
    lifetime: timedelta


class AccessStore(Protocol):
    """Keep keys and sessions, of both only hashes (SHA-256)."""

    def has_keys(self) -> bool:
        """Tell whether a key was ever made."""
        ...

    def add_key(self, name: str, scope: Scope, prefix: str, digest: bytes, expires_at: datetime | None) -> ApiKey:
        """Keep a new key; raises ConflictError where a key of this name is not revoked."""
        ...

    def keys(self, after: int, limit: int) -> list[ApiKey]:
        """List keys by id, those behind one."""
        ...

    def revoke(self, name: str, at: datetime) -> ApiKey:
        """Take the key of this name back, with its sessions; raises NotFoundError where there is none."""
        ...

    def find_key(self, prefix: str) -> tuple[ApiKey, bytes] | None:
        """Give the key that begins so, with its hash."""
        ...

    def note_use(self, key_id: int, now: datetime) -> None:
        """Note that a key is used, about once a minute, where that can be: it fails nothing."""
        ...

    def add_session(self, digest: bytes, key_id: int | None, now: datetime, expires_at: datetime) -> None:
        """Keep a session of a key, or of the environment's; those that are over are forgotten."""
        ...

    def find_session(self, digest: bytes) -> tuple[datetime, ApiKey | None] | None:
        """Give the end of a session, and the key that it is of; None for that of the environment."""
        ...

    def end_session(self, digest: bytes) -> None:
        """Forget a session."""
        ...


@dataclass(slots=True)
class _Believed:
    caller: Caller
    until: float


def _utc_now() -> datetime:
    return datetime.now(UTC)


class AccessControl:
    """Tell who asks, by what he shows; make and revoke keys, begin and end sessions.

    `environment_key` has the scope admin and is kept nowhere. As long as there is neither it nor any other key,
    everybody may do everything: such a service listens on loopback alone.
    """

    def __init__(
        self,
        store: AccessStore,
        environment_key: str | None,
        session_time: timedelta,
        *,
        now: Callable[[], datetime] = _utc_now,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._environment_key = None if environment_key is None else environment_key.encode()
        self._session_time = session_time
        self._now = now
        self._monotonic = monotonic
        self._wants_keys: bool | None = True if environment_key is not None else None
        self._looked_at = -OPEN_SECONDS
        self._believed: dict[bytes, _Believed] = {}
        self._withdrawals = 0
        """How many keys and sessions were ended here: what was looked up before one of these is not to be believed."""
        self._keeping = threading.Lock()

    def wants_keys(self) -> bool | None:
        """Tell whether a key is wanted, without waiting for anything; None: `look_for_keys` knows.

        Of many who ask at once one is sent to look, and the others hear what was known.
        """
        if self._wants_keys:
            return True
        if self._monotonic() < self._looked_at + OPEN_SECONDS:
            return self._wants_keys
        if self._wants_keys is not None:
            self._looked_at = self._monotonic()
        return None

    def look_for_keys(self) -> bool:
        """Look whether there is a key by now; a key that was made is wanted for ever, even when it is revoked."""
        if self._environment_key is not None:
            return True
        try:
            found = self._store.has_keys()
        except StateError:
            if self._wants_keys is None:
                raise
        else:
            with self._keeping:  # a key may have been made here since this began to look
                self._wants_keys = self._wants_keys or found
        self._looked_at = self._monotonic()
        return bool(self._wants_keys)

    def recall(self, shown: Credential) -> Caller | None:
        """Give who shows this where that is known without asking the store; None where `verify` is to be asked.

        Of many who ask at once one is sent to verify, and the others hear what was known.
        """
        if self._is_environments(shown):
            return Caller(ENVIRONMENT, Scope.ADMIN)
        digest = self._digest(shown)
        found = self._believed.get(digest)
        if found is None or self._is_over(found.caller.expires_at):
            return None
        if self._monotonic() >= found.until:
            found.until = self._monotonic() + BELIEVED_SECONDS
            return None
        return found.caller

    def is_acquainted(self, shown: Credential) -> bool:
        """Tell whether this was good when it was last looked at; `recall` or `verify` tell whether it still is."""
        return self._is_environments(shown) or self._digest(shown) in self._believed

    def verify(self, shown: Credential) -> Caller:
        """Find out who shows this; raises AccessError for nobody, StateError where the store is away.

        While the store is away, who was known a moment ago is still known.
        """
        if self._is_environments(shown):
            return Caller(ENVIRONMENT, Scope.ADMIN)
        digest, withdrawals = self._digest(shown), self._withdrawals
        try:
            caller = self._of_session(shown.secret) if shown.is_session else self._of_key(shown.secret)
        except AccessError:
            self._believed.pop(digest, None)
            raise
        except StateError:
            found = self._believed.get(digest)
            if found is None or self._is_over(found.caller.expires_at):
                raise
            return found.caller
        with self._keeping:
            if len(self._believed) >= MOST_BELIEVED:
                self._believed.clear()
            if withdrawals == self._withdrawals:
                self._believed[digest] = _Believed(caller, self._monotonic() + BELIEVED_SECONDS)
        return caller

    def create(self, name: str, scope: Scope, lifetime: timedelta | None) -> tuple[ApiKey, str]:
        """Make a key, and give it with its text, which is shown this once.

        Raises KeyNameError, and ConflictError for a name that a key has.
        """
        if not NAME.fullmatch(name):
            raise KeyNameError(
                f"A key cannot be named {name!r}: a name has 1 to 64 letters, digits, spaces and . _ @ + -, "
                "and begins with a letter or digit."
            )
        if name in RESERVED:
            raise KeyNameError(f"A key cannot be named {name!r}: the log of writes means somebody else by it.")
        prefix = secrets.token_hex(PREFIX_BYTES)
        key = f"subsetd_{prefix}_{secrets.token_urlsafe(SECRET_BYTES)}"
        expires_at = None if lifetime is None else self._now() + lifetime
        made = self._store.add_key(name, scope, prefix, _sha256(key.encode()), expires_at)
        with self._keeping:
            self._wants_keys = True
        return made, key

    def keys(self, after: int, limit: int) -> list[ApiKey]:
        """List keys by id, those behind one."""
        return self._store.keys(after, limit)

    def revoke(self, name: str) -> ApiKey:
        """Take the key of this name back, at once in this process; raises NotFoundError where there is none."""
        revoked = self._store.revoke(name, self._now())
        with self._keeping:
            self._withdrawals += 1
            self._believed.clear()
        return revoked

    def log_in(self, key: str) -> Login:
        """Begin a session of who has this key; raises AccessError for a key that is none."""
        shown = Credential(key.encode())
        of_environment = self._is_environments(shown)
        found = None if of_environment else self._find(shown.secret)
        now = self._now()
        expires_at = now + self._session_time
        if found is not None and found.expires_at is not None:
            expires_at = min(expires_at, found.expires_at)
        session_id = secrets.token_urlsafe(SECRET_BYTES)
        digest = self._session_digest(session_id.encode(), of_environment)
        self._store.add_session(digest, None if found is None else found.key_id, now, expires_at)
        name, scope = (ENVIRONMENT, Scope.ADMIN) if found is None else (found.name, found.scope)
        return Login(session_id, _session_caller(name, scope, expires_at, session_id.encode()), expires_at - now)

    def log_out(self, session_id: str) -> None:
        """End a session; one that is none has ended."""
        shown = Credential(session_id.encode(), is_session=True)
        for of_environment in (False, True):
            self._store.end_session(self._session_digest(shown.secret, of_environment))
        with self._keeping:
            self._withdrawals += 1
            self._believed.pop(self._digest(shown), None)

    def _of_key(self, key: bytes) -> Caller:
        found = self._find(key)
        return Caller(found.name, found.scope, found.expires_at)

    def _of_session(self, session_id: bytes) -> Caller:
        for of_environment in (False, True):
            found = self._store.find_session(self._session_digest(session_id, of_environment))
            if found is None or (of_environment and self._environment_key is None):
                continue
            expires_at, key = found
            if self._is_over(expires_at):
                raise ExpiredKeyError(f"This session has expired, at {expires_at:%Y-%m-%d %H:%M %Z}; log in again.")
            if key is None:
                return _session_caller(ENVIRONMENT, Scope.ADMIN, expires_at, session_id)
            self._use(key)
            return _session_caller(key.name, key.scope, expires_at, session_id)
        raise UnknownKeyError("This session has ended, or never was one; log in again.")

    def _find(self, key: bytes) -> ApiKey:
        """Give the key with this text, if it is good."""
        try:
            _, prefix, _ = key.decode("ascii").split("_", 2)
        except ValueError:
            prefix = ""
        found = self._store.find_key(prefix) if prefix.isalnum() else None
        if found is None or not hmac.compare_digest(found[1], _sha256(key)):
            raise UnknownKeyError("The service does not know this key.")
        self._use(found[0])
        return found[0]

    def _use(self, key: ApiKey) -> None:
        """Note that a key is used; raises AccessError for one that is not good any more."""
        if key.revoked_at is not None:
            raise RevokedKeyError(f"The key {key.name!r} was revoked, at {key.revoked_at:%Y-%m-%d %H:%M %Z}.")
        if key.expires_at is not None and self._is_over(key.expires_at):
            raise ExpiredKeyError(
                f"The key {key.name!r} has expired, at {key.expires_at:%Y-%m-%d %H:%M %Z}; have a new one made."
            )
        self._store.note_use(key.key_id, self._now())

    def _is_over(self, expires_at: datetime | None) -> bool:
        return expires_at is not None and expires_at <= self._now()

    def _is_environments(self, shown: Credential) -> bool:
        if self._environment_key is None or shown.is_session:
            return False
        return hmac.compare_digest(_sha256(shown.secret), _sha256(self._environment_key))

    @staticmethod
    def _digest(shown: Credential) -> bytes:
        return _sha256(b"session " + shown.secret if shown.is_session else shown.secret)

    def _session_digest(self, session_id: bytes, of_environment: bool) -> bytes:
        """Give the hash that a session is kept under: another key in the environment finds none of its sessions."""
        if not of_environment:
            return _sha256(session_id)
        return hmac.digest(self._environment_key or b"", session_id, "sha256")


def _session_caller(name: str, scope: Scope, expires_at: datetime, session_id: bytes) -> Caller:
    # Of both hashes neither leads to the session's id. The token need not be kept: it is made of the id again.
    shown = _sha256(session_id).hex()[:8]
    return Caller(name, scope, expires_at, shown, hmac.digest(session_id, b"csrf", "sha256").hex())


def _sha256(text: bytes) -> bytes:
    """Hash a secret of 256 random bits: nobody can guess it, so that a slow hash would protect nothing more."""
    return hashlib.sha256(text).digest()
