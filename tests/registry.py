"""Own a schema registry for tests, over HTTP on loopback, and the Avro records that go with it."""

from __future__ import annotations

import io
import json
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import fastavro


class StubRegistry:
    """Answer as Confluent's registry does; `asked` are the paths, `status` an error that is answered instead."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.schemas: dict[int, dict[str, Any]] = {}
        self.asked: list[str] = []
        self.logins: list[str | None] = []
        self.status = 200
        self.body: bytes | None = None

    def add(self, schema_id: int, schema: object, **more: object) -> None:
        """Hold an Avro schema."""
        self.schemas[schema_id] = {"schema": json.dumps(schema), **more}


@contextmanager
def schema_registry() -> Iterator[StubRegistry]:
    """Run a registry on a free port of loopback."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            stub.asked.append(self.path)
            stub.logins.append(self.headers["Authorization"])
            found = stub.schemas.get(int(self.path.rsplit("/", 1)[1]))
            status = 404 if found is None and stub.status == 200 else stub.status
            body = json.dumps(found or {"error_code": 40403, "message": "Schema not found"}).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(stub.body or body)))
            self.end_headers()
            self.wfile.write(stub.body or body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        stub = StubRegistry(f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield stub
        finally:
            server.shutdown()
            thread.join()


def avro_record(schema_id: int, schema: Any, value: object) -> bytes:
    """Write a value as Confluent's serializer does: zero byte, id of the schema, Avro without a header."""
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(schema), value)
    return b"\0" + struct.pack(">I", schema_id) + body.getvalue()
