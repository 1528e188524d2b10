"""Own what NumPy and Arrow are told before they are loaded: to begin no thread, and which sort not to take."""

from __future__ import annotations

import os
import re

SINGLE_THREAD = {"JE_ARROW_MALLOC_CONF": "background_thread:false", "OPENBLAS_NUM_THREADS": "1"}
"""Without these Arrow's second allocator and NumPy's linear algebra each begin a thread as they are imported.

Who forks behind that must be the one thread of its process, and inherits the heap that a thread has made.
"""

DISABLED = "NPY_DISABLE_CPU_FEATURES"
"""What NumPy reads as it is imported. Who sets it has his way: ours is a default."""

AVX512 = "X86_V4"
"""As NumPy names what its sort takes AVX-512 by, and all that is built on it, since 2.4; older ones ignore the name."""

CPUINFO = "/proc/cpuinfo"
ONE_PROCESSOR = 4096
"""Bytes that hold all of the first processor: to tell of hundreds takes the kernel milliseconds."""


def prepare() -> None:
    """Set what libraries read as they are loaded, in this process and those that it starts. Call it before NumPy."""
    os.environ.update(SINGLE_THREAD)  # noqa: TID251 - read by libraries as they are loaded, behind which `run` forks
    try:
        with open(CPUINFO) as file:
            processor = file.read(ONE_PROCESSOR)
    except OSError:  # no Linux, or none that tells
        return
    if compresses_slowly(processor):
        os.environ.setdefault(DISABLED, AVX512)  # noqa: TID251 - as above


def compresses_slowly(cpuinfo: str) -> bool:
    """Tell of a processor's lines in /proc/cpuinfo whether it is a Zen 4.

    There each store of compressed lanes takes some hundred cycles (AMD, "Software Optimization Guide for the Zen4
    Microarchitecture", 2.11.2), and NumPy's sort by AVX-512 consists of them: its sort by AVX2 takes a quarter of the
    time. Zen 3 is of the same family and has no AVX-512; Zen 5 is of the next one, and stores them fast.
    """
    first, _, _ = cpuinfo.partition("\n\n")
    told = dict(re.findall(r"^(\S[^\t:]*?)\s*: (.*)$", first, re.MULTILINE))
    return (
        told.get("vendor_id") == "AuthenticAMD"
        and told.get("cpu family") == "25"
        and "avx512dq" in told.get("flags", "").split()
    )
