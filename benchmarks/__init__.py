"""Own the measurements: `python -m benchmarks` (the rows) and `python -m benchmarks.evaluate` (the answers)."""
