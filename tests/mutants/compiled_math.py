"""Own functions of math as compiled code has them: where Python's raise, they give infinity or NaN."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

LIKE_COMPILED = ("exp", "expm1", "log", "log1p")


def like_compiled(name: str) -> Callable[..., float]:
    """Give Python's function of this name, which all of the process may call, with numpy's answer where it raises."""
    plain, quiet = getattr(math, name), getattr(np, name)

    def answer(*given: Any) -> float:
        try:
            return float(plain(*given))
        except (ValueError, OverflowError):
            if len(given) != 1:
                raise
            with np.errstate(all="ignore"):
                return float(quiet(given[0]))

    return answer
