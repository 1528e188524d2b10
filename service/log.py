"""Own how log lines look, and from which level on there are any."""

from __future__ import annotations

import logging
import sys
from contextlib import suppress
from typing import Any, TextIO

import structlog
from structlog.typing import Processor


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
    """Log to stderr: JSON, what libraries and defects tell as well, or lines for a person on a terminal."""
    terminal = sys.stderr.isatty()
    file: Any = _Lossy(sys.stderr)
    telling: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[*telling, structlog.dev.ConsoleRenderer() if terminal else structlog.processors.JSONRenderer()],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelName(level.upper())),
        logger_factory=structlog.PrintLoggerFactory(file),
    )
    handler = logging.StreamHandler(file)
    if not terminal:
        lines = structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, *telling],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                # As text: structlog's own form of a traceback shows local variables, and with them values and secrets.
                structlog.processors.format_exc_info,
                structlog.processors.JSONRenderer(),
            ],
        )
        handler.setFormatter(lines)
        logging.captureWarnings(True)
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
