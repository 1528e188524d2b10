"""Own the asking of Kafka Connect over its REST interface: which Debezium connectors it has, how they are set."""

from __future__ import annotations

import urllib.request
from collections.abc import Mapping
from http.client import HTTPException
from typing import Any

import orjson

from service.core.errors import FeedError
from service.stream.http_login import request_of, split_login
from service.usecases.preflight_facts import ConnectorFacts

TIMEOUT_SECONDS = 10.0
LONGEST_ANSWER = 16 << 20


def read_connectors(url: str) -> list[ConnectorFacts]:
    """Read all Debezium source connectors; raise FeedError where Connect is away or says something else."""
    found = split_login(url)
    if found is None:
        raise FeedError("What --connect names is no address of Kafka Connect; give http://host:8083")
    base, login = found
    request = request_of(f"{base}/connectors?expand=info&expand=status", login)
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as answer:
            told = orjson.loads(answer.read(LONGEST_ANSWER))
        return sorted(
            (_read(name, one) for name, one in told.items() if "debezium" in one["info"]["config"]["connector.class"]),
            key=lambda facts: facts.name,
        )
    except (OSError, HTTPException) as error:
        why = str(error) or type(error).__name__
        raise FeedError(f"Kafka Connect at {base} does not answer: {why}. Start it, or correct --connect.") from error
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
        raise FeedError(f"What listens at {base} does not answer as Kafka Connect does; correct --connect.") from error


def _read(name: str, told: Mapping[str, Any]) -> ConnectorFacts:
    status = told["status"]
    states = [status["connector"]["state"], *(task["state"] for task in status["tasks"])]
    config = {str(key): str(value) for key, value in told["info"]["config"].items()}
    return ConnectorFacts(name, config, states if status["tasks"] else ())
