"""Both algorithms on four lakes: the published INDs, and those of a reference under all filters of the paper."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest

from benchmarks.corpora import column_facts, column_sets
from benchmarks.reference import ind_hash
from service.core.audit import account
from service.core.column_filters import PAPER, ColumnFacts, Filters, Reason, exclude
from service.core.column_sets import ColumnSets, group_columns
from service.core.corpus_choices import DEFAULT, Algorithm, Parameters, Strategy
from service.core.corpus_inds import find_inds
from service.core.group_inds import Inds
from service.core.ind_graph import build_graph
from tests.lakes import COMBINATIONS, LAKES, On, Reference, unpack


@dataclass(frozen=True)
class Lake:
    """Hold a lake: by the reference, and as arrays."""

    name: str
    reference: Reference
    sets: ColumnSets
    facts: ColumnFacts

    def found(self, filters: Filters, algorithm: Algorithm, parameters: Parameters = DEFAULT) -> list[tuple[int, int]]:
        excluded = exclude(self.facts, filters)
        groups = group_columns(self.sets, excluded.dependent == 0, excluded.referenced == 0, coverage=filters.coverage)
        blocks = find_inds(groups, self.sets.keys, algorithm, parameters, threads=2)
        return sorted(pair for inds in blocks for pair in zip(*(side.tolist() for side in inds[:2]), strict=True))


@pytest.fixture(scope="module")
def lakes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Lake]:
    folder, lakes = tmp_path_factory.mktemp("lakes"), {}
    for name in LAKES:
        reference = Reference.of(unpack(name, folder))
        starts, texts = reference.corpus.texts()
        facts = column_facts(reference.corpus, starts, texts)
        lakes[name] = Lake(name, reference, column_sets(starts, texts), facts)
    return lakes


@pytest.fixture(scope="module")
def web_tables(lakes: dict[str, Lake]) -> Lake:
    return lakes["webtables_2k"]


@pytest.fixture(params=LAKES)
def lake(request: pytest.FixtureRequest, lakes: dict[str, Lake]) -> Lake:
    return lakes[request.param]


@pytest.mark.parametrize("strategy", [None, *Strategy])
def test_a_lake_has_its_published_inds(lake: Lake, strategy: Strategy | None) -> None:
    algorithm = Algorithm.SIGNATURES if strategy else Algorithm.RAREST_FIRST
    found = lake.found(Filters(), algorithm, Parameters(strategy=strategy or Strategy.DEP2REFS))
    names = lake.reference.corpus.names
    assert ind_hash((names[a], names[b]) for a, b in found) == LAKES[lake.name][1:]


@pytest.mark.parametrize("on", COMBINATIONS, ids=str)
def test_all_combinations_of_the_papers_filters(lake: Lake, on: On) -> None:
    filters = Filters(*on[:3], Fraction(1, 5) if on.coverage else Fraction(0))
    expected = lake.reference.filtered(on)
    assert len(expected) > 30
    for algorithm in Algorithm:
        assert lake.found(filters, algorithm) == expected, algorithm
    unfiltered = np.array(lake.reference.inds, np.int32).T
    assert account(Inds(*unfiltered, unfiltered[0]), lake.facts, filters).inds_left == len(expected)


def test_every_pair_is_an_ind_absent_or_left_out_for_a_reason(web_tables: Lake) -> None:
    """What the filters took from the unfiltered answer has a reason, what they left has none."""
    excluded = exclude(web_tables.facts, PAPER)
    kept = set(web_tables.found(PAPER, Algorithm.RAREST_FIRST))
    for pair in web_tables.reference.inds[::11]:
        assert (excluded.why_not(*pair) == 0) == (pair in kept)
    assert excluded.summary()["dependent"][Reason.NO_VALUES] == 3
    for side, why in (("dependent", excluded.dependent), ("referenced", excluded.referenced)):
        for reason, count in excluded.summary()[side].items():
            assert count == sum(bool(one & reason) for one in why.tolist())


def test_the_graph_of_the_web_tables(web_tables: Lake) -> None:
    columns, inds = web_tables.reference.corpus.names, web_tables.reference.inds
    files = sorted({file for file, _ in columns})
    number = {file: i for i, file in enumerate(files)}
    table_of = np.array([number[file] for file, _ in columns], np.int32)
    edges = Counter((int(table_of[a]), int(table_of[b])) for a, b in inds)
    leader = {table: table for edge in edges for table in edge}

    def led_by(table: int) -> int:
        while leader[table] != table:
            leader[table] = table = leader[leader[table]]
        return table

    for a, b in edges:
        leader[led_by(a)] = led_by(b)
    components = Counter(led_by(table) for table in leader)
    pairs = np.array(inds, np.int32)
    graph = build_graph(
        table_of, len(files), [Inds(part[:, 0], part[:, 1], part[:, 0]) for part in np.split(pairs, [7])]
    )
    assert (graph.table_count, len(graph.inds), int(graph.inds.sum())) == (len(leader), len(edges), len(inds))
    assert graph.component_tables.tolist() == sorted(components.values(), reverse=True)
    neighbours: dict[int, set[int]] = {table: set() for table in leader}
    for a, b in edges:
        neighbours[a].add(b)
        neighbours[b].add(a)
    assert graph.degree(int(graph.hubs[0])) == max(len(others - {table}) for table, others in neighbours.items())
