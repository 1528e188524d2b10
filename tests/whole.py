"""Own whether long proofs are to run in full: short in `make test-crashes`, whole in `make endurance`."""

from __future__ import annotations

import os

IS_WHOLE = "SUBSETD_ENDURANCE" in os.environ
