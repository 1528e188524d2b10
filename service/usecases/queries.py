"""Own the questions that the state answers; each function reads one snapshot, so one version."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter
from typing import TYPE_CHECKING, TypeVar

from service.core.errors import NotFoundError, SubsetdError
from service.core.model import TransitionKind
from service.usecases.answers import (
    EVERY_ATTRIBUTE,
    AttributeFilter,
    AttributeInfo,
    AttributeRef,
    ClusterInfo,
    Coefficient,
    DeadLetterInfo,
    Key,
    MissingValue,
    Page,
    PairAnswer,
    StateAnswer,
    TransitionFilter,
    TransitionInfo,
    UindInfo,
)

if TYPE_CHECKING:  # all that answers, of corpora as well, pages as this does
    from service.usecases.ports import StateSnapshot

MAX_LIMIT = 1000
"""The most items that one page holds."""

Item = TypeVar("Item")


class AmbiguousNameError(SubsetdError):
    """A text is the full name of several attributes, because names may contain dots."""

    def __init__(self, full_name: str, candidates: list[AttributeInfo]) -> None:
        parts = "; ".join(f"id:{one.attribute_id} is {tuple(one.name)}" for one in candidates)
        super().__init__(
            f"{full_name!r} names {len(candidates)} attributes (schema, table, column): {parts}. Name one by its id."
        )
        self.candidates = candidates


class TrivialPairError(SubsetdError):
    """The two sides of a pair are one attribute; that it contains itself is not reported."""


class NoValuesError(SubsetdError):
    """What only stored values can tell is asked of a column whose values are not stored."""


class UnknownVersionError(NotFoundError):
    """A version is newer than the state or older than its first one."""


class HistoryGoneError(NotFoundError):
    """What came behind a version is not all kept any more."""


def state(snapshot: StateSnapshot) -> StateAnswer:
    """Describe the whole state: version, counts, sources, positions."""
    return StateAnswer(snapshot.head, snapshot.counts(), snapshot.sources(), snapshot.positions())


def resolve(snapshot: StateSnapshot, full_name: str) -> AttributeInfo:
    """Find the attribute that `schema.table.column`, or `id:17`, names.

    Names may contain any character, dots too, so the text is compared with the whole name and never split.
    Raises `NotFoundError`, and `AmbiguousNameError` when two attributes have this full name.
    """
    given_id = full_name.removeprefix("id:")
    if given_id != full_name and given_id.isascii() and given_id.isdigit() and len(given_id) < 10:
        # A full name has two dots at least, so an id is never taken for a name.
        by_id = snapshot.attribute(int(given_id))
        found = [] if by_id is None else [by_id]
    else:
        found = [] if "\x00" in full_name else snapshot.attributes_named(full_name)
    if not found:
        raise NotFoundError(
            f"No attribute is named {full_name!r} in state version {snapshot.head.version}; "
            "write schema.table.column as the list of attributes has it."
        )
    if len(found) > 1:
        raise AmbiguousNameError(full_name, found)
    return found[0]


def arity_of_pairs(named: Iterable[AttributeInfo], asked: int | None = None) -> int:
    """Give of how many columns both sides of pairs are: as is asked, else as one that is named has, else 1.

    A tuple equals no value of a column, and no tuple of more columns: nothing else is in it, and it is in nothing else.
    """
    return asked or next((one.arity for one in named), 1)


def attributes(
    snapshot: StateSnapshot, chosen: AttributeFilter = EVERY_ATTRIBUTE, after: Key | None = None, limit: int = MAX_LIMIT
) -> Page[AttributeInfo]:
    """List attributes with their counters, by (schema, table, ordinal)."""
    items = snapshot.attributes(chosen, after, limit + 1)
    return page_of(items, limit, lambda one: (one.name.schema, one.name.table, one.ordinal, one.attribute_id))


def clusters(
    snapshot: StateSnapshot, attribute_id: int | None = None, after: Key | None = None, limit: int = MAX_LIMIT
) -> tuple[Page[ClusterInfo], dict[int, AttributeRef]]:
    """List clusters by id, and name the attributes that occur in them."""
    page = page_of(snapshot.clusters(attribute_id, after, limit + 1), limit, lambda one: (one.cluster_id,))
    return page, snapshot.references({member for one in page.items for member in one.attribute_ids})


def uinds(
    snapshot: StateSnapshot,
    dependent: AttributeFilter = EVERY_ATTRIBUTE,
    referenced: AttributeFilter = EVERY_ATTRIBUTE,
    *,
    as_of: int | None = None,
    after: Key | None = None,
    limit: int = MAX_LIMIT,
) -> Page[UindInfo]:
    """List the inclusion dependencies that hold, or held at version `as_of`.

    Raises `UnknownVersionError` for a version that the state has not reached, or that was before its first.
    """
    check_as_of(snapshot, as_of)
    items = snapshot.uinds(dependent, referenced, as_of, after=after, limit=limit + 1)
    return page_of(items, limit, lambda one: (one.dependent.attribute_id, one.referenced.attribute_id))


def explain(
    snapshot: StateSnapshot,
    dependent: AttributeInfo,
    referenced: AttributeInfo,
    missing_limit: int = 10,
    transition_limit: int = 100,
) -> PairAnswer:
    """Explain one pair of attributes; the snapshot must be opened `with_values`.

    The present state of a pair began when its IND appeared or last broke; a pair for which nothing of this
    is recorded is as the bootstrap of the later of its two sources found it.
    """
    refuse_trivial(dependent, referenced)
    require_values(dependent, referenced)
    pair = dependent.attribute_id, referenced.attribute_id
    only_these = AttributeFilter(attribute_id=pair[0]), AttributeFilter(attribute_id=pair[1])
    standing = snapshot.uinds(*only_these, None, after=None, limit=1)
    if standing:
        since, reason = standing[0].since, "appeared"
        made = snapshot.last_transition(*pair, TransitionKind.APPEARED)
        if made is None or made.position is None:
            reason = "bootstrap"
    else:
        broke = snapshot.last_transition(*pair, TransitionKind.BROKE)
        reason = "bootstrap" if broke is None or broke.position is None else "broke"
        since = snapshot.version_point(
            max(dependent.bootstrapped_version, referenced.bootstrapped_version) if broke is None else broke.version
        )
    shared = coefficient(snapshot, dependent, referenced)
    # Where nothing is missing, the search for it would go through every cluster.
    missing: Page[MissingValue] = Page([], None)
    if shared.overlap < shared.distinct_count:
        missing = missing_values(snapshot, dependent, referenced, None, missing_limit)
    return PairAnswer(
        dependent=dependent,
        referenced=referenced,
        holds=bool(standing),
        coefficient=shared,
        since=since,
        since_reason=reason,
        missing_values=missing,
        transitions=snapshot.transitions(
            TransitionFilter(dependent=only_these[0], referenced=only_these[1], newest_first=True),
            None,
            transition_limit,
        ),
    )


def missing_values(
    snapshot: StateSnapshot,
    dependent: AttributeInfo,
    referenced: AttributeInfo,
    after: Key | None = None,
    limit: int = MAX_LIMIT,
) -> Page[MissingValue]:
    """List the dependent's values that the referenced lacks; the snapshot must be opened `with_values`."""
    refuse_trivial(dependent, referenced)
    require_values(dependent, referenced)
    items = snapshot.missing_values(dependent.attribute_id, referenced.attribute_id, after, limit + 1)
    return page_of(items, limit, attrgetter("cluster_id", "value_key"))


def coefficient(snapshot: StateSnapshot, dependent: AttributeInfo, referenced: AttributeInfo) -> Coefficient:
    """Compute Φ(dependent, referenced) exactly (Inclusion coefficients 2018, Def. 1)."""
    refuse_trivial(dependent, referenced)
    require_values(dependent, referenced)
    overlap = snapshot.overlap(dependent.attribute_id, referenced.attribute_id)
    return Coefficient(reference(dependent), reference(referenced), overlap, dependent.distinct_count or 0)


def transitions(
    snapshot: StateSnapshot, chosen: TransitionFilter, after: Key | None = None, limit: int = MAX_LIMIT
) -> Page[TransitionInfo]:
    """List what appeared and broke after version `chosen.since`, oldest first, or as it is chosen.

    Raises `UnknownVersionError` when `since` is newer than the state: whoever asks has seen another state.
    """
    check_since(snapshot, chosen.since)
    items = snapshot.transitions(chosen, after, limit + 1)
    return page_of(items, limit, lambda one: (one.version, one.dependent.attribute_id, one.referenced.attribute_id))


def dead_letters(
    snapshot: StateSnapshot, feed: str | None = None, after: Key | None = None, limit: int = MAX_LIMIT
) -> Page[DeadLetterInfo]:
    """List the records that were set aside, oldest first."""
    return page_of(snapshot.dead_letters(feed, after, limit + 1), limit, lambda one: (one.dead_letter_id,))


def unknown_source(name: str) -> NotFoundError:
    """Say that the state has no such source."""
    return NotFoundError(f"There is no source {name!r}; `subsetd status` lists those there are.")


def unknown_sketch(name: str) -> NotFoundError:
    """Say that no sketch of this name was uploaded."""
    return NotFoundError(f"No sketch was uploaded under the name {name!r}; see the list of sketches.")


def refuse_trivial(dependent: AttributeRef, referenced: AttributeRef) -> None:
    """Raise `TrivialPairError` for a pair of one attribute with itself."""
    if dependent.attribute_id == referenced.attribute_id:
        raise TrivialPairError(
            f"{dependent.name} is on both sides; an attribute contains itself, which is not reported. Name two."
        )


def require_values(*columns: AttributeInfo) -> None:
    """Raise `NoValuesError` for an attribute of which only a sketch is kept."""
    for one in columns:
        if one.sketch_only:
            raise NoValuesError(no_values(str(one.name)))


def no_values(name: str) -> str:
    """Say that only estimates are to be had of a column."""
    return f"The values of {name} are not stored, only its sketch: ask for its coefficients, which are estimated."


def check_as_of(snapshot: StateSnapshot, as_of: int | None) -> None:
    """Raise `UnknownVersionError` for a version that the state has not reached, or that was before its first."""
    if as_of is not None:
        _check_version(snapshot, as_of, "as_of", snapshot.head.first_version)


def check_since(snapshot: StateSnapshot, since: int, *, is_whole: bool = True) -> None:
    """Raise `UnknownVersionError` when `since` is newer than the state: whoever asks has seen another state.

    Raises `HistoryGoneError` when of what came after it some is not kept any more; after 0 is all that is kept. Who has
    not all of version `since` itself (`is_whole` is False) asks for the rest of it as well.
    """
    _check_version(snapshot, since, "since", 0)
    first = snapshot.head.first_version
    if 0 < since < (first - 1 if is_whole else first):
        raise HistoryGoneError(
            f"What changed after since={since} is not all kept any more: the history begins with version {first}. Read "
            f"what holds now, at /api/v1/uinds, and follow from the version of that answer."
        )


def reference(one: AttributeRef) -> AttributeRef:
    """Give an attribute's name and id alone."""
    return AttributeRef(one.attribute_id, one.name)


def walk(page_after: Callable[[Key | None], Page[Item]]) -> Iterator[Item]:
    """Go through all pages of a question, for whoever wants the whole answer from one snapshot."""
    key: Key | None = None
    while True:
        page = page_after(key)
        yield from page.items
        if page.next_key is None:
            return
        key = page.next_key


def page_of(items: list[Item], limit: int, key: Callable[[Item], Key]) -> Page[Item]:
    """Make a page of at most `limit` of the items, one more of which tells that there is a next one."""
    kept = items[:limit]
    return Page(kept, key(kept[-1]) if kept and len(items) > limit else None)


def _check_version(snapshot: StateSnapshot, version: int, parameter: str, first: int) -> None:
    if not first <= version <= snapshot.head.version:
        raise UnknownVersionError(
            f"{parameter}={version} is no version of this state: it has {first} to {snapshot.head.version}."
        )
