"""What somebody puts into a table's folder is data: it leads to no other table's rows, runs no code, and takes no memory
beyond its limits.  The attacker of these tests writes any object of the table, with checksums that match."""

from __future__ import annotations

import json
import pickle
import shutil
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import google_crc32c
import lance
import numpy as np
import obstore
import pyarrow as pa
import pytest
from lance.lance import DatasetBasePath
from obstore.store import S3Store

from lancewal_core.cli.stored_object import inspect_object
from lancewal_core.errors import BasePathsRefused, InvalidSettings, ObjectCorrupt
from lancewal_core.names import paths
from lancewal_core.process.tasks import ThreadTasks
from lancewal_core.region.flushes.key_checksum import key_sum
from lancewal_core.region.flushes.manifest import decode_flush
from lancewal_core.rows.schema import COLUMNS_MAX
from lancewal_core.settings.load import Settings, load_settings
from lancewal_core.settings.sections import TableSettings
from lancewal_core.store.obstore import open_store
from lancewal_core.table.contract import decode_contract
from lancewal_core.table.lance.table import LanceTable
from lancewal_core.wal.segment import decode_segment
from lancewal_flusher.open import open_context
from lancewal_flusher.service.limits import compaction_limits
from lancewal_flusher.service.round import RoundState, run_round
from lancewal_flusher.tasks import parcel as task_parcel
from lancewal_flusher.tasks.parcel import OpenParcel, send
from lancewal_flusher.upkeep.compact_all import look
from lancewal_reader.spark.source import pin_read
from lancewal_reader.table import open_table
from lancewal_tables.status.status import table_status
from tests.fuzz.test_segments import KEY as SEGMENT_KEY
from tests.fuzz.test_segments import bomb
from tests.support.flusher_tables import OPEN_ROWS, FlusherTable, delete, upserts
from tests.support.fuzzing import memory_bound

MIB = 1 << 20
SECRET = "rows of the other table"


@pytest.fixture
def table(tmp_path: Path) -> Iterator[FlusherTable]:
    """Merged rows, and a generation of each of two regions that waits to be merged."""
    made = FlusherTable(tmp_path)
    made.generation(0, upserts(range(3)))
    made.round()
    made.generation(0, upserts(range(10, 13)))
    made.generation(1, upserts(range(20, 23)))
    yield made
    made.close()


@pytest.fixture
def other(tmp_path: Path, table: FlusherTable) -> Any:
    """Another table beside it, with the same columns and keys of region 0."""
    rows = pa.Table.from_pylist([{"region": "r0", "id": i, "a": i, "s": SECRET, "tags": None} for i in (10, 11, 12)])
    return lance.write_dataset(rows.cast(table.dataset.schema), str(tmp_path / "other"))


# -- another table's rows ------------------------------------------------------------------------------------------


def sealed(content: Mapping[str, Any]) -> bytes:
    """A manifest with a checksum that matches."""
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
    return json.dumps({"flush": content, "crc32c": google_crc32c.value(canonical)}).encode()


def led_elsewhere(table: FlusherTable, other: Any) -> str:
    """The snapshot of region 0 that waits names the other table's file, with every sum made anew; its key."""
    snapshot = table.flushed(0, 2)
    content = json.loads(table.store.get(snapshot.key) or b"")["flush"]
    (name,) = [Path(file.path).name for file in other.get_fragments()[0].metadata.files]
    keys = other.to_table(columns=["region", "id"]).cast(table.contract.rows.key)
    content["fragments"][0]["files"][0]["path"] = f"../../other/data/{name}"
    content["parts"][0]["keys_crc32c"] = key_sum(keys)
    (Path(table.uri) / snapshot.key).write_bytes(sealed(content))
    return snapshot.key


def test_a_snapshot_leads_to_no_other_table(table: FlusherTable, other: Any) -> None:
    key = led_elsewhere(table, other)
    with pytest.raises(ObjectCorrupt, match="not the name of a data file") as caught:
        open_table(table.uri).to_arrow()
    assert key in str(caught.value)


def test_a_snapshot_leads_to_no_other_prefix_of_a_bucket(
    table: FlusherTable, other: Any, s3: Any, request: pytest.FixtureRequest
) -> None:
    led_elsewhere(table, other)
    bucket = s3.bucket("elsewhere")
    options = {name.lower(): value for name, value in s3.environment.items()}
    config = {name: value for name, value in options.items() if "allow_http" not in name}
    remote = S3Store(bucket, config=config, client_options={"allow_http": True})  # type: ignore[arg-type] # all are texts
    root = Path(table.uri).parent
    for path in root.rglob("*"):
        if path.is_file():
            obstore.put(remote, path.relative_to(root).as_posix(), path.read_bytes())
    opened = open_table(f"s3://{bucket}/table", storage_options=options)
    assert opened.to_arrow(consistency="eventual").num_rows == 3
    with pytest.raises(ObjectCorrupt, match="not the name of a data file"):
        opened.to_arrow()


def test_the_flusher_leaves_that_region_and_merges_the_others(table: FlusherTable, other: Any) -> None:
    key = led_elsewhere(table, other)
    report = run_round(table.context(), OPEN_ROWS, RoundState(), 0.0)
    (damage,) = report.held.values()
    assert key in str(damage)
    assert {row["id"] for row in table.dataset.to_table().to_pylist()} == {0, 1, 2, 20, 21, 22}


HOSTILE_FRAGMENTS: dict[str, Callable[[dict[str, Any]], object]] = {
    "absolute": lambda f: f["files"][0].update(path="/etc/passwd.lance"),
    "address": lambda f: f["files"][0].update(path="s3://b/x.lance"),
    "escaped": lambda f: f["files"][0].update(path="%2e%2e%2fx.lance"),
    "folder": lambda f: f["files"][0].update(path="x/y.lance"),
    "dots": lambda f: f["files"][0].update(path="...lance"),
    "line break": lambda f: f["files"][0].update(path="x.lance\n"),
    "other ending": lambda f: f["files"][0].update(path="x.txt"),
    "base": lambda f: f["files"][0].update(base_id=0),
    "no file": lambda f: f.update(files=[]),
    "two files": lambda f: f.update(files=f["files"] * 2),
    "deletion file": lambda f: f.update(deletion_file={"file_type": "array", "id": 1, "read_version": 1}),
    "overlay": lambda f: f.update(overlays=[{"data_file": {"path": "x.lance"}}]),
    "row ids": lambda f: f.update(row_id_meta={"External": {"path": "../x"}}),
    "unknown member": lambda f: f.update(external=["/etc/passwd"]),
    "unknown member of a file": lambda f: f["files"][0].update(uri="s3://b/x"),
    "no number": lambda f: f.update(physical_rows="3"),
    "huge id": lambda f: f.update(id=2**63),
    "fields": lambda f: f["files"][0].update(fields=[True]),
}


@pytest.mark.parametrize("how", HOSTILE_FRAGMENTS)
def test_a_fragment_is_one_file_of_the_table(table: FlusherTable, how: str) -> None:
    key = table.flushed(0, 2).key
    content = json.loads(table.store.get(key) or b"")["flush"]
    assert decode_flush(sealed(content), key).generations == (table.flushed(0, 2),)
    HOSTILE_FRAGMENTS[how](content["fragments"][0])
    with pytest.raises(ObjectCorrupt):
        decode_flush(sealed(content), key)


def test_a_snapshot_has_the_sum_of_its_keys(table: FlusherTable) -> None:
    key = table.flushed(0, 2).key
    content = json.loads(table.store.get(key) or b"")["flush"]
    del content["parts"][0]["keys_crc32c"]
    with pytest.raises(ObjectCorrupt, match="keys_crc32c"):
        decode_flush(sealed(content), key)


def test_a_data_file_with_other_columns_is_damage_of_its_region(table: FlusherTable, tmp_path: Path) -> None:
    """Its name is one of the table's, its content is not."""
    snapshot = table.flushed(0, 2)
    (name,) = json.loads(snapshot.fragments[0])["files"]
    made = lance.write_dataset(pa.table({"region": [1, 2, 3], "id": ["x", "y", "z"]}), str(tmp_path / "made"))
    (path,) = (Path(made.uri) / "data").iterdir()
    shutil.copy(path, Path(table.uri) / "data" / name["path"])
    report = run_round(table.context(), OPEN_ROWS, RoundState(), 0.0)
    assert [type(error) for error in report.held.values()] == [ObjectCorrupt]
    assert table.dataset.count_rows() == 6


@pytest.mark.parametrize("key", ["../x", "a//b", "a\x00b", "\ud800"], ids=ascii)
@pytest.mark.parametrize("how", ["get", "get_range", "put", "delete"])
def test_what_is_no_key_is_an_error_of_ours(tmp_path: Path, how: str, key: str) -> None:
    store = open_store(str(tmp_path))
    acts: dict[str, Callable[[], object]] = {
        "get": lambda: store.get(key),
        "get_range": lambda: store.get_range(key, 0, 1),
        "put": lambda: store.put_if_absent(key, b""),
        "delete": lambda: store.delete([key]),
    }
    with pytest.raises(ObjectCorrupt, match="cannot be the key"):
        acts[how]()


# -- base paths ----------------------------------------------------------------------------------------------------


@pytest.fixture
def based(table: FlusherTable, other: Any) -> FlusherTable:
    """The table, with a manifest that says that files of it lie in the other one."""
    table.round()
    table.dataset.add_bases([DatasetBasePath(str(Path(other.uri).absolute()), "elsewhere", True)])
    return table


def settings_of(table: FlusherTable, **more: Any) -> Settings:
    return Settings(table=TableSettings(uri=table.uri, **more))


def compacted(settings: Settings) -> object:
    with ExitStack() as stack:
        return look(
            stack.enter_context(open_context(settings)), compaction_limits(settings.flusher), with_sentinel=True
        )


OPENED: dict[str, Callable[[FlusherTable, Any], object]] = {
    "open_table": lambda table, say: open_table(table.uri, base_paths=say),
    "Spark": lambda table, say: pin_read({"table": table.uri, "base_paths": say}),
    "compact": lambda table, say: compacted(settings_of(table, base_paths=say)),
    "status": lambda table, say: table_status(settings_of(table, base_paths=say), table.uri),
    "merge": lambda table, say: table.round(context=table.context(LanceTable(table.uri, base_paths=say))),
}


@pytest.mark.parametrize("how", OPENED)
def test_a_table_with_base_paths_is_refused_unless_allowed(based: FlusherTable, how: str) -> None:
    with pytest.raises(BasePathsRefused, match=r"other folders.*base_paths"):
        OPENED[how](based, "refuse")
    OPENED[how](based, "allow")


def test_base_paths_are_refused_by_default(based: FlusherTable) -> None:
    with pytest.raises(BasePathsRefused):
        open_table(based.uri)
    with pytest.raises(BasePathsRefused):
        pin_read({"table": based.uri})
    with pytest.raises(BasePathsRefused):
        compacted(settings_of(based))


def test_a_base_path_in_the_table_s_own_folder_is_none_outside(table: FlusherTable) -> None:
    table.dataset.add_bases([DatasetBasePath(f"{Path(table.uri).absolute()}/more", "more", False)])
    LanceTable(table.uri).newest()
    table.dataset.add_bases([DatasetBasePath(f"{Path(table.uri).absolute()}/../other", "out", False)])
    with pytest.raises(BasePathsRefused):
        LanceTable(table.uri).newest()


# -- code ----------------------------------------------------------------------------------------------------------


class Shouts:
    """Unpickling it makes a file."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path(self.path),)


@pytest.mark.parametrize("piece", ["what tasks share", "a task"])
def test_a_parcel_that_was_changed_is_not_unpickled(
    tmp_path: Path, piece: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_parcel, "INLINE_BYTES_MAX", 0)
    store, pool = open_store(str(tmp_path)), ThreadTasks()
    parcel = send(store, pool, ["x" * 500, "y" * 500], "p1")
    part = tmp_path / paths.parcel_part("p1", 0)
    data = bytearray(part.read_bytes())
    hostile = pickle.dumps(Shouts(str(tmp_path / "code ran")))
    at = parcel.ends[0] if piece == "a task" else 0
    data[at : at + len(hostile)] = hostile
    part.write_bytes(data)
    with pytest.raises(ObjectCorrupt, match=r"parcels/p1/00000.*was changed"):
        OpenParcel(store, pool, parcel).load(0)
    assert not (tmp_path / "code ran").exists()
    pool.close()


# -- memory and time -----------------------------------------------------------------------------------------------


def zeros(codec: str) -> bytes:
    """An Arrow stream of one row with 256 MiB of zeros."""
    size = 1 << 28
    text = pa.Array.from_buffers(
        pa.large_string(), 1, [None, pa.py_buffer(struct.pack("<2q", 0, size)), pa.py_buffer(bytes(size))]
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(
        sink, pa.schema([("k", pa.large_string())]), options=pa.ipc.IpcWriteOptions(compression=codec)
    ) as writer:
        writer.write_batch(pa.record_batch([text], names=["k"]))
    return bytes(sink.getvalue().to_pybytes())


def test_inspecting_a_side_file_unpacks_no_bomb(table: FlusherTable) -> None:
    table.generation(0, [delete(1)])
    deletes = table.flushed(0, 3).deletes
    assert deletes is not None
    key = deletes.key
    path = Path(table.uri) / key
    data = zeros("zstd")
    assert len(data) < MIB
    path.write_bytes(data)
    manifest = path.with_name("manifest.json")
    content = json.loads(manifest.read_bytes())["flush"]
    content["parts"][0]["deletes"] = {"rows": 1, "size": len(data), "crc32c": google_crc32c.value(data)}
    manifest.write_bytes(sealed(content))
    with memory_bound(32 * MIB), pytest.raises(ObjectCorrupt, match="bytes declare"):
        inspect_object(table.store, key)


def test_a_deletion_file_unpacks_to_the_rows_that_the_manifest_names(table: FlusherTable) -> None:
    table.dataset.delete("id = 1")
    (path,) = (Path(table.uri) / "_deletions").iterdir()
    assert LanceTable(table.uri).newest().hidden_rows(0).tolist() == [1]
    numbers = pa.record_batch({"row_id": pa.array(np.zeros(1 << 25, np.uint32))})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, numbers.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_batch(numbers)
    path.write_bytes(sink.getvalue().to_pybytes())
    del numbers, sink
    with memory_bound(32 * MIB), pytest.raises(ObjectCorrupt, match="33554432 rows"):
        LanceTable(table.uri).newest().hidden_rows(0)


def test_a_segment_unpacks_to_no_more_than_a_segment_holds() -> None:
    """Within the ratio of its codec: 3 MB could hold it."""
    segment = bomb(1 << 20, 600 << 20, noise=True)
    with memory_bound(32 * MIB), pytest.raises(ObjectCorrupt, match="more than any segment holds"):
        decode_segment(segment, SEGMENT_KEY)


def test_an_object_is_not_fetched_when_it_is_larger_than_any_of_its_kind(table: FlusherTable) -> None:
    """A state page of half a GiB, of which the file system stores nothing."""
    newest = max(info.key for info in table.store.list(paths.pages_prefix(None)))  # any version will do
    with (Path(table.uri) / newest).open("r+b") as file:
        file.truncate(512 * MIB)
    with memory_bound(32 * MIB), pytest.raises(ObjectCorrupt, match="more than the 134217728"):
        table.store.get(newest)


CONTRACT: dict[str, Any] = {
    "table_uuid": "u", "topic": "t", "topic_id": "i", "partitions": 1, "primary_key": ["k"], "region_key": ["k"],
    "start": [0], "columns": [{"name": "k", "type": "int64", "field_ids": [0]}],
}  # fmt: skip


def columns(count: int) -> list[dict[str, Any]]:
    return [*CONTRACT["columns"], *({"name": f"c{i}", "type": "int64", "field_ids": [i]} for i in range(1, count))]


def test_a_contract_has_so_many_columns_at_most() -> None:
    def decoded(content: Mapping[str, Any]) -> object:
        return decode_contract(json.dumps(content).encode(), paths.contract_version(1, None))

    decoded({**CONTRACT, "columns": columns(COLUMNS_MAX)})
    for wrong in (
        {"columns": columns(COLUMNS_MAX + 1)},
        {"primary_key": ["k"] * (COLUMNS_MAX + 1)},
        {"start": [0] * 200_001},
    ):
        with pytest.raises(ObjectCorrupt, match="at most"):
            decoded({**CONTRACT, **wrong})
    wide = {"name": "s", "type": f"struct<{', '.join(f'a{i}: int8' for i in range(120_000))}>", "field_ids": [1]}
    with pytest.raises(ObjectCorrupt, match="column types have"):
        decoded({**CONTRACT, "columns": [*CONTRACT["columns"], wide]})


def test_of_faults_without_end_none_is_looked_at() -> None:
    content = {**CONTRACT, "start": ["x"] * 5000, "topic": "../x"}
    with pytest.raises(ObjectCorrupt, match="more than 1000 wrong members"):
        decode_contract(json.dumps(content).encode(), paths.contract_version(1, None))


# -- addresses -----------------------------------------------------------------------------------------------------

ADDRESSES = (
    "s3://AKIAHUSH:hush@bucket/t",
    "s3://AKIAHUSH:hu/sh@bucket/t",
    "S3://AKIAHUSH@bucket/t",
    "file://AKIAHUSH:hush@host/t",
    "gs://AKIAHUSH:hush@bucket/t",
    "s3://[AKIAHUSH:hush@bucket/t",
)
TAKEN: dict[str, Callable[[str], object]] = {
    "settings": lambda uri: load_settings(None, {"LANCEWAL_TABLE__URI": uri}),
    "open_table": open_table,
    "store": open_store,
    "Lance": lambda uri: LanceTable(uri).newest(),
    "Spark": lambda uri: pin_read({"table": uri}),
}


@pytest.mark.parametrize("uri", ADDRESSES)
@pytest.mark.parametrize("how", TAKEN)
def test_user_information_in_an_address_is_refused_and_not_shown(how: str, uri: str) -> None:
    with pytest.raises(InvalidSettings, match="not shown") as caught:
        TAKEN[how](uri)
    shown = str(caught.value) + repr(caught.value.where)
    assert "HUSH" not in shown
    assert "hu" not in shown
