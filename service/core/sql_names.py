"""Own how names are written in SQL statements, those that messages show among them."""

from __future__ import annotations

import re

TYPE_NAME = r"""
  CASE WHEN EXISTS (SELECT FROM pg_type t JOIN pg_depend d ON d.classid = 'pg_type'::regclass AND d.deptype = 'e'
    AND d.objid IN (t.oid, t.typelem) WHERE t.oid = kind)
  THEN regexp_replace(format_type(kind, modifier),
    '^("([^"]|"")*"|[^".]*)[.](?=(hstore|vector|halfvec|geometry|geography)\M)', '')
  ELSE coalesce((SELECT quote_ident(nspname) || '.' FROM pg_type t
    JOIN pg_type e ON e.oid = CASE t.typcategory WHEN 'A' THEN t.typelem ELSE t.oid END
    JOIN pg_namespace n ON n.oid = e.typnamespace
    WHERE t.oid = kind AND nspname <> 'pg_catalog' AND pg_type_is_visible(e.oid)), '')
    || format_type(kind, modifier) END
"""
"""SQL: format_type's name of the type `kind`, of extensions that canonical texts know without their schema.

A type of one's own always has its schema, for it may be called as another database's (year, image).
"""

KEYWORDS = {
    *("all", "analyse", "analyze", "and", "any", "array", "as", "asc", "asymmetric", "authorization", "binary"),
    *("both", "case", "cast", "check", "collate", "collation", "column", "concurrently", "constraint", "create"),
    *("cross", "current_catalog", "current_date", "current_role", "current_schema", "current_time"),
    *("current_timestamp", "current_user", "default", "deferrable", "desc", "distinct", "do", "else", "end"),
    *("except", "false", "fetch", "for", "foreign", "freeze", "from", "full", "grant", "group", "having", "ilike"),
    *("in", "initially", "inner", "intersect", "into", "is", "isnull", "join", "lateral", "leading", "left", "like"),
    *("limit", "localtime", "localtimestamp", "natural", "not", "notnull", "null", "offset", "on", "only", "or"),
    *("order", "outer", "overlaps", "placing", "primary", "references", "returning", "right", "select"),
    *("session_user", "similar", "some", "symmetric", "system_user", "table", "tablesample", "then", "to"),
    *("trailing", "true", "union", "unique", "user", "using", "variadic", "verbose", "when", "where"),
    *("window", "with"),
}
"""The words that are no name without quotes, in any of Postgres 13 to 18: catcode R or T of pg_get_keywords()."""


def sql_name(*parts: str) -> str:
    """Write a qualified name for Postgres; a part is quoted when it needs to be."""
    return ".".join(
        part
        if re.fullmatch(r"[a-z_][a-z0-9_]*", part) and part not in KEYWORDS
        else '"' + part.replace('"', '""') + '"'
        for part in parts
    )
