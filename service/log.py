"""Own how log lines look, and from which level on there are any."""

from __future__ import annotations

import logging
import sys
from contextlib import suppress
from typing import TextIO

import structlog


class _Lossy:
    """Write as far as a file takes it: nobody who has something to tell ends where the log's disk is full."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, text: str) -> int:
        with suppress(OSError):
            self._file.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._file.flush()


def configure_logging(level: str) -> None:
    """Log to stderr: JSON, or lines for a person on a terminal."""
    terminal = sys.stderr.isatty()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.dev.ConsoleRenderer() if terminal else structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelName(level.upper())),
        logger_factory=structlog.PrintLoggerFactory(_Lossy(sys.stderr)),  # type: ignore[arg-type]
    )
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
