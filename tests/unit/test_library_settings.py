"""What NumPy is told before it is loaded: which sort not to take on the one kind of processor that is slow at it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from service import library_settings
from service.library_settings import AVX512, DISABLED, ONE_PROCESSOR, compresses_slowly, prepare

ZEN_3 = ("AuthenticAMD", "25", "fpu sse4_2 avx2 bmi2")
ZEN_4 = ("AuthenticAMD", "25", "fpu sse4_2 avx2 bmi2 avx512f avx512dq avx512vl")
ZEN_5 = ("AuthenticAMD", "26", "fpu sse4_2 avx2 bmi2 avx512f avx512dq avx512vl")
INTEL = ("GenuineIntel", "6", "fpu sse4_2 avx2 bmi2 avx512f avx512dq avx512vl")


def cpuinfo(vendor: str, family: str, flags: str, *, processors: int = 2) -> str:
    one = (
        f"vendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: 17\nflags\t\t: {flags}\nbugs\t\t: sysret_ss_attrs\n"
    )
    return "".join(f"processor\t: {number}\n{one}power management:\n\n" for number in range(processors))


@pytest.mark.parametrize(("processor", "slow"), [(ZEN_3, False), (ZEN_4, True), (ZEN_5, False), (INTEL, False)])
def test_zen_4_alone_is_told_by_its_family_and_its_flags(processor: tuple[str, str, str], slow: bool) -> None:
    assert compresses_slowly(cpuinfo(*processor)) is slow


def test_what_is_read_of_many_processors_ends_within_one() -> None:
    told = cpuinfo(*ZEN_4, processors=200)
    for end in range(len(cpuinfo(*ZEN_4, processors=1)), ONE_PROCESSOR):
        assert compresses_slowly(told[:end])


@pytest.mark.parametrize("told", ["", "Processor\t: AArch64 Processor rev 4\nFeatures\t: fp asimd\n"])
def test_what_tells_of_no_such_processor_is_none(told: str) -> None:
    assert not compresses_slowly(told)


SORTS = """
import json
from service.library_settings import prepare

prepare()
import numpy as np

simd = np.show_config(mode="dicts")["SIMD Extensions"]
ordered = np.sort(np.array([3, 1, 2**63, 2], dtype=np.uint64)).tolist()
print(json.dumps({"found": simd["found"], "ordered": ordered}))
"""


def features_found(tmp_path: Path, processor: tuple[str, str, str], **environment: str) -> list[str]:
    """Give what NumPy found in a process of its own whose processor is said to be this one."""
    told = tmp_path / "cpuinfo"
    told.write_text(cpuinfo(*processor))
    script = SORTS.replace(
        "\nprepare()", f"\nimport service.library_settings as own\nown.CPUINFO = {str(told)!r}\nprepare()"
    )
    plain = {name: value for name, value in os.environ.items() if name != DISABLED}
    said = subprocess.run(
        [sys.executable, "-c", script], env=plain | environment, check=True, capture_output=True, text=True
    )
    assert not said.stderr
    answer = json.loads(said.stdout)
    assert answer["ordered"] == [1, 2, 3, 2**63]
    found: list[str] = answer["found"]
    return found


def test_numpy_takes_no_avx_512_on_zen_4_and_what_the_machine_has_elsewhere(tmp_path: Path) -> None:
    """The first half bites where this machine has AVX-512; on another NumPy finds none, and is as silent."""
    assert AVX512 not in features_found(tmp_path, ZEN_4)
    plain = {name: value for name, value in os.environ.items() if name != DISABLED}
    own = subprocess.run(
        [sys.executable, "-c", SORTS.replace("prepare()", "")], env=plain, check=True, capture_output=True, text=True
    )
    assert features_found(tmp_path, INTEL) == json.loads(own.stdout)["found"]


SUBMITTED = """
import json
import os
import sys
from spark_jobs.submit import main

try:
    main(["audit", "--help"])
finally:
    assert "numpy" in sys.modules
    print(json.dumps(dict(os.environ)), file=sys.stderr)
"""


def test_a_driver_that_spark_submit_begins_is_told_before_it_loads_numpy() -> None:
    plain = {name: value for name, value in os.environ.items() if name not in library_settings.SINGLE_THREAD}
    said = subprocess.run([sys.executable, "-c", SUBMITTED], env=plain, check=True, capture_output=True, text=True)
    assert json.loads(said.stderr).items() >= library_settings.SINGLE_THREAD.items()


@pytest.fixture
def own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what is set here be as it was behind the test."""
    for name, value in library_settings.SINGLE_THREAD.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv(DISABLED, "")


@pytest.mark.usefixtures("own_environment")
def test_who_says_what_numpy_takes_has_his_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = tmp_path / "cpuinfo"
    told.write_text(cpuinfo(*ZEN_4))
    monkeypatch.setattr(library_settings, "CPUINFO", str(told))
    prepare()
    assert os.environ[DISABLED] == ""
    monkeypatch.delenv(DISABLED)
    prepare()
    assert os.environ[DISABLED] == AVX512


@pytest.mark.usefixtures("own_environment")
def test_a_system_that_tells_of_no_processor_is_left_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library_settings, "CPUINFO", str(tmp_path / "none"))
    monkeypatch.delenv(DISABLED)
    prepare()
    assert DISABLED not in os.environ
