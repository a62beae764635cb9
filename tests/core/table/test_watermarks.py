"""W(V): what the newest merge at or below a version says, or an error; never an older merge."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Mapping

import pyarrow as pa
import pytest

from lancewal_core.errors import FormatUnknown, MergedPositionUnknown, ObjectCorrupt, TableReplaced, TableRestored
from lancewal_core.names import paths
from lancewal_core.names.ids import Generation, Position, Region, TableVersion, TopicId
from lancewal_core.table.conflicts_ref import ConflictsRef
from lancewal_core.table.protocol import Committed, TableCommit, TransactionInfo
from lancewal_core.table.watermarks import (
    NOTHING_MERGED,
    PROPERTY_FORMAT,
    InForce,
    Watermark,
    Watermarks,
    decode_watermarks,
    encode_watermarks,
    merge_properties,
)
from tests.support.scripted import ManualClock, ScriptedStore
from tests.twins.faults import ListFault, PutFault
from tests.twins.memory_table import MemoryDataset, MemoryTable

NORTH, SOUTH = (Region("orders", TopicId("topic-id-1"), p) for p in (0, 1))
SCHEMA = pa.schema([("k", pa.int64())])
ROWS = pa.table({"k": [1, 2]}, schema=SCHEMA)


def marks(generation: int) -> dict[Region, Watermark]:
    return {
        NORTH: Watermark(Generation(generation), Position(10 * generation)),
        SOUTH: Watermark(Generation(2 * generation), Position(7 * generation)),
    }


class World:
    def __init__(self) -> None:
        self.store = ScriptedStore(ManualClock())
        self.dataset = MemoryDataset(SCHEMA)
        self.table = MemoryTable(self.dataset)
        self.watermarks = self.fresh()

    def fresh(self) -> Watermarks:
        """Of a process that has just started."""
        return Watermarks(self.store, self.table, None)

    def merge(self, generation: int, properties: Mapping[str, str] | None = None) -> TableVersion:
        newest = self.table.newest()
        old = tuple(newest.fragment_json(f.fragment_id) for f in newest.fragments())
        found = merge_properties(marks(generation), f"uuid-{generation}") if properties is None else properties
        outcome = self.table.commit(
            TableCommit(newest.version, self.table.write_rows(ROWS), old, (), found, strict=True)
        )
        assert isinstance(outcome, Committed)
        return outcome.version

    def append(self, times: int = 1) -> TableVersion:
        for _ in range(times):
            self.table.append(ROWS)
        return self.table.newest().version

    def expected(self, version: TableVersion, generation: int) -> InForce:
        return InForce(version, f"uuid-{generation}", marks(generation))


@pytest.fixture
def world() -> World:
    return World()


# -- values ------------------------------------------------------------------------------------------------------


def test_watermarks_as_text() -> None:
    assert encode_watermarks({SOUTH: Watermark(Generation(3), Position(9)), NORTH: Watermark(Generation(1), Position(2))}) \
        == '{"orders/topic-id-1/0":{"generation":1,"next":2},"orders/topic-id-1/1":{"generation":3,"next":9}}'  # fmt: skip
    assert decode_watermarks(encode_watermarks(marks(4)), "x") == marks(4)


@pytest.mark.parametrize("text", ["", "[]", '{"orders": {}}', '{"a/b/0": {"generation": 1}}', '{"a/b/0": 5}'])
def test_broken_text_is_corrupt_and_named(text: str) -> None:
    with pytest.raises(ObjectCorrupt, match="transaction of version 7"):
        decode_watermarks(text, "transaction of version 7")


def test_in_force_by_region() -> None:
    found = InForce(TableVersion(3), "u", {NORTH: Watermark(Generation(5), Position(50))})
    assert (found.generation(NORTH), found.position(NORTH)) == (5, 50)
    assert (found.generation(SOUTH), found.position(SOUTH)) == (0, None)


# -- the walk ----------------------------------------------------------------------------------------------------


def test_nothing_was_ever_merged(world: World) -> None:
    assert world.watermarks.at(1) == NOTHING_MERGED
    assert world.watermarks.at(world.append(3)) == NOTHING_MERGED


def test_a_merge_is_in_force_until_the_next(world: World) -> None:
    first = world.merge(1)
    above = world.append(2)
    world.table.create_index()
    world.table.update_config({"a": "b"})
    world.table.compact()
    second = world.merge(2)
    for version in range(first, second):
        assert world.fresh().at(version) == world.expected(first, 1)
    assert world.watermarks.at(second) == world.expected(second, 2)
    assert world.watermarks.at(above) == world.expected(first, 1)
    assert world.watermarks.at(first - 1) == NOTHING_MERGED


def test_an_unreadable_transaction_is_passed_over(world: World) -> None:
    merged = world.merge(1)
    world.table.create_index()
    world.append()
    version = world.table.compact()
    assert not world.dataset.versions[int(version)].readable
    assert world.watermarks.at(version) == world.expected(merged, 1)


def test_a_restore_stops_whatever_looks_from_above_it(world: World) -> None:
    first, second = world.merge(1), world.merge(2)
    restored = world.table.restore(int(first))
    above = world.append()
    for version in (restored, above):
        with pytest.raises(TableRestored, match=f"version {restored} "):
            world.watermarks.at(version)
    assert world.watermarks.at(second) == world.expected(second, 2)
    settled = world.merge(1)
    assert world.watermarks.at(settled) == world.expected(settled, 1)


def test_a_person_s_word_settles_a_restore_once(world: World) -> None:
    first, second = world.merge(1), world.merge(2)
    restored = world.table.restore(int(first))
    above = world.append(3)
    keep = InForce(restored, None, marks(2))
    assert world.watermarks.decide(keep, "keep") == keep
    assert world.watermarks.decide(InForce(restored, None, marks(1)), "replay") == keep
    assert world.watermarks.at(above) == world.watermarks.at(restored) == keep
    assert world.watermarks.at(second) == world.expected(second, 2)
    assert world.table.transaction(restored) == TransactionInfo("Restore", second, {}, int(first))


def test_a_listing_without_the_record_does_not_hide_a_person_s_word(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = world.merge(1)
    restored = world.table.restore(int(first))
    above = world.append(5)
    keep = InForce(restored, None, marks(1))
    world.watermarks.decide(keep, "keep")
    monkeypatch.setattr(Watermarks, "recorded_versions", lambda self, limit: set())
    assert world.watermarks.at(above) == keep


def test_an_overwrite_stops_and_the_table_s_creation_does_not(world: World) -> None:
    world.merge(1)
    overwritten = world.table.overwrite(ROWS)
    with pytest.raises(TableReplaced, match=f"version {overwritten} "):
        world.watermarks.at(world.append())
    assert world.dataset.versions[1].transaction.operation == "Overwrite"
    assert world.watermarks.at(1) == NOTHING_MERGED


def test_a_version_that_is_gone_is_unknown_never_older(world: World) -> None:
    world.merge(1)
    world.merge(2)
    newest = world.append()
    del world.dataset.versions[int(newest) - 1]
    with pytest.raises(MergedPositionUnknown, match=f"version {newest - 1} is gone"):
        world.watermarks.at(newest)


def test_a_record_stands_for_what_is_gone(world: World) -> None:
    first = world.merge(1)
    checkpoint = world.append()
    world.watermarks.record(world.watermarks.at(checkpoint), checkpoint, "checkpoint")
    newest = world.append()
    world.table.cleanup(keep=1)
    assert world.fresh().at(newest) == world.expected(first, 1)
    assert world.fresh().at(checkpoint) == world.expected(first, 1)


def test_a_transaction_of_a_later_format_is_refused(world: World) -> None:
    version = world.merge(1, {**merge_properties(marks(1), "u"), PROPERTY_FORMAT: "3"})
    with pytest.raises(FormatUnknown, match=f"version {version}"):
        world.watermarks.at(version)


def test_a_merge_that_names_conflicts_is_of_a_format_that_earlier_releases_refuse(world: World) -> None:
    ref = ConflictsRef("0badcafe", 12, "0f" * 32, 3)
    properties = merge_properties(marks(1), "u", ref)
    assert properties[PROPERTY_FORMAT] == "2"
    version = world.merge(1, properties)
    assert world.watermarks.at(version).conflicts == ref
    for format, kept in (("1", properties), ("2", merge_properties(marks(1), "u"))):
        version = world.merge(1, {**kept, PROPERTY_FORMAT: format})
        with pytest.raises(ObjectCorrupt, match=f"version {version}"):
            world.watermarks.at(version)


@pytest.mark.parametrize("seed", range(20))
def test_any_history_gives_the_newest_merge_or_an_error(seed: int) -> None:
    """The model: a list of what is in force at each version; listings show any part of the records."""
    rng = random.Random(seed)
    world = World()
    model: dict[int, InForce] = {1: NOTHING_MERGED}
    generation = 0
    readers = [world.fresh() for _ in range(3)]
    for _ in range(40):
        match rng.choice(["merge", "append", "append", "index", "compact", "record", "clean up", "look"]):
            case "merge":
                generation += 1
                version = world.merge(generation)
                model[int(version)] = world.expected(version, generation)
            case "append":
                world.append()
            case "index":
                world.table.create_index()
            case "compact":
                world.table.compact()
            case "record":
                newest = world.table.newest().version
                rng.choice(readers).record(model[int(newest)], newest, "checkpoint")
            case "clean up":
                world.table.cleanup(keep=rng.randint(1, 8))
            case _:
                pass
        for number in range(2, world.table.newest().version + 1):
            model.setdefault(number, model[number - 1])
        at = rng.choice(sorted(world.dataset.versions))
        if rng.random() < 0.5:
            world.store.faults.listings.append(rng.choice([ListFault.PARTIAL, ListFault.STALE]))
        reader = rng.choice([*readers, world.fresh()])
        try:
            assert reader.at(at) == model[at]
        except MergedPositionUnknown:
            records = [
                v for i in world.store.plain.list(paths.merges_prefix(None)) if (v := paths.parse_merge_record(i.key))
            ]
            lowest = max([v for v in records if v <= at], default=0)
            assert set(range(lowest, at + 1)) - {0} - world.dataset.versions.keys()  # something is gone above it
        world.store.faults.listings.clear()


# -- records -----------------------------------------------------------------------------------------------------


def test_a_record_is_read_back_as_it_was(world: World) -> None:
    merged = world.merge(3)
    world.watermarks.record(world.expected(merged, 3), merged, "merge")
    world.store.calls.clear()
    del world.dataset.versions[int(merged)]
    assert world.fresh().at(merged) == world.expected(merged, 3)


def test_a_record_that_says_the_same_is_taken(world: World) -> None:
    merged = world.merge(1)
    world.fresh().record(world.expected(merged, 1), merged, "merge")
    world.fresh().record(world.expected(merged, 1), merged, "checkpoint")


def test_a_record_that_says_otherwise_is_corruption(world: World) -> None:
    merged = world.merge(1)
    world.fresh().record(world.expected(merged, 1), merged, "merge")
    with pytest.raises(ObjectCorrupt, match="other merged positions") as caught:
        world.fresh().record(world.expected(merged, 2), merged, "merge")
    assert caught.value.where["object"] == paths.merge_record(merged, None)
    with pytest.raises(ObjectCorrupt, match="other merged positions"):
        world.fresh().record(world.expected(TableVersion(merged - 1), 1), merged, "merge")


def test_a_record_without_a_verdict_is_left_to_the_next_round(world: World) -> None:
    merged = world.merge(1)
    world.store.faults.puts.append(PutFault.NEVER_ARRIVED)
    world.watermarks.record(world.expected(merged, 1), merged, "merge")
    assert world.store.plain.get(paths.merge_record(merged, None)) is None
    world.watermarks.record(world.expected(merged, 1), merged, "merge")
    assert world.store.plain.get(paths.merge_record(merged, None)) is not None


def test_a_quiet_table_costs_no_request(world: World) -> None:
    merged = world.merge(1)
    world.watermarks.record(world.expected(merged, 1), merged, "merge")
    world.store.calls.clear()
    world.watermarks.record(world.expected(merged, 1), merged, "checkpoint")
    assert world.store.calls == []


@pytest.mark.parametrize("data", [b"", b"{}", b"[1]", b'{"format": "1"}'])
def test_a_broken_record_is_corrupt_and_named(world: World, data: bytes) -> None:
    merged = world.merge(1)
    world.store.plain.put_if_absent(paths.merge_record(merged, None), data)
    with pytest.raises(ObjectCorrupt, match=paths.merge_record(merged, None)):
        world.watermarks.at(merged)


def test_a_record_of_a_later_format_is_refused(world: World) -> None:
    merged = world.merge(1)
    world.store.plain.put_if_absent(paths.merge_record(merged, None), b'{"format": "3"}')
    with pytest.raises(FormatUnknown):
        world.watermarks.at(merged)


@pytest.mark.parametrize("fault", [ListFault.PARTIAL, ListFault.STALE])
def test_a_listing_that_lacks_the_record_costs_a_second_walk_only(world: World, fault: ListFault) -> None:
    merged = world.merge(1)
    world.watermarks.record(world.expected(merged, 1), merged, "merge")
    newest = world.append(6)
    for version in range(1, int(newest) - 3):
        del world.dataset.versions[version]
    world.watermarks.record(world.expected(merged, 1), TableVersion(newest - 3), "checkpoint")
    world.store.faults.listings.append(fault)
    assert world.fresh().at(newest) == world.expected(merged, 1)


def test_what_was_found_once_is_not_asked_again(world: World) -> None:
    merged = world.merge(1)
    newest = world.append(5)
    world.watermarks.at(newest)
    world.store.calls.clear()
    for version in range(merged, newest + 1):
        assert world.watermarks.at(version) == world.expected(merged, 1)
    assert world.store.calls == []


def test_what_is_remembered_is_bounded_by_its_regions(world: World) -> None:
    many = {
        Region("orders", TopicId("topic-id-1"), p): Watermark(Generation(1_000 + p), Position(10**9 + p))
        for p in range(100)
    }
    versions = [world.merge(n, merge_properties(many, f"uuid-{n}")) for n in range(100)]
    watermarks = Watermarks(world.store, world.table, None, held_max=2_000)
    tracemalloc.start()
    try:
        for version in versions:
            assert watermarks.at(version).version == version
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert held < 2_000 * 600
    world.store.calls.clear()
    for version in versions[-15:]:
        assert watermarks.at(version).version == version
    assert world.store.calls == []
    for version in versions:
        assert watermarks.at(version) == InForce(version, f"uuid-{version - versions[0]}", many)


def test_versions_that_share_watermarks_are_remembered_by_thousands(world: World) -> None:
    """Whoever goes down version by version does not walk from each of them to the merge."""
    merged = world.merge(1)
    newest = world.append(500)
    watermarks = Watermarks(world.store, world.table, None, held_max=600)
    watermarks.at(newest)
    world.store.calls.clear()
    for version in range(newest, merged - 1, -1):
        assert watermarks.at(version) == world.expected(merged, 1)
    assert world.store.calls == []
    last = world.append(1_000)  # more than are kept
    for _ in range(2):
        for version in (*range(last, last - 500, -1), merged + 1, last):
            assert watermarks.at(version) == world.expected(merged, 1)


def test_newest_looks_again_when_a_clean_up_overtakes_it(world: World) -> None:
    merged = world.merge(1)
    world.watermarks.record(world.expected(merged, 1), merged, "merge")
    world.append(1)

    def overtake() -> None:
        newer = world.append(2)
        world.fresh().record(world.expected(merged, 1), newer, "checkpoint")
        world.table.cleanup(keep=1)

    world.store.before("get", paths.merge_record(TableVersion(merged + 1), None), overtake)
    pinned, found = world.watermarks.newest()
    assert (pinned.version, found) == (merged + 3, world.expected(merged, 1))
