"""Own the looking of watches at the state: what turned since they looked last, what stands, and the alerts of that."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from fractions import Fraction
from itertools import groupby
from typing import Any, NamedTuple, Protocol

from service.core.model import AttributeName
from service.core.watch_rules import (
    OF_DATA,
    Rule,
    RuleKind,
    Standing,
    Standings,
    Subject,
    Turn,
    Waits,
    due,
    is_pattern,
    matches,
    mute,
    observe,
    tell,
    unmute,
    waiting,
)
from service.usecases.ports import LagUnit
from service.usecases.watches import Alert, AlertKind, AlertState, Silence, Watch

SUBJECTS_TOLD = 20
"""Subjects that an alert names; the rest is counted."""

OF_EVENTS = (RuleKind.IND, RuleKind.CONTRACT)
"""Kinds of rules that transitions turn."""

GOES_ON_SECONDS = 60.0
"""A transaction, or a connector's snapshot, of which nothing has come for so long holds nothing back any more."""


class Side(NamedTuple):
    """Name one side of a pair: the columns, and the name of them together."""

    name: str
    schema: str
    table: str

    @classmethod
    def of(cls, name: AttributeName) -> Side:
        """Give an attribute as a side."""
        return cls(str(name), name.schema, name.table)


class Event(NamedTuple):
    """Tell of an IND (`contract_id` is None) or a contract that turned at a version.

    `is_whole`: the version holds no transaction of its source in part, as far as that is known.
    """

    version: int
    is_whole: bool
    contract_id: int | None
    dependent: Side
    referenced: Side
    is_worse: bool
    detail: Mapping[str, Any]


class Level(NamedTuple):
    """Tell how a pair, a contract or a key is: None where that is not known. `coefficient` is Φ of a pair."""

    contract_id: int | None
    sides: tuple[Side, ...]
    is_worse: bool | None
    coefficient: Fraction | None = None


class Lag(NamedTuple):
    """Hold what a consumer reported of its lag; `report` is another number with each report.

    `records` are of the unit that its feed counts, records or bytes.
    """

    report: int
    records: int | None
    seconds: float
    unit: LagUnit


class Letters(NamedTuple):
    """Tell of dead letters behind one: how many, the newest, and what it says."""

    letters: int
    newest: int
    message: str | None


class RefreshEnd(NamedTuple):
    """Tell how the newest refresh of a corpus that has ended ended."""

    corpus: str
    has_failed: bool
    fault: str | None


class Quiet(NamedTuple):
    """Say what is only half there: announced loads and sources that catch up, as (schema, table or None for all).

    `moving` are connectors' snapshots that go on, by what names each, with the tables that they may be of (None: any)
    and the version that moved them last. `half_since` is set where the newest version holds a transaction of its source
    in part: the first version in a row that does.
    """

    tables: frozenset[tuple[str, str | None]]
    moving: Mapping[str, tuple[int, frozenset[tuple[str, str]] | None]]
    half_since: int | None


@dataclass(frozen=True, slots=True)
class Watched:
    """Hold a watch with how its subjects stood when it looked last; `seen_letter` is its newest known dead letter."""

    watch: Watch
    seen_letter: int
    standings: Standings


class NewAlert(NamedTuple):
    """Hold an alert that is to be written."""

    kind: AlertKind
    state: AlertState
    version: int
    body: Mapping[str, Any]


class Look(Protocol):
    """Be one transaction that sees one version; what is saved in it is there with its end, or none of it."""

    version: int

    def watched(self) -> Sequence[Watched]:
        """List the watches."""

    def events(self, since: int, kinds: Collection[RuleKind]) -> Iterator[Event]:
        """List what turned after a version of INDs, contracts or both, each by version; perhaps millions."""

    def pair(self, dependent: str, referenced: str) -> Level | None:
        """Tell how a pair of attributes is; None where one of them is not followed."""

    def gone(self, subjects: Iterable[Subject]) -> set[str]:
        """Give the keys of those subjects of which a column is not followed any more."""

    def contracts(self, contract_id: int | None) -> Sequence[Level]:
        """Tell how a contract is, or all."""

    def uniques(self, name: str) -> Sequence[Level]:
        """Tell whether an attribute of this name is unique and never NULL; of a pattern all tracked keys that match."""

    def lag(self) -> Lag | None:
        """Give the newest report of a consumer; None when there is none."""

    def letters(self, behind: int) -> Letters:
        """Tell of dead letters that came behind one."""

    def refreshes(self) -> Sequence[RefreshEnd]:
        """Tell how corpora's refreshes ended."""

    def quiet(self) -> Quiet:
        """Say what is only half there."""

    def silences(self) -> Sequence[Silence]:
        """List the silences in force."""

    def save(self, watched: Watched, standings: Standings, seen_letter: int) -> None:
        """Remember that a watch has looked, and how its subjects stand."""

    def add_alert(self, watch: Watch, alert: NewAlert) -> None:
        """Write an alert."""


class Looks(Protocol):
    """Open looks, as the one process that does."""

    def look(self) -> AbstractContextManager[Look | None]:
        """Open a look; None while another process looks, or when there are no watches. May raise `StateError`."""


class Evaluator:
    """Let watches look, again and again; `clock` gives seconds and never jumps. For one thread.

    What is known here alone is since when things stand: after a restart their debounce begins anew.
    """

    def __init__(self, looks: Looks, clock: Callable[[], float]) -> None:
        self._looks = looks
        self._clock = clock
        self._waits: dict[int, Waits] = {}
        self._seen: dict[str, tuple[int, float]] = {}

    def evaluate(self) -> bool:
        """Look once; tell whether this process is the one that looks."""
        with self._looks.look() as look:
            if look is None:
                self._waits.clear()
                self._seen.clear()
                return False
            now = self._clock()
            watched = look.watched()
            found = _Moment(look, now, self._held(look, now), look.silences(), self._lag(look, now))
            events = _events(look, watched)
            self._waits = {
                one.watch.watch_id: found.evaluate(one, events, self._waits.get(one.watch.watch_id, {}))
                for one in watched
            }
        return True

    def _since(self, what: str, number: int, now: float) -> float:
        """Give the seconds since a number was first seen to be as it is."""
        seen = self._seen.get(what)
        if seen is None or seen[0] != number:
            self._seen[what] = seen = number, now
        return now - seen[1]

    def _held(self, look: Look, now: float) -> Callable[[Standing], bool]:
        """Give what tells whether a subject is to wait for what is only half there.

        What stood before a half transaction began is none of its doing: it would begin its wait anew with each one.
        """
        quiet = look.quiet()
        goes_on = quiet.half_since is not None and self._since("version", look.version, now) < GOES_ON_SECONDS
        half_since = quiet.half_since if goes_on else None
        moving = [
            tables
            for what, (version, tables) in quiet.moving.items()
            if self._since(what, version, now) < GOES_ON_SECONDS
        ]
        is_any = None in moving
        known = quiet.tables.union(*(one for one in moving if one is not None))

        def is_held(one: Standing) -> bool:
            if is_any or (half_since is not None and one.since_version >= half_since):
                return True
            return any(table in known or (table[0], None) in known for table in one.subject.tables)

        return is_held

    def _lag(self, look: Look, now: float) -> Lag | None:
        """Give the lag by now: a consumer that reports no more is further behind with each second."""
        lag = look.lag()
        if lag is None:
            self._seen.pop("lag", None)  # reports are counted anew when there is one again
            return None
        return lag._replace(seconds=lag.seconds + self._since("lag", lag.report, now))


class _Moment:
    """Hold what all watches share in one look."""

    def __init__(
        self,
        look: Look,
        now: float,
        is_held: Callable[[Standing], bool],
        silences: Sequence[Silence],
        lag: Lag | None,
    ) -> None:
        self._look = look
        self._now = now
        self._is_held = is_held
        self._silences = silences
        self._lag = lag

    def evaluate(self, watched: Watched, events: Sequence[Event], waits: Waits) -> Waits:
        """Let one watch look, and save what it saw; give since when its subjects wait."""
        watch, rule, version = watched.watch, watched.watch.rule, self._look.version
        standings = dict(watched.standings)
        if rule.kind in OF_EVENTS:
            new = (one for one in events if one.version > watch.seen_version)
            for (at, is_whole), of_version in groupby(new, lambda one: (one.version, one.is_whole)):
                turns = [turn for event in of_version if (turn := turn_of(rule, event)) is not None]
                if turns:
                    standings = observe(standings, turns, at)
                    if watch.debounce == 0 and is_whole:
                        standings, waits = self._tell(watch, standings, waits, at)
        turns = self._levels(watched, standings)
        standings = observe(standings, turns, version)
        gone = self._gone(rule, standings)
        standings = {key: one for key, one in standings.items() if key not in gone}
        standings, waits = self._tell(watch, standings, waits, version)
        seen_letter = watched.seen_letter
        if rule.is_momentary and not standings:
            seen_letter = max((turn.detail["newest"] for turn in turns if turn.is_bad), default=seen_letter)
        self._look.save(watched, standings, seen_letter)
        return waits

    def _tell(
        self, watch: Watch, standings: Standings, waits: Waits, version: int
    ) -> tuple[dict[str, Standing], Waits]:
        is_held = self._is_held if watch.rule.kind in OF_DATA else lambda _: False
        standings = unmute(standings, lambda subject: self._is_silenced(watch, subject))
        waits = waiting(standings, waits, is_held, self._now)
        found = due(standings, waits, is_held, watch.debounce, self._now)
        silenced = [one for one in found if self._is_silenced(watch, one.subject)]
        told = [one for one in found if one not in silenced]
        for part, state in ((told, AlertState.PENDING), (silenced, AlertState.SILENCED)):
            worth = [one for one in part if one.is_bad or watch.tell_resolved]
            if worth:
                kind = AlertKind.FIRED if any(one.is_bad for one in worth) else AlertKind.RESOLVED
                after = tell(standings, told)
                bad = sum(one.told for one in after.values())
                self._look.add_alert(watch, NewAlert(kind, state, version, body_of(watch, worth, bad)))
        standings = mute(tell(standings, told, is_momentary=watch.rule.is_momentary), silenced)
        return standings, waiting(standings, waits, is_held, self._now)

    def _is_silenced(self, watch: Watch, subject: Subject) -> bool:
        return any(one.covers(watch.watch_id, watch.name, *subject.names) for one in self._silences)

    def _levels(self, watched: Watched, standings: Standings) -> list[Turn]:
        """Say how things are now, whatever turned."""
        rule, look = watched.watch.rule, self._look
        match rule.kind:
            case RuleKind.IND if rule.is_one_pair:
                pair = look.pair(rule.dependent or "", rule.referenced or "")
                return [] if pair is None else [_level_turn(rule, pair)]
            case RuleKind.COEFFICIENT:
                pair = look.pair(rule.dependent or "", rule.referenced or "")
                if pair is None:
                    return []
                subject = subject_of(None, *pair.sides)
                was_bad = subject.key in standings and standings[subject.key].is_bad
                phi = None if pair.coefficient is None else float(pair.coefficient)
                return [Turn(subject, rule.passes(pair.coefficient, was_bad), {"coefficient": phi})]
            case RuleKind.CONTRACT | RuleKind.UNIQUE:
                return [_level_turn(rule, one) for one in self._listed(rule) if one.is_worse is not None]
            case RuleKind.LAG:
                return self._lag_turns(rule, standings)
            case RuleKind.DEAD_LETTERS:
                letters = look.letters(watched.seen_letter)
                return [Turn(Subject("dead letters", "dead letters"), letters.letters > 0, letters._asdict())]
            case RuleKind.REFRESH:
                ends = [one for one in look.refreshes() if matches(rule.corpus or "", one.corpus)]
                return [Turn(_corpus(one), one.has_failed, {"fault": one.fault}) for one in ends]
        return []

    def _listed(self, rule: Rule) -> Sequence[Level]:
        """List the contracts or keys that a rule speaks of."""
        if rule.kind is RuleKind.CONTRACT:
            return self._look.contracts(rule.contract_id)
        return self._look.uniques(rule.attribute or "")

    def _gone(self, rule: Rule, standings: Standings) -> Collection[str]:
        """Give the keys of subjects that are not there any more, of which nothing is told."""
        if not standings:
            return ()
        match rule.kind:
            case RuleKind.IND | RuleKind.COEFFICIENT:
                return self._look.gone([one.subject for one in standings.values()])
            case RuleKind.CONTRACT | RuleKind.UNIQUE:
                return standings.keys() - {subject_of(one.contract_id, *one.sides).key for one in self._listed(rule)}
            case RuleKind.REFRESH:
                return standings.keys() - {one.corpus for one in self._look.refreshes()}
        return ()

    def _lag_turns(self, rule: Rule, standings: Standings) -> list[Turn]:
        subject = Subject("consumer", "consumer")
        if self._lag is None:  # not known: what was told of it stands
            return []
        value = self._lag.seconds if rule.when == "seconds" else self._lag.records
        was_bad = subject.key in standings and standings[subject.key].is_bad
        detail = {"seconds": round(self._lag.seconds, 1), "records": self._lag.records, "unit": self._lag.unit}
        return [Turn(subject, rule.passes(value, was_bad), detail)]


def _events(look: Look, watched: Sequence[Watched]) -> list[Event]:
    """List what turned since watches looked last and one of them speaks of: a bootstrap may turn millions of others."""
    told = [one.watch for one in watched if one.watch.rule.kind in OF_EVENTS]
    if not told:
        return []
    rules = [one.rule for one in told]
    found = look.events(min(one.seen_version for one in told), {rule.kind for rule in rules})
    return [one for one in found if any(turn_of(rule, one) is not None for rule in rules)]


def turn_of(rule: Rule, event: Event) -> Turn | None:
    """Give what an event means for a rule; None when the rule does not speak of it."""
    if rule.kind is RuleKind.CONTRACT:
        if event.contract_id is None or rule.contract_id not in (None, event.contract_id):
            return None
    elif event.contract_id is not None or not (
        matches(rule.dependent or "", event.dependent.name) and matches(rule.referenced or "", event.referenced.name)
    ):
        return None
    subject = subject_of(event.contract_id, event.dependent, event.referenced)
    return Turn(subject, rule.is_bad(event.is_worse), event.detail)


def subject_of(contract_id: int | None, *sides: Side) -> Subject:
    """Name a pair, a contract or a key."""
    name = " ⊆ ".join(one.name for one in sides)
    key = name if contract_id is None else f"contract {contract_id}"
    shown = name if contract_id is None else f"contract {contract_id}, {name}"
    tables = dict.fromkeys((one.schema, one.table) for one in sides)
    parts = key if contract_id is not None else json.dumps([list(one) for one in sides], ensure_ascii=False)
    return Subject(parts, shown, tuple(one.name for one in sides), tuple(tables))


def columns_of(name: str) -> list[str]:
    """Give the names of the columns in that of a pair, a contract or a key."""
    return re.sub(r"^contract \d+, ", "", name).split(" ⊆ ")


def can_be_told_later(alert: Alert) -> bool:
    """Tell whether what an alert says is known without it; what is over is not, and waits for the silence's end."""
    return not alert.body["resolved"] and alert.body["rule"]["kind"] != RuleKind.DEAD_LETTERS


def _corpus(one: RefreshEnd) -> Subject:
    return Subject(one.corpus, one.corpus, (one.corpus,))


def _level_turn(rule: Rule, level: Level) -> Turn:
    return Turn(subject_of(level.contract_id, *level.sides), rule.is_bad(bool(level.is_worse)))


VALUES = frozenset({"witness_value", "row", "message"})
"""What of a detail may show values of the data."""


def body_of(watch: Watch, told: Sequence[Standing], bad: int) -> dict[str, Any]:
    """Say what an alert tells: counts, and of some subjects how they are; values only where the watch says so."""
    shown = [
        {
            "name": one.subject.name,
            "is_bad": one.is_bad,
            "turns": one.turns,
            "since_version": one.since_version,
            **{name: part for name, part in one.detail.items() if watch.with_values or name not in VALUES},
        }
        for one in sorted(told, key=lambda one: (not one.is_bad, one.since_version, one.subject.key))[:SUBJECTS_TOLD]
    ]
    fired = sum(one.is_bad for one in told)
    return {
        "rule": watch.rule.to_json(),
        "summary": summary_of(watch.rule, told, fired),
        "fired": fired,
        "resolved": len(told) - fired,
        "turns": sum(one.turns for one in told),
        "bad": bad,
        "subjects": shown,
        "more": len(told) - len(shown),
    }


def summary_of(rule: Rule, told: Sequence[Standing], fired: int) -> str:
    """Say in a line what an alert tells."""
    first = next((one for one in told if one.is_bad == bool(fired)), None)
    name = "" if first is None else first.subject.name
    others = (fired or len(told)) - 1
    more = f" and {others} more" if others else ""
    if not fired:
        return f"{name}{more}: no longer so: {rule}"
    if rule.kind is RuleKind.DEAD_LETTERS and first is not None:
        return f"{first.detail['letters']} dead letters came"
    if rule.kind is RuleKind.LAG and first is not None:
        behind = first.detail["records"]
        further = "" if behind is None else f", {behind} {first.detail.get('unit', 'records')}"
        return f"{rule}: {first.detail['seconds']} s{further}"
    if is_pattern(rule.dependent) or is_pattern(rule.referenced) or is_pattern(rule.attribute):
        return f"{name}{more}: {rule.when}"
    return f"{rule}{more}"
