"""Own how alike the names of columns and tables are: tokens, abbreviations, plurals, prefixes, weights by rarity."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import log

from rapidfuzz.distance import JaroWinkler

Tokens = tuple[str, ...]

IDENTIFIERS = frozenset(
    "id ids key code no nr num number sk fk pk oid uid uuid guid ident identifier idx ref".split()  # noqa: SIM905
)
"""Words that say "this identifies something" and not what."""

BLANK = frozenset("col column field attr attribute val value var variable unnamed untitled".split())  # noqa: SIM905
"""Words that say "this is a column" and nothing else."""

LONGEST_NAME = 256
"""Characters of a name that are looked at: what follows tells nothing more, and names have no longest."""

_WORD = re.compile(r"[^\W\d_]+|\d+")
_CAMEL = re.compile(r"(?<=[^\W\d_A-Z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][^\W\d_A-Z])")
_ALIKE = 0.85
"""Similarity of Jaro and Winkler from which two words count as variants of one; below they share letters only."""


@lru_cache(maxsize=65_536)
def split_name(name: str) -> Tokens:
    """Split a name into words: at separators, changes of case and digits; folded and in the singular.

    Scripts without case or separators are one word. A name without letters and digits has no words.
    """
    text = unicodedata.normalize("NFKC", name[:LONGEST_NAME])
    words = (_WORD.findall(part) for part in _CAMEL.split(text))
    return tuple(singular(word.casefold()) for part in words for word in part)


def singular(word: str) -> str:
    """Give the singular of an English plural, and any other word as it is."""
    if len(word) > 4 and word.endswith("ies") and word not in ("series", "species"):
        return word[:-3] + "y"
    if len(word) > 4 and word.endswith(("sses", "xes", "ches", "shes", "zes")):
        return word[:-2]
    if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is", "ies")):
        return word[:-1]
    return word


@lru_cache(maxsize=1 << 18)
def word_similarity(first: str, second: str) -> float:
    """Say how far two words may be one, in [0, 1]: equal, abbreviated (`emp`, `dept`), spelt otherwise, or not."""
    if first == second:
        return 1.0
    short, long = sorted((first, second), key=len)
    if short.isdigit() or long.isdigit():
        return 0.0
    if long.startswith(short):
        return 0.9 if len(short) >= 3 else 0.5
    if len(short) >= 3 and short[0] == long[0] and _is_subsequence(short, long):
        return 0.8
    alike = float(JaroWinkler.similarity(short, long)) if len(short) >= 4 else 0.0
    return alike if alike >= _ALIKE else 0.0


def _is_subsequence(short: str, long: str) -> bool:
    letters = iter(long)
    return all(letter in letters for letter in short)


def tell_nothing(names: Collection[str]) -> bool:
    """Tell whether the names of a database's columns are none, so that columns are known by their tables alone.

    Either all are equal, or each is made of numbers, single Latin letters and words such as `column` (`c1`, `Field_2`).
    """
    words = (word for name in names for word in split_name(name))
    return len(set(names)) < 2 or all(
        word.isdigit() or word in BLANK or (len(word) == 1 and word.isascii()) for word in words
    )


@dataclass(frozen=True, slots=True)
class NamedColumn:
    """Hold the words of a column: its own, those behind the prefix that its table gives them, and the table's."""

    words: Tokens
    bare: Tokens
    table: Tokens


@dataclass(frozen=True, slots=True)
class NameSimilarity:
    """Say how alike the names of a dependent and a referenced column are; each number is in [0, 1].

    `equal`: same words. `column`: dependent and referenced column. `full`: dependent, and the referenced column behind
    its table's name (`customer_id`, `customer.id`). `explained`: how much of the dependent's words its reference has.
    `table`: how much of the referenced table's name the dependent says; `column_said`: of the referenced column's.
    `subject`: as `explained`, without words that only say that something is identified. `role_*`: how far the dependent
    ends as its reference does, whatever stands before it (`local_language_id`, `language.id`): `role_said` is
    the share of the last words that agree in the reference, `role_explained` that in the dependent. `best` sums it up.
    """

    equal: bool
    column: float
    full: float
    explained: float
    table: float
    column_said: float
    subject: float
    role_said: float
    role_explained: float

    @property
    def best(self) -> float:
        """Give one number for all: the better of both ways to name a foreign key."""
        return max(self.column, self.full)


class Vocabulary:
    """Know the words of a database's names, and how rare each is: rare words say more."""

    def __init__(self, tables: Mapping[str, Sequence[str]]) -> None:
        """Take the columns of each table by its name."""
        self._tables = max(len(tables), 1)
        self._subjects = {word for table in tables for word in split_name(table)}
        self._columns = {
            (table, name): column for table, columns in tables.items() for name, column in self._of(table, columns)
        }
        said = {
            (table, word) for (table, _), column in self._columns.items() for word in (*column.words, *column.table)
        }
        self._spoken = Counter(word for _, word in said)
        self._weights: dict[str, float] = {}
        # Columns of one name stand in many tables, and are compared with the same keys.
        self._common = lru_cache(maxsize=1 << 17)(self._weigh_common)

    def column(self, table: str, name: str) -> NamedColumn:
        """Give the words of a column of the database; raise KeyError for one that it has not."""
        return self._columns[table, name]

    def weight(self, word: str) -> float:
        """Weigh a word: the fewer tables use it the more, and those that only say "identifies" little."""
        known = self._weights.get(word)
        if known is None:
            rarity = log(1 + self._tables / self._spoken.get(word, 1)) / log(1 + self._tables)
            known = max(rarity, 0.1) * (0.25 if word in IDENTIFIERS else 0.5 if word.isdigit() else 1.0)
            self._weights[word] = known
        return known

    def similarity(self, dependent: NamedColumn, referenced: NamedColumn) -> NameSimilarity:
        """Compare a column with one that it may refer to."""
        # Of tables of one area (`sales_orders`, `sales_customers`) what they share is often left out.
        beyond = tuple(word for word in referenced.table if word not in dependent.table)
        variants = [
            self._compare(own, other, table)
            for own in dict.fromkeys((dependent.words, dependent.bare))
            for other in dict.fromkeys((referenced.words, referenced.bare))
            for table in dict.fromkeys((referenced.table, beyond or referenced.table))
        ]
        return max(variants, key=lambda found: (found.best, found.role_said * found.role_explained, found.explained))

    def _compare(self, own: Tokens, other: Tokens, table: Tokens) -> NameSimilarity:
        full = tuple(dict.fromkeys((*table, *other)))
        subject = tuple(word for word in own if word not in IDENTIFIERS)
        subjects = tuple(word for word in full if word not in IDENTIFIERS)
        what = tuple(word for word in table if word not in IDENTIFIERS)
        unnumbered = tuple(word for word in subject if not word.isdigit()) or subject
        said, explained = self._ends(unnumbered, (subjects, what, tuple(w for w in other if w not in IDENTIFIERS)))
        return NameSimilarity(
            equal=bool(own) and own == other,
            column=self.alike(own, other),
            full=self.alike(own, full),
            explained=self.covered(own, full),
            table=self.covered(table, own),
            column_said=self.covered(other, own),
            subject=self.covered(subject, subjects),
            role_said=said,
            role_explained=explained,
        )

    def _ends(self, own: Tokens, others: Iterable[Tokens]) -> tuple[float, float]:
        """Give which share of another, and of its own, the last words have that agree: the best of several others."""
        found = [(0.0, 0.0)]
        for other in others:
            agreeing = 0
            for first, second in zip(reversed(own), reversed(other), strict=False):
                if word_similarity(first, second) < 0.8:
                    break
                agreeing += 1
            if agreeing:
                shares = [sum(map(self.weight, w[-agreeing:])) / sum(map(self.weight, w)) for w in (other, own)]
                found.append((shares[0], shares[1]))
        return max(found, key=lambda shares: (shares[0] * shares[1], shares))

    def alike(self, first: Tokens, second: Tokens) -> float:
        """Give the weighted share of words that both have (Dice), where a word can be in one in part."""
        whole = sum(map(self.weight, first)) + sum(map(self.weight, second))
        both = self._common(first, second) + self._common(second, first)
        return both / whole if whole else 0.0

    def covered(self, words: Tokens, others: Tokens) -> float:
        """Give the weighted share of words that others have."""
        whole = sum(map(self.weight, words))
        return self._common(words, others) / whole if whole else 0.0

    def _weigh_common(self, words: Tokens, others: Tokens) -> float:
        return sum(
            self.weight(word) * max((word_similarity(word, other) for other in others), default=0.0) for word in words
        )

    def _of(self, table: str, columns: Sequence[str]) -> Iterable[tuple[str, NamedColumn]]:
        split = [self._segmented(split_name(name)) for name in columns]
        prefix = _prefix(split)
        table_words = split_name(table)
        for name, words in zip(columns, split, strict=True):
            bare = words[1:] if prefix is not None and words[:1] == (prefix,) and len(words) > 1 else words
            yield name, NamedColumn(words, bare, table_words)

    def _segmented(self, words: Tokens) -> Tokens:
        """Split words that were written as one where a word of the tables' names is in front (`customerid`)."""
        return tuple(part for word in words for part in self._parts(word))

    def _parts(self, word: str) -> Tokens:
        if word in self._subjects or word in IDENTIFIERS:
            return (word,)
        for ending in ("id", "key", "code", "no", "nr", "sk", "num"):
            stem = word.removesuffix(ending)
            if len(stem) >= 3 and stem != word and _is_said(stem, self._subjects):
                return singular(stem), ending
        return (word,)


def _is_said(stem: str, subjects: Collection[str]) -> bool:
    return any(word_similarity(singular(stem), subject) >= 0.8 for subject in subjects)


def _prefix(columns: Sequence[Tokens]) -> str | None:
    """Give the word that most columns of a table begin with (`l_` of TPC-H), None where there is none."""
    if len(columns) < 3:
        return None
    word, count = Counter(words[0] for words in columns if words).most_common(1)[0] if any(columns) else ("", 0)
    return word if count >= 0.7 * len(columns) else None
