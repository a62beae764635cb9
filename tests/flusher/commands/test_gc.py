"""``lancewal gc``: what it says beforehand is what goes, looking changes nothing, and what nothing accounts for stays."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from lancewal_core.cli import program as cli
from lancewal_core.cli.groups import with_options
from lancewal_core.errors import FlusherPaused
from lancewal_core.names import paths
from lancewal_core.names.ids import Generation, LogId, OwnerId, Page, Position, Region, TopicId
from lancewal_core.names.ids import Sequence as SequenceNumber
from lancewal_core.process.clock import SystemClock
from lancewal_core.process.event_table import Event
from lancewal_core.region.flushes.manifest import Flush, FlushPart, encode_flush
from lancewal_core.table.control import Service
from lancewal_core.wal.segment import Fence, encode_fence
from lancewal_flusher.commands import gc as gc_commands
from lancewal_flusher.context import FlusherContext
from lancewal_flusher.event_table import FlusherEvents
from lancewal_flusher.garbage import collect_all
from lancewal_flusher.garbage.collect_all import GarbageSummary, collect_to_the_end, look
from lancewal_flusher.garbage.find import HISTORY_PAGE_AT
from lancewal_flusher.garbage.kinds import CountedObjects
from tests.flusher.garbage.test_collect import GRACE_S, WEEK_S, WINDOW_S, World, merged_once
from tests.flusher.service.test_service import tree
from tests.support.flusher_tables import FlusherTable, upserts
from tests.support.pauses import pause
from tests.support.scripted import ManualClock

DAY_S = 24 * 3600
OF_PATHS = {
    r"^_lancewal/wal/fenced/": "fences",
    r"^_lancewal/wal/": "WAL segments",
    r"flushes/": "files of flushes",
    r"/pages/": "pages of partition states",
    r"/history/": "history pages",
    r"keys/parts/": "parts of key runs",
    r"keys/catalog/": "key catalog versions",
    r"parcels/": "parcels of tasks",
}
"""The kind of an object as this test makes and names it."""


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[[int], FlusherTable]]:
    """A table with a given grace period and no history window: two generations behind the newest one, merged."""
    tables: list[FlusherTable] = []

    def made(grace_s: int) -> FlusherTable:
        table = FlusherTable(tmp_path, history_window_s=0, grace_s=grace_s)
        tables.append(table)
        for number in range(3):
            table.generation(0, upserts(range(10 * number, 10 * number + 10)))
            table.round()
        return table

    yield made
    for table in tables:
        table.close()


@pytest.fixture
def gc(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run the command as the program does; exit code, standard output and error."""
    app = cli.app
    monkeypatch.setattr(app, "registered_commands", [*app.registered_commands])
    app.command("gc")(with_options(gc_commands.command))

    def run(table: FlusherTable, *options: str) -> tuple[int, str, str]:
        file = Path(table.uri).parent / "settings.yaml"
        file.write_text(yaml.safe_dump(tree(table)))
        capsys.readouterr()
        code = cli.run(["gc", *options, "--config", str(file)])
        return code, *capsys.readouterr()

    return run


def folder(table: FlusherTable) -> dict[str, tuple[str, int]]:
    """Digest and time of change of every file; folders too."""
    root = Path(table.uri)
    return {
        str(file.relative_to(root)): (
            hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else "folder",
            file.stat().st_mtime_ns,
        )
        for file in sorted(root.rglob("*"))
    }


def sizes(table: FlusherTable) -> dict[str, int]:
    root = Path(table.uri)
    return {str(file.relative_to(root)): file.stat().st_size for file in root.rglob("*") if file.is_file()}


def kind_of(key: str) -> str:
    return next(kind for part, kind in OF_PATHS.items() if re.search(part, key))


def counted(objects: dict[str, int]) -> list[dict[str, Any]]:
    kinds = Counter(kind_of(key) for key in objects)
    return sorted(
        (
            {"kind": kind, "objects": n, "bytes": sum(s for key, s in objects.items() if kind_of(key) == kind)}
            for kind, n in kinds.items()
        ),
        key=lambda group: str(group["kind"]),
    )


def by_kind(groups: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(groups, key=lambda group: str(group["kind"]))


def put(table: FlusherTable, key: str, data: bytes = b"x", age_s: float = 0) -> None:
    table.store.put_if_absent(key, data)
    age(Path(table.uri) / key, age_s)


def age(file: Path, age_s: float) -> None:
    os.utime(file, times=(time.time() - age_s,) * 2)


def littered(table: FlusherTable) -> None:
    """Everything that may become garbage, beside what the merges left."""
    region = table.regions[0]
    for _ in range(110):
        ours, _ = table.context().states.swap(
            {region: lambda found: found and replace(found, write_id=table.new_id())}
        )[region]
        assert ours
    for file in (Path(table.uri) / paths.pages_prefix(None)).rglob("*.binpb"):
        age(file, 8 * DAY_S)
    fence = encode_fence(Fence(LogId("fenced"), SequenceNumber(0), OwnerId("b"), 0))
    put(table, paths.wal_segment(LogId("fenced"), SequenceNumber(0)), fence, 8 * DAY_S)
    young = encode_fence(Fence(LogId("young"), SequenceNumber(0), OwnerId("b"), 0))
    put(table, paths.wal_segment(LogId("young"), SequenceNumber(0)), young)
    put(table, paths.key_part("nobody-s"), b"part")
    put(table, paths.parcel_part("old", 0), b"parcel", 2 * DAY_S)
    put(table, paths.parcel_part("new", 0), b"parcel")
    put(table, paths.flush_file("0badcafe", paths.FlushFile.DELETES), b"lost", 8 * DAY_S)


def test_looking_changes_nothing(make: Any, gc: Any) -> None:
    table = make(600)
    littered(table)
    before = folder(table)
    assert gc(table, "--dry-run")[0] == 0
    assert gc(table, "--dry-run", "--output", "json")[0] == 0
    assert folder(table) == before


def test_a_signal_ends_a_dry_run_at_once(make: Any, gc: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)

    def looked(context: FlusherContext) -> GarbageSummary:
        seen.append((signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)))
        return look(context)

    monkeypatch.setattr(collect_all, "look", looked)
    assert gc(make(600), "--dry-run")[0] == 0
    assert seen == [before]


def test_what_it_says_is_what_goes(make: Any, gc: Any) -> None:
    table = make(0)
    littered(table)
    before = sizes(table)
    code, out, _ = gc(table, "--dry-run", "--output", "json")
    said = json.loads(out)
    assert (code, said["rounds"]) == (0, 0)
    assert gc(table)[0] == 0
    gone = {key: size for key, size in before.items() if key not in sizes(table)}
    assert by_kind([*said["deleted"], *said["waiting"]]) == counted(gone)
    assert {group["kind"] for group in said["deleted"]} == {"pages of partition states", "parcels of tasks"}
    assert {"fences", "WAL segments", "files of flushes", "parts of key runs"} == {g["kind"] for g in said["waiting"]}
    assert said["trimmed"] == [{"region": table.regions[0].name, "first": 1, "last": table.index(0).trimmed_generation}]
    assert table.index(0).trimmed_generation > 0
    table.check()
    after = json.loads(gc(table, "--dry-run", "--output", "json")[1])
    assert (after["deleted"], after["waiting"], after["trimmed"]) == ([], [], [])


def test_without_waiting_one_round_says_what_waits(make: Any, gc: Any) -> None:
    table = make(600)
    said = json.loads(gc(table, "--dry-run", "--output", "json")[1])
    before = sizes(table)
    code, out, _ = gc(table, "--output", "json")
    done = json.loads(out)
    assert (code, done["rounds"], done["deleted"]) == (0, 1, [])
    assert done["waiting"] == said["waiting"] != []
    assert done["trimmed"] == said["trimmed"] != []
    assert before.keys() <= sizes(table).keys()
    lines = gc(table)[1].splitlines()
    assert lines[:2] == [
        "deleted: nothing",
        "left for a running flusher, or --wait, to delete after the grace period of 600 s:",
    ]
    assert re.fullmatch(r"  WAL segments    +\d+ objects +\d+ bytes", lines[2])
    assert lines[-1] == "trimmed: nothing"


class Awaited(FlusherEvents):
    """Events that call a function with the number of objects when the wait for them begins."""

    def __init__(self, act: Callable[[int], None]) -> None:
        super().__init__()
        self._act = act

    def write(self, event: Event, fields: Mapping[str, Any]) -> None:
        assert event.name == "garbage_awaited"
        self._act(fields["objects"])


def test_waiting_goes_on_until_what_was_free_is_gone(make: Any) -> None:
    """What becomes free while it waits is left to others, or it would never end beside a busy ingest."""
    table = make(600)
    clock = ManualClock(epoch_ms=SystemClock().now_ms())
    before, waited = sizes(table), list[int]()

    def meanwhile(objects: int) -> None:
        waited.append(objects)
        table.generation(0, upserts(range(30, 40)))
        table.round()

    done = collect_to_the_end(replace(table.context(), clock=clock, events=Awaited(meanwhile)), wait=True)
    gone = {key: size for key, size in before.items() if key not in sizes(table)}
    assert (done.rounds, waited) == (2, [len(gone)])
    assert 600 <= clock.seconds < 601
    assert by_kind([{"kind": g.kind, "objects": g.objects, "bytes": g.bytes} for g in done.deleted]) == counted(gone)
    assert {"WAL segments", "files of flushes"} <= {g.kind for g in done.waiting}
    table.check()


def test_told_to_stop_it_waits_no_longer(make: Any) -> None:
    context = make(600).context()
    clock = ManualClock(epoch_ms=SystemClock().now_ms())
    done = collect_to_the_end(replace(context, clock=clock), wait=True, stopping=lambda: clock.seconds > 5)
    assert (done.rounds, done.deleted, bool(done.waiting)) == (1, (), True)
    assert clock.seconds < 6


def test_a_paused_flusher_s_garbage_is_only_looked_at(make: Any, gc: Any) -> None:
    table = make(0)
    pause(table.store, SystemClock(), table.new_id, Service.FLUSHER, None)
    before = folder(table)
    code, _, error = gc(table)
    assert (code, error.startswith("lancewal: flusher_paused: ")) == (2, True)
    assert gc(table, "--dry-run")[0] == 0
    assert folder(table) == before


def test_a_pause_while_it_waits_ends_it(make: Any) -> None:
    table = make(600)
    clock = ManualClock(epoch_ms=SystemClock().now_ms())
    before = sizes(table)

    def meanwhile(objects: int) -> None:
        pause(table.store, SystemClock(), table.new_id, Service.FLUSHER, None)

    with pytest.raises(FlusherPaused):
        collect_to_the_end(replace(table.context(), clock=clock, events=Awaited(meanwhile)), wait=True)
    assert before.keys() <= sizes(table).keys()


def test_looking_and_waiting_exclude_each_other(make: Any, gc: Any) -> None:
    assert gc(make(0), "--dry-run", "--wait")[0] == 2


def test_orphans_are_listed_and_stay(make: Any, gc: Any) -> None:
    table = make(0)
    region = table.regions[0]
    former = paths.page_version(Page(region.topic, TopicId("topic-id-0"), 0, None), 3)
    beyond = paths.history_page(Region(region.topic, region.topic_id, 7), Generation(1), None)
    strange = [
        "_lancewal/notes.txt",
        f"{paths.WAL}log-1/1.arrow",
        f"{paths.pages_prefix(None)}x.binpb",
    ]
    for key in (former, beyond, *strange):
        put(table, key)
    flush = paths.flush_file("ff", paths.FlushFile.MANIFEST)
    part = FlushPart(
        Region(region.topic, region.topic_id, 7),
        Generation(1),
        Position(0),
        Position(1),
        0,
        None,
        None,
        0,
    )
    put(table, flush, encode_flush(Flush(flush, 1, (), (part,))))
    strange.append(flush)
    put(table, paths.probe("killed"), age_s=2 * DAY_S)
    put(table, paths.probe("running"))
    expected = sorted([former, beyond, *strange, paths.probe("killed")])
    for options in (["--dry-run"], []):
        code, out, _ = gc(table, *options, "--output", "json")
        assert code == 0
        assert [orphan["key"] for orphan in json.loads(out)["orphans"]] == expected
    text = gc(table)[1]
    assert "left alone, 7 objects that nothing accounts for:" in text
    assert f"  {paths.probe('killed')}  1 bytes: an object of a store check that a killed process left" in text
    assert set(expected) <= sizes(table).keys()


def test_loose_data_files_are_counted_and_stay(make: Any, gc: Any) -> None:
    table = make(0)
    table.generation(0, upserts(range(50, 60)))  # FLUSHED: named by its flush alone
    data = Path(table.uri) / "data"
    put(table, "data/lost.lance", b"12345")
    put(table, "data/young.lance", b"123")
    for file in data.iterdir():
        age(file, 0 if file.name == "young.lance" else 2 * DAY_S)
    files = set(data.iterdir())
    said = json.loads(gc(table, "--output", "json")[1])
    assert said["loose_data"] == {"files": 1, "bytes": 5}
    assert "nor a flush names: 1, 5 bytes;" in gc(table)[1]
    assert set(data.iterdir()) == files
    manifest = Path(table.uri) / table.flushed(0, 4).key
    manifest.write_bytes(b"{}")
    assert json.loads(gc(table, "--dry-run", "--output", "json")[1])["loose_data"] is None


# -- lives of a region on the twins ------------------------------------------------------------------------------


def plain(groups: Sequence[CountedObjects]) -> Counter[str]:
    return Counter({group.kind: group.objects for group in groups})


def long_life() -> World:
    """So many generations that the first round writes a page, and leaves states of regions out of the newest hundred."""
    world = World()
    writer = world.writer("a")
    world.open(writer)
    for _ in range(HISTORY_PAGE_AT + 10):
        world.generation(writer, segments=1)
    world.clock.seconds += WEEK_S
    return world


def pages_below() -> World:
    """Two pages, the older of which comes to lie below the boundary."""
    world = World()
    writer = world.writer("a")
    world.open(writer)
    for _ in range(HISTORY_PAGE_AT):
        world.generation(writer, segments=1)
    world.collect()
    world.clock.seconds += WINDOW_S / 2
    for _ in range(HISTORY_PAGE_AT):
        world.generation(writer, segments=1)
    world.collect()
    world.clock.seconds += WINDOW_S / 2
    return world


def short_life() -> World:
    world = World(partitions=2)
    merged_once(world)
    world.clock.seconds += WINDOW_S
    return world


@pytest.mark.parametrize("life", [long_life, pages_below, short_life])
def test_a_collector_that_starts_does_what_was_said(life: Callable[[], World]) -> None:
    world = life()
    before = {info.key: world.plain.get(info.key) for info in world.plain.list(paths.ROOT)}
    world.store.calls.clear()
    said = look(world.collector())
    assert {act for act, _ in world.store.calls} <= {"get", "list"}
    assert {info.key: world.plain.get(info.key) for info in world.plain.list(paths.ROOT)} == before
    world.context, world.state = world.collector(), type(world.state)()
    boundary = world.index().trimmed_generation
    world.collect()
    # A page that a round writes and finds below the boundary was not there to be seen.
    assert Counter(kind_of(key) for key in world.deletes() if key in before) == plain(said.deleted)
    world.store.calls.clear()
    world.clock.seconds += GRACE_S
    world.collect()
    assert Counter(kind_of(key) for key in world.deletes()) == plain(said.waiting)
    assert [(t.first, t.last) for t in said.trimmed] == [(boundary + 1, world.index().trimmed_generation)]
