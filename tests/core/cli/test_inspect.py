"""``lancewal inspect``: every kind of object as it was written, damaged ones refused by name, no row shown."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from lancewal_core.cli import program as cli
from lancewal_core.cli.inspect import as_json, as_text, place
from lancewal_core.cli.stored_object import inspect_object, inspect_region
from lancewal_core.errors import InvalidInput, ObjectCorrupt, ObjectMissing
from lancewal_core.names import paths
from lancewal_core.names.ids import Page, Position, TableVersion
from lancewal_core.names.paths import FlushFile
from lancewal_core.process.clock import SystemClock, utc_text
from lancewal_core.store.obstore import open_store
from lancewal_demo.stack import S3Server
from lancewal_flusher.service.service import run_once
from tests.flusher.service.test_service import settings_of
from tests.golden import core_formats, json_formats
from tests.golden.core_formats import NORTH
from tests.support.flusher_tables import FlusherTable, delete, patch, upserts
from tests.twins.memory_store import MemoryStore

RECORD = paths.merge_record(TableVersion(11), None)
GOLDEN = {
    paths.contract_version(1, None): ("contract", "contract_1.json"),
    paths.control_version(1, None): ("control", "control_1.json"),
    paths.drain_version(1, None): ("drain", "drain_1.json"),
    core_formats.SEGMENT_KEY: ("segment", "wal_segment_1.arrow"),
    core_formats.BUNDLE.key: ("bundle", "bundle_1.arrow"),
    core_formats.FENCE_KEY: ("fence", "fence_1.arrow"),
    core_formats.STATES_KEY: ("state page", "state_page_1.binpb"),
    core_formats.PAGE_KEY: ("history page", "history_page_1.binpb"),
    json_formats.FLUSH_KEY: ("flush", "flush_1.json"),
    paths.loss_record(NORTH, Position(1010), None): ("accepted loss", "loss_record_1.json"),
    RECORD: ("merge record", "merge_record_1.json"),
}


def golden(name: str) -> bytes:
    return (core_formats.FOLDER / name).read_bytes()


@pytest.fixture
def store() -> MemoryStore:
    found = MemoryStore(SystemClock())
    for key, (_, name) in GOLDEN.items():
        found.put_if_absent(key, golden(name))
    found.put_if_absent(paths.merge_finished(TableVersion(9), None), b"fedcba9876543210fedcba9876543210")
    return found


def text_of(store: MemoryStore, key: str) -> list[str]:
    """Lines with single spaces."""
    return [" ".join(line.split()) for line in as_text(inspect_object(store, key)).splitlines()]


@pytest.mark.parametrize("key", GOLDEN)
def test_every_kind_in_both_forms(store: MemoryStore, key: str) -> None:
    kind, name = GOLDEN[key]
    found = inspect_object(store, key)
    shown = json.loads(json.dumps(as_json(found)))
    assert (shown["object"], shown["what"], shown["size"]) == (key, kind, len(golden(name)))
    assert text_of(store, key)[:2] == [f"object {key}", f"what {kind}, {len(golden(name))} bytes"]


def test_a_bundle_shows_the_segments_that_it_copies(store: MemoryStore) -> None:
    content = inspect_object(store, core_formats.BUNDLE.key).content
    assert (content["log"], content["first"], content["writer"]) == ("0f3c-ingest", 41, "ingest-7d9f")
    shown = [(c["sequence"], c["size"], c["etag"], c["entries"], c["rows"]) for c in content["segments"]]
    assert shown == [(41, 4_711, '"0badcafe-1"', 2, 3), (42, 4_712, '"0badcafe-2"', 2, 3)]
    assert "Österreich" not in str(content)


def test_a_segment_shows_its_entries_and_no_row(store: MemoryStore) -> None:
    segment = core_formats.SEGMENT
    content = as_json(inspect_object(store, core_formats.SEGMENT_KEY))
    assert (content["log"], content["sequence"], content["writer"]) == (segment.log, segment.sequence, segment.writer)
    assert [(e["region"], e["first"], e["next"], e["rows"]) for e in content["entries"]] == [
        (e.region.name, e.first, e.next, e.rows.num_rows) for e in segment.entries
    ]
    noon = 1_709_208_000_000
    assert [(e["record_time_min_ms"], e["record_time_max_ms"]) for e in content["entries"]] == [
        (noon, noon),
        (None, None),
    ]
    assert content["entries"][0]["rejected"] == ["1002 not_json", "1006 missing_key"]
    lines = text_of(store, core_formats.SEGMENT_KEY)
    assert "written at 2024-02-29T12:00:00.123Z" in lines
    assert f"{NORTH.name} 1000 1007 3 2024-02-29T12:00:00Z" in " ".join(lines)
    assert "sterreich" not in json.dumps(as_json(inspect_object(store, core_formats.SEGMENT_KEY))) + "".join(lines)


def test_key_runs_show_what_is_known_of_regions(store: MemoryStore) -> None:
    catalog, part = paths.key_catalog_version(3, None), paths.key_part("2233")
    store.put_if_absent(catalog, golden("key_catalog_1_regions.json"))
    store.put_if_absent(part, golden("key_part_1_regions.arrow"))
    content = as_json(inspect_object(store, catalog))
    assert [(r["run"], r["name"], r["position"]) for r in content["regions"]] == [
        ("0011", NORTH.name, 1015), ("0011", core_formats.SOUTH.name, 2**40),
    ]  # fmt: skip
    assert as_json(inspect_object(store, part))["regions_known"] == 2


def test_a_fence_says_who_ended_the_log(store: MemoryStore) -> None:
    assert text_of(store, core_formats.FENCE_KEY)[2:] == [
        "log a1",
        "sequence 8",
        "writer b2",
        "written at 2023-11-14T22:13:20Z",
        "writer log c3",
    ]


def test_a_page_shows_its_regions(store: MemoryStore) -> None:
    content = as_json(inspect_object(store, core_formats.STATES_KEY))
    assert (content["version"], content["page"], content["regions_per_page"]) == (44, 0, 16)
    assert [(r["region"], r["generations"], r["newest_generation"]) for r in content["regions"]] == [
        (NORTH.name, 6, "12 open"),
        (core_formats.EAST.name, 1, "1 open"),
    ]
    assert f"{core_formats.EAST.name} 3 0 0 - b7 2024-02-29T12:00:00.250Z 1 1 open" in text_of(
        store, core_formats.STATES_KEY
    )


def test_an_index_shows_its_generations(store: MemoryStore) -> None:
    index = core_formats.INDEX
    found = inspect_region(store, NORTH, Page.of(NORTH, 16, None))
    content = as_json(found)
    assert content["version"] == 44
    assert [(g["generation"], g["state"], g["first"], g["next"]) for g in content["generations"]] == [
        (g.generation, g.state.name.lower(), g.first, g.next) for g in index.generations
    ]
    lines = [" ".join(line.split()) for line in as_text(found).splitlines()]
    assert "trimmed position 500" in lines
    assert f"12 open {2**40} - 0f3c-ingest 41 - ingest-7d9f - - - - - - -" in lines
    times = "18 2024-02-29T11:59:50.123Z 2024-02-29T11:59:51.456Z 2024-02-29T12:00:00Z - -"
    assert f"7 merged 500 500 0f3c-ingest 30 30 ingest-7d9f {times} {index.generations[0].flush}" in lines
    flushed = content["generations"][2]
    assert (flushed["record_time_min_ms"], flushed["record_time_max_ms"]) == (-1, 1_709_207_989_000)


def test_a_merge_record_a_control_and_a_finished_merge(store: MemoryStore) -> None:
    content = inspect_object(store, RECORD).content
    assert (content["version"], content["kind"], content["set_by"]) == (11, "checkpoint", 9)
    assert {w["region"]: w["next"] for w in content["watermarks"]} == {NORTH.name: 1010, core_formats.SOUTH.name: 3}
    lines = text_of(store, paths.control_version(1, None))
    assert {"ingest paused until 2023-11-14T22:23:20Z", "flusher paused until resumed"} <= set(lines)
    finished = inspect_object(store, paths.merge_finished(TableVersion(9), None))
    assert (finished.kind, finished.content["merge"]) == ("finished merge", json_formats.IN_FORCE.merge)


@pytest.mark.parametrize("key", GOLDEN)
@pytest.mark.parametrize("damage", ["cut", "flipped", "empty"])
def test_a_damaged_object_is_refused_by_name(key: str, damage: str) -> None:
    data = golden(GOLDEN[key][1])
    at = len(data) // 2 if GOLDEN[key][1].endswith(("arrow", "binpb")) else 0
    damaged = {"cut": data[:-3], "flipped": data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :], "empty": b""}[damage]
    store = MemoryStore(SystemClock())
    store.put_if_absent(key, damaged)
    with pytest.raises(ObjectCorrupt, match=r"corrupt|is not a"):
        inspect_object(store, key)


def test_the_newest_index_of_a_region(store: MemoryStore) -> None:
    assert (
        inspect_region(store, core_formats.EAST, Page.of(core_formats.EAST, 16, None)).content["region"]
        == core_formats.EAST.name
    )
    for nobody in (core_formats.SOUTH, replace(core_formats.SOUTH, partition=16)):
        with pytest.raises(InvalidInput, match="no ingest process of this table has opened it"):
            inspect_region(store, nobody, Page.of(nobody, 16, None))


def test_keys_that_are_none(store: MemoryStore) -> None:
    for key in ("_lancewal/contract/1.json", "_lancewal/", "_lancewal/probe/a", f"{RECORD}x"):
        with pytest.raises(InvalidInput, match="not the key"):
            inspect_object(store, key)
    with pytest.raises(ObjectMissing, match="missing"):
        inspect_object(store, paths.contract_version(2, None))


def test_places() -> None:
    key = paths.contract_version(1, None)
    assert place(key) == ("", key)
    assert place(f"s3://bucket/a/table/{key}") == ("s3://bucket/a/table", key)
    assert place(f"./{key}") == (".", key)
    assert place(f"/_lancewal/copy/{key}") == ("/_lancewal/copy", key)
    with pytest.raises(InvalidInput, match="not an object of lancewal"):
        place("s3://bucket/a/contract.json")


def test_times_in_words() -> None:
    assert utc_text(0) == "1970-01-01T00:00:00Z"
    assert utc_text(1_700_000_000_007) == "2023-11-14T22:13:20.007Z"
    assert utc_text(10**18) == f"{10**18} ms since 1970"


# -- the command, on real tables -------------------------------------------------------------------------------


@pytest.fixture
def table(tmp_path: Path) -> Iterator[FlusherTable]:
    made = FlusherTable(tmp_path)
    yield made
    made.close()


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = cli.run(["inspect", *arguments])
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def test_every_object_of_a_real_table_can_be_inspected(table: FlusherTable, capsys: pytest.CaptureFixture[str]) -> None:
    table.generation(0, upserts(range(10)))
    table.generation(0, [delete(3), patch(4, a=4)])
    run_once(settings_of(table))
    table.generation(1, [delete(3), patch(4, a=4)])
    capsys.readouterr()
    kinds = set()
    for file in sorted((Path(table.uri) / "_lancewal").rglob("*.*")):
        code, out, err = run(capsys, str(file), "--output", "json")
        assert (code, err) == (0, "")
        shown = json.loads(out)
        assert Path(table.uri) / shown["object"] == file
        assert shown["size"] == file.stat().st_size
        kinds.add(shown["what"])
    assert kinds == {
        "contract", "segment", "state page", "flush", "deleted keys", "patches", "merge record", "finished merge",
        "key catalog", "part of a key run",
    }  # fmt: skip
    for name in ("orders-1", "1"):
        code, out, _ = run(capsys, "--table", table.uri, "--partition", name)
        assert code == 0
        words = " ".join(out.split())
        assert f"region {table.contract.regions[1].name} contract version 1" in words
        assert " 1 flushed 0 2 " in words


def test_errors_and_exit_codes(table: FlusherTable, capsys: pytest.CaptureFixture[str]) -> None:
    table.generation(0, [delete(3)])
    (deletes,) = (Path(table.uri) / "_lancewal").rglob("deletes.arrow")
    deletes.write_bytes(deletes.read_bytes() + b"x")
    code, out, err = run(capsys, str(deletes))
    assert (code, out) == (4, "")
    assert err.startswith("lancewal: object_corrupt: _lancewal/flushes/")
    key = paths.contract_version(7, None)
    assert run(capsys, key, "--table", table.uri)[::2] == (4, f"lancewal: object_missing: {key} is missing\n")
    for arguments in ([], [key], [key, "--partition", "0"], ["--partition", "9"], ["--partition", "a/b"], ["/tmp/x"]):
        code, out, err = run(capsys, *arguments, *(["--table", table.uri] if arguments != [key] else []))
        assert (code, out) == (2, ""), arguments
        assert err.startswith("lancewal: invalid_input: "), arguments


def test_a_side_file_of_an_attempt_that_did_not_end(table: FlusherTable) -> None:
    table.generation(0, [delete(3)])
    (deletes,) = (Path(table.uri) / "_lancewal").rglob("deletes.arrow")
    key = paths.flush_file("00000000", FlushFile.DELETES)
    table.store.put_if_absent(key, deletes.read_bytes())
    content = inspect_object(table.store, key).content
    assert (content["finished_attempt"], content["generations"]) == (False, [])


def test_an_object_in_a_bucket(
    s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    uri = f"s3://{s3.bucket('inspect')}/{tmp_path.name}"
    options = {key.lower(): value for key, value in s3.environment.items()}
    for name, value in options.items():
        monkeypatch.setenv(f"LANCEWAL_STORAGE__OPTIONS__{name.upper()}", value)
    open_store(uri, options).put_if_absent(core_formats.STATES_KEY, golden("state_page_1.binpb"))
    code, out, _ = run(capsys, f"{uri}/{core_formats.STATES_KEY}")
    again = run(capsys, "--table", uri, core_formats.STATES_KEY)
    assert (code, out) == again[:2]
    assert code == 0
    assert f"state page, {len(golden('state_page_1.binpb'))} bytes" in out
