"""Own where the compiled kernels of tasks on other machines are kept: by what is in the code, not by where it is.

Numba keeps kernels beside the code, or by the code's path, and each run's executors unpack the code into a folder of
their own: every run would compile all of them anew. Executors are told of this class by NUMBA_CACHE_LOCATOR_CLASSES.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from numba.core import config as _config
from numba.core.caching import _CacheLocator

config: Any = _config


class ByContent(_CacheLocator):  # type: ignore[misc]
    """Name the folder of a function's kernels by the bytes of its module, which may be in a zip file.

    It is in NUMBA_CACHE_DIR, or else in a folder of this user's in the temporary directory.
    """

    def __init__(self, source: bytes, module: str, line: int) -> None:
        self._stamp = hashlib.sha256(source).hexdigest()
        self._module, self._line = module, line

    @classmethod
    def from_function(cls, py_func: Any, _: str) -> ByContent | None:
        """Give the place for a function; None when its module's code cannot be read, or nothing be written there."""
        try:
            found = cls(_source(py_func.__module__), py_func.__module__, py_func.__code__.co_firstlineno)
            require_own(cache_root())
            Path(found.get_cache_path()).mkdir(mode=0o700, parents=True, exist_ok=True)
        except (OSError, ImportError):
            return None
        return found

    def get_cache_path(self) -> str:
        """Give the folder."""
        return str(cache_root() / f"{self._module}-{self._stamp[:16]}")

    def get_source_stamp(self) -> str:
        """Give what changes with the code."""
        return self._stamp

    def get_disambiguator(self) -> str:
        """Tell functions of one name apart."""
        return str(self._line)


def cache_root() -> Path:
    """Give the folder of all kernels."""
    return Path(config.CACHE_DIR or Path(tempfile.gettempdir(), f"subsetd-kernels-{os.getuid()}"))


def require_own(folder: Path) -> None:
    """Raise OSError for a folder of others: what is in it is run."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise PermissionError(f"{folder} is not this user's")


@cache
def _source(module: str) -> bytes:
    loaded = sys.modules.get(module)
    spec = loaded.__spec__ if loaded is not None and loaded.__spec__ is not None else importlib.util.find_spec(module)
    loader: Any = spec and spec.loader
    if spec is None or spec.origin is None or not hasattr(loader, "get_data"):
        raise ImportError(f"the code of {module} cannot be read")
    found: bytes = loader.get_data(spec.origin)
    return found
