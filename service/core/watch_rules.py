"""Own the rules of watches: what each speaks of, when that is bad, and when what turned is told of.

A watch speaks of subjects: pairs of columns, contracts, keys, corpora. Each subject is bad or not, and was told to be
bad or not. Where the two differ a subject waits, and what has stood for the debounce is told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from fractions import Fraction
from typing import Any, NamedTuple

from service.core.errors import SubsetdError

LONGEST_DEBOUNCE = 86_400.0
"""Seconds that a watch may wait."""


class WatchError(SubsetdError):
    """A watch, a silence or an announced load cannot be like this; the message says why."""

    exit_code = 2


class RuleKind(StrEnum):
    """Name what a watch looks at."""

    IND = "ind"
    CONTRACT = "contract"
    COEFFICIENT = "coefficient"
    UNIQUE = "unique"
    LAG = "lag"
    DEAD_LETTERS = "dead-letters"
    REFRESH = "refresh"


class _Shape(NamedTuple):
    """Hold what a rule of a kind may be told; the first of `whens` is meant where nothing is said."""

    whens: tuple[str, ...]
    needed: frozenset[str]
    possible: frozenset[str] = frozenset()


SHAPES: Mapping[RuleKind, _Shape] = {
    RuleKind.IND: _Shape(("broken", "holding"), frozenset({"dependent", "referenced"})),
    RuleKind.CONTRACT: _Shape(("violated", "held"), frozenset(), frozenset({"contract_id"})),
    RuleKind.COEFFICIENT: _Shape(
        ("below", "above"), frozenset({"dependent", "referenced", "bound"}), frozenset({"margin"})
    ),
    RuleKind.UNIQUE: _Shape(("lost", "regained"), frozenset({"attribute"})),
    RuleKind.LAG: _Shape(("seconds", "records"), frozenset({"bound"})),
    RuleKind.DEAD_LETTERS: _Shape(("come",), frozenset()),
    RuleKind.REFRESH: _Shape(("failed",), frozenset({"corpus"})),
}

OF_DATA = frozenset({RuleKind.IND, RuleKind.CONTRACT, RuleKind.COEFFICIENT, RuleKind.UNIQUE})
"""Kinds that wait while a load or a transaction of the source is only half there."""

REVERSED = frozenset({"holding", "held", "regained"})
"""What is to be told when the better of two things comes."""


@dataclass(frozen=True, slots=True)
class Rule:
    """Say what is watched; only the fields of its kind are there (`SHAPES`).

    Names are `schema.table.column`, of tuples `schema.table.(a, b)`; `*` in them stands for any text. `bound` is a
    coefficient, or of a lag seconds or records (of a file or a slot: bytes); a coefficient has to come back by `margin`
    to be right again.
    """

    kind: RuleKind
    when: str = ""
    dependent: str | None = None
    referenced: str | None = None
    contract_id: int | None = None
    attribute: str | None = None
    corpus: str | None = None
    bound: Decimal | None = None
    margin: Decimal | None = None

    def checked(self) -> Rule:
        """Give it with what was left out; raise WatchError for a rule that cannot be."""
        shape = SHAPES[self.kind]
        when = self.when or shape.whens[0]
        if when not in shape.whens:
            raise WatchError(f"A rule of kind {self.kind} tells when {' or '.join(shape.whens)}, not {when!r}.")
        given = {one.name for one in fields(self) if getattr(self, one.name) is not None} - {"kind", "when"}
        if missing := sorted(shape.needed - given):
            raise WatchError(f"A rule of kind {self.kind} needs {', '.join(missing)}.")
        if more := sorted(given - shape.needed - shape.possible):
            raise WatchError(f"A rule of kind {self.kind} has no {', '.join(more)}.")
        if any(one.is_finite() and abs(one.adjusted()) > 99 for one in (self.bound, self.margin) if one is not None):
            raise WatchError("A bound or margin has an exponent of at most two digits.")  # as fractions they are long
        if self.kind is RuleKind.COEFFICIENT:
            if is_pattern(self.dependent) or is_pattern(self.referenced):
                raise WatchError("A coefficient is watched of one pair; its names have no *.")
            self._check_bounds(when)
        if self.kind is RuleKind.LAG and not (self.bound is not None and self.bound.is_finite() and self.bound >= 0):
            raise WatchError("The bound of a lag is a number, 0 or more.")
        return replace(self, when=when)

    def _check_bounds(self, when: str) -> None:
        bound, margin = self.bound or Decimal(0), self.margin or Decimal(0)
        if not (bound.is_finite() and margin.is_finite() and 0 <= bound <= 1 and 0 <= margin <= 1):
            raise WatchError("The bound and the margin of a coefficient are numbers from 0 to 1.")
        if not 0 <= (bound + margin if when == "below" else bound - margin) <= 1:
            raise WatchError("No coefficient comes back by that margin from that bound: it is from 0 to 1.")

    @property
    def is_one_pair(self) -> bool:
        """Tell whether it speaks of one pair, not of all that match."""
        return not is_pattern(self.dependent) and not is_pattern(self.referenced)

    @property
    def is_momentary(self) -> bool:
        """Tell whether what it tells of is over when it was told: it is not mended later."""
        return self.kind is RuleKind.DEAD_LETTERS

    def to_json(self) -> dict[str, Any]:
        """Give it as JSON; numbers are texts, so that they stay as they were written."""
        found = {one.name: getattr(self, one.name) for one in fields(self)}
        return {
            name: str(value) if isinstance(value, Decimal | StrEnum) else value
            for name, value in found.items()
            if value is not None
        }

    @classmethod
    def of_json(cls, given: Mapping[str, Any]) -> Rule:
        """Read it; raise WatchError for a number that is none."""
        try:
            numbers = {name: Decimal(str(given[name])) for name in ("bound", "margin") if given.get(name) is not None}
        except InvalidOperation:
            raise WatchError("A bound or margin is no number.") from None
        return cls(**{**given, **numbers, "kind": RuleKind(given["kind"])})

    def is_bad(self, is_worse: bool) -> bool:
        """Tell whether the worse of two things (broken, violated, lost) is what it is to tell of."""
        return is_worse != (self.when in REVERSED)

    def passes(self, value: Fraction | float | None, was_bad: bool) -> bool:
        """Tell whether a number is bad; between the bound and the margin behind it, or not known, it is as it was."""
        if value is None or self.bound is None:
            return was_bad
        bound, margin = Fraction(self.bound), Fraction(self.margin or 0)
        if self.when == "below":
            return value < bound or (was_bad and value < bound + margin)
        return value > bound or (was_bad and value > bound - margin)

    def __str__(self) -> str:
        pair = f"{self.dependent} ⊆ {self.referenced}"
        match self.kind:
            case RuleKind.IND:
                return f"{pair} is {self.when}"
            case RuleKind.CONTRACT:
                return (
                    f"{'any contract' if self.contract_id is None else f'contract {self.contract_id}'} is {self.when}"
                )
            case RuleKind.COEFFICIENT:
                return f"Φ of {pair} is {self.when} {self.bound}"
            case RuleKind.UNIQUE:
                return f"{self.attribute} has {self.when} its uniqueness"
            case RuleKind.LAG:
                unit = "records (of a file or a slot: bytes)" if self.when == "records" else self.when
                return f"the consumer is more than {self.bound} {unit} behind"
            case RuleKind.DEAD_LETTERS:
                return "dead letters come"
        return f"a refresh of corpus {self.corpus} has failed"


def is_pattern(name: str | None) -> bool:
    """Tell whether a name stands for all that match it."""
    return name is not None and "*" in name


def matches(pattern: str, name: str) -> bool:
    """Tell whether a name is like a pattern, in which `*` is any text; its time grows with both lengths alone."""
    first, *parts = pattern.split("*")
    if not parts:
        return name == pattern
    if not name.startswith(first):
        return False
    *middle, last = parts
    at = len(first)
    for part in middle:
        found = name.find(part, at)
        if found < 0:
            return False
        at = found + len(part)
    return len(name) - len(last) >= at and name.endswith(last)


class Subject(NamedTuple):
    """Name what a watch speaks of: `key` tells it from all others; `names` are its columns', for silences.

    `tables` are (schema, table), those whose loads it waits for.
    """

    key: str
    name: str
    names: tuple[str, ...] = ()
    tables: tuple[tuple[str, str], ...] = ()


class Turn(NamedTuple):
    """Say of a subject how it is at a version, and what there is to tell of that."""

    subject: Subject
    is_bad: bool
    detail: Mapping[str, Any] = {}


@dataclass(frozen=True, slots=True)
class Standing:
    """Hold how a subject is and was told to be; `turns` is how often it turned since it was as told.

    `since_version` is where that began. `is_muted`: a silence kept it from being told, and the history says so.
    """

    subject: Subject
    is_bad: bool = False
    told: bool = False
    turns: int = 0
    since_version: int = 0
    is_muted: bool = False
    detail: Mapping[str, Any] = field(default_factory=dict)

    @property
    def waits(self) -> bool:
        """Tell whether there is something to be told of it."""
        return self.is_bad != self.told


Standings = Mapping[str, Standing]
"""By the subject's key. Who is not there is not bad and was not told to be."""

Waits = Mapping[str, tuple[int, float]]
"""Since when a subject waits: the version at which it began, and seconds of a clock that never jumps."""


def observe(standings: Standings, turns: Iterable[Turn], version: int) -> dict[str, Standing]:
    """Take in how subjects are at a version; one that is again as it was told is forgotten with all its turns."""
    found = dict(standings)
    for subject, is_bad, detail in turns:
        old = found.get(subject.key) or Standing(subject)
        if is_bad == old.is_bad:
            if old.waits and detail:
                found[subject.key] = replace(old, detail=detail)
            continue
        new = replace(old, subject=subject, is_bad=is_bad, turns=old.turns + 1, detail=detail)
        if not new.waits:
            new = replace(new, turns=0, is_muted=False)
        elif not old.waits:
            new = replace(new, since_version=version)
        _put(found, new)
    return found


def waiting(
    standings: Standings, waits: Waits, is_held: Callable[[Standing], bool], now: float
) -> dict[str, tuple[int, float]]:
    """Give since when each subject waits; one that is held waits from now on."""
    found = {}
    for key, one in standings.items():
        if one.waits:
            version, since = waits.get(key, (one.since_version, now))
            goes_on = version == one.since_version and not is_held(one)
            found[key] = (one.since_version, since if goes_on else now)
    return found


def due(
    standings: Standings, waits: Waits, is_held: Callable[[Standing], bool], debounce: float, now: float
) -> list[Standing]:
    """Give what is to be told now: as soon as one has stood for the debounce, all that stand.

    But for those that are held, and those that a silence has kept from being told already.
    """
    free = [one for one in standings.values() if one.waits and not one.is_muted and not is_held(one)]
    stood = any(now - waits[one.subject.key][1] >= debounce for one in free)
    return free if stood else []


def tell(standings: Standings, told: Iterable[Standing], *, is_momentary: bool = False) -> dict[str, Standing]:
    """Give the standings when these were told of."""
    found = dict(standings)
    for one in told:
        if is_momentary:
            del found[one.subject.key]
        else:
            _put(found, replace(one, told=one.is_bad, turns=0, is_muted=False))
    return found


def mute(standings: Standings, silenced: Iterable[Standing]) -> dict[str, Standing]:
    """Give the standings when a silence kept these from being told."""
    return {**standings, **{one.subject.key: replace(one, is_muted=True) for one in silenced}}


def unmute(standings: Standings, is_silenced: Callable[[Subject], bool]) -> dict[str, Standing]:
    """Give the standings with what no silence keeps any more to be told again."""
    return {
        key: replace(one, is_muted=False) if one.is_muted and not is_silenced(one.subject) else one
        for key, one in standings.items()
    }


def _put(standings: dict[str, Standing], one: Standing) -> None:
    if one.is_bad or one.told:
        standings[one.subject.key] = one
    else:
        standings.pop(one.subject.key, None)


def changed(old: Standings, new: Standings) -> tuple[Sequence[Standing], Sequence[str]]:
    """Give the standings that are new or not as they were, and the keys of those that are gone."""
    return [one for key, one in new.items() if old.get(key) != one], [key for key in old if key not in new]
