"""docs/reference/requests.md lists what each act asks of an object store, as it is counted here.

Lance and obstore are the real ones, the store is the small S3, and records come from a list.

``python -m tests.deploy.test_requests_page`` writes the page's tables, ``counted.json`` of ``lancewal estimate``, and
the rounds in docstrings.
"""

from __future__ import annotations

import ast
import json
import re
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from typing import NoReturn, cast

import pytest

from benchmarks.memory_source import MemorySource
from benchmarks.tables import MemoryIngest, create
from benchmarks.workload import COLUMNS, PRIMARY_KEY, REGION_KEY, Message, upserts
from lancewal_core.cli.estimate.counted import (
    COUNTED,
    MORE_LOGS,
    MORE_PAGES,
    MORE_PARTITIONS,
    SIZES,
    SMALL,
    RequestCounts,
    Size,
)
from lancewal_core.keys.catalog import KeyCatalogs
from lancewal_core.keys.index import KeyIndex
from lancewal_core.keys.parts import MappedParts
from lancewal_core.open import Address, open_at
from lancewal_core.process.clock import SystemClock
from lancewal_core.region.state import GenerationState
from lancewal_core.rows.murmur2 import partition_of
from lancewal_core.settings.load import Settings
from lancewal_core.table.contract import Contract
from lancewal_core.table.control import ControlReader, Service
from lancewal_core.table.proof.store_proof import prove_store
from lancewal_flusher.context import FlusherContext
from lancewal_flusher.garbage.collect import GarbageState, collect_garbage
from lancewal_flusher.garbage.table_versions import VersionsSeen
from lancewal_flusher.merge.first_seen import FirstSeen
from lancewal_flusher.merge.inputs import read_inputs
from lancewal_flusher.merge.look import look
from lancewal_flusher.merge.plan import MergeLimits
from lancewal_flusher.service.round import RoundState, run_round
from lancewal_flusher.tasks.runner import ThreadRunner
from lancewal_flusher.upkeep.compaction import Compacted, FileSizes, compact_next
from lancewal_flusher.upkeep.compaction_plan import CompactionLimits
from lancewal_ingest.regions.policy import SealPolicy
from lancewal_ingest.service.contract_watch import ContractWatch
from lancewal_ingest.service.worker import IngestWorker
from lancewal_kafka.topic import TopicFacts, TopicInspector, TopicState
from lancewal_reader.changes.follow import Quiet
from lancewal_reader.table import Table, reads_of
from lancewal_tables.define import register
from lancewal_tables.define.create import create_table
from lancewal_tables.status import status
from lancewal_tables.status.status import table_status
from tests.support.small_s3.counted import Counted, CountedS3, CountedTasks, counted

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reference" / "requests.md"
FOLDER = "table"
HEADER = [
    "| act | partitions | rounds | requests | GET, HEAD | LIST | PUT, POST | $ a thousand times |",
    "|---" * 8 + "|",
]
ADDS = ["| act | a partition adds | a page adds | a log adds |", "|---" * 4 + "|"]
WITH_A_NEW_HANDLE = {
    "`lancewal status`",
    "`lancewal table create`",
    "open and strong read",
    "open all partitions, handed over",
    "open all partitions, of an owner that died",
}
"""Acts that are another process's, or begin with opening the table."""
DONE_IN: dict[str, tuple[str, ...]] = {
    "flusher/lancewal_flusher/service/round.py": ("merge round", "merge round, nothing to merge"),
    "reader/lancewal_reader/plan/strong.py": (
        "strong read of an open table behind a merge",
        "strong read of an open table, nothing new",
    ),
    "reader/lancewal_reader/changes/follow.py": ("look of a follower, nothing new",),
    "reader/lancewal_reader/table.py": ("open and strong read",),
    "reader/lancewal_reader/reading/lookup.py": ("one key of an open table, nothing read before",),
    "flusher/lancewal_flusher/garbage/collect.py": ("garbage round, nothing to delete",),
    "core/lancewal_core/table/control.py": ("look for an operator's pause",),
    "ingest/lancewal_ingest/service/contract_watch.py": ("look for another contract",),
    "core/lancewal_core/table/proof/store_proof.py": ("what the store promises, at the start of an ingest",),
    "ingest/lancewal_ingest/regions/open.py": (
        "open all partitions, handed over",
        "open all partitions, of an owner that died",
    ),
    "ingest/lancewal_ingest/regions/seal.py": ("seal all partitions",),
    "core/lancewal_core/region/flush.py": ("flush all partitions",),
    "ingest/lancewal_ingest/regions/leaving.py": ("hand over and flush all partitions",),
    "flusher/lancewal_flusher/upkeep/compaction.py": ("round of compaction",),
    "tables/lancewal_tables/status/status.py": ("`lancewal status`",),
    "tables/lancewal_tables/define/create.py": ("`lancewal table create`",),
}
"""Modules whose docstrings say how many rounds their acts take."""
_TRIES = 5
_NOT_YET = SealPolicy(rows=1 << 40)
WRITTEN_USD, READ_USD = 0.005, 0.0004
"""For a thousand requests: PUT, POST and LIST, and others; S3's standard storage in us-east-1."""


class Acts:
    """A table of this size at the store, and what is done with it.  Each log is of an ingest with its share of partitions."""

    def __init__(self, store: CountedS3, size: Size, folder: Path) -> None:
        partitions, logs = int(size.partitions), int(size.logs)
        self._store = store
        self._folder = folder
        self._tasks = CountedTasks(store)
        self._address = Address(f"s3://bucket/{FOLDER}", store.options)
        contract = create(self._address, "topic", "topic-id", partitions, -(-partitions // int(size.pages)))
        sources = [MemorySource(contract.regions, contract.regions[n::logs]) for n in range(logs)]
        self._ingests = [MemoryIngest(self._address, contract, source, 1, 100_000, self._tasks) for source in sources]
        self._partitions = partitions
        self.context = self._flusher(contract)
        # Versions of the table are listed by one round of an hour.
        looked = VersionsSeen(looked=self.context.clock.monotonic())
        self._rounds, self._garbage = RoundState(), GarbageState(versions=looked)
        self._seed = self._created = 0

    def run(self) -> Iterator[tuple[str, Counted]]:
        """Each act once; first what makes a table that has been in use."""
        for _ in range(2):
            self.feed()
            self._merge()
        reader = self._open()
        reader.to_arrow(["id"])
        self.feed()
        self._merge()
        reader.to_arrow(["id"])  # so that it knows how fast pages grow
        self.feed()
        yield "`lancewal status`", self._counted(self._status)
        yield "one key of an open table, nothing read before", self.get()
        yield "merge round", self._counted(self._merge)
        yield "strong read of an open table behind a merge", self._counted(lambda: reader.to_arrow(["id"]))
        yield "strong read of an open table, nothing new", self._counted(lambda: reader.to_arrow(["id"]))
        following, version = reader._reads.context, reader.receipt().version
        quiet = Quiet.now(following).behind(following, version)
        yield "look of a follower, nothing new", self._counted(lambda: quiet.lasts(following))
        yield "open and strong read", self._counted(lambda: self._open().to_arrow(["id"]))
        yield "merge round, nothing to merge", self._counted(self._merge)
        yield "garbage round, nothing to delete", self._counted(lambda: collect_garbage(self.context, self._garbage))
        control = ControlReader(self.context.store, self.context.clock, Service.INGEST, self.context.contract.making)
        control.read_or_raise()
        yield "look for an operator's pause", self._counted(control.read_or_raise)
        watch = ContractWatch(
            self.context.store, self.context.contract, self._tasks, self.context.clock, _taken_up, _failed
        )
        yield "look for another contract", self._counted(watch._look)
        self._prove()
        yield "what the store promises, at the start of an ingest", self._counted(self._prove)
        if len(self._ingests) == 1:
            yield from self._acts_of_ingest()
        yield "round of compaction", self._counted(self._compact)
        yield "`lancewal table create`", self._counted(self._create)

    def get(self) -> Counted:
        """A merged row, while others are flushed."""
        names = list(self.context.contract.primary_key)
        merged = self._open().to_arrow(names, consistency="eventual").sort_by([(name, "ascending") for name in names])
        key, table = merged.slice(0, 1), self._open()

        def get() -> None:
            assert table.get(key).to_arrow().num_rows == 1

        return self._counted(get)

    def _acts_of_ingest(self) -> Iterator[tuple[str, Counted]]:
        """On all partitions, with a row in each of them."""
        self._ingests[0].worker.drain(60.0)
        worker = self._assigned()
        yield "open all partitions, handed over", self._counted(worker._open_due)
        self._append()
        worker._sealing.policy = SealPolicy(rows=1)
        yield "seal all partitions", self._counted(lambda: worker._sealing.advance(worker._writer))
        yield "flush all partitions", self._counted(self._turns)
        worker._sealing.policy = _NOT_YET
        self._append()
        yield "hand over and flush all partitions", self._counted(lambda: worker.drain(60.0))
        self._assigned()
        self._append()
        # Its owner is dead from here on.
        yield "open all partitions, of an owner that died", self._counted(self._assigned()._open_due)

    def _status(self) -> None:
        """Without brokers."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(status, "ThreadTasks", lambda **_: self._tasks)
            found = table_status(Settings.model_validate(self._settings()), self._address.uri)
        assert not found.problems
        assert all(partition.unmerged_rows for partition in found.partitions)

    def _compact(self) -> None:
        limits = CompactionLimits().to_the_end()
        assert isinstance(compact_next(self.context, limits, FileSizes(), with_sentinel=False), Compacted)

    def _create(self) -> None:
        """Of another table."""
        self._created += 1
        contract = self.context.contract
        topic = TopicState(contract.topic, contract.topic_id, contract.partitions, compacted=False)
        tree = self._settings()
        tree["table"] |= {
            "uri": f"s3://bucket/created-{self._created}",
            "topic": contract.topic,
            "columns": COLUMNS,
            "primary_key": PRIMARY_KEY,
            "region_key": REGION_KEY,
        }
        tree["kafka"] = {"bootstrap_servers": "127.0.0.1:1"}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(register, "ThreadTasks", lambda: self._tasks)
            create_table(Settings.model_validate(tree), cast(TopicInspector, _Brokers(topic)))

    def _settings(self) -> dict[str, dict[str, object]]:
        return {"table": {"uri": self._address.uri}, "storage": {"options": self._store.options}}

    def _prove(self) -> None:
        prove_store(self.context.store, self._tasks, self._address.way(), self._address.uri, self.context.new_id)

    def _turns(self) -> None:
        """One to begin, one to take the result."""
        for _ in range(2):
            self._ingests[0].worker.step(0.0)

    def _assigned(self) -> IngestWorker:
        """Another worker, which is about to open all partitions."""
        contract = self.context.contract
        ingest = MemoryIngest(self._address, contract, self._ingests[0].source, 1, 100_000, self._tasks)
        self._ingests, worker = [ingest], ingest.worker
        worker._sealing.policy = _NOT_YET
        worker.admit(False)
        worker.step(0.0)
        worker.admit(True)
        return worker

    def _counted(self, act: object) -> Counted:
        assert callable(act)
        return counted(self._store, act)

    def feed(self) -> None:
        """A row of each partition, durable and flushed: one poll brings them, so they make one generation each."""
        self._append()
        while any(
            r.state is GenerationState.SEALED for i in self.context.read_states().values() for r in i.generations
        ):
            for ingest in self._ingests:
                ingest.worker.step(0.002)

    def _append(self) -> None:
        self._seed += 1
        found: dict[int, Message] = {}
        for message in upserts(50 * self._partitions, 1_000, self._seed):
            found.setdefault(partition_of(message.key, self._partitions), message)
        assert len(found) == self._partitions
        for ingest in self._ingests:
            ingest.feed(list(found.values()))

    def _merge(self) -> None:
        report = run_round(self.context, MergeLimits(), self._rounds, sealed_grace_s=60.0)
        assert report.left is not None
        assert not report.refused

    def _open(self) -> Table:
        return Table(reads_of(open_at(self._address, self._tasks, SystemClock()), self._address.uri))

    def _flusher(self, contract: Contract) -> FlusherContext:
        opened = open_at(self._address, self._tasks, SystemClock())
        parts = MappedParts(opened.store, None, self._folder, 1 << 30)
        keys = KeyIndex(KeyCatalogs(opened.store, opened.clock, opened.contract.making), parts, self._tasks)
        return FlusherContext(*opened.parts, keys, ThreadRunner(opened.table, self._tasks), lambda: uuid.uuid4().hex)


@dataclass(frozen=True, slots=True)
class _Brokers:
    """Stands for the brokers that describe a topic."""

    topic: TopicState

    def describe(self, topic: str) -> TopicState:
        assert topic == self.topic.topic
        return self.topic

    def identify(self, topic: str) -> TopicFacts:
        assert topic == f"{self.topic.topic}.dead-letters"
        return TopicFacts(self.topic.topic_id, 1)

    def starts(self, topic: TopicState, start: object) -> tuple[int, ...]:
        return (0,) * topic.partitions


def _taken_up(contract: Contract) -> NoReturn:
    raise AssertionError(f"a contract that nobody wrote: {contract}")


def _failed(what: str, why: object) -> NoReturn:
    raise AssertionError(f"{what}: {why}")


@contextmanager
def acts(size: Size) -> Iterator[Acts]:
    with tempfile.TemporaryDirectory() as folder, CountedS3(FOLDER) as store:
        yield Acts(store, size, Path(folder))


@cache
def run(size: Size) -> dict[str, Counted]:
    with acts(size) as table:
        return dict(table.run())


def count(size: Size) -> dict[str, RequestCounts]:
    return {act: asked_of(found) for act, found in run(size).items()}


def asked_of(found: Counted) -> RequestCounts:
    gets, lists, puts = found.of("GET", "HEAD"), found.of("LIST"), found.of("PUT", "POST")
    return RequestCounts(gets, lists, puts, found.of("DELETE"), found.rounds)


def line(act: str, partitions: float, found: RequestCounts) -> str:
    usd = found.get * READ_USD + (found.list + found.put) * WRITTEN_USD
    figures = (partitions, found.rounds, found.requests, found.get, found.list, found.put)
    return f"| {' | '.join([act, *(f'{figure:g}' for figure in figures), f'{usd:.3f}'])} |"


def table_of_acts(by_size: dict[Size, dict[str, RequestCounts]]) -> list[str]:
    at = (SMALL, MORE_PARTITIONS)
    return [line(act, size.partitions, by_size[size][act]) for act in by_size[SMALL] for size in at]


def table_of_adds(by_size: dict[Size, dict[str, RequestCounts]]) -> list[str]:
    """Of acts that grow."""
    found = []
    for act, small in by_size[SMALL].items():
        more = by_size[MORE_PARTITIONS][act]
        adds = [(more - small) * (1 / (MORE_PARTITIONS.partitions - SMALL.partitions)), by_size[MORE_PAGES][act] - more]
        adds += [by_size[MORE_LOGS][act] - more] if act in by_size[MORE_LOGS] else []
        if any(added.requests for added in adds):
            said = [", ".join(kinds(added)) or "-" for added in adds]
            found.append(f"| {' | '.join([act, *said, *[''] * (3 - len(said))])} |")
    return found


def kinds(added: RequestCounts) -> Iterator[str]:
    for name, number in (("GET", added.get), ("LIST", added.list), ("PUT", added.put), ("DELETE", added.delete)):
        if number:
            yield f"{number:.2g} {name}"


def stored() -> dict[Size, dict[str, RequestCounts]]:
    """``counted.json``."""
    content = json.loads(COUNTED.read_text())
    return {
        size: {act: RequestCounts(**at[size.name]) for act, at in content.items() if size.name in at} for size in SIZES
    }


@pytest.mark.parametrize("size", SIZES, ids=lambda size: size.name)
def test_what_each_act_asks_is_what_is_written_down(size: Size) -> None:
    assert count(size) == stored()[size]


@pytest.mark.parametrize("size", SIZES, ids=lambda size: size.name)
def test_who_has_a_table_open_opens_no_connection_but_for_a_commit(size: Size) -> None:
    """To open one takes as long as two or three requests.  A commit takes one or two; there are two.  A connection that
    is not back in its pool yet when the next request goes out makes another, which is a matter of chance: the least of some
    tries counts.  A client made anew by each act, or each swap, is more in every try."""
    least: dict[str, int] | None = None
    for _ in range(_TRIES):
        opened = {act: sum(request.opened for request in found.requests) for act, found in run(size).items()}
        assert all(opened[act] for act in WITH_A_NEW_HANDLE & opened.keys()), "else nothing was counted"
        if least is None or _without_new_handles(opened) < _without_new_handles(least):
            least = opened
        if _without_new_handles(least) <= 6:
            return
    raise AssertionError(least)


def _without_new_handles(opened: dict[str, int]) -> int:
    return sum(number for act, number in opened.items() if act not in WITH_A_NEW_HANDLE)


def test_the_page_has_what_is_written_down() -> None:
    lines = PAGE.read_text().splitlines()
    found = stored()
    for header, table in ((HEADER, table_of_acts(found)), (ADDS, table_of_adds(found))):
        begin = lines.index(header[0])
        assert lines[begin : begin + 2] == header
        end = next((n for n in range(begin, len(lines)) if not lines[n].startswith("|")), len(lines))
        assert lines[begin + 2 : end] == table


def test_each_act_has_its_rounds_in_a_docstring() -> None:
    rounds = {act: found.rounds for act, found in stored()[SMALL].items()}
    assert {act for acts in DONE_IN.values() for act in acts} == rounds.keys()
    for module, acts in DONE_IN.items():
        docstring = ast.get_docstring(ast.parse((ROOT / module).read_text())) or ""
        said = re.findall(r'(\d+) \("([^"]+)"\)', " ".join(docstring.split()))
        assert said == [(f"{rounds[act]:g}", act) for act in acts], module


def test_what_a_merge_takes_is_read_side_by_side() -> None:
    """Rows included: of two partitions in as many rounds as of five."""
    rounds = set()
    for partitions in (2, 5):
        with tempfile.TemporaryDirectory() as folder, CountedS3("of no table: all is counted") as store:
            table = Acts(store, Size(partitions, 1, 1), Path(folder))
            table.feed()
            context = table.context
            rounds.add(counted(store, partial(read_inputs, context, look(context), MergeLimits(), FirstSeen())).rounds)
    assert len(rounds) == 1


def test_where_nothing_comes_reads_soon_ask_less() -> None:
    with acts(SMALL) as table:
        for _ in range(2):
            table.feed()
            table._merge()
        reader = table._open()
        for ended, asked in ((False, (8, 3)), (True, (3, 1))):
            if ended:
                table._ingests[0].worker.drain(60.0)
            for _ in range(4):
                reader.to_arrow(["id"])
            counted = table._counted(lambda: reader.to_arrow(["id"]))
            assert (len(counted.requests), counted.rounds) == asked


def test_with_its_rows_one_key_takes_two_rounds_more() -> None:
    """To open the flushed file, and to read it; what is merged is read meanwhile."""
    with tempfile.TemporaryDirectory() as folder, CountedS3("of no table: all is counted") as store:
        table = Acts(store, SMALL, Path(folder))
        for _ in range(2):
            table.feed()
            table._merge()
        table.feed()
        assert table.get().rounds == 8


def write() -> None:
    by_size = {size: count(size) for size in SIZES}
    content = {
        act: {size.name: asdict(found[act]) for size, found in by_size.items() if act in found}
        for act in by_size[SMALL]
    }
    COUNTED.write_text(json.dumps(content, indent=1) + "\n")
    text = PAGE.read_text().splitlines()
    for header, table in ((HEADER, table_of_acts(by_size)), (ADDS, table_of_adds(by_size))):
        begin = text.index(header[0])
        end = next((n for n in range(begin, len(text)) if not text[n].startswith("|")), len(text))
        text[begin:end] = [*header, *table]
    PAGE.write_text("\n".join(text) + "\n")
    for module, acts in DONE_IN.items():
        source = ROOT / module
        said = source.read_text()
        for act in acts:
            named = r"\s+".join(map(re.escape, f'("{act}")'.split()))
            said = re.sub(rf"\d+(?=\s{named})", f"{by_size[SMALL][act].rounds:g}", said, count=1)
        source.write_text(said)


if __name__ == "__main__":
    write()
