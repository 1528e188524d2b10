"""Settings: each is documented, each bad value is named."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from service.config import ConfigError, Settings, is_loopback, load_settings

DOCUMENT = Path(__file__).parents[2] / "docs" / "settings.md"


def test_every_setting_is_documented_with_its_default() -> None:
    rows = dict(re.findall(r"^\| `SUBSETD_(\w+)` \| ([^|]+) \|", DOCUMENT.read_text(), re.MULTILINE))
    assert rows.keys() == {name.upper() for name in Settings.model_fields}
    for name, field in Settings.model_fields.items():
        shown = rows[name.upper()].strip()
        if field.default is None:
            assert shown == "unset"
        elif field.default_factory is None:
            assert shown == f"`{field.default}`"


def test_the_environment_is_read_and_a_bad_value_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUBSETD_PORT", "9000")
    assert load_settings().port == 9000
    monkeypatch.setenv("SUBSETD_PORT", "many")
    monkeypatch.setenv("SUBSETD_ON_ERROR", "perhaps")
    with pytest.raises(
        ConfigError, match=r"SUBSETD_PORT: .*'many'(.|\n)*SUBSETD_ON_ERROR: .*'perhaps'|SUBSETD_ON_ERROR"
    ) as e:
        load_settings()
    assert "SUBSETD_PORT" in str(e.value)
    assert e.value.exit_code == 2


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("SUBSETD_JOINABLE_SECONDS", "inf"),
        ("SUBSETD_JOINABLE_SECONDS", "1e15"),
        ("SUBSETD_STATEMENT_TIMEOUT_MS", "3000000000"),
        ("SUBSETD_HISTORY_DAYS", "3000000"),
        ("SUBSETD_HISTORY_DAYS", "inf"),
        ("SUBSETD_HISTORY_DAYS", "nan"),
    ],
)
def test_what_no_clock_or_database_can_count_is_refused(monkeypatch: pytest.MonkeyPatch, name: str, given: str) -> None:
    monkeypatch.setenv(name, given)
    with pytest.raises(ConfigError, match=f"{name}: .*{given}"):
        load_settings()


def test_an_empty_key_is_refused_because_it_guards_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUBSETD_API_KEY", "")
    with pytest.raises(ConfigError, match=r"SUBSETD_API_KEY: .*at least 1"):
        load_settings()


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        load_settings().port = 1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("example.org", False),
    ],
)
def test_loopback(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


def test_a_folder_is_found_as_a_shell_finds_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SUBSETD_DATA_DIR", "~/state")
    assert load_settings().data_dir == tmp_path / "state"
    monkeypatch.setenv("SUBSETD_DATA_DIR", "")
    with pytest.raises(ConfigError, match=r"SUBSETD_DATA_DIR.*it is empty"):
        load_settings()
    monkeypatch.setenv("SUBSETD_DATA_DIR", "~nobody-of-this-name/state")
    with pytest.raises(ConfigError, match=r"SUBSETD_DATA_DIR.*cannot be found"):
        load_settings()
