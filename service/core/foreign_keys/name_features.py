"""Own what names say of foreign-key candidates: of a pair, against the others of its columns, in a database's ways."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from math import sqrt

import numpy as np

from service.core.foreign_keys.margins import lead
from service.core.foreign_keys.names import IDENTIFIERS, NamedColumn, NameSimilarity, Tokens, Vocabulary
from service.core.foreign_keys.profiles import ColumnProfile
from service.core.quantile_grids import Floats

STRONG = 0.85
"""Evidence of a name that lets a column count when a database's ways of naming are learnt."""

_LEADING = 0.75
"""Evidence from which the best reference of a column is taken for its own, when others are judged by it."""


Told = Callable[[int, int], None]
"""Hear how many columns are compared with all keys, and of how many; what it raises ends that."""


def untold(_done: int, _total: int) -> None:
    """Tell nobody."""


def name_features(
    pairs: Sequence[tuple[int, int]],
    columns: Mapping[int, ColumnProfile],
    keys: Collection[int],
    telling: Told = untold,
) -> dict[str, Floats]:
    """Give the features of n pairs (dependent, referenced) that names say, float64[n]."""
    return _Names(pairs, columns, keys).features(telling)


def name_evidence(
    pairs: Collection[tuple[int, int]], columns: Mapping[int, ColumnProfile]
) -> dict[tuple[int, int], float]:
    """Give how much the names say of each pair alone, in [0, 1]; of a column and itself all there is."""
    names = _Names([], columns, ())
    return {(a, b): 1.0 if a == b else _evidence(names.compare(a, b)) for a, b in pairs}


def bare_names(columns: Mapping[int, ColumnProfile]) -> dict[int, Tokens]:
    """Give the words of each column's name, without the prefix that its table gives all of its columns."""
    return {i: named.bare for i, named in _Names([], columns, ()).named.items()}


class _Names:
    """Compare the names of a database's candidates."""

    def __init__(
        self, pairs: Sequence[tuple[int, int]], columns: Mapping[int, ColumnProfile], keys: Collection[int]
    ) -> None:
        tables: dict[str, list[str]] = defaultdict(list)
        for column in sorted(columns.values(), key=lambda column: (column.schema, column.table, column.ordinal)):
            tables[column.table].append(column.name)
        self.words = Vocabulary(tables)
        self.pairs, self.keys = pairs, keys
        self.named = {i: self.words.column(column.table, column.name) for i, column in columns.items()}
        self.alike: dict[Tokens, list[int]] = defaultdict(list)
        for i, column in columns.items():
            if column.distinct:
                self.alike[self.named[i].words].append(i)
        self.known: dict[tuple[NamedColumn, NamedColumn], NameSimilarity] = {}

    def features(self, telling: Told = untold) -> dict[str, Floats]:
        words, named, pairs = self.words, self.named, self.pairs
        dependents, referenced = [a for a, _ in pairs], [b for _, b in pairs]
        found = [self.compare(a, b) for a, b in pairs]
        plain = np.array([_evidence(similarity) for similarity in found])
        # Where columns that refer end in `id`, one that does not seldom refers to a key that does.
        strong = {
            a: self.identifies(a)
            for (a, b), of in zip(pairs, plain, strict=True)
            if of >= STRONG and self.identifies(b)
        }
        habit = (sum(strong.values()) + 0.5) / (len(strong) + 1)
        usual = np.array([1 - 0.5 * habit if self.identifies(b) and not self.identifies(a) else 1.0 for a, b in pairs])
        kin = np.array([words.alike(named[a].table, named[b].table) for a, b in pairs])
        evidence = 0.97 * plain * usual + 0.03 * kin
        any_key = self.best_of_any(list(dict.fromkeys(dependents)), telling)
        own = np.array([words.alike(named[a].words, (*named[a].table, *named[a].words[-1:])) for a in dependents])
        table_said = np.array([words.covered(named[b].table, named[a].table) for a, b in pairs])
        context = np.array(
            [words.covered((*named[b].table, *named[b].words), (*named[a].words, *named[a].table)) for a, b in pairs]
        )
        of_similarity = {
            f"name_{short}": usual * np.array([float(getattr(similarity, of)) for similarity in found])
            for short, of in _NUMBERS.items()
        }
        return (
            of_similarity
            | {
                "name": usual * np.array([similarity.best for similarity in found]),
                "evidence": evidence,
                "lead_evidence": lead(evidence, dependents),
                "lead_of_key": lead(evidence, referenced),
                "lead_of_any": evidence - np.array([any_key[a] for a in dependents]),
                "lead_own": evidence - own,
                "lead_context": lead(context, dependents),
                "lead_kin": lead(kin, dependents),
                "own": own,
                "context": context,
                "kin": kin,
                "table_said": table_said,
                "lead_table_said": lead(table_said, dependents),
                "ref_identifier": np.array([self.identifies(b) for b in referenced], np.float64),
                "identifier": np.array([self.identifies(a) for a in dependents], np.float64),
                "habit": np.array([self.identifies(a) - habit for a in dependents]),
            }
            | self.among(evidence)
        )

    def best_of_any(self, dependents: Sequence[int], telling: Told) -> dict[int, float]:
        """Give for each column the most that its name says of any key but itself.

        These are columns times keys, so what is compared is not kept, and of columns of one name only once.
        """
        of_keys = Counter(self.named[b] for b in self.keys)
        best: dict[tuple[NamedColumn, bool], float] = {}
        found = {}
        for done, a in enumerate(dependents):
            telling(done, len(dependents))
            own = self.named[a]
            alone = a in self.keys and of_keys[own] == 1  # no other key has its name
            if (own, alone) not in best:
                others = (other for other in of_keys if not (alone and other == own))
                best[own, alone] = max((_evidence(self.words.similarity(own, other)) for other in others), default=0.0)
            found[a] = best[own, alone]
        return found

    def among(self, evidence: Floats) -> dict[str, Floats]:
        """Compare each pair with the others by how much their names say."""
        pairs = self.pairs
        of_pair = dict(zip(pairs, evidence.tolist(), strict=True))
        candidates: dict[int, list[int]] = defaultdict(list)
        for a, b in pairs:
            candidates[a].append(b)
        best = {a: max(of_pair[a, b] for b in keys) for a, keys in candidates.items()}
        leads = [_LEADING <= of_pair[a, b] >= best[a] for a, b in pairs]
        followed: dict[int, int] = defaultdict(int)
        for (_, b), leads_here in zip(pairs, leads, strict=True):
            followed[b] += leads_here

        def between(lower: int, upper: int, a: int, other: int) -> float:
            """Say how well named a key above, or below, one of a's references is: what a refers to may be that one."""
            return float(min(of_pair.get((lower, upper), 0.0), of_pair[a, other]))

        def shared_by_peers(a: int, b: int) -> float:
            """Give the share of the columns of the same name that are within this key as well."""
            peers = self.alike[self.named[a].words]
            return sum((x, b) in of_pair or x == b for x in peers) / len(peers)

        return {
            "lead_back": evidence - np.array([of_pair.get((b, a), 0.0) for a, b in pairs]),
            "hub": np.log1p([followed[b] - leads_here for (_, b), leads_here in zip(pairs, leads, strict=True)]),
            "peers": np.array([shared_by_peers(a, b) for a, b in pairs]),
            "parent": np.array([max(between(b, c, a, c) for c in candidates[a]) for a, b in pairs]),
            "child": np.array([max(between(c, b, a, c) for c in candidates[a]) for a, b in pairs]),
            "better_named": np.array(
                [sum(of_pair[a, c] > of_pair[a, b] for c in candidates[a]) for a, b in pairs], np.float64
            ),
        }

    def compare(self, a: int, b: int) -> NameSimilarity:
        own, other = self.named[a], self.named[b]
        if (own, other) not in self.known:
            self.known[own, other] = self.words.similarity(own, other)
        return self.known[own, other]

    def identifies(self, column: int) -> bool:
        return self.named[column].words[-1:] != () and self.named[column].words[-1] in IDENTIFIERS


_NUMBERS = {
    "equal": "equal",
    "column": "column",
    "full": "full",
    "explained": "explained",
    "table": "table",
    "said": "column_said",
    "subject": "subject",
    "role_said": "role_said",
    "role_explained": "role_explained",
}
"""Features of a name's similarity, by their names there."""


def _evidence(similarity: NameSimilarity) -> float:
    """Give one number for a name: as alike as a whole, or an end that agrees behind a role."""
    role = similarity.role_said * similarity.role_explained
    return max(similarity.best, 0.5 + 0.5 * sqrt(role) if role else 0.0)
