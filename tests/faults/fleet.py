"""One case: a world on S3, its processes, the feed that goes on meanwhile, and what must hold at the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import lance

from lancewal_demo.stack import KafkaBroker, S3Server
from tests.support.whole_path import Service, until
from tests.whole_path.world import World, make_world, plain_rows

_PATIENCE_S = 150.0
_POLL_S = 0.03

Sections = Mapping[str, Mapping[str, object]]
"""Sections of the settings."""
TRIMMED_SOON: Sections = {"table": {"history_window_s": 0, "grace_s": 1}, "flusher": {"gc_interval_s": 0.3}}

BATCH = 4
"""Records at a time while a process goes towards its failpoint: some hundred until it is there."""


class Fleet(AbstractContextManager["Fleet"]):
    """Starts processes of one world, with a failpoint as in ``LANCEWAL_FAILPOINT``, and leaves none behind."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._services: list[Service] = []

    def ingest(self, failpoint: str | None = None) -> Service:
        return self._start("ingest", "run", failpoint=failpoint)

    def flusher(self, failpoint: str | None = None) -> Service:
        return self._start("flusher", "run", failpoint=failpoint)

    def reader(self, failpoint: str | None = None) -> Service:
        return self._start("read", "-t", self.world.uri, failpoint=failpoint)

    def command(self, *words: str, failpoint: str) -> Service:
        return self._start(*words, failpoint=failpoint)

    def feed_until(self, condition: Callable[[], bool], service: Service, feed: Callable[[], object]) -> None:
        """Call ``feed`` again and again until ``condition()``, which the service must not end before."""

        def met() -> bool:
            ended = not service.running
            if condition():
                return True
            assert not ended, f"{service.name} {service.failpoint} ended with {service.exit_code}\n{service.tail}"
            feed()
            return False

        until(met, lambda: f"{service.name} {service.failpoint}\n{service.tail}", _PATIENCE_S, _POLL_S)

    def feed_until_killed(self, victim: Service, feed: Callable[[], object] | None = None) -> None:
        """Feed until the victim is dead, and check that it died where its failpoint says."""
        self.feed_until(lambda: not victim.running, victim, feed or self.produce)
        victim.check_killed()

    def feed_until_frozen(self, victim: Service) -> None:
        """Feed until SIGSTOP holds the victim, which nothing but its failpoint sends."""
        self.feed_until(lambda: victim.frozen, victim, self.produce)
        assert victim.reached() is not None

    def produce(self) -> None:
        self.world.feed.produce(BATCH)

    def produce_more(self) -> None:
        self.world.feed.produce(10 * BATCH)

    def until_ingested(self, ingest: Service) -> None:
        """Until a strong read sees all that was produced; it waits for the dead member's session first."""
        until(lambda: ingest.passed("claim.cas") > 0, lambda: ingest.tail, _PATIENCE_S)
        until(self.world.caught_up, lambda: ingest.tail, _PATIENCE_S, poll_s=0.1)

    def until_merged(self, flusher: Service) -> None:
        until(lambda: self.world.caught_up("eventual"), lambda: flusher.tail, _PATIENCE_S, poll_s=0.1)

    def until_at_work(self, ingest: Service) -> None:
        """Feed until an ingest has applied some segments."""
        self.feed_until(lambda: ingest.passed("memtable.apply") > 4, ingest, self.produce)

    def until_opened_again(self, zombie: Service, opened: int) -> None:
        """Feed until an ingest that was away is back in the group and has opened the regions that it is given now."""
        self.feed_until(lambda: len(zombie.logged("partition_opened")) > opened, zombie, self.produce)

    def end(self, ingest: Service, flusher: Service) -> None:
        """All is ingested, handed over and merged; then every way to read is the fold of everything produced."""
        self.until_ingested(ingest)
        ingest.stop()
        self.until_merged(flusher)
        flusher.stop()
        self.check_end()

    def check_end(self) -> None:
        world = self.world
        world.check_all_in(world.check_strong())
        world.check_all_in(world.check_merged())
        newest = lance.dataset(world.uri, storage_options=dict(world.options)).to_table()
        world.compare(plain_rows(newest), world.feed.history.ends, "plain Lance")

    def _start(self, *command: str, failpoint: str | None) -> Service:
        service = self.world.lancewal.start(*command, failpoint=failpoint)
        self._services.append(service)
        return service

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for service in self._services:
            service.kill()


def fleet_on_s3(
    kafka: KafkaBroker, s3: S3Server, topic: str, folder: Path, seed: int, sections: Mapping[str, Any]
) -> Fleet:
    """A fresh topic, bucket and table; ``sections`` change the settings."""
    world = make_world(
        kafka,
        topic,
        folder,
        seed,
        uri=f"s3://{s3.bucket(f'faults-{topic[-8:]}')}/tables/one",
        options={name.lower(): value for name, value in s3.environment.items()},
        in_process=True,
        **sections,
    )
    return Fleet(world)
