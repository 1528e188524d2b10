"""Own Postgres' snapshots as text: which transactions had ended when a source was read."""

from __future__ import annotations

import re
from dataclasses import dataclass

from service.core.errors import StateError

_TEXT = re.compile(r"(\d+):(\d+):((?:\d+(?:,\d+)*)?)")
_EPOCH = 1 << 32


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Hold what `pg_current_snapshot()` says, in 64-bit transaction ids.

    All transactions below `xmin` had ended, none from `xmax` on had begun to, and of those between `running` had not.
    """

    xmin: int
    xmax: int
    running: frozenset[int]

    @classmethod
    def parse(cls, text: str) -> Snapshot:
        """Read `xmin:xmax:xip,xip,...`; raise StateError for anything else."""
        match = _TEXT.fullmatch(text)
        if match is None or int(match[1]) > int(match[2]):
            raise StateError(
                f"The state keeps {text!r} as a source's snapshot, which is no pg_current_snapshot(): bootstrap the "
                f"source again with --replace."
            )
        return cls(int(match[1]), int(match[2]), frozenset(int(xip) for xip in match[3].split(",") if xip))

    def is_visible(self, transaction: int) -> bool:
        """Tell whether a committed transaction (64-bit id) belongs to the snapshot."""
        return transaction < self.xmin or (transaction < self.xmax and transaction not in self.running)


def widen(transaction: int, near: int) -> int:
    """Give the 64-bit id whose last 32 bits are those of `transaction` and which is nearest to `near`, another one.

    Change feeds name transactions by 32 bits, which come round every four billion. An id of 64 bits stays as it is.
    """
    if transaction >= _EPOCH:
        return transaction
    wide = near - near % _EPOCH + transaction
    return min((w for w in (wide - _EPOCH, wide, wide + _EPOCH) if w >= 0), key=lambda w: abs(w - near))
