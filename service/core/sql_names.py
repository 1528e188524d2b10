"""Own how names are written in SQL statements, those that messages show among them."""

from __future__ import annotations

import re


def sql_name(*parts: str) -> str:
    """Write a qualified name for Postgres; a part is quoted when it needs to be."""
    return ".".join(
        part if re.fullmatch(r"[a-z_][a-z0-9_]*", part) else '"' + part.replace('"', '""') + '"' for part in parts
    )
