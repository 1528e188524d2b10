"""What `make env` does with pyproject.toml: setuptools takes it without a word of warning."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = "from setuptools import build_meta; build_meta.build_editable('wheels')"


def test_an_editable_installation_is_built_without_a_warning(tmp_path: Path) -> None:
    for name in ("pyproject.toml", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    for package in ("service", "spark_jobs", "migrations", "tests"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").touch()
    (tmp_path / "wheels").mkdir()
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", BUILD], cwd=tmp_path, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    (wheel,) = (tmp_path / "wheels").iterdir()
    with zipfile.ZipFile(wheel) as archive:
        (path,) = (name for name in archive.namelist() if name.endswith(".pth"))
        assert archive.read(path).decode().split() == [str(tmp_path)]
