"""Own the asking of Kafka Connect over its REST interface: which Debezium connectors it has, how they are set."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any

import orjson

from service.core.errors import FeedError
from service.usecases.preflight_facts import ConnectorFacts

TIMEOUT_SECONDS = 10.0
LONGEST_ANSWER = 16 << 20


def read_connectors(url: str) -> list[ConnectorFacts]:
    """Read all Debezium source connectors; raise FeedError where Connect is away or says something else."""
    address = url.rstrip("/") + "/connectors?expand=info&expand=status"
    if not address.startswith(("http://", "https://")):
        raise FeedError(f"{url!r} is no address of Kafka Connect; give http://host:8083")
    try:
        with urllib.request.urlopen(address, timeout=TIMEOUT_SECONDS) as answer:
            told = orjson.loads(answer.read(LONGEST_ANSWER))
        return sorted(
            (_read(name, one) for name, one in told.items() if "debezium" in one["info"]["config"]["connector.class"]),
            key=lambda facts: facts.name,
        )
    except (OSError, urllib.error.URLError) as error:
        raise FeedError(f"Kafka Connect at {url} does not answer: {error}. Start it, or correct --connect.") from error
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
        raise FeedError(f"What listens at {url} does not answer as Kafka Connect does; correct --connect.") from error


def _read(name: str, told: Mapping[str, Any]) -> ConnectorFacts:
    status = told["status"]
    states = [status["connector"]["state"], *(task["state"] for task in status["tasks"])]
    config = {str(key): str(value) for key, value in told["info"]["config"].items()}
    return ConnectorFacts(name, config, states if status["tasks"] else ())
