"""Own the shapes of the API about keys, sessions and the log of writes."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, ConfigDict, Field

from service.api.schemas import Answer, Page
from service.usecases import access, write_log
from service.usecases.access import Scope

MOST_DAYS = 3650
EXAMPLE_KEY = "subsetd_1f0c9a2b_..."


class NewApiKey(BaseModel):
    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"example": {"name": "grafana", "scope": "read", "days": 90}}
    )

    name: str = Field(max_length=64, description="letters, digits, spaces and . _ @ + -")
    scope: Scope = Scope.READ
    days: int | None = Field(90, ge=1, le=MOST_DAYS, description="for how long it is good; null: for ever")


class ApiKey(Answer):
    key_id: int
    name: str
    scope: Scope
    prefix: str = Field(description="the key is subsetd_ and this, and more that is kept nowhere")
    created_at: datetime
    expires_at: datetime | None = Field(description="null: never")
    last_used_at: datetime | None = Field(description="to about a minute; null: never yet")
    revoked_at: datetime | None

    @classmethod
    def of(cls, one: access.ApiKey) -> ApiKey:
        return cls.model_validate(one)


class MadeApiKey(ApiKey):
    key: str = Field(description="the key itself: it is shown this once")


class ApiKeysPage(Page):
    items: list[ApiKey]


class NewSession(BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"key": EXAMPLE_KEY}})

    key: str = Field(min_length=1, max_length=1024)


class Session(Answer):
    name: str = Field(description="of the key; `anyone` where no key is wanted")
    scope: Scope
    expires_at: datetime | None
    csrf_token: str | None = Field(
        description="what a browser that is logged in sends as X-CSRF-Token with all that changes something; "
        "null: there is no session"
    )

    @classmethod
    def of(cls, one: access.Caller) -> Session:
        return cls.model_validate(one)


class Write(Answer):
    write_id: int
    written_at: datetime
    who: str = Field(description="name of the key")
    session: str | None = Field(description="tells sessions of one key apart; null: the key itself was sent")
    address: str | None = Field(description="that the request came from")
    method: str
    route: str
    target: str = Field(description="path of what was changed or made")
    status: int | None = Field(description="of the answer; null: it was no request")

    @classmethod
    def of(cls, one: write_log.LoggedWrite) -> Write:
        return cls.model_validate(one)


class WritesPage(Page):
    items: list[Write]
