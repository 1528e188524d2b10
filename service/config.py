"""Own the settings: the only reader of the environment. Every field is `SUBSETD_` and its name in capitals."""

from __future__ import annotations

import os
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from service.core.corpus_choices import Algorithm
from service.core.errors import SubsetdError


class ConfigError(SubsetdError):
    """A setting has a value that cannot be used."""

    exit_code = 2


def _default_data_dir() -> Path:
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "subsetd"


def _whole_path(given: str | Path) -> Path:
    """Take a path as a shell would: where settings come from none expands them."""
    if not str(given):
        raise ValueError("it is empty: name a folder, or unset it")
    try:
        return Path(given).expanduser().absolute()
    except RuntimeError as error:
        raise ValueError(f"{given} cannot be found: {error}") from error


class Settings(BaseSettings):
    """Hold all settings, frozen; docs/settings.md describes each of them."""

    model_config = SettingsConfigDict(env_prefix="SUBSETD_", frozen=True, extra="ignore")

    database_url: str | None = Field(
        None, description="Postgres 15 to 18 that holds the state; unset: the embedded one"
    )
    data_dir: Annotated[Path, BeforeValidator(_whole_path)] = Field(
        default_factory=_default_data_dir, description="folder of the embedded Postgres"
    )
    host: str = Field(
        "127.0.0.1", description="address that the HTTP service listens on; others than loopback need a key"
    )
    port: int = Field(8321, ge=0, le=65535, description="port of the HTTP service; 0 takes a free one")
    api_key: SecretStr | None = Field(
        None, min_length=1, description="key with the scope admin, beside those that are made"
    )
    session_hours: float = Field(24, gt=0, le=8760, description="how long a browser stays logged in")
    requests_per_second: float = Field(1000, gt=0, description="most requests a second of one key, in the long run")
    body_seconds: float = Field(120, gt=0, description="how long the body of a request may take to come")
    trusted_proxies: str | None = Field(
        None, description="addresses of proxies whose X-Forwarded-For and -Proto are believed, with commas between"
    )
    feed: str | None = Field(
        None,
        description="feed that `subsetd run` follows: kafka://host:port/topic,..., postgresql://...?name= or file:PATH",
    )
    feed_sources: str | None = Field(
        None, description="sources that the feed is of, with commas between; unset: every source has its changes in it"
    )
    on_error: Literal["none", "all"] = Field(
        "none",
        description="a record that cannot be applied stops the feed (none) or is set aside as a dead letter (all)",
    )
    batch_records: int = Field(10_000, ge=1, le=1_000_000, description="most records of a batch")
    batch_bytes: int = Field(32 * 1024 * 1024, ge=1024, description="bytes of records after which a batch ends")
    batch_wait_ms: int = Field(20, ge=0, le=60_000, description="longest wait for more records once a batch has one")
    cache_bytes: int = Field(512 * 1024 * 1024, ge=0, description="memory of ValCache, in bytes")
    warm_up: Literal["beside", "before", "off"] = Field(
        "beside", description="when ValCache is filled from the state: beside the feed, before it is followed, or never"
    )
    database_retry_seconds: float = Field(
        60, ge=0, description="how long a failing database is tried again in mid-feed"
    )
    slot_warning_mb: int = Field(
        1024, ge=1, description="log that a Postgres source's slot may hold back before it is warned of, in MB"
    )
    transitions_topic: str | None = Field(
        None, description="topic to which the consumer sends transitions: kafka://host:port/topic"
    )
    smtp: SecretStr | None = Field(
        None,
        description="mail server of watches: smtp://user:password@host:587 (STARTTLS), smtps:// or smtp+plain://",
    )
    smtp_from: str | None = Field(None, description="address that their mail comes from")
    alert_broker: str | None = Field(
        None, description="broker of the topics that watches may send to: host:port, several with commas between"
    )
    webhook_allow: str | None = Field(
        None, description="networks that webhooks may reach beside the public ones, with commas between: 10.0.0.0/8"
    )
    transaction_records: int = Field(
        100_000, ge=1, description="most records that wait for the rest of their transaction at the source"
    )
    transaction_wait_seconds: float = Field(
        5, ge=0, description="how long a transaction of which nothing more comes holds its records back"
    )
    decimal_handling: Literal["auto", "precise", "string"] = Field(
        "auto", description="how a feed without schemas sends decimals: the connector's decimal.handling.mode"
    )
    binary_handling: Literal["base64", "hex"] = Field(
        "base64", description="how a feed sends binaries as texts: the connector's binary.handling.mode"
    )
    time_precision: Literal[
        "adaptive", "adaptive_time_microseconds", "connect", "isostring", "microseconds", "nanoseconds"
    ] = Field("adaptive", description="how a feed without schemas sends times: the connector's time.precision.mode")
    schema_registry: str | None = Field(
        None, description="registry of the schemas of a feed in Avro: http://user:password@host:port"
    )
    unknown_tables: Literal["ignore", "refuse"] = Field(
        "ignore", description="changes of tables that are not followed are skipped (ignore) or bad records (refuse)"
    )
    dead_letter_topic: str | None = Field(
        None, description="topic to which records that are set aside are sent as well: kafka://host:port/topic"
    )
    feed_start_seconds: float = Field(10, gt=0, description="how long a broker may be away when the feed is opened")
    ready_lag_seconds: float = Field(
        60, gt=0, description="/readyz says no while the consumer's newest batch is older than this and records wait"
    )
    history_days: float | None = Field(
        None,
        ge=1,
        le=1_000_000,
        description="how long versions and transitions are kept, in days, with what held then; unset: for ever",
    )
    history_pairs: int = Field(
        200,
        ge=0,
        description="of how many pairs that are watched or nearly hold coefficients are kept over time; 0: none",
    )
    statement_timeout_ms: int = Field(10_000, ge=100, le=2_147_483_647, description="longest query of the HTTP service")
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="least level that is logged")
    sketches: Literal["on", "off"] = Field(
        "on", description="whether a bootstrap makes sketches of all columns, which are then kept current"
    )
    sketch_bucket_bits: int = Field(
        13, ge=0, le=18, description="a sketch has 2^m buckets: m, from the next bootstrap on"
    )
    sketch_error: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="in place of sketch_bucket_bits: as many as keep coefficients within this error, at 95 %",
    )
    sketch_k: int = Field(
        1536, ge=1, le=65_536, description="smallest hashes that a sketch answers with, from the next bootstrap on"
    )
    spark_master: str = Field("local[*]", description="Spark master of bootstraps, refreshes and audits")
    audit_schedule: str | None = Field(
        None,
        description="when a service audits the tracked tables: cron's five fields, in UTC; unset: on request alone",
    )
    audit_algorithm: Algorithm | None = Field(
        None, description="how audits find INDs: rarest-first or signatures; unset: by what costs less"
    )
    foreign_key_schedule: str | None = Field(
        None,
        description="when a service finds foreign keys anew: cron's five fields, in UTC; unset: on request alone",
    )
    joinable_upload_bytes: int = Field(
        32 * 1024 * 1024, ge=1, description="most bytes of a CSV that joinable tables are searched with, or of keys"
    )
    joinable_rows: int = Field(1_000_000, ge=1, description="most rows of a query for joinable tables")
    joinable_at_once_postings: int = Field(
        1_000_000, ge=0, description="cells that a search for joinable tables fetches at once; one with more is a job"
    )
    joinable_seconds: float = Field(600, gt=0, le=1e9, description="how long the job of such a search may take")
    refreshes_at_once: int = Field(1, ge=1, le=64, description="most refreshes of corpora that a service runs at once")


def load_settings(**given: Any) -> Settings:
    """Read the environment, `given` before it; raise ConfigError that names each bad variable."""
    try:
        return Settings(**given)
    except ValidationError as error:
        lines = [
            f"SUBSETD_{'_'.join(map(str, place)).upper()}: {fault['msg']}{_given(place[0], fault['input'])}"
            for fault in error.errors()
            for place in [fault["loc"]]
        ]
        raise ConfigError("Some settings cannot be used:\n  " + "\n  ".join(lines)) from None


def _given(setting: int | str, given: object) -> str:
    """Repeat what was given; of secrets, and of addresses that may have one in them, nothing."""
    field = Settings.model_fields[str(setting)]
    is_secret = "SecretStr" in str(field.annotation) or "://" in str(given)
    return "" if is_secret else f" (given: {given!r})"


def is_loopback(host: str) -> bool:
    """Tell whether a listening address is this machine's alone."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def place_of(host: str, port: int) -> str:
    """Write host and port as addresses have them: a host of IPv6 in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
