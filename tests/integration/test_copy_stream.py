"""What reading rows for a COPY raises is raised as it is, an interrupt among it, whenever it comes."""

from __future__ import annotations

import gc
import random
import signal
from collections.abc import Iterator
from contextlib import closing, contextmanager
from types import FrameType

import psycopg2
import pytest

from service.store.copy_stream import copy_blocks

ROW = bytes.fromhex("0001 00000004 00000007")
"""One column, an integer."""


@contextmanager
def interrupted(seconds: float) -> Iterator[None]:
    """Raise KeyboardInterrupt in a while, as a signal does.

    No garbage is looked for meanwhile: Hypothesis has itself told of that, and what is raised where Python tells of it
    is lost.
    """

    def end(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before, was_enabled = signal.signal(signal.SIGALRM, end), gc.isenabled()
    gc.disable()
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if was_enabled:
            gc.enable()


def many() -> Iterator[bytes]:
    """Give more rows than can be copied before the interrupt, and yet not as many as fill a disk."""
    for _ in range(5_000_000):
        yield ROW


def test_an_interrupt_amid_a_copy_is_not_taken_for_an_error_of_the_database(database_url: str) -> None:
    chance = random.Random(7)
    with closing(psycopg2.connect(database_url)) as connection, connection.cursor() as cursor:
        cursor.execute("create table copied (number integer)")
        connection.commit()
        for _ in range(100):
            with pytest.raises(KeyboardInterrupt), interrupted(chance.uniform(0.002, 0.02)):
                copy_blocks(cursor, "copied", many())
            connection.rollback()


def test_what_gives_the_rows_may_fail(database_url: str) -> None:
    def failing() -> Iterator[bytes]:
        yield ROW
        raise ValueError("no more")

    with closing(psycopg2.connect(database_url)) as connection, connection.cursor() as cursor:
        cursor.execute("create table copied (number integer)")
        with pytest.raises(ValueError, match="no more"):
            copy_blocks(cursor, "copied", failing())


def test_an_error_of_the_database_stays_one(database_url: str) -> None:
    with closing(psycopg2.connect(database_url)) as connection, connection.cursor() as cursor:
        cursor.execute("create table copied (number integer check (number < 7))")
        with pytest.raises(psycopg2.errors.CheckViolation):
            copy_blocks(cursor, "copied", [ROW])


def test_a_copy_leaves_nothing_to_the_search_for_garbage(database_url: str) -> None:
    """A consumer copies hundreds of times between two of them."""
    with closing(psycopg2.connect(database_url)) as connection, connection.cursor() as cursor:
        cursor.execute("create table copied (number integer)")
        gc.collect()
        gc.disable()
        try:
            copy_blocks(cursor, "copied", [ROW])
            assert gc.collect() == 0
        finally:
            gc.enable()
