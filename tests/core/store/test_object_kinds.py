"""The table of kinds: each object is of one kind, and of none is more written than is read.

Every test goes over the table itself, so a kind that is new fails here until its limits, its writer and its reader are known.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from lancewal_core.cli.stored_object import inspect_object
from lancewal_core.errors import InvalidInput, ObjectCorrupt, ObjectTooLarge
from lancewal_core.keys import conflicts
from lancewal_core.keys.catalog import KeyCatalogs
from lancewal_core.names import paths
from lancewal_core.names.ids import Generation, LogId, Making, OwnerId, Position, Sequence, TableVersion
from lancewal_core.names.paths import FlushFile
from lancewal_core.process.clock import SystemClock
from lancewal_core.region import flush_files
from lancewal_core.region import states as regions
from lancewal_core.region.pages import state_page
from lancewal_core.region.state import RegionState, encode_state
from lancewal_core.region.states import RegionStates
from lancewal_core.region.transitions import Claimant, claim, first_claim, flushed, merged, paged, seal
from lancewal_core.store import object_kinds
from lancewal_core.store.object_kinds import KINDS, OTHER_BYTES_MAX, PAGE_BYTES_MAX, ObjectKind, kind_of
from lancewal_core.store.object_store import ObjectStore, put_once
from lancewal_core.store.obstore import open_store
from lancewal_core.wal import bundle, segment
from lancewal_flusher.garbage import collect as gc
from tests.golden import core_formats as golden
from tests.golden import json_formats as texts
from tests.support.stored_objects import SOUND, stream
from tests.twins.memory_store import MemoryStore

BY_NAME = {kind.name: kind for kind in KINDS}
every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
NOT_SHOWN = {"parcel", "probe"}


class Sized(bytes):
    """Bytes that say to be more than they are: nobody has to have gigabytes to be refused."""

    size = 0

    def __len__(self) -> int:
        return self.size


def sized(size: int) -> bytes:
    found = Sized(b"x")
    found.size = size
    return found


def test_every_kind_has_a_sound_object_and_a_name_of_its_own() -> None:
    assert SOUND.keys() == BY_NAME.keys()
    assert len(BY_NAME) == len(KINDS)


@every_kind
def test_a_key_is_of_one_kind(kind: ObjectKind) -> None:
    key = SOUND[kind.name].key
    assert [other.name for other in KINDS if other.parse(key) is not None] == [kind.name]
    assert kind_of(key) is kind
    for foreign in (f"{key}~", f"{key}/x", f"a/{key}", key.replace("/", "//", 1), f"{key}\n"):
        assert kind_of(foreign) is None, foreign


IN_A_MAKING = {
    "state page", "key catalog", "history page", "contract", "control", "drain", "merge record", "finished merge",
    "accepted loss", "beginning of a load", "writer schema",
}  # fmt: skip
"""Swapped, or put if absent under a name that another process may choose."""
MADE_WITHIN = {"subscription", "list of subscriptions"}
"""The same, below a folder of their own, outside of which readers write nothing: the folder of the making lies in it."""
NEW_NAMES = {"segment", "bundle", "flush", "deleted keys", "patches", "part of a key run", "keys in conflict", "parcel"}
"""Below a folder, or under a name, that the process which writes it has made for itself."""
OF_THE_STORE = {"store proof", "probe"}
"""Of no table."""


@every_kind
def test_what_several_processes_may_name_lies_in_a_making(kind: ObjectKind) -> None:
    assert sum(kind.name in names for names in (IN_A_MAKING, MADE_WITHIN, NEW_NAMES, OF_THE_STORE)) == 1
    key = SOUND[kind.name].key
    if kind.name == "contract":
        key = paths.contract_version(2, None)
    made = key.replace(paths.ROOT, paths.made_folder(Making("0a1b")), 1)
    assert kind_of(made) is (kind if kind.name in IN_A_MAKING else None)
    assert kind.region(made) == (kind.region(key) if kind.name in IN_A_MAKING else None)
    within = key.replace(paths.SUBSCRIPTIONS, paths.subscriptions_prefix(Making("0a1b")), 1)
    assert kind_of(within) is kind
    assert (within != key) == (kind.name in MADE_WITHIN)


@every_kind
def test_a_sound_object_is_shown_by_its_kind(kind: ObjectKind) -> None:
    sound = SOUND[kind.name]
    for data in sound.objects:
        store = MemoryStore(SystemClock())
        for key, other in ((sound.key, data), *sound.beside):
            store.put_if_absent(key, other)
        if kind.name in NOT_SHOWN:
            with pytest.raises(InvalidInput, match="can be inspected"):
                inspect_object(store, sound.key)
        else:
            assert inspect_object(store, sound.key).kind == kind.name


# -- bytes ---------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["memory", "folder"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    return MemoryStore(SystemClock()) if request.param == "memory" else open_store(str(tmp_path))


@every_kind
def test_what_no_reader_takes_is_not_written(kind: ObjectKind, store: ObjectStore) -> None:
    key = SOUND[kind.name].key
    for put in (store.put_if_absent, lambda key, data: put_once(store, key, data)):
        with pytest.raises(ObjectTooLarge, match=f"a {kind.name}, would have {kind.bytes_max + 1} bytes") as caught:
            put(key, sized(kind.bytes_max + 1))
        assert caught.value.where == {"object": key}
    assert store.get(key) is None


@every_kind
def test_what_a_writer_may_write_a_reader_takes(kind: ObjectKind) -> None:
    """To the byte."""
    memory = MemoryStore(SystemClock())
    key = SOUND[kind.name].key
    memory.bucket.put(key, sized(kind.bytes_max), 0)
    assert memory.get(key) is not None
    memory.bucket.delete(key)
    memory.bucket.put(key, sized(kind.bytes_max + 1), 0)
    with pytest.raises(ObjectCorrupt, match=f"more than the {kind.bytes_max} that any object of its kind has"):
        memory.get(key)


def test_other_objects_have_a_limit_too() -> None:
    memory = MemoryStore(SystemClock())
    with pytest.raises(ObjectTooLarge, match="_deletions/x"):
        memory.put_if_absent("_deletions/x.arrow", sized(OTHER_BYTES_MAX + 1))


# -- what it unpacks to ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Packed:
    """How a kind with something compressed in it is written and read; ``module`` has the ``limit`` by which it is read."""

    write: Callable[[], object]
    read: Callable[[], object]
    module: object
    limit: str


def _put_side(name: str) -> None:
    flush_files._put_side(MemoryStore(SystemClock()), SOUND[name].key, [pa.table({"id": [1] * 1000})])


PACKED: dict[str, Packed] = {
    "segment": Packed(
        lambda: segment.encode_segment(golden.SEGMENT, golden.ROWS.wal),
        lambda: segment.decode_segment(SOUND["segment"].objects[0], golden.SEGMENT_KEY),
        segment,
        "SEGMENT_ROWS_BYTES_MAX",
    ),
    "bundle": Packed(
        lambda: bundle.encode_bundle(golden.BUNDLE.copies, golden.ROWS.wal),
        lambda: bundle.decode_bundle(SOUND["bundle"].objects[0], golden.BUNDLE.key),
        bundle,
        "BUNDLE_ROWS_BYTES_MAX",
    ),
    "keys in conflict": Packed(
        lambda: conflicts.encode_conflicts(golden.CONFLICTS, "0badcafe"),
        lambda: conflicts.conflict_rows(conflicts.encode_conflicts(golden.CONFLICTS, "0badcafe")[0]),
        conflicts,
        "CONFLICTS_ROWS_BYTES_MAX",
    ),
    "state page": Packed(
        lambda: state_page.encode_page(golden.STATES),
        lambda: state_page.decode_page(SOUND["state page"].objects[0], golden.STATES_KEY),
        state_page,
        "PAGE_BYTES_MAX",
    ),
    **{
        name: Packed(
            lambda name=name: _put_side(name),  # type: ignore[misc] # mypy does not take a default for a closure
            lambda: flush_files.side_rows(stream(pa.table({"id": [1] * 1000}))),
            flush_files,
            "SIDE_FILE_ROWS_BYTES_MAX",
        )
        for name in ("deleted keys", "patches")
    },
}


def test_every_kind_that_is_compressed_has_a_writer_and_a_reader_here() -> None:
    assert PACKED.keys() == {kind.name for kind in KINDS if kind.unpacked_bytes_max is not None}


@pytest.mark.parametrize("name", PACKED)
def test_what_no_reader_unpacks_is_not_written(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = PACKED[name]
    assert getattr(packed.module, packed.limit) == BY_NAME[name].unpacked_bytes_max
    packed.write()
    packed.read()
    small = replace(BY_NAME[name], unpacked_bytes_max=100)
    monkeypatch.setattr(object_kinds, "kind_of", lambda key: small)
    monkeypatch.setattr(packed.module, packed.limit, 100)
    with pytest.raises((ObjectTooLarge, InvalidInput)):
        packed.write()
    with pytest.raises(ObjectCorrupt):
        packed.read()


# -- an index that grows, a catalog that grows ------------------------------------------------------------------------


def test_a_generation_is_opened_only_where_its_marks_will_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the limits of a page of some generations: all that are in it become MERGED, and leave it, without a new one."""
    store, clock = MemoryStore(SystemClock()), SystemClock()
    indexes, ids = RegionStates(store, clock, 128, None), (f"w{i}" for i in range(10**6))
    region, claimant = golden.NORTH, Claimant(OwnerId("o"), LogId("l"), Sequence(3))
    monkeypatch.setattr(regions, "OPENED_BELOW", 4000 * regions.OPENED_BELOW // PAGE_BYTES_MAX)
    small = replace(BY_NAME["state page"], bytes_max=4000, unpacked_bytes_max=4000)
    monkeypatch.setattr(object_kinds, "kind_of", lambda key: small)

    def change(decide: Callable[[RegionState], RegionState | None]) -> RegionState:
        ours, state = indexes.swap({region: lambda found: found and decide(found)})[region]
        assert ours
        assert state is not None
        return state

    indexes.swap({region: lambda _: first_claim(region, 1, Position(0), claimant, next(ids))})

    def sealed_by(generation: int, *, hand_over: bool) -> None:
        end = Position(generation)
        change(
            lambda i: seal(
                i,
                Generation(generation),
                claimant,
                end,
                next(ids),
                hand_over=hand_over,
                record_times=None,
                now_ms=1_700_000_000_000,
            )
        )

    def fill() -> None:
        for generation in range(1, 10**6):
            opened.append(generation)
            sealed_by(generation, hand_over=False)

    opened: list[int] = []
    with pytest.raises(ObjectTooLarge, match="run the flusher") as caught:
        fill()
    assert "/pages/" in str(caught.value.where["object"])
    assert len(opened) > 10
    sealed = opened[-1]
    # Who stops may seal its last one still.
    sealed_by(sealed, hand_over=True)
    for g in range(1, sealed + 1):
        key = paths.flush_file(f"0badcafe-{g}", FlushFile.MANIFEST)
        change(lambda i, g=g, key=key: flushed(i, Generation(g), key, 1_700_000_000_000, next(ids)))  # type: ignore[misc] # mypy does not take a default for a closure
    state = change(lambda i: merged(i, Generation(sealed), TableVersion(9), 1_700_000_000_000, next(ids)))
    assert len(encode_state(state)) > regions.OPENED_BELOW
    change(lambda i: paged(i, state.generations[:-2], next(ids)))
    change(lambda i: claim(i, None, 1, claimant, next(ids)))


def test_a_catalog_that_is_too_large_is_not_written_and_the_one_before_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    catalogs = KeyCatalogs(MemoryStore(SystemClock()), SystemClock(), None)
    ids = (f"w{i}" for i in range(100))
    first = catalogs.swap(lambda _: texts.CATALOG.runs, lambda: next(ids))
    monkeypatch.setattr(object_kinds, "kind_of", lambda key: replace(BY_NAME["key catalog"], bytes_max=500))
    assert catalogs.swap(lambda now: now.runs * 9, lambda: next(ids)) is None
    assert isinstance(catalogs.problem, ObjectTooLarge)
    assert catalogs.read() == first
    assert catalogs.problem is None


# -- what is kept ------------------------------------------------------------------------------------------------------

KEPT = {
    "contract", "control", "drain", "merge record", "finished merge", "accepted loss", "beginning of a load", "store proof",
    "probe", "writer schema",
}  # fmt: skip


@every_kind
def test_garbage_collection_deletes_no_kind_that_is_kept(kind: ObjectKind, tmp_path: Path) -> None:
    """Whatever else goes wrong in it: the last step asks the table."""
    store, key = MemoryStore(SystemClock()), SOUND[kind.name].key
    store.put_if_absent(key, b"x")
    context: Any = SimpleNamespace(store=store)
    if kind.name in KEPT:
        with pytest.raises(AssertionError, match="never deleted"):
            gc._delete(context, [key])
    else:
        gc._delete(context, [key])
    assert (store.get(key) is None) == (kind.name not in KEPT)
