"""A soak's plan is told by its seed, its judgement by numbers alone; what is made up here is judged as by hand."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path

import pytest

from tests.endurance.soak import plan, report
from tests.endurance.soak.checks import replayed, unequal
from tests.endurance.soak.chores import audit, kill_audit
from tests.endurance.soak.clients import unlike
from tests.endurance.soak.gate import Gate
from tests.endurance.soak.judge import Failed, Killed, Seen, faults, percentile, slope, undisturbed
from tests.endurance.soak.lanes import Followed, events
from tests.endurance.soak.room import Commands
from tests.endurance.soak.writers import Change

WITNESS = "run witness"


def seen(seconds: float = 7200, memory: object = None, changes: int = 10, did: object = None, **told: object) -> Seen:
    grown = {WITNESS: line(0.1)} if memory is None else memory
    done = Counter(audits=9, comparisons=9) if did is None else did
    usual: dict[str, object] = {
        "kills": [Killed(part, 50, 53) for part in plan.PARTS],
        "freshness": {feed: [(100, 1.9)] * 200 for feed in plan.RATES},
        "audited": [begin + 1.0 for begin in range(0, 7200, 450)],
    }
    given = usual | told
    return Seen(seconds=seconds, changes=Counter(made=changes), memory=grown, did=done, **given)  # type: ignore[arg-type]


def line(mb_an_hour: float) -> list[tuple[float, float]]:
    return [(at, 300 + mb_an_hour * at / 3600) for at in range(0, 7200, 5)]


def fresh(of_made: list[tuple[float, float]]) -> dict[str, list[tuple[float, float]]]:
    return {feed: [(100.0, 1.9)] * 200 for feed in plan.RATES} | {"made": of_made}


def test_the_same_seed_kills_the_same_parts_at_the_same_moments() -> None:
    assert plan.kills(7, 7200) == plan.kills(7, 7200) != plan.kills(8, 7200)
    two_hours = plan.kills(7, 7200 * 0.9)
    assert len(two_hours) >= 200, "comparisons may take a tenth of the time"
    killed = Counter(kill.part for kill in two_hours)
    assert killed.keys() == set(plan.PARTS)
    assert max(killed.values()) - min(killed.values()) <= 1
    assert {kill.part for kill in plan.kills(7, 120)} == set(plan.PARTS), "also in two minutes"


def test_rates_reach_ten_million_changes_in_two_hours_of_load_with_something_to_spare_for_killed_sources() -> None:
    assert sum(plan.RATES.values()) * 7200 * 0.97 >= 10_000_000


def test_all_is_compared_each_quarter_of_an_hour_and_in_the_end() -> None:
    assert plan.comparisons(7200) == [900.0 * number for number in range(1, 9)]
    assert plan.comparisons(1200) == [180, 360, 540, 720, 900, 1080, 1200]
    assert plan.comparisons(120) == [120]


def test_a_good_soak_is_green() -> None:
    assert faults(seen(), WITNESS) == []


@pytest.mark.parametrize(
    ("bad", "word"),
    [
        (seen(differences=["run made: 2 clusters differ"]), "clusters"),
        (seen(freshness=fresh([(100, 0.1)] * 98 + [(100, 2.1)] * 2)), "p99 freshness of made is 2.10 s"),
        (seen(freshness=fresh([])), "the freshness of made was measured 0 times"),
        (seen(freshness=fresh([(55, 9.0)] * 1000)), "the freshness of made was measured 0 times"),
        (seen(kills=[Killed(part, 50, 53) for part in plan.PARTS if part != "refresh"]), "refresh was never killed"),
        (seen(failed=[Failed("run made: an audit failed", 54, 60)]), "an audit failed"),
        (seen(exits=[f"{WITNESS} ended by itself with 1: ..."]), "not of one process"),
        (seen(memory={WITNESS: line(1.5)}), "grows by 1.50 MB an hour"),
        (seen(memory={}), "was not measured"),
        (seen(memory={WITNESS: line(0.1)[:-200]}), "was not measured"),
        (seen(changes=0), "nothing was changed"),
        (seen(did=Counter(audits=1)), "nothing was compared"),
        (seen(did=Counter(comparisons=1)), "no audit came to its end"),
    ],
)
def test_what_makes_a_soak_red(bad: Seen, word: str) -> None:
    (fault,) = faults(bad, WITNESS)
    assert word in fault


def test_a_job_may_fail_while_its_postgres_is_away() -> None:
    assert faults(seen(failed=[Failed("an audit failed", 20, 50.1), Failed("a refresh", 52, 60)]), WITNESS) == []


def test_a_short_soak_need_not_come_to_every_kill_nor_to_many_samples() -> None:
    assert faults(seen(seconds=120, kills=[], freshness=fresh([(100.0, 0.1)]), memory={}), WITNESS) == []


def test_the_memory_of_a_short_soak_and_of_the_first_half_is_not_judged() -> None:
    short = seen(seconds=1200, memory={WITNESS: line(50)})
    assert faults(short, WITNESS) == []
    warm = [(at, min(at, 3600.0)) for at in range(0, 7200, 5)]
    assert faults(seen(memory={WITNESS: warm}), WITNESS) == []
    assert faults(seen(memory={WITNESS: [(at, max(at, 3600.0)) for at, _ in warm]}), WITNESS) != []


def test_a_slope_does_not_follow_single_peaks() -> None:
    peaks = [(at, value + (500 if at % 700 == 0 else 0)) for at, value in line(3)]
    assert slope(peaks) == pytest.approx(3, abs=0.01)
    assert slope([(1, 1)]) is None


def test_freshness_counts_outside_of_the_ten_seconds_from_a_kill_however_long_a_part_was_away() -> None:
    killed = [Killed("Connect", at=100, back=120)]
    points = [(85, 11.0), (95, 1.0), (99, 6.0), (100, 0.1), (109, 0.2), (110.5, 9.0), (131, 0.4)]
    assert undisturbed(points, killed) == [11.0, 1.0, 9.0, 0.4], (
        "what was committed before and seen after is disturbed too"
    )


def test_what_kills_do_not_explain_counts_also_when_the_next_kill_ends_it() -> None:
    killed = [Killed("state Postgres", at=100, back=103), Killed("run made", at=150, back=151)]
    assert undisturbed([(100, 52.0)], killed) == [40.0]
    assert undisturbed([(100, 19.0)], killed) == []


def test_percentiles_are_those_of_the_sorted_numbers() -> None:
    assert percentile(range(1, 101), 0.99) == 99
    assert percentile([5, 1, 3], 0.5) == 3
    assert percentile([], 0.99) is None


def test_a_client_of_the_stream_must_see_each_transition_once_and_in_order() -> None:
    logged = [(1, 1, 2, "appeared"), (2, 1, 2, "broke"), (2, 3, 4, "broke")]
    assert unlike(logged, logged) == []
    assert "1 transitions were lost" in unlike(logged[:2], logged)[0]
    assert "1 transitions came again" in unlike([*logged, logged[2]], logged)[0]
    assert "never logged" in unlike([*logged, (3, 1, 1, "broke")], logged)[0]
    assert unlike([logged[2], logged[0], logged[1]], logged) == ["transitions came out of order"]


def test_a_log_of_transitions_leads_from_the_first_inds_to_those_that_hold() -> None:
    log = [(2, 1, 2, "broke"), (3, 5, 6, "appeared"), (4, 1, 2, "appeared")]
    assert replayed({(1, 2)}, log) == ({(1, 2), (5, 6)}, [])
    holding, found = replayed(set(), log[:1])
    assert (holding, len(found)) == (set(), 1)


def test_what_differs_is_named() -> None:
    assert unequal("clusters", {"a": 1}, {"a": 1}) == []
    assert unequal("clusters", {"a": 1}, {"a": 2, "b": 3})[0].startswith("2 clusters differ")


def test_a_change_of_a_key_is_sent_as_a_delete_and_an_insert() -> None:
    change = Change("u", "orders", ("id", "note"), (1, "x"), (2, "x"))
    assert [(key, b'"op":"d"' in value, b'"op":"c"' in value) for _, key, value in events(change)] == [
        (b'{"id":1}', True, False),
        (b'{"id":2}', False, True),
    ]


def test_nobody_works_while_all_is_compared_and_its_time_does_not_count() -> None:
    gate, worked = Gate(), threading.Event()
    gate.begin()

    def work() -> None:
        with gate.working():
            worked.set()

    with gate.resting():
        load = gate.load_seconds
        thread = threading.Thread(target=work)
        thread.start()
        assert not worked.wait(0.05)
        assert gate.load_seconds == load
    thread.join()
    assert worked.is_set()


def test_of_two_audits_of_a_state_one_waits_for_the_other(tmp_path: Path) -> None:
    one, begun = Followed("run made", "st_made", "postgresql://"), []

    class Watched(Commands):
        def run(self, *_: object, **__: object) -> tuple[int, str]:
            begun.append(one.audited.locked())
            raise OSError("no audit is run here")

        def killed_in_work(self, *_: object, **__: object) -> tuple[float | None, list[str]]:
            begun.append(one.audited.locked())
            return 5.0, []

    commands = Watched(tmp_path, lambda *_, **__: None)
    with pytest.raises(OSError, match="no audit"):
        audit(commands, one, Seen(), lambda: 1.0)
    assert kill_audit(commands, one, 0.0, True, lambda: 5.0) == (5.0, [])
    assert begun == [True, True]
    assert not one.audited.locked()


def test_an_audit_that_a_kill_cut_off_is_run_again(tmp_path: Path, database_url: str) -> None:
    codes = [1, 2, 0, 1]

    class Cut(Commands):
        def run(self, *_: object, **__: object) -> tuple[int, str]:
            return codes.pop(0), "said"

    one, told, moments = Followed("run made", "st_made", database_url), Seen(), iter(range(100))
    audit(Cut(tmp_path, lambda *_, **__: None), one, told, lambda: next(moments))
    assert codes == [1]
    assert told.did == Counter({"audits cut off": 2, "audits": 1})
    assert [(one.began, one.ended) for one in told.failed] == [(0, 1), (2, 3)]
    assert told.audited == [4]
    assert not told.differences


def test_a_quarter_of_an_hour_without_an_audit_to_its_end_is_a_fault() -> None:
    assert not faults(seen(), WITNESS)
    assert not faults(seen(seconds=7566), WITNESS), "what is left behind the last quarter asks for none"
    at = [1.0, 899.0, 1799.9, 2700.0, 2701.0, 4000.0, 5000.0, 6000.0, 7199.0]
    assert faults(seen(audited=at), WITNESS) == ["no audit that came to its end began from 1800 to 2700 s"]


def test_the_report_tells_it_all() -> None:
    told = seen(
        kills=[Killed("broker", 50, 53)],
        freshness=fresh([(10, 0.5)] * 100),
        differences=["run made: <b>"],
        did=Counter(audits=2),
    )
    text = report.markdown(told, 7, faults(told, WITNESS), ["memory"])
    for words in (
        "SEED=7: red",
        "run made: <b>",
        "| made | 10 | 0.50 s |",
        "| broker | 1 | 3.0 |",
        "+0.10",
        "| audits | 2 |",
    ):
        assert words in text
    drawn = report.plot("A < B", {"one": [(0, 1), (60, 2)]}, told.kills, [(10, 20)])
    assert "A &lt; B" in drawn
    assert drawn.count("<polyline") == 1
