"""Own where the compiled kernels of tasks on other machines are kept: by what is in the code, not by where it is.

Numba keeps kernels beside the code, or by the code's path, and each run's executors unpack the code into a folder of
their own: every run would compile all of them anew. Executors are told of this class by NUMBA_CACHE_LOCATOR_CLASSES.
"""

from __future__ import annotations

import atexit
import hashlib
import importlib.util
import os
import re
import shutil
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from numba.core import config as _config
from numba.core.caching import _CacheLocator

config: Any = _config

_IMPORT = re.compile(rb"^[ \t]*from ([\w.]+) import ([^(\n]+|\([^)]*\))", re.MULTILINE)


class ByContent(_CacheLocator):  # type: ignore[misc]
    """Name the folder of a function's kernels by the code of its module and of ours that it imports.

    It is in a folder of this user's, in NUMBA_CACHE_DIR or else in the temporary directory.
    """

    def __init__(self, stamp: str, module: str, line: int) -> None:
        self._stamp, self._module, self._line = stamp, module, line

    @classmethod
    def from_function(cls, py_func: Any, _: str) -> ByContent | None:
        """Give the place for a function; None when its module's code cannot be read, or nothing be written there."""
        try:
            found = cls(stamp_of(py_func.__module__), py_func.__module__, py_func.__code__.co_firstlineno)
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


@cache
def cache_root() -> Path:
    """Give the folder of all kernels, or one for this process alone where none can be this user's."""
    for parent in filter(None, (config.CACHE_DIR, tempfile.gettempdir())):
        folder = Path(parent, f"subsetd-kernels-{os.getuid()}")
        try:
            require_own(folder)
            with tempfile.TemporaryFile(dir=folder):
                return folder
        except OSError:
            continue
    folder = Path(tempfile.mkdtemp(prefix="subsetd-kernels-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def require_own(folder: Path) -> None:
    """Raise OSError for a folder of others: what is in it is run."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise PermissionError(f"{folder} is not this user's")


@cache
def stamp_of(module: str) -> str:
    """Hash the code of a module and of ours that it imports: what a kernel calls or names is compiled into it."""
    ours = {module.partition(".")[0], "service", "spark_jobs"}
    found: dict[str, bytes] = {}
    left = [module]
    while left:
        name = left.pop()
        if name in found:
            continue
        found[name], _ = _source(name)
        for imported, names in _IMPORT.findall(found[name]):
            origin = imported.decode()
            if origin.partition(".")[0] in ours and _is_module(origin):
                left.append(origin)
                if _source(origin)[1]:  # else what is imported is no module, and to look for it would run this one
                    left += filter(_is_module, (f"{origin}.{one.decode()}" for one in re.findall(rb"\w+", names)))
    digest = hashlib.sha256()
    for name in sorted(found):
        digest.update(f"{name}\0{len(found[name])}\0".encode() + found[name])
    return digest.hexdigest()


def _is_module(name: str) -> bool:
    try:
        return bool(_source(name))
    except ImportError:
        return False


@cache
def _source(module: str) -> tuple[bytes, bool]:
    """Give the code of a module, which may be in a zip file, and tell whether it is a package."""
    loaded = sys.modules.get(module)
    spec = loaded.__spec__ if loaded is not None and loaded.__spec__ is not None else importlib.util.find_spec(module)
    loader: Any = spec and spec.loader
    if spec is None or spec.origin is None or not hasattr(loader, "get_data"):
        raise ImportError(f"the code of {module} cannot be read")
    return loader.get_data(spec.origin), spec.submodule_search_locations is not None
