"""Copies of a table, made at any time: each is a table of its own, and none takes what is another's."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import lance
import pyarrow as pa
import pytest

from lancewal_core.errors import (
    InvalidInput,
    InvalidSchema,
    InvalidSettings,
    LancewalError,
    NotALancewalTable,
    ObjectCorrupt,
    TableElsewhere,
    TableExists,
    TableReplaced,
)
from lancewal_core.names import paths
from lancewal_core.names.ids import (
    Generation,
    LogId,
    Making,
    OwnerId,
    Position,
    Region,
    Sequence,
    TableVersion,
    TopicId,
)
from lancewal_core.process.clock import SystemClock
from lancewal_core.region.state import RegionState
from lancewal_core.region.states import RegionStates
from lancewal_core.region.transitions import Claimant, first_claim
from lancewal_core.settings.load import Settings
from lancewal_core.store.address import place_of, same_place
from lancewal_core.store.obstore import open_store
from lancewal_core.table.checks import check_place
from lancewal_core.table.columns.restored import check_fit
from lancewal_core.table.contract import Contract, encode_contract, read_contract
from lancewal_core.table.lance.table import LanceTable
from lancewal_core.table.watermarks import NOTHING_MERGED, InForce, Watermark, Watermarks
from lancewal_kafka.group_member import MemberTable, member_id, parse_member_id
from lancewal_kafka.topic import GroupMember, TopicFacts, TopicInspector, TopicState
from lancewal_reader.point.receipt import receipt_of
from lancewal_reader.table import open_table
from lancewal_tables.define import register as register_module
from lancewal_tables.define.alter import alter_terms
from lancewal_tables.define.attach import attach_table
from lancewal_tables.define.move import move_table
from lancewal_tables.status.of_kafka import foreign_members
from tests.flusher.table_settings import content, table_settings
from tests.golden.json_formats import CONTRACT

ROWS = pa.table({"region": ["a", "a", "b"], "id": [1, 2, 1], "name": ["x", None, "z"]})


class NoBroker:
    """Answers for a topic of two partitions."""

    def describe(self, topic: str) -> TopicState:
        return TopicState(topic, "topic-id", 2, compacted=False)

    def identify(self, topic: str) -> TopicFacts:
        return TopicFacts("dead-letters-id", 1)

    def starts(self, topic: TopicState, start: object) -> tuple[int, ...]:
        return (-1,) * topic.partitions


def settings_of(folder: Path) -> Settings:
    return table_settings(folder, "127.0.0.1:1", "orders", columns={}, base_paths="allow")


def attach(folder: Path) -> Contract:
    return attach_table(settings_of(folder), cast("TopicInspector", NoBroker()))


class Crash(BaseException):
    """Ends the process."""


STEPS: tuple[tuple[Any, str], ...] = (
    (lance.LanceDataset, "alter_columns"),
    (register_module, "put_once"),
    (Watermarks, "record"),
    (lance.LanceDataset, "update_config"),
)
"""Every act of an attach that changes something, in order; the checkpoint behind them is the flusher's to write, too."""


@contextmanager
def crash_at(monkeypatch: pytest.MonkeyPatch, step: int, behind: bool) -> Iterator[None]:
    holder, name = STEPS[step]
    real = getattr(holder, name)

    def act(*arguments: Any, **named: Any) -> None:
        if behind:
            real(*arguments, **named)
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(holder, name, act)
        with pytest.raises(Crash):
            yield


def folder_copy(source: Path, target: Path) -> None:
    shutil.copytree(source, target)


def deep_clone(source: Path, target: Path) -> None:
    dataset = lance.dataset(str(source))
    dataset.deep_clone(str(target), dataset.version)


def shallow_clone(source: Path, target: Path) -> None:
    dataset = lance.dataset(str(source))
    dataset.shallow_clone(str(target), dataset.version)


COPIES = (folder_copy, deep_clone, shallow_clone)


def attach_anyhow(folder: Path) -> Contract:
    """Attach, and where it is refused because what lies there is another's, what the refusal says."""
    try:
        return attach(folder)
    except TableExists as error:
        assert "delete the copy's folder `_lancewal`, then `lancewal table attach`" in str(error)  # noqa: PT017 # else no error
        shutil.rmtree(folder / "_lancewal")
        return attach(folder)


def check_whole(folder: Path, contract: Contract) -> None:
    store, table = open_store(str(folder)), LanceTable(str(folder), base_paths="allow")
    pinned = table.newest()
    assert read_contract(store, str(folder)) == contract
    check_fit(store, pinned, contract)
    check_place(str(folder), contract)
    assert Watermarks(store, table, contract.making).at(pinned.version) == NOTHING_MERGED
    read = open_table(str(folder), base_paths="allow").to_arrow()
    assert sorted(read.to_pylist(), key=str) == sorted(ROWS.to_pylist(), key=str)


@pytest.mark.parametrize("copy", COPIES)
@pytest.mark.parametrize("first", ["original", "copy"])
@pytest.mark.parametrize(("step", "behind"), [(0, False), *((step, True) for step in range(len(STEPS)))])
def test_a_copy_made_at_any_step_of_an_attach_is_another_table(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    step: int,
    behind: bool,
    first: str,
    copy: Callable[[Path, Path], None],
) -> None:
    original, other = tmp_path / "original", tmp_path / "other"
    lance.write_dataset(ROWS, str(original))
    with crash_at(monkeypatch, step, behind):
        attach(original)
    copy(original, other)
    whole = read_contract(open_store(str(original)), str(original)) if (step, behind) == (3, True) else None
    made: dict[Path, Contract] = {}
    for folder in (original, other) if first == "original" else (other, original):
        if folder == original and whole is not None:  # only the last checkpoint is missing
            with pytest.raises(TableExists, match="already a lancewal table"):
                attach(folder)
            made[folder] = whole
        else:
            made[folder] = attach_anyhow(folder)
    check_whole(original, made[original])
    check_whole(other, made[other])
    assert made[original].table_uuid != made[other].table_uuid
    assert made[original].place != made[other].place
    # Copies of the whole ones, too.
    third = tmp_path / "third"
    copy(other, third)
    assert attach_anyhow(third).table_uuid not in {contract.table_uuid for contract in made.values()}
    opened = [open_table(str(folder), base_paths="allow") for folder in (original, other)]
    receipts = [table.scan().schema.metadata[b"lancewal.receipt"] for table in opened]
    for table, foreign in zip(opened, reversed(receipts), strict=True):
        with pytest.raises(InvalidInput, match="receipt"):
            table.to_arrow(at=foreign)


def test_an_attach_that_was_interrupted_goes_on_with_what_it_has_put(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "table"
    lance.write_dataset(ROWS, str(folder))
    with crash_at(monkeypatch, 2, behind=True):
        attach(folder)
    put = read_contract(open_store(str(folder)), str(folder))
    for refusing in (
        lambda: open_table(str(folder)).to_arrow(),
        lambda: check_fit(open_store(str(folder)), LanceTable(str(folder)).newest(), put),
    ):
        with pytest.raises(TableReplaced, match="interrupted here, run that command again"):
            refusing()
    with pytest.raises(LancewalError, match="grace_s"):
        attach_table(table_settings(folder, "127.0.0.1:1", "orders", columns={}, grace_s=601))
    duplicate = ROWS.slice(0, 1).cast(lance.dataset(str(folder)).schema)
    version = lance.write_dataset(duplicate, str(folder), mode="append").version
    with pytest.raises(LancewalError, match="more than once"):
        attach(folder)
    lance.dataset(str(folder), version=version - 1).restore()  # type: ignore[no-untyped-call] # no annotations there
    assert attach(folder) == put
    check_whole(folder, put)


def test_an_attach_that_comes_too_late_says_nothing_of_what_is_merged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it looks at the keys, another one ends, services merge, and somebody commits."""
    folder = tmp_path / "table"
    keys = [field.with_nullable(field.name == "name") for field in ROWS.schema]
    rows = ROWS.cast(pa.schema(keys))
    lance.write_dataset(rows, str(folder))
    merged: list[InForce] = []
    making: list[Making | None] = []

    def meanwhile(_: Any, __: Any) -> None:
        if not merged:
            merged.append(NOTHING_MERGED)
            attached = attach(folder)
            (region, _), making[:] = attached.regions, [attached.making]
            table = LanceTable(str(folder))
            lance.write_dataset(rows.slice(0, 0), str(folder), mode="append")
            version = TableVersion(table.newest().version)
            merged[0] = InForce(version, "uuid", {region: Watermark(Generation(3), Position(10))})
            Watermarks(open_store(str(folder)), table, making[0]).record(merged[0], version, "merge")
            lance.dataset(str(folder)).update_config({"user": "commits"})

    monkeypatch.setattr("lancewal_tables.define.attach.check_unique_keys", meanwhile)
    with pytest.raises(TableExists):
        attach(folder)
    table = LanceTable(str(folder))
    assert Watermarks(open_store(str(folder)), table, making[0]).at(table.newest().version) == merged[0]


def test_what_a_table_has_left_is_not_taken_for_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "table"
    lance.write_dataset(ROWS, str(folder))
    contract = attach(folder)
    store = open_store(str(folder))
    store.put_if_absent(f"{paths.region_prefix(contract.regions[0], contract.making)}x", b"")
    lance.dataset(str(folder)).update_config({"lancewal.table_uuid": "another"})
    with pytest.raises(TableExists, match="already a lancewal table"):
        attach(folder)
    store.delete([paths.contract_version(1, None)])
    with pytest.raises(TableExists, match=r"has no contract, but .*delete the folder _lancewal"):
        attach(folder)


# -- plain copies of the folder --------------------------------------------------------------------------------


def test_a_plain_copy_is_read_and_not_worked_on_until_it_is_taken_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, backup = tmp_path / "original", tmp_path / "backup"
    lance.write_dataset(ROWS, str(original))
    contract = attach(original)
    shutil.copytree(original, backup)
    there, here = open_table(str(backup)).to_arrow(), open_table(str(original)).to_arrow()
    assert there.to_pylist() == here.to_pylist()
    assert (receipt_of(there.schema).table_uuid, receipt_of(here.schema).table_uuid) == (contract.uuid, contract.uuid)
    assert open_table(str(backup)).to_arrow(at=receipt_of(there.schema)).num_rows == 3
    for folder, read, taken_from in ((original, there, backup), (backup, here, original)):
        with pytest.raises(InvalidInput, match=f"a read at {taken_from}"):
            open_table(str(folder)).to_arrow(at=receipt_of(read.schema))
    with pytest.raises(TableElsewhere, match=f"lancewal table moved --from {original}"):
        check_place(str(backup), contract)

    before = content(backup)
    with pytest.raises(InvalidSettings, match="not of one at /elsewhere"):
        move_table(settings_of(backup), "/elsewhere")
    with pytest.raises(InvalidSettings, match="names no other place"):
        move_table(settings_of(original), str(original))
    assert content(backup) == before
    with crash_at(monkeypatch, 3, behind=False):
        move_table(settings_of(backup), str(original))
    with pytest.raises(TableReplaced):
        open_table(str(backup)).to_arrow()
    torn = tmp_path / "torn"
    shutil.copytree(backup, torn)
    moved = move_table(settings_of(backup), str(original))
    assert moved == read_contract(open_store(str(backup)), str(backup))
    with pytest.raises(InvalidSettings, match="names no other place"):
        move_table(settings_of(backup), str(original))
    check_whole(backup, moved)
    check_whole(original, contract)
    assert moved.table_uuid != contract.table_uuid
    for read in (there, here):
        with pytest.raises(InvalidInput, match="receipt"):
            open_table(str(backup)).to_arrow(at=receipt_of(read.schema))
    # A copy made between the two steps of that.
    assert attach_anyhow(torn).table_uuid not in (moved.table_uuid, contract.table_uuid)


def test_a_place_has_one_spelling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "t").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "t")
    monkeypatch.chdir(tmp_path)
    spellings = [str(tmp_path / "t"), f"file://{tmp_path}/t/", "t", "./t/../t"]
    assert {place_of(uri) for uri in spellings} == {str(tmp_path / "t")}
    assert {place_of(uri) for uri in ("s3://b/t", "s3://b/t/", "s3://b//t")} == {"s3://b/t"}
    assert not same_place(place_of("s3://b/t"), place_of("s3://b/tt"))


def test_links_lead_to_one_place_by_whatever_name_a_machine_knows_it(tmp_path: Path) -> None:
    """A host where the folder is a link makes the table, another one mounts it there."""
    disk, data = tmp_path / "disk", tmp_path / "data"
    (disk / "t").mkdir(parents=True)
    data.symlink_to(disk)
    lance.write_dataset(ROWS, str(data / "t"))
    contract = attach(data / "t")
    assert contract.place == str(data / "t")
    check_place(str(disk / "t"), contract)
    read = open_table(str(data / "t")).scan().schema.metadata[b"lancewal.receipt"]
    assert open_table(str(disk / "t")).to_arrow(at=read).num_rows == ROWS.num_rows
    data.unlink()
    disk.rename(data)
    check_place(str(data / "t"), contract)
    shutil.copytree(data, disk)
    with pytest.raises(TableElsewhere):
        check_place(str(disk / "t"), contract)


def test_a_member_of_the_group_tells_its_table(tmp_path: Path) -> None:
    ours, theirs = member_id("u1", "s3://b/t:1"), member_id("u1", str(tmp_path))
    assert parse_member_id(ours) == MemberTable("u1", "s3://b/t:1")
    assert parse_member_id("rdkafka") is None
    members = [GroupMember(ours, "/10.0.0.1"), GroupMember("rdkafka", "/10.0.0.2"), GroupMember(theirs, "/10.0.0.3")]
    contract = CONTRACT.model_copy(update={"table_uuid": "u1"})  # made when no contract named a place
    (problem,) = foreign_members("g", members, contract, "s3://b/t:1/")
    assert f"consumer group g: 1 member for the table u1 at {tmp_path} (/10.0.0.3)" in problem
    assert foreign_members("g", members[:2], contract, "s3://b/t:1") == []


def test_the_members_of_a_table_are_no_others_where_its_backup_is_looked_at() -> None:
    contract = CONTRACT.model_copy(update={"table_uuid": "u1", "place": "s3://b/t"})
    members = [GroupMember(member_id("u1", "s3://b/t"), "/10.0.0.1")]
    assert foreign_members("g", members, contract, "s3://backup/t") == []


# -- the way by rows -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", ["by rows", "by a strong read", "with other types"])
def test_a_copy_by_rows_brings_nothing_along(tmp_path: Path, which: str) -> None:
    """The lines are those of docs/how-to/attach-a-table.md."""
    original, target = tmp_path / "original", tmp_path / "copy"
    tags = pa.array(
        [["t"], None, []], pa.list_(pa.field("element" if which == "with other types" else "item", pa.string()))
    )
    rows = ROWS.append_column("tags", tags)
    lance.write_dataset(rows, str(original))
    uuids = []
    if which == "with other types":
        with pytest.raises(InvalidSchema, match=r"'tags'.*names the items of a list otherwise"):
            attach(original)
    else:
        uuids.append(attach(original).table_uuid)
    of_the_page(which, {"s3://bucket/tables/orders-2": target, "s3://bucket/tables/orders": original})
    copied = lance.dataset(str(target))
    assert (copied.config(), copied.schema.metadata or {}) == ({}, {})
    assert copied.to_table().to_pylist() == rows.to_pylist()
    with pytest.raises(NotALancewalTable):
        open_table(str(target))
    assert attach(target).table_uuid not in uuids


def test_a_table_can_be_made_plain_again(tmp_path: Path) -> None:
    folder = tmp_path / "table"
    lance.write_dataset(ROWS.rename_columns(["region", "order_id", "name"]), str(folder))
    settings = table_settings(folder, "127.0.0.1:1", "orders", columns={}, primary_key=["region", "order_id"])
    attach_table(settings, cast("TopicInspector", NoBroker()))
    of_the_page("plain again", {"s3://bucket/tables/orders": folder})
    shutil.rmtree(folder / "_lancewal")
    plain = lance.dataset(str(folder))
    assert plain.config() == {}
    assert plain.schema.field("order_id").nullable
    assert plain.count_rows() == 3
    assert not [file for file in folder.rglob("*") if "lancewal" in file.name]


def of_the_page(title: str, places: Mapping[str, Path]) -> None:
    """Run the lines of the page that begin with this comment."""
    page = (Path(__file__).parents[3] / "docs" / "how-to" / "attach-a-table.md").read_text()
    lines = page.split(f"```python\n# {title}\n")[1].split("```")[0]
    for address, folder in places.items():
        lines = lines.replace(f'"{address}"', f'"{folder}"')
    exec(compile(lines, "attach-a-table.md", "exec"), {})


# -- a table made again at the same place --------------------------------------------------------------------------


def state_at(position: int) -> RegionState:
    """An index whose first generation began at this position."""
    owner = Claimant(OwnerId("owner"), LogId(f"log-{position}"), Sequence(0))
    return first_claim(Region("orders", TopicId("topic-id"), 0), 1, Position(position), owner, f"w-{position}")


def states_of(folder: Path, contract: Contract) -> RegionStates:
    return RegionStates(open_store(str(folder)), SystemClock(), contract.regions_per_page, contract.making)


def claim_at(states: RegionStates, position: int) -> None:
    index = state_at(position)
    assert states.swap({index.region: lambda _: index})[index.region].ours


def first_of(folder: Path, contract: Contract) -> Position:
    """Where the region's index of a reader that begins now begins."""
    (state,) = states_of(folder, contract).read(contract.regions[:1]).values()
    return state.generations[0].first


def test_a_process_of_a_dropped_table_writes_where_nobody_looks(tmp_path: Path) -> None:
    folder = tmp_path / "table"
    lance.write_dataset(ROWS, str(folder))
    former = attach(folder)
    sleeper = states_of(folder, former)
    for position in (100, 101, 102):
        claim_at(sleeper, position)
    shutil.rmtree(folder)
    lance.write_dataset(ROWS, str(folder))
    contract = attach(folder)
    assert contract.making not in (None, former.making)
    claim_at(states_of(folder, contract), 5)
    # What the sleeper knows is the newest as far as it can tell: it asks nobody, and puts.
    claim_at(sleeper, 103)
    altered = former.model_copy(update={"version": 2, "on_misrouted": "ignore"})
    open_store(str(folder)).put_if_absent(paths.contract_version(2, former.making), encode_contract(altered))
    assert first_of(folder, contract) == 5
    assert read_contract(open_store(str(folder)), str(folder)) == contract


def test_a_making_is_kept_by_what_moves_and_new_for_what_is_attached(tmp_path: Path) -> None:
    original, copied, detached = tmp_path / "original", tmp_path / "copy", tmp_path / "detached"
    lance.write_dataset(ROWS, str(original))
    contract = attach(original)
    claim_at(states_of(original, contract), 7)
    for copy in (copied, detached):
        shutil.copytree(original, copy)
    moved = move_table(settings_of(copied), str(original))
    assert (moved.making, moved.version) == (contract.making, 2)
    assert read_contract(open_store(str(copied)), str(copied)) == moved
    assert first_of(copied, moved) == 7
    shutil.rmtree(detached / "_lancewal")
    assert attach(detached).making not in (None, contract.making)
    altered = alter_terms(settings_of(copied), {"grace_s": 7})
    assert (altered.making, altered.version) == (contract.making, 3)
    assert read_contract(open_store(str(copied)), str(copied)) == altered
    assert read_contract(open_store(str(original)), str(original)) == contract


def test_a_table_from_before_there_were_makings_keeps_its_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "table"
    lance.write_dataset(ROWS, str(folder))
    made = register_module.first_contract
    with monkeypatch.context() as patch:
        patch.setattr(
            "lancewal_tables.define.attach.first_contract",
            lambda *of: made(*of).model_copy(update={"making": None}),
        )
        contract = attach(folder)
    assert contract.making is None
    check_whole(folder, contract)
    claim_at(states_of(folder, contract), 7)
    alter_terms(settings_of(folder), {"grace_s": 7})
    altered = alter_terms(settings_of(folder), {"grace_s": 8})
    assert read_contract(open_store(str(folder)), str(folder)) == altered
    assert (altered.version, altered.making, first_of(folder, altered)) == (3, None, 7)
    keys = {info.key for info in open_store(str(folder)).list(paths.ROOT)}
    assert {paths.contract_version(3, None), paths.page_version(altered.pages[0], 1)} <= keys
    assert not any(key.startswith(paths.MADE) for key in keys)


def test_a_contract_of_another_making_is_damage(tmp_path: Path) -> None:
    folder = tmp_path / "table"
    lance.write_dataset(ROWS, str(folder))
    contract, store = attach(folder), open_store(str(folder))
    foreign = contract.model_copy(update={"version": 2, "making": "another"})
    store.put_if_absent(paths.contract_version(2, contract.making), encode_contract(foreign))
    with pytest.raises(ObjectCorrupt, match="it says that its making is another"):
        read_contract(store, str(folder))


def test_a_group_is_altered_with_its_former_one_and_left_behind_by_what_moves(tmp_path: Path) -> None:
    original, copied = tmp_path / "original", tmp_path / "copy"
    lance.write_dataset(ROWS, str(original))
    attach(original)
    groups = []
    for group in ("first", "second", "third"):
        altered = alter_terms(settings_of(original), {"group_id": group})
        groups.append((altered.former_group_id, altered.group_id))
    assert groups == [(None, "first"), ("first", "second"), ("second", "third")]
    with pytest.raises(InvalidSettings, match="already has these terms"):
        alter_terms(settings_of(original), {"group_id": "third"})
    kept = alter_terms(settings_of(original), {"grace_s": 7})
    assert (kept.former_group_id, kept.group_id) == ("second", "third")
    shutil.copytree(original, copied)
    moved = move_table(settings_of(copied), str(original))
    assert (moved.former_group_id, moved.group_id) == (None, None)
