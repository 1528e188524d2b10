"""Own the page /docs: the routes and problems as plain HTML, which asks nothing of other hosts."""

from __future__ import annotations

import json
from html import escape
from typing import Any

from service.api.example_requests import example_request
from service.api.problems import EXPLANATIONS

STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h2 { margin-top: 2.5rem; font-size: 1.1rem; } code, pre { font-family: ui-monospace, monospace; font-size: .9rem; }
pre { overflow-x: auto; padding: .75rem; border: 1px solid #8886; border-radius: 4px; }
table { border-collapse: collapse; } td, th { text-align: left; vertical-align: top; padding: .15rem 1rem .15rem 0; }
"""

HOST = "127.0.0.1:8321"
"""Where the service is unless settings say otherwise; the examples name it."""

SECURITY_POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"


def render(openapi: dict[str, Any], openapi_url: str) -> str:
    """Write the page for this OpenAPI document."""
    title = escape(openapi["info"]["title"])
    parts = [
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{title}</title>",
        f"<meta name=viewport content='width=device-width'><style>{STYLE}</style>",
        f"<h1>{title} {escape(openapi['info']['version'])}</h1><p>{escape(openapi['info']['description'])}</p>",
        f"<p>The same for programs: <a href='{openapi_url}'>{openapi_url}</a></p>",
    ]
    for path, operations in openapi["paths"].items():
        parts += [_operation(method, path, operation, openapi) for method, operation in operations.items()]
    parts.append("<h2>Problems</h2><table>")
    parts += [f"<tr id='{kind}'><td><code>{kind}</code><td>{escape(text)}" for kind, text in EXPLANATIONS.items()]
    parts.append("</table></html>")
    return "\n".join(parts)


def _operation(method: str, path: str, operation: dict[str, Any], openapi: dict[str, Any]) -> str:
    shown = escape(path) if "{" in path else f"<a href='{escape(path)}'>{escape(path)}</a>"
    rows = "".join(
        f"<tr><td><code>{escape(one['name'])}</code><td>{escape(one.get('description', ''))}"
        for one in operation.get("parameters", ())
        if one["in"] != "header"
    )
    content = operation["responses"].get("200", {}).get("content", {}).get("application/json", {})
    example = json.dumps(content["example"], indent=2, ensure_ascii=False) if "example" in content else ""
    folded = f"<details><summary>Example</summary><pre>{escape(example)}</pre></details>" if example else ""
    text = escape(operation.get("description", ""))
    asked = escape(example_request(method, path, operation, openapi).as_curl(HOST))
    return f"<h2>{method.upper()} <code>{shown}</code></h2><p>{text}</p><table>{rows}</table><pre>{asked}</pre>{folded}"
