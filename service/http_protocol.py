"""Own how bytes become requests: httptools, with the bounds and the refusals of HTTP that it leaves to others."""

from __future__ import annotations

from httptools import HttpParserError, HttpParserUpgrade
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

MOST_HEAD_BYTES = 128 * 1024
"""Without a byte of a body between them; what is longer than the service takes, and not than this, is told so by it."""

MOST_PARSED_TARGET_BYTES = 65_535
"""Longer ones httptools does not take apart."""


class BoundedHttp(HttpToolsProtocol):
    """Take requests apart; what no bound of the service's would see is refused here, and the connection ended.

    httptools keeps a head, or what stands behind a body, for as long as it comes; it adds that to the headers of a
    request that is being answered; it takes a request that names no host, or two (RFC 9112, 3.2).
    """

    _kept_bytes = 0

    def data_received(self, data: bytes) -> None:
        """Hear bytes of a connection."""
        self._unset_keepalive_if_required()
        if self._kept_bytes > MOST_HEAD_BYTES:
            self._refuse(431)
            return
        self._kept_bytes += len(data)
        while data:
            try:
                self.parser.feed_data(data)
                return
            except HttpParserUpgrade as wish:  # no other protocol is spoken here: what follows is the next request
                (taken,) = wish.args
                data = data[taken:]
            except HttpParserError:
                self._refuse(400)
                return

    def on_message_begin(self) -> None:
        """Begin a request."""
        super().on_message_begin()
        self._kept_bytes = 0
        self._is_in_head = True

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header, and leave out what follows a body."""
        if self._is_in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Hand a request over; raises ValueError where its host is not told."""
        self._is_in_head = False
        hosts = sum(name == b"host" for name, _ in self.headers)
        if hosts > 1 or (hosts == 0 and self.parser.get_http_version() != "1.0"):
            raise ValueError("a request names one host")
        self.url = self.url[:MOST_PARSED_TARGET_BYTES]  # more than is taken, so that it is refused as too long
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Take a part of a body: what bounds bodies counts it."""
        self._kept_bytes = 0
        super().on_body(body)

    def _refuse(self, status: int) -> None:
        self.logger.warning("A request that cannot be read as HTTP, or has no end: %d", status)
        self.transport.write(STATUS_LINE[status] + b"content-length: 0\r\nconnection: close\r\n\r\n")
        self.transport.close()
