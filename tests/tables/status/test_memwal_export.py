"""``lancewal table export-memwal``, read by protobuf classes built here from the specification, and by Lance."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.unknown_fields import UnknownFieldSet

from lancewal_core.cli import program as cli
from lancewal_core.errors import ObjectCorrupt, StoreInconsistent
from lancewal_core.names import paths
from lancewal_core.names.ids import Generation, LogId, OwnerId, Position, Sequence
from lancewal_core.region.flushes.manifest import read_flush
from lancewal_core.region.state import decode_state, encode_history
from lancewal_core.region.transitions import Claimant, first_claim, paged
from lancewal_core.table.contract import Contract
from lancewal_tables.status.memwal_export import export_memwal
from tests.flusher.service.test_service import tree
from tests.support.asked import keys_read
from tests.support.flusher_tables import FlusherTable, upserts
from tests.support.lance_row_ids import read_by_lance

FIELD = descriptor_pb2.FieldDescriptorProto
OPEN, SEALED, FLUSHED, MERGED = range(4)
MEM_WAL = {
    "mem_table_location": (2, FIELD.TYPE_STRING),
    "wal_location": (3, FIELD.TYPE_STRING),
    "wal_entries": (4, FIELD.TYPE_BYTES),
    "owner_id": (6, FIELD.TYPE_STRING),
    "last_updated_dataset_version": (7, FIELD.TYPE_UINT64),
}
"""The scalar fields of a MemWal in the specification, by name."""


def specified() -> Any:
    """The class ``MemWalIndexDetails``, made without any of our generated code."""
    file = descriptor_pb2.FileDescriptorProto(name="specified.proto", package="specified", syntax="proto3")
    details = file.message_type.add(name="MemWalIndexDetails")
    id_ = details.nested_type.add(name="MemWalId")
    mem_wal = details.nested_type.add(name="MemWal")
    state = mem_wal.enum_type.add(name="State")
    for number, name in enumerate(("OPEN", "SEALED", "FLUSHED", "MERGED")):
        state.value.add(name=name, number=number)

    def field(of: Any, name: str, number: int, kind: Any, type_: str | None = None) -> Any:
        return of.field.add(name=name, number=number, type=kind, label=FIELD.LABEL_OPTIONAL, type_name=type_)

    field(id_, "region", 1, FIELD.TYPE_STRING)
    field(id_, "generation", 2, FIELD.TYPE_UINT64)
    field(mem_wal, "id", 1, FIELD.TYPE_MESSAGE, ".specified.MemWalIndexDetails.MemWalId")
    for name, (number, kind) in MEM_WAL.items():
        field(mem_wal, name, number, kind)
    field(mem_wal, "state", 5, FIELD.TYPE_ENUM, ".specified.MemWalIndexDetails.MemWal.State")
    repeated = field(details, "mem_wal_list", 1, FIELD.TYPE_MESSAGE, ".specified.MemWalIndexDetails.MemWal")
    repeated.label = FIELD.LABEL_REPEATED
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("specified.MemWalIndexDetails"))


def mem_wals(data: bytes) -> list[Any]:
    """Its MemWals; nothing in it may be unknown to the specification."""
    details = specified().FromString(data)
    for message in (details, *details.mem_wal_list, *(mem_wal.id for mem_wal in details.mem_wal_list)):
        assert len(UnknownFieldSet(message)) == 0
    return list(details.mem_wal_list)


@pytest.fixture
def table(tmp_path: Path) -> Iterator[FlusherTable]:
    """Partition 0: generations 1 and 2 in a page, 3 MERGED, 4 FLUSHED, 5 SEALED, 6 OPEN; 1: OPEN; 2: not claimed."""
    made = FlusherTable(tmp_path, partitions=3)
    for number in range(3):
        made.generation(0, upserts(range(6 * number, 6 * number + 6)), segments=1 + number)
        made.round()
    move_to_page(made, 0, Generation(2))
    made.generation(0, upserts(range(40)), segments=20)
    made.generation(0, upserts(range(700)), segments=2, flush=False)
    claimant = Claimant(OwnerId("ingest-2"), LogId("log-2"), Sequence(0))
    made.context().states.swap(
        {made.regions[1]: lambda _: first_claim(made.regions[1], 1, Position(0), claimant, "write-1")}
    )[made.regions[1]]
    yield made
    made.close()


def move_to_page(table: FlusherTable, partition: int, last: Generation) -> None:
    region = table.regions[partition]
    page = tuple(r for r in table.index(partition).generations if r.generation <= last)
    table.store.put_if_absent(paths.history_page(region, page[0].generation, None), encode_history(region, 1, page))
    ours, _ = table.context().states.swap({region: lambda found: found and paged(found, page, "write-2")})[region]
    assert ours


def named(mem_wal: Any) -> tuple[str, int]:
    return mem_wal.id.region, mem_wal.id.generation


def merges(table: FlusherTable) -> list[int]:
    """Table versions that merged generations of partition 0, oldest first, as Lance's transactions name them."""
    found: dict[int, int] = {}
    for version in range(1, table.dataset.version + 1):
        transaction = table.dataset.read_transaction(version)
        marks = (transaction.transaction_properties or {}).get("lancewal.watermarks") if transaction else None
        if marks:
            found.setdefault(json.loads(marks)[table.regions[0].name]["generation"], version)
    return [found[generation] for generation in sorted(found)]


def test_every_generation_of_every_region(table: FlusherTable) -> None:
    found = mem_wals(export_memwal(table.context()))
    first, second, _ = (region.name for region in table.regions)
    assert [named(m) for m in found] == [*((first, g) for g in range(1, 7)), (second, 1)]
    assert [m.state for m in found] == [MERGED, MERGED, MERGED, FLUSHED, SEALED, OPEN, OPEN]
    assert [m.owner_id for m in found] == ["ingest-1"] * 6 + ["ingest-2"]
    assert {m.wal_location for m in found[:6]} == {"_lancewal/wal/log-1/"}
    assert found[6].wal_location == "_lancewal/wal/log-2/"
    assert [read_by_lance(m.wal_entries) for m in found] == [
        [0], [6, 9], [12, 14, 16], list(range(18, 58, 2)), [58, 408], [], [],
    ]  # fmt: skip
    for generation, mem_wal in enumerate(found[:4], 1):
        flush = read_flush(table.store, mem_wal.mem_table_location)
        assert [(part.region.name, part.generation) for part in flush.parts] == [(first, generation)]
    assert [m.mem_table_location for m in found[4:]] == ["", "", ""]


def test_a_log_is_read_once_for_all_partitions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = FlusherTable(tmp_path, partitions=3)
    table.generations({partition: upserts(range(3)) for partition in range(3)})
    context, asked = table.context(), keys_read(table.store, monkeypatch)
    flushed = [m for m in mem_wals(export_memwal(context)) if m.state == FLUSHED]
    assert [read_by_lance(m.wal_entries) for m in flushed] == [[0], [0], [0]]
    segments = [key for key in asked if paths.parse_wal_segment(key)]
    assert segments
    assert len(segments) == len(set(segments))
    table.close()


@pytest.mark.parametrize("damage", ["trimmed", "damaged"])
def test_without_its_log_a_generation_has_the_whole_range(table: FlusherTable, damage: str) -> None:
    for segment in (Path(table.uri) / "_lancewal/wal/log-1").iterdir():
        if damage == "trimmed":
            segment.unlink()
        else:
            segment.write_bytes(b"nonsense")
    found = mem_wals(export_memwal(table.context()))
    bounds = [(0, 6), (6, 12), (12, 18), (18, 58), (58, 758)]
    assert [read_by_lance(m.wal_entries) for m in found] == [*(list(range(*one)) for one in bounds), [], []]


def test_the_dataset_version_is_the_one_that_merged_it(table: FlusherTable) -> None:
    found = mem_wals(export_memwal(table.context()))
    assert [m.last_updated_dataset_version for m in found] == [*merges(table), 0, 0, 0, 0]
    assert len(merges(table)) == 3


def test_merged_regions_of_an_earlier_topic_are_in_it(table: FlusherTable) -> None:
    later = Contract.model_validate({**table.contract.model_dump(), "version": 2, "topic_id": "topic-id-2"})
    found = mem_wals(export_memwal(replace(table.context(), contract=later)))
    assert [named(m) for m in found] == [(table.regions[0].name, g) for g in range(1, 7)]


def test_a_page_that_is_lost_is_an_error(table: FlusherTable) -> None:
    (page,) = (Path(table.uri) / "_lancewal").rglob("history/*.binpb")
    page.unlink()
    with pytest.raises(StoreInconsistent, match="page is lost"):
        export_memwal(table.context())


def test_it_is_no_index_of_ours(table: FlusherTable) -> None:
    with pytest.raises(ObjectCorrupt, match="checksum"):
        decode_state(export_memwal(table.context()), "exported")


def test_the_command(
    table: FlusherTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = tmp_path / "lancewal.yaml"
    settings.write_text(yaml.safe_dump(tree(table)))
    before = {info.key for info in table.store.list("")}
    file = tmp_path / "memwal.binpb"
    assert cli.run(["table", "export-memwal", str(file), "--config", str(settings)]) == 0
    assert file.read_bytes() == export_memwal(table.context())
    assert {info.key for info in table.store.list("")} == before
    lost = tmp_path / "none" / "memwal.binpb"
    assert cli.run(["table", "export-memwal", str(lost), "--config", str(settings)]) == 2
    assert capsys.readouterr().err.startswith(f"lancewal: invalid_input: cannot write {lost}: ")
