"""Watches tell of what stands, once, and of nothing else: held against their definition, second by second."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.watch_rules import (
    Rule,
    RuleKind,
    Subject,
    Turn,
    WatchError,
    due,
    is_pattern,
    matches,
    mute,
    observe,
    tell,
    unmute,
    waiting,
)

SUBJECTS = {name: Subject(name, name) for name in "abc"}
TEXTS = st.text(alphabet="ab.*", max_size=8)
DEBOUNCES = st.sampled_from([0, 1, 2, 5])

STEPS = st.lists(
    st.tuples(
        st.integers(1, 3),
        st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=4),
        st.sets(st.sampled_from("abc")),
    ),
    max_size=25,
)
"""Seconds that pass, what turns then (in this order), and who is held."""


@dataclass
class ByDefinition:
    """Hold each subject's whole life, and say what is to be told by looking at all of it again."""

    debounce: int
    told: dict[str, bool] = field(default_factory=lambda: dict.fromkeys("abc", False))
    is_bad: dict[str, bool] = field(default_factory=lambda: dict.fromkeys("abc", False))
    turns: dict[str, int] = field(default_factory=lambda: dict.fromkeys("abc", 0))
    waits_since: dict[str, int] = field(default_factory=dict)

    def step(self, now: int, turned: list[tuple[str, bool]], held: set[str]) -> dict[str, tuple[bool, int]]:
        for name, is_bad in turned:
            if is_bad == self.is_bad[name]:
                continue
            self.is_bad[name] = is_bad
            self.turns[name] += 1
            if is_bad == self.told[name]:
                self.turns[name] = 0
                self.waits_since.pop(name, None)
            else:
                self.waits_since[name] = now
        for name in held & self.waits_since.keys():
            self.waits_since[name] = now
        free = self.waits_since.keys() - held
        if not any(now - self.waits_since[name] >= self.debounce for name in free):
            return {}
        found = {name: (self.is_bad[name], self.turns[name]) for name in free}
        for name in free:
            self.told[name], self.turns[name] = self.is_bad[name], 0
            del self.waits_since[name]
        return found


@given(debounce=DEBOUNCES, steps=STEPS)
def test_what_is_told_is_what_the_definition_says(
    debounce: int, steps: list[tuple[int, list[tuple[str, bool]], set[str]]]
) -> None:
    judge = ByDefinition(debounce)
    standings, waits, now = {}, {}, 0
    for version, (seconds, turned, held) in enumerate(steps, 1):
        now += seconds
        standings = observe(standings, [Turn(SUBJECTS[name], is_bad) for name, is_bad in turned], version)
        waits = waiting(standings, waits, lambda one, held=held: one.subject.key in held, now)
        found = due(standings, waits, lambda one, held=held: one.subject.key in held, debounce, now)
        standings = tell(standings, found)
        assert {one.subject.key: (one.is_bad, one.turns) for one in found} == judge.step(now, turned, held)
        assert {name for name in "abc" if name in standings and standings[name].told} == {
            name for name, is_told in judge.told.items() if is_told
        }


@given(debounce=DEBOUNCES, steps=STEPS)
def test_what_stands_long_enough_is_told_and_what_was_told_is_true(
    debounce: int, steps: list[tuple[int, list[tuple[str, bool]], set[str]]]
) -> None:
    standings, waits, now = {}, {}, 0
    last = dict.fromkeys("abc", False)
    told = dict.fromkeys("abc", False)
    quiet = [(debounce + 1, [], set()), (debounce + 1, [], set())]
    for version, (seconds, turned, held) in enumerate([*steps, *quiet], 1):
        now += seconds
        last |= dict(turned)
        standings = observe(standings, [Turn(SUBJECTS[name], is_bad) for name, is_bad in turned], version)
        waits = waiting(standings, waits, lambda one, held=held: one.subject.key in held, now)
        for one in due(standings, waits, lambda one, held=held: one.subject.key in held, debounce, now):
            assert one.is_bad == last[one.subject.key] != told[one.subject.key]
            assert one.subject.key not in held
            told[one.subject.key] = one.is_bad
            standings = tell(standings, [one])
    assert told == last


def test_a_flap_begins_its_wait_anew_though_nobody_looked_between() -> None:
    a = SUBJECTS["a"]
    standings = observe({}, [Turn(a, True)], 1)
    waits = waiting(standings, {}, lambda _: False, 0.0)
    standings = observe(observe(standings, [Turn(a, False)], 2), [Turn(a, True)], 3)
    waits = waiting(standings, waits, lambda _: False, 9.0)
    assert due(standings, waits, lambda _: False, 10, 11.0) == []
    (told,) = due(standings, waits, lambda _: False, 10, 19.0)
    assert (told.turns, told.since_version) == (1, 3)


def test_what_a_silence_kept_is_told_when_it_ends_if_it_still_stands() -> None:
    a, b = SUBJECTS["a"], SUBJECTS["b"]
    standings = observe({}, [Turn(a, True), Turn(b, True)], 1)
    waits = waiting(standings, {}, lambda _: False, 0.0)
    standings = mute(standings, due(standings, waits, lambda _: False, 5, 5.0))
    assert due(standings, waits, lambda _: False, 5, 6.0) == []
    assert unmute(standings, lambda _: True) == standings
    standings = observe(standings, [Turn(b, False)], 2)
    assert [one.subject for one in due(unmute(standings, lambda _: False), waits, lambda _: False, 5, 7.0)] == [a]


def test_a_turn_brings_its_subject_and_its_detail() -> None:
    old, new = Subject("a", "a"), Subject("a", "a, renamed")
    (first,) = observe({}, [Turn(old, True, {"values": 1})], 1).values()
    assert (first.subject, first.detail, first.turns, first.since_version) == (old, {"values": 1}, 1, 1)
    (told,) = tell({"a": first}, [first]).values()
    (again,) = observe({"a": told}, [Turn(new, False, {"values": 0})], 2).values()
    assert (again.subject, again.detail, again.is_bad, again.since_version) == (new, {"values": 0}, False, 2)
    (muted,) = mute({"a": again}, [again]).values()
    assert muted.is_muted
    (back,) = observe({"a": muted}, [Turn(old, True, {"values": 2})], 3).values()
    assert (back.subject, back.detail, back.turns, back.is_muted) == (old, {"values": 2}, 0, False)


@pytest.mark.parametrize(
    ("when", "value", "was_bad", "is_bad"),
    [
        ("below", "0.9", False, False),
        ("below", "0.89", False, True),
        ("below", "0.91", True, True),
        ("below", "0.95", True, False),
        ("above", "0.9", False, False),
        ("above", "0.91", False, True),
        ("above", "0.86", True, True),
        ("above", "0.85", True, False),
    ],
)
def test_a_number_at_the_bound_is_right_and_one_at_the_margin_is_right_again(
    when: str, value: str, was_bad: bool, is_bad: bool
) -> None:
    rule = Rule(RuleKind.COEFFICIENT, when, "s.a.x", "s.b.y", bound=Decimal("0.9"), margin=Decimal("0.05"))
    assert rule.passes(Fraction(value), was_bad) == is_bad


def test_what_is_over_when_it_was_told_is_forgotten() -> None:
    standings = observe({}, [Turn(SUBJECTS["a"], True)], 1)
    assert tell(standings, standings.values(), is_momentary=True) == {}


@given(pattern=TEXTS, name=TEXTS)
def test_a_star_is_any_text(pattern: str, name: str) -> None:
    wanted = re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), name, re.DOTALL) is not None
    assert matches(pattern, name) == wanted
    if not is_pattern(pattern):
        assert matches(pattern, name) == (pattern == name)


def test_a_pattern_that_a_backtracking_matcher_would_never_end_with() -> None:
    assert not matches("*a" * 2000 + "b", "a" * 4000)


COEFFICIENTS = st.fractions(0, 1, max_denominator=20)


@given(
    when=st.sampled_from(["below", "above"]),
    bound=st.decimals(0, 1, places=2),
    margin=st.decimals(0, 1, places=2),
    values=st.lists(COEFFICIENTS | st.none(), max_size=20),
)
def test_a_coefficient_turns_at_the_bound_and_back_behind_the_margin(
    when: str, bound: Decimal, margin: Decimal, values: list[Fraction | None]
) -> None:
    margin = min(margin, 1 - bound if when == "below" else bound)  # a greater one is refused
    rule = Rule(RuleKind.COEFFICIENT, when, "s.a.x", "s.b.y", bound=bound, margin=margin).checked()
    is_bad = False
    for i, value in enumerate(values):
        is_bad = rule.passes(value, is_bad)
        # By definition: it is bad when some value passed the bound, and none since came back by the margin.
        known = [one for one in values[: i + 1] if one is not None]
        sign = 1 if when == "below" else -1
        passed = [j for j, one in enumerate(known) if sign * one < sign * Fraction(bound)]
        back = [j for j, one in enumerate(known) if sign * one >= sign * Fraction(bound) + Fraction(margin)]
        assert is_bad == (bool(passed) and max(passed) > max(back, default=-1))


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (Rule(RuleKind.IND, dependent="s.a.x"), "needs referenced"),
        (Rule(RuleKind.IND, "lost", "s.a.x", "s.b.y"), "broken or holding, not 'lost'"),
        (Rule(RuleKind.CONTRACT, bound=Decimal(1)), "has no bound"),
        (Rule(RuleKind.COEFFICIENT, dependent="s.a.*", referenced="s.b.y", bound=Decimal(1)), r"names have no \*"),
        (Rule(RuleKind.COEFFICIENT, dependent="a", referenced="b", bound=Decimal("1.1")), "^The bound.* from 0 to 1"),
        (Rule(RuleKind.COEFFICIENT, dependent="a", referenced="b", bound=Decimal("nan")), "from 0 to 1"),
        (
            Rule(RuleKind.COEFFICIENT, dependent="a", referenced="b", bound=Decimal(1), margin=Decimal("0.01")),
            r"^No coefficient comes back by that margin from that bound: it is from 0 to 1\.$",
        ),
        (
            Rule(RuleKind.COEFFICIENT, "above", "a", "b", bound=Decimal("0.005"), margin=Decimal("0.01")),
            "No coefficient comes back",
        ),
        (
            Rule(RuleKind.COEFFICIENT, dependent="a", referenced="b", bound=Decimal("1e-999999999")),
            "at most two digits",
        ),
        (Rule(RuleKind.LAG, bound=Decimal("1e999999999")), "at most two digits"),
        (Rule(RuleKind.LAG), "needs bound"),
        (Rule(RuleKind.LAG, bound=Decimal(-1)), "0 or more"),
        (Rule(RuleKind.REFRESH, corpus="*", contract_id=1), "has no contract_id"),
        (Rule(RuleKind.REFRESH, corpus="*", contract_id=1, attribute="a"), "has no attribute, contract_id"),
    ],
)
def test_a_rule_that_cannot_be_is_refused(rule: Rule, message: str) -> None:
    with pytest.raises(WatchError, match=message):
        rule.checked()


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        (Rule(RuleKind.IND, "holding", "s.*", "s.b.y"), "s.* ⊆ s.b.y is holding"),
        (Rule(RuleKind.CONTRACT, contract_id=3), "contract 3 is violated"),
        (Rule(RuleKind.CONTRACT, "held"), "any contract is held"),
        (
            Rule(RuleKind.COEFFICIENT, "above", "s.a.x", "s.b.y", bound=Decimal("0.95"), margin=Decimal("0.010")),
            "Φ of s.a.x ⊆ s.b.y is above 0.95",
        ),
        (Rule(RuleKind.UNIQUE, "regained", attribute="*"), "* has regained its uniqueness"),
        (
            Rule(RuleKind.LAG, "records", bound=Decimal(1000)),
            "the consumer is more than 1000 records (of a file or a slot: bytes) behind",
        ),
        (Rule(RuleKind.DEAD_LETTERS), "dead letters come"),
        (Rule(RuleKind.REFRESH, corpus="lake"), "a refresh of corpus lake has failed"),
    ],
)
def test_a_rule_is_read_as_it_was_written(rule: Rule, told: str) -> None:
    checked = rule.checked()
    assert Rule.of_json(checked.to_json()) == checked
    assert str(checked) == told


def test_a_number_that_is_none_is_refused() -> None:
    with pytest.raises(WatchError, match=r"^A bound or margin is no number\.$"):
        Rule.of_json({"kind": "lag", "bound": "1,5"})


@pytest.mark.parametrize(
    ("dependent", "referenced", "is_one"), [("a", "b", True), ("*", "b", False), ("a", "*", False), ("*", "*", False)]
)
def test_a_rule_is_of_one_pair_where_neither_name_is_a_pattern(dependent: str, referenced: str, is_one: bool) -> None:
    assert Rule(RuleKind.IND, dependent=dependent, referenced=referenced).is_one_pair == is_one


def test_a_pattern_s_parts_lie_behind_each_other() -> None:
    assert matches("ab*bc*d", "abbcd")
    assert not matches("ab*bc*d", "abcd"), "the b is taken"
    assert not matches("ab*x*d", "abd"), "a part is missing"
