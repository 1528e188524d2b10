"""Own the taking of a corpus' locks: who works on it is not waited for, who cleans up after others is."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from service.store.locks import sessions

CLEANER_NAME = "subsetd corpus cleaning"

CLEANING_SECONDS = 60.0
"""How long a cleaning is waited for: it may have a large segment of an index to delete."""
PAUSE_SECONDS = 0.1


def hold(ask: Callable[[str], Any], lock: int, corpus_id: int, kind: str = "advisory_lock") -> bool:
    """Take a lock of a corpus, for the session or as `kind` says; False when somebody is at work who holds it.

    `ask` gives what a query's one row has. A cleaning that holds it is waited for, at most CLEANING_SECONDS.
    """
    deadline = time.monotonic() + CLEANING_SECONDS
    while not ask(f"SELECT pg_try_{kind}({lock}, {corpus_id})"):
        if ask(_is_at_work(lock, corpus_id)) or time.monotonic() > deadline:
            return False
        time.sleep(PAUSE_SECONDS)
    return True


def _is_at_work(lock: int, corpus_id: int) -> str:
    # Sessions are remembered within a transaction, and new ones not seen.
    return f"""
    select pg_stat_clear_snapshot();
    select exists ({sessions(lock, str(corpus_id))} and application_name <> '{CLEANER_NAME}')
    """
