"""Own the asking of a schema registry (Confluent's HTTP interface) for schemas by their ids."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from http.client import HTTPException

from service.core.errors import FeedAwayError, FeedError, RecordError
from service.stream.http_login import request_of, split_login

TIMEOUT_SECONDS = 5.0
FORGET_UNKNOWN_SECONDS = 10.0
"""How long a schema id that the registry did not know is not asked for again."""

ACCEPTED = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}


class HttpSchemaRegistry:
    """Implement avro.SchemaRegistry over HTTP; nothing is asked before the first schema.

    A user and a password in the address are sent as Basic authentication, and are in no message.
    """

    def __init__(self, address: str) -> None:
        found = split_login(address)
        if found is None:
            raise FeedError(
                "The schema registry's address is none: give SUBSETD_SCHEMA_REGISTRY=http://host:port, or with "
                "user:password@ before the host, in which / is %2F and @ is %40"
            )
        self._base, self._login = found
        self._unknown: dict[int, float] = {}

    def schema(self, schema_id: int) -> str:
        """Give the text of an Avro schema.

        Raises RecordError for an id that the registry does not know or that is of another kind of schema,
        FeedAwayError when the registry does not answer, and FeedError when it refuses to.
        """
        if time.monotonic() - self._unknown.get(schema_id, float("-inf")) < FORGET_UNKNOWN_SECONDS:
            raise self._not_known(schema_id)
        request = request_of(f"{self._base}/schemas/ids/{schema_id}", self._login, ACCEPTED)
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as answer:
                document = json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                if error.code == 404:
                    self._unknown[schema_id] = time.monotonic()
                    raise self._not_known(schema_id) from None
                if error.code in (401, 403):
                    raise FeedError(
                        f"The schema registry {self._base} refuses to answer ({error.code}): put a user and a password "
                        f"that may read into SUBSETD_SCHEMA_REGISTRY (http://user:password@host:port)."
                    ) from None
                raise self._away(f"it answers {error.code} {error.reason}") from None
        except (OSError, HTTPException, ValueError) as error:
            raise self._away(str(getattr(error, "reason", error)) or type(error).__name__) from error
        kind = document.get("schemaType", "AVRO") if isinstance(document, dict) else None
        if kind is not None and kind != "AVRO":
            raise RecordError(f"has schema {schema_id}, of the kind {kind}; only Avro and JSON are read")
        if kind is None or not isinstance(document.get("schema"), str):
            raise self._away("its answer is none of a schema registry")
        return str(document["schema"])

    def _not_known(self, schema_id: int) -> RecordError:
        return RecordError(
            f"has schema id {schema_id}, which the registry {self._base} does not know; is SUBSETD_SCHEMA_REGISTRY the "
            f"registry that the connector writes to?"
        )

    def _away(self, why: str) -> FeedAwayError:
        return FeedAwayError(f"The schema registry {self._base} cannot be asked: {why}. Is it running?")
