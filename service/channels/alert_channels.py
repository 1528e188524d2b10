"""Own what an alert looks like on each channel, and which channels this service has by its settings."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import orjson

from service.channels.mail import MailServer, send_mail
from service.channels.webhook import WebhookSender, check_url
from service.core.shown_values import row_text
from service.core.watch_rules import WatchError
from service.usecases.watches import Alert, Channel, ChannelError, ChannelKind, own_topic

LONGEST_ADDRESS = 254
NO_MAIL = "This service sends no mail: set SUBSETD_SMTP and SUBSETD_SMTP_FROM."
NO_TOPIC = "This service sends alerts to no topic: set SUBSETD_ALERT_BROKER."


class Topic(Protocol):
    """Take alerts under a key; raises ChannelError when it does not."""

    def send(self, key: str, message: Mapping[str, Any]) -> None: ...

    def close(self) -> None: ...


class AlertChannels:
    """Implement usecases.watches.Channels; what the settings do not have is None, and is refused."""

    def __init__(
        self,
        webhooks: WebhookSender,
        mail: tuple[MailServer, str] | None,
        open_topic: Callable[[str], Topic] | None,
        uses_of: Callable[[str], Iterable[tuple[str, str]]] = lambda topic: (),
        reaches: Callable[[str | None], bool] = lambda address: True,
    ) -> None:
        """`mail` is the server and who sends; `open_topic` connects with a topic by its name.

        `uses_of` says for what else the settings name a topic, and where; `reaches`, whether topics of an address may
        be of the cluster that alerts go to.
        """
        self._webhooks = webhooks
        self._mail = mail
        self._open_topic = open_topic
        self._uses_of = uses_of
        self._reaches = reaches
        self._topics: dict[str, Topic] = {}
        self._opening = threading.Lock()

    def check(self, channel: Channel) -> None:
        wanted = {ChannelKind.EMAIL: "to", ChannelKind.KAFKA: "topic"}.get(channel.kind, "url")
        given = {name for name in ("url", "to", "topic") if getattr(channel, name)}
        if given != {wanted}:
            raise WatchError(f"A channel of kind {channel.kind} has {wanted}, and no other address.")
        if channel.secret is not None and channel.kind is not ChannelKind.WEBHOOK:
            raise WatchError("Only a webhook has a secret, which signs what it gets.")
        if channel.url is not None:
            check_url(channel.url)
        if channel.kind is ChannelKind.EMAIL:
            if self._mail is None:
                raise WatchError(NO_MAIL)
            for one in channel.to:
                _check_address(one)
        if channel.kind is ChannelKind.KAFKA:
            if self._open_topic is None:
                raise WatchError(NO_TOPIC)
            if re.fullmatch(r"[A-Za-z0-9._-]{1,249}", channel.topic or "") is None:
                raise WatchError("A topic's name is of letters, digits, dots, underscores and hyphens.")
            self.refuse(channel.topic or "", self._uses_of(channel.topic or ""))

    def refuse(self, topic: str, uses: Iterable[tuple[str, str | None]]) -> None:
        use = next((use for use, address in uses if self._reaches(address)), None)
        if use is not None:
            raise own_topic(topic, use)

    def send(self, channel: Channel, alert: Alert) -> None:
        message = message_of(alert)
        match channel.kind:
            case ChannelKind.WEBHOOK:
                body = orjson.dumps(message)
                self._webhooks.send(channel.url or "", body, str(alert.delivery_id), channel.secret)
            case ChannelKind.SLACK:
                body = orjson.dumps({"text": slack_text(alert)})
                self._webhooks.send(channel.url or "", body, str(alert.delivery_id), None)
            case ChannelKind.EMAIL:
                if self._mail is None:
                    raise ChannelError(NO_MAIL)
                # Receivers know repeats by the Message-ID, as by the delivery of a webhook.
                server, sender = self._mail
                headers = {
                    "Message-ID": f"<{alert.delivery_id}@subsetd>",
                    "X-Subsetd-Delivery": str(alert.delivery_id),
                    "Auto-Submitted": "auto-generated",
                }
                subject = f"[subsetd] {alert.watch}: {alert.kind}"
                send_mail(server, sender, channel.to, subject, "\n".join(lines_of(alert)) + "\n", headers)
            case ChannelKind.KAFKA:
                self._topic(channel.topic or "").send(f"watch|{alert.watch_id}", message)

    def close(self) -> None:
        for topic in self._topics.values():
            topic.close()

    def _topic(self, name: str) -> Topic:
        if self._open_topic is None:
            raise ChannelError(NO_TOPIC)
        with self._opening:  # several threads send
            if name not in self._topics:
                self._topics[name] = self._open_topic(name)
            return self._topics[name]


def message_of(alert: Alert) -> dict[str, Any]:
    """Give the JSON of an alert: the same at each attempt."""
    return {
        "id": str(alert.delivery_id),
        "watch_id": alert.watch_id,
        "watch": alert.watch,
        "kind": alert.kind,
        "version": alert.version,
        "at": alert.created_at,
        **alert.body,
    }


def lines_of(alert: Alert) -> Sequence[str]:
    """Say an alert for a person."""
    body = alert.body
    subjects = [
        f"- {one['name']}: {'so' if one['is_bad'] else 'no longer so'}"
        + (f", {one['turns']} turns" if one["turns"] > 1 else "")
        + (f", value {one['witness_value']!r}" if one.get("witness_value") is not None else "")
        + (f", row {row_text(one['row'])}" if one.get("row") else "")
        + (f", at {_place(one['position'])}" if one.get("position") else "")
        for one in body["subjects"]
    ]
    more = [f"- and {body['more']} more"] if body["more"] else []
    return [str(body["summary"]), *subjects, *more, f"State version {alert.version}, alert {alert.delivery_id}."]


def slack_text(alert: Alert) -> str:
    """Say an alert for Slack, in whose texts three signs are written otherwise."""
    text = "\n".join([f"{alert.watch}: {alert.kind}", *lines_of(alert)])
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _place(position: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in position.items())


def _check_address(address: str) -> None:
    """Raise WatchError for what is no plain address of mail: nothing of it may end a header or name another."""
    local, _, domain = address.rpartition("@")
    is_plain = all("!" <= one <= "~" and one not in '",:;<>()[]\\' for one in address)
    if not (local and domain and "@" not in local and is_plain and len(address) <= LONGEST_ADDRESS):
        raise WatchError("An address of mail is name@host, without blanks, quotes or commas.")
