"""Every kind of object, damaged, missing or a folder, under all that read it: the reader, a flusher, ingest that claims.

``MATRIX`` says what comes of it: right, the kind of an error that names the object, or, where nobody can know, the fold of a
shorter prefix.  No read is ever anything but the fold of a prefix; and once the object is back, all goes on.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import lance
import pytest

from lancewal_core.errors import (
    LancewalError,
    NotALancewalTable,
    ObjectCorrupt,
    ObjectMissing,
    StoreUnavailable,
    TableMissing,
)
from lancewal_core.names import paths
from lancewal_core.names.ids import Sequence
from lancewal_core.region.flushes.manifest import FlushedGeneration, read_flushed_generation
from lancewal_core.region.state import GenerationRecord, GenerationState
from lancewal_core.region.states import RegionStates
from lancewal_core.settings.load import Settings
from lancewal_core.table.lance.table import LanceTable
from lancewal_core.table.protocol import fragment_files
from lancewal_reader.point.receipt import receipt_of
from lancewal_reader.table import open_table
from lancewal_tables.status.status import table_status
from tests.support.indexes import newest_state
from tests.support.pipeline import Failures, Key, Pipeline, Row, by_key
from tests.support.scripted import ManualClock


class World(NamedTuple):
    pipeline: Pipeline
    failures: Failures
    made_ms: int
    """When it was made: status is asked as of then, so that nothing in it is due however long other tests take."""
    damaged: Path = Path()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Merged rows; flushes with deletes and patches; SEALED generations of a log that ended with a fence; an OPEN tail."""
    failures = Failures()
    pipeline = Pipeline(tmp_path_factory.mktemp("made"), seed=5, partitions=2, observer=failures)
    pipeline.produce(60)
    pipeline.merge_all()
    pipeline.produce(120)
    pipeline.ingest()
    pipeline.hand_over()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(LanceTable, "write_rows", not_now)
        pipeline.produce(40)
        pipeline.ingest()
        pipeline.crash()
        for _ in range(3):
            pipeline.produce(20)
            pipeline.ingest()
        pipeline.upsert("r1", 1_000, a=1)  # of a few records, as a last segment may have, all may be deletes of nothing
        pipeline.ingest()
        # What the worker left to do in the background must not be done by it later: a copy has no worker that runs.
        template = pipeline.copied(tmp_path_factory.mktemp("template"))
    pipeline.close()
    with pytest.MonkeyPatch.context() as patched:
        for module in ("reading.reads", "plan.strong"):
            patched.setattr(f"lancewal_reader.{module}.PLANS_MAX", 2)
        yield World(template, failures, int(time.time() * 1000))
    template.close()


def truncate(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def flip(path: Path) -> None:
    """One bit; of a state page in its head: in the record of a region it would be that region's alone, and be copied from
    version to version while others go on (``tests/audit/repair``)."""
    data = bytearray(path.read_bytes())
    data[10 if "/pages/" in path.as_posix() else len(data) // 2] ^= 0x10
    path.write_bytes(data)


def not_now(*_: object) -> tuple[str, ...]:
    raise StoreUnavailable("not now")


Finder = Callable[[Pipeline], Path]


def generation(pipeline: Pipeline, state: GenerationState) -> GenerationRecord:
    """The newest one in that state of the first region."""
    index = newest_state(pipeline.store, pipeline.clock, pipeline.contract.regions[0])
    assert index is not None
    return next(record for record in reversed(index.generations) if record.state is state)


def segments(pipeline: Pipeline, state: GenerationState) -> list[Path]:
    """All objects of the log of that generation."""
    log = Path(pipeline.uri) / paths.wal_segment(generation(pipeline, state).log, Sequence(0))
    return sorted(log.parent.iterdir())


def flushed(pipeline: Pipeline) -> FlushedGeneration:
    """The newest one that is not merged and has rows, deletes and patches."""
    region = pipeline.contract.regions[0]
    state = newest_state(pipeline.store, pipeline.clock, region)
    assert state is not None
    waiting = [
        (r.flush, region, r.generation) for r in state.generations if r.state is GenerationState.FLUSHED and r.flush
    ]
    found = [read_flushed_generation(pipeline.store, *of) for of in waiting]
    return next(s for s in reversed(found) if s.fragments and s.deletes and s.patches)


def flush_file(pipeline: Pipeline, name: str) -> Path:
    return (Path(pipeline.uri) / flushed(pipeline).key).with_name(name)


def data_file(pipeline: Pipeline) -> Path:
    (name,) = fragment_files(flushed(pipeline).fragments[0])
    return Path(pipeline.uri) / "data" / name


def newest(pipeline: Pipeline, folder: str, name: str = "") -> Path:
    """The newest of objects with inverted versions."""
    return min(path for path in pipeline.objects(name) if folder in path.as_posix())


def sealed(pipeline: Pipeline) -> bool:
    found = RegionStates(pipeline.store, pipeline.clock, 128, None).read(pipeline.contract.regions)
    return any(record.state is GenerationState.SEALED for index in found.values() for record in index.generations)


def fold(pipeline: Pipeline, cut: Mapping[int, int]) -> dict[Key, Row]:
    """The table that the records below ``cut`` make."""
    table: dict[Key, Row] = {}
    nulls = dict.fromkeys(pipeline.columns.names)
    for partition, position in cut.items():
        for _, value, operation in pipeline.messages(partition)[:position]:
            row = json.loads(value)
            key = row["region"], row["id"]
            match operation:
                case "upsert":
                    table[key] = nulls | row
                case "patch":
                    table[key] = table.get(key, nulls) | row
                case _:
                    table.pop(key, None)
    return table


OBJECTS: Mapping[str, Finder] = {
    "the log's newest segment": lambda p: segments(p, GenerationState.OPEN)[-1],
    "a segment in the log's middle": lambda p: segments(p, GenerationState.OPEN)[1],
    "a segment of a SEALED generation": lambda p: segments(p, GenerationState.SEALED)[0],
    "a fence": lambda p: segments(p, GenerationState.SEALED)[-1],
    "the newest state page": lambda p: newest(p, "/pages/"),
    "a snapshot's manifest": lambda p: flush_file(p, "manifest.json"),
    "a snapshot's deletes": lambda p: flush_file(p, "deletes.arrow"),
    "a snapshot's patches": lambda p: flush_file(p, "patches.arrow"),
    "a snapshot's data file": data_file,
    "the contract": lambda p: newest(p, "/contract/"),
    "the newest record of a merge": lambda p: newest(p, "/merges/", "18446744073709551612.json"),
}


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES: Mapping[str, Callable[[Path], None]] = {
    "truncated": truncate,
    "emptied": lambda path: os.truncate(path, 0),
    "flipped": flip,
    "a folder": folder,
    "missing": Path.unlink,
}

RIGHT = "right"
PREFIX = "a prefix"
"""Nothing but the lost object itself says that it was there."""
CORRUPT = ObjectCorrupt.kind
GONE = ObjectMissing.kind

Outcomes = tuple[str, str, str]
"""Of the reader, then the flusher, then ingest."""
DAMAGED: Mapping[str, Outcomes] = {
    "the log's newest segment": (CORRUPT, RIGHT, CORRUPT),
    "a segment in the log's middle": (CORRUPT, RIGHT, CORRUPT),
    "a segment of a SEALED generation": (CORRUPT, CORRUPT, CORRUPT),
    "a fence": (CORRUPT, RIGHT, RIGHT),
    "the newest state page": (CORRUPT, CORRUPT, CORRUPT),
    "a snapshot's manifest": (CORRUPT, CORRUPT, RIGHT),
    "a snapshot's deletes": (CORRUPT, CORRUPT, RIGHT),
    "a snapshot's patches": (CORRUPT, CORRUPT, RIGHT),
    "a snapshot's data file": (CORRUPT, CORRUPT, RIGHT),
    "the contract": (CORRUPT, RIGHT, RIGHT),
    "the newest record of a merge": (CORRUPT, CORRUPT, CORRUPT),
}
MISSING: Mapping[str, Outcomes] = {
    "the log's newest segment": (PREFIX, RIGHT, RIGHT),
    "a segment in the log's middle": (GONE, RIGHT, GONE),
    "a segment of a SEALED generation": (GONE, GONE, GONE),
    "a fence": (RIGHT, RIGHT, RIGHT),
    "the newest state page": (PREFIX, RIGHT, RIGHT),
    "a snapshot's manifest": (RIGHT, RIGHT, RIGHT),
    "a snapshot's deletes": (RIGHT, RIGHT, RIGHT),
    "a snapshot's patches": (RIGHT, RIGHT, RIGHT),
    "a snapshot's data file": (RIGHT, RIGHT, RIGHT),
    "the contract": (NotALancewalTable.kind, TableMissing.kind, RIGHT),
    "the newest record of a merge": (RIGHT, RIGHT, RIGHT),
}
MATRIX: Mapping[str, Mapping[str, Outcomes]] = {
    "truncated": DAMAGED,
    "emptied": DAMAGED,
    "a folder": DAMAGED,
    # Lance's data files have no checksum: a flip in one may be read as another value (test_flipped_bits).
    "flipped": {what: outcomes for what, outcomes in DAMAGED.items() if what != "a snapshot's data file"},
    "missing": MISSING,
}


@pytest.mark.in_turns("damage", "what", each=2)
@pytest.mark.parametrize("what", OBJECTS)
@pytest.mark.parametrize("damage", [damage for damage, cells in MATRIX.items() if cells is DAMAGED])
def test_a_damaged_object_is_named_and_nothing_wrong_is_read(
    made: World, tmp_path: Path, damage: str, what: str
) -> None:
    all_come_upon_it(made, tmp_path, damage, what)


@pytest.mark.parametrize(
    ("damage", "what"), [(damage, what) for damage in ("flipped", "missing") for what in MATRIX[damage]]
)
def test_an_object_that_is_flipped_or_missing_is_named(made: World, tmp_path: Path, damage: str, what: str) -> None:
    """Only its checksum shows a flip, and each kind has its own: these take no turns."""
    all_come_upon_it(made, tmp_path, damage, what)


def all_come_upon_it(made: World, tmp_path: Path, damage: str, what: str) -> None:
    pipeline = made.pipeline.copied(tmp_path)
    path = OBJECTS[what](pipeline)
    world = World(pipeline, made.failures, made.made_ms, path)
    whole = path.read_bytes()
    DAMAGES[damage](path)
    found = []
    check_status(world, MATRIX[damage][what][0])
    for process in (reader, flusher, ingest):
        found.append(process(world))
        reader(world)
    assert tuple(found) == MATRIX[damage][what]
    if damage != "missing" or not path.exists():  # the next owner may have put its own object there
        if path.is_dir():
            path.rmdir()
        path.write_bytes(whole)
    pipeline.produce(20)
    pipeline.crash()
    pipeline.merge_all()
    assert reader(world) == RIGHT
    pipeline.close()


@pytest.mark.parametrize(
    ("what", "command"),
    [
        ("all versions of an index", "lancewal repair region orders-0"),
        ("a data file of the table", "put it back"),
        ("half a data file of the table", "put it back"),
        ("a deletion vector", "put it back"),
        ("a snapshot's data file, and its log", "lancewal repair segment _lancewal/wal/"),
    ],
)
def test_status_names_what_strong_reads_have_lost(made: World, tmp_path: Path, what: str, command: str) -> None:
    pipeline = made.pipeline.copied(tmp_path)
    world = World(pipeline, made.failures, made.made_ms)
    check_status(world, RIGHT)
    merged = pipeline.table.newest().fragments()
    match what:
        case "all versions of an index":
            lost = [path for path in pipeline.objects(".binpb") if "/pages/" in path.as_posix()]
        case "a deletion vector":
            lance.dataset(pipeline.uri).delete(f"id = {by_key(open_table(pipeline.uri).to_arrow()).popitem()[0][1]}")
            lost = sorted((Path(pipeline.uri) / "_deletions").iterdir())
        case "a snapshot's data file, and its log":
            record = generation(pipeline, GenerationState.FLUSHED)
            lost = [
                data_file(pipeline),
                *(Path(pipeline.uri) / paths.wal_segment(record.log, Sequence(0))).parent.iterdir(),
            ]
        case _:
            lost = [Path(pipeline.uri) / "data" / merged[0].files[0]]
    for path in lost:
        (truncate if what.startswith("half") else Path.unlink)(path)
    with pytest.raises(LancewalError):
        open_table(pipeline.uri).to_arrow()
    (problem,) = problems(world)[:1]
    assert command in problem
    pipeline.close()


def problems(world: World) -> list[str]:
    """What `lancewal status` names; it has no broker to ask here."""
    found = table_status(Settings(), world.pipeline.uri, clock=ManualClock(epoch_ms=world.made_ms)).problems
    return [problem for problem in found if not problem.startswith("kafka.bootstrap_servers")]


def check_status(world: World, of_the_reader: str) -> None:
    """It names what stops strong reads, and only that; of a flush also a manifest that a merge makes anew."""
    try:
        found = problems(world)
    except LancewalError as error:
        found = [str(error)]
    if of_the_reader in (RIGHT, PREFIX):
        assert all("manifest.json is missing" in problem for problem in found), found
    else:
        assert any(world.damaged.name in problem or of_the_reader == NotALancewalTable.kind for problem in found), found


def ingest(world: World) -> str:
    """A new owner claims everything, and flushes what it finds SEALED."""
    world.failures.seen.clear()
    world.pipeline.replace_worker()
    ends_at = time.monotonic() + 240
    try:
        while not (world.pipeline.ingest_for(0.02) and not sealed(world.pipeline)):
            if world.failures.seen:
                return said(world.failures.seen[0], world.damaged)
            assert time.monotonic() < ends_at
    except LancewalError as error:
        return said(error, world.damaged)
    return RIGHT


def flusher(world: World) -> str:
    try:
        world.pipeline.merge()
    except LancewalError as error:
        return said(error, world.damaged)
    return RIGHT


def reader(world: World) -> str:
    try:
        rows = open_table(world.pipeline.uri).to_arrow()
    except LancewalError as error:
        return said(error, world.damaged)
    cut = {region.partition: int(position) for region, position in receipt_of(rows.schema).positions.items()}
    assert by_key(rows) == fold(world.pipeline, cut)
    return RIGHT if by_key(rows) == world.pipeline.oracle else PREFIX


def said(error: object, damaged: Path) -> str:
    assert isinstance(error, LancewalError), error
    assert damaged.name in str(error) or isinstance(error, NotALancewalTable), error
    return error.kind
