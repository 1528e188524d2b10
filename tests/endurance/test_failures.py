"""Whatever is killed, cut or full under load: the invariants hold each time, each change is there once."""

from __future__ import annotations

import os
import random
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from service.store.embedded import EmbeddedPostgres
from service.store.migrate import upgrade
from service.usecases.batches import BatchReport
from tests import states
from tests.commands import Commands
from tests.endurance.following import broken_invariants
from tests.endurance.proxy import CuttingProxy
from tests.following import Watch, random_changes
from tests.integration.test_bad_input import consuming, full_disk, make_stream
from tests.integration.test_database_crash import crash_and_start, own_server
from tests.postgres import administer
from tests.shop import Shop
from tests.waiting import BOUND_SECONDS, wait_for

__all__ = ["own_server"]

Tell = Callable[..., None]


def test_a_consumer_killed_at_random_moments(shop: Shop, subsetd: Commands, whole: bool, tell: Tell) -> None:
    rng, started = random.Random(11), time.monotonic()
    kills = 200 if whole else 2
    for _ in range(kills):
        random_changes(shop, rng, 400)  # type: ignore[arg-type]
        until = shop.count("records") + rng.randrange(250)
        with shop.held_near_the_end():
            process = subsetd.start("consume", "--feed", shop.feed, batch_records=7, log_level="error")
            wait_for(lambda until=until, of=process: shop.count("records") > until or of.poll() is not None)
            subsetd.kill(process)
        assert broken_invariants(shop.url) == []
    assert not shop.is_applied(), "it was killed under load"
    shop.flush()
    code, said = subsetd.run("consume", "--feed", shop.feed, "--until-end", log_level="error")
    assert code == 0, said
    shop.check()
    tell(kills=kills, records=sum(shop.sent.values()), seconds=time.monotonic() - started)


def test_a_broker_killed_again_and_again(shop: Shop, subsetd: Commands, whole: bool, tell: Tell) -> None:
    rng, started = random.Random(12), time.monotonic()
    kills = 20 if whole else 1
    process = subsetd.start("consume", "--feed", shop.feed, batch_records=7, log_level="error")
    for _ in range(kills):
        random_changes(shop, rng, 600)  # type: ignore[arg-type]
        shop.flush()
        until = shop.count("records") + rng.randrange(300)
        wait_for(lambda until=until: shop.count("records") > until or process.poll() is not None)
        shop.broker.kill()
        shop.broker.start()
        assert broken_invariants(shop.url) == []
        wait_for(lambda: shop.is_applied() or process.poll() is not None)
        assert process.poll() is None, subsetd.said(process)
    shop.check()
    subsetd.end(process)
    tell(kills=kills, records=sum(shop.sent.values()), seconds=time.monotonic() - started)


class HeldWatch(Watch):
    """Hold a consumer up behind so many batches until it may go on: it is not done before a crash that is late."""

    def __init__(self, batches: int) -> None:
        super().__init__()
        self.batches, self.may_go_on = batches, threading.Event()

    def committed(self, report: BatchReport) -> None:
        super().committed(report)
        if len(self.reports) >= self.batches:
            self.may_go_on.wait(BOUND_SECONDS)


def test_a_database_crashed_again_and_again(
    own_server: EmbeddedPostgres, tmp_path: Path, whole: bool, tell: Tell
) -> None:
    rng, started = random.Random(13), time.monotonic()
    upgrade(own_server.url)
    crashes = 20 if whole else 1
    stream, watch = make_stream(own_server.url, tmp_path), HeldWatch(80 * crashes - 10)
    random_changes(stream, rng, 400 * crashes)
    with consuming(own_server.url, stream, watch, records=5, cache_bytes=2000) as errors:
        for crash in range(crashes):
            until = len(watch.reports) + rng.randrange(60)
            wait_for(lambda until=until: len(watch.reports) > until or errors)
            crash_and_start(own_server)
            if crash == crashes - 1:
                watch.may_go_on.set()
            wait_for(lambda crash=crash: len(watch.errors) > crash or errors)
            assert broken_invariants(own_server.url) == []
    assert states.read(own_server.url) == states.expected(stream.tables)
    tell(crashes=crashes, batches=len(watch.reports), seconds=time.monotonic() - started)


def test_a_connection_cut_in_the_middle_of_a_copy(
    postgres_server: EmbeddedPostgres, database_url: str, tmp_path: Path, whole: bool, tell: Tell
) -> None:
    rng, started = random.Random(14), time.monotonic()
    stream, watch = make_stream(database_url, tmp_path), Watch()
    cuts = 40 if whole else 2
    for cut, phrase in enumerate((b"copy staged_gen_rec", b"copy gen_rec") * (cuts // 2)):
        proxy = CuttingProxy(str(postgres_server.cluster / ".s.PGSQL.5432"), phrase)
        through = f"postgresql://postgres@127.0.0.1:{proxy.port}/{database_url.partition('?')[0].rpartition('/')[2]}"
        try:
            proxy.arm()
            random_changes(stream, rng, 100)
            for number in range(50):
                stream.change("customers", None, [f"{cut} {number}", None])
            with consuming(through, stream, watch, records=100):
                pass
            assert proxy.cuts == 1
        finally:
            proxy.close()
        assert broken_invariants(database_url) == []
    assert len(watch.errors) == cuts
    assert states.read(database_url) == states.expected(stream.tables)
    tell(cuts=cuts, batches=len(watch.reports), seconds=time.monotonic() - started)


@contextmanager
def small_disk(server: EmbeddedPostgres, url: str) -> Iterator[Path | None]:
    """Put the records on a disk of 2 MB for the time of the block; give its folder, None where none can be mounted."""
    with tempfile.TemporaryDirectory(prefix="subsetd-disk-") as folder:
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=2m,mode=755", "none", folder], check=False, capture_output=True
        )
        if mounted.returncode != 0:
            yield None
            return
        try:
            owner = server.cluster.stat()
            os.chown(folder, owner.st_uid, owner.st_gid)
            administer(server, f"create tablespace small location '{folder}'")
            states.execute(url, "alter table gen_rec_g1_p000 set tablespace small")
            yield Path(folder)
            states.execute(url, "alter table gen_rec_g1_p000 set tablespace pg_default")
            administer(server, "drop tablespace small")
        finally:
            subprocess.run(["umount", folder], check=True)


def fill(disk: Path) -> Path:
    """Leave no room on a disk."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return filler


def test_a_disk_that_is_full_for_a_while(
    postgres_server: EmbeddedPostgres, database_url: str, tmp_path: Path, whole: bool, tell: Tell
) -> None:
    """Where no small disk can be mounted, the kernel's own full one holds a file of the table `feed_position`."""
    started = time.monotonic()
    stream, watch = make_stream(database_url, tmp_path), Watch()
    times = 10 if whole else 1
    with small_disk(postgres_server, database_url) as disk:
        for round_ in range(times):
            if disk is None and round_ == 0:
                stream.change("customers", None, ["full", None])
                with ExitStack() as full:
                    # Before anybody follows, who could have stored a position by then.
                    full.enter_context(full_disk(postgres_server, database_url, "feed_position"))
                    with consuming(database_url, stream, watch):
                        wait_for(lambda: len(watch.errors) >= 2)
                        full.close()
            elif disk is not None:
                filler = fill(disk)
                for number in range(500):
                    stream.change("customers", None, [f"{round_} {number}", "x" * 100])
                seen = len(watch.errors)
                with consuming(database_url, stream, watch, records=50):
                    wait_for(lambda seen=seen: len(watch.errors) > seen + 1)
                    assert broken_invariants(database_url) == []
                    filler.unlink()
            assert broken_invariants(database_url) == []
            assert states.read(database_url) == states.expected(stream.tables)
        assert watch.errors
        assert all("is full" in str(error) for error in watch.errors), watch.errors
    tell(times=times, seconds=time.monotonic() - started)
