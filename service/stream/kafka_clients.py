"""Own the two clients of a feed from Kafka: one that asks, one that reads; made within a bounded time."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Mapping, Sequence

from kafka import KafkaAdminClient, KafkaConsumer
from kafka.errors import KafkaError

from service.core.errors import FeedError
from service.stream.kafka_sockets import CLOSING
from service.stream.kafka_waits import letting_go

REQUEST_SECONDS = 10.0
FETCH_BYTES = 16 * 1024 * 1024
PARTITION_FETCH_BYTES = 4 * 1024 * 1024

CLIENT_LOGGER = logging.getLogger("kafka")


def connect(
    servers: Sequence[str], timeout: float, client_options: Mapping[str, object]
) -> tuple[KafkaAdminClient, KafkaConsumer]:
    """Make the clients; raise FeedError within about `timeout` seconds if no broker answers.

    A socket of our own asks first, because a client that fails leaves its thread behind.
    """
    address = "kafka://" + ",".join(servers)
    deadline = time.monotonic() + timeout
    _wait_for_a_server(servers, timeout, deadline)
    # While a broker is away kafka-python writes ten warnings a second; the feed says it once.
    if CLIENT_LOGGER.level == logging.NOTSET:
        CLIENT_LOGGER.setLevel(logging.CRITICAL)
    options = {
        "bootstrap_servers": list(servers),
        "bootstrap_timeout_ms": max(2000, int((deadline - time.monotonic()) * 1000)),
        "request_timeout_ms": int(REQUEST_SECONDS * 1000),
        "reconnect_backoff_max_ms": 500,
        "proxy_url": CLOSING,
        "client_id": "subsetd",
    }
    reading = {
        "group_id": None,
        "enable_auto_commit": False,
        "auto_offset_reset": "none",
        "isolation_level": "read_committed",
        "allow_auto_create_topics": False,
        "fetch_max_bytes": FETCH_BYTES,
        "max_partition_fetch_bytes": PARTITION_FETCH_BYTES,
        "metadata_max_age_ms": 30_000,
    }
    admin = None
    try:
        admin = KafkaAdminClient(**{**options, **client_options})
        return admin, letting_go(KafkaConsumer(**{**options, **reading, **client_options}))
    except KafkaError as error:
        if admin is not None:
            admin.close()
        raise FeedError(
            f"feed {address}: something listens there but does not answer as a Kafka broker ({error!r}); check the "
            f"address and the security options"
        ) from error


def _wait_for_a_server(servers: Sequence[str], timeout: float, deadline: float) -> None:
    reason = "no server is named"
    while True:
        for server in servers:
            host, _, port = server.rpartition(":")
            try:
                socket.create_connection((host.strip("[]"), int(port)), timeout=1.0).close()
                return
            except OSError as error:
                reason = f"{server}: {error.strerror or error}"
        if time.monotonic() >= deadline:
            raise FeedError(
                f"feed kafka://{','.join(servers)}: no Kafka broker within {timeout:g} s ({reason}); start the broker, "
                f"or check the address"
            )
        time.sleep(0.1)
