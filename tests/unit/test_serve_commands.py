"""What `subsetd run` loads before its consumer is on its way: the sooner that forks, the sooner it follows again."""

from __future__ import annotations

import subprocess
import sys

ONLY_FOR_ANSWERS = ("fastapi", "uvicorn", "service.api", "service.beside_service", "service.watch_runner")


def test_what_only_answers_need_is_not_loaded_before_the_consumer_is_on_its_way() -> None:
    script = "import sys, service.serve_commands; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout.split()
    assert "service.consumer_process" in loaded
    assert [name for name in ONLY_FOR_ANSWERS if name in loaded] == []
