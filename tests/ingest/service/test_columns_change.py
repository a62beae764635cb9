"""A worker takes up changes of columns in place: no seal, no new log, no row lost, none rejected by an older version."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

from lancewal_core.errors import ContractMismatch, StoreUnavailable
from lancewal_core.names import paths
from lancewal_core.open import open_by
from lancewal_core.process.clock import SystemClock
from lancewal_core.process.tasks import ThreadTasks
from lancewal_core.region.opened_table import OpenedTable
from lancewal_core.settings.load import Settings
from lancewal_core.store.object_store import Done, put_once
from lancewal_core.table.contract import Contract, encode_contract, read_contract_version
from lancewal_core.wal.segment import Segment, decode_segment
from lancewal_ingest.context import open_context
from lancewal_ingest.decode.naming import OtherName
from lancewal_ingest.event_table import IngestEvents
from lancewal_ingest.regions.policy import SealPolicy
from lancewal_ingest.service.metrics import IngestMetrics
from lancewal_ingest.service.worker import IngestWorker
from lancewal_reader.plan.strong import FlushRef
from lancewal_reader.table import open_table
from lancewal_reader.unmerged.flushed import FlushCache, read_flushed
from tests.support.pipeline import KEY, Pipeline, by_key
from tests.support.silent_observer import SilentObserver

COLUMNS = pa.schema([*KEY, ("a", pa.int64()), ("s", pa.string()), ("tags", pa.list_(pa.string()))])


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    made = Pipeline(tmp_path, COLUMNS, partitions=2, seal_rows=10**6)
    yield made
    made.close()


def entry_versions(pipeline: Pipeline) -> list[int]:
    """Contract versions of all entries with rows, in the order of their segments."""
    found = list[tuple[int, int]]()
    for info in pipeline.store.list("_lancewal/wal/"):
        if paths.parse_wal_segment(info.key) is None:
            continue
        data = pipeline.store.get(info.key)
        assert data is not None
        segment = decode_segment(data, info.key)
        assert isinstance(segment, Segment)
        found += [(segment.sequence, entry.contract_version) for entry in segment.entries if entry.row_count]
    return [version for _, version in sorted(found)]


def check(pipeline: Pipeline) -> None:
    expected = pipeline.oracle
    assert by_key(open_table(pipeline.uri).to_arrow()) == expected
    pipeline.hand_over()
    assert by_key(open_table(pipeline.uri).to_arrow()) == expected
    pipeline.merge_all()
    assert by_key(open_table(pipeline.uri).to_arrow()) == expected


def test_one_generation_has_entries_of_three_versions(pipeline: Pipeline) -> None:
    """A record with a new column is met before the watch has looked: it is no bad record (``on_bad_record: stop``)."""
    pipeline.produce(60)
    pipeline.ingest()
    worker = pipeline._worker
    pipeline.change_columns(added={"b": "float64", "at": "timestamp[us, UTC]"})
    pipeline.produce(60)
    pipeline.ingest()
    pipeline.change_columns({"a": "c", "s": None, "tags": None}, {"tags": "list<int64>", "d": "struct<x: int32>"})
    pipeline.produce(60)
    pipeline.ingest()
    assert pipeline._worker is worker
    assert worker.terms.contract == pipeline.contract
    versions = entry_versions(pipeline)
    assert set(versions) == {1, 2, 3}
    assert versions == sorted(versions)
    assert {memtable.generation for memtable in worker.memtables.values()} == {1}, "nothing was sealed for it"
    assert not worker.stopped
    check(pipeline)


def behind(pipeline: Pipeline, version: int) -> IngestWorker:
    """A member that works by an older version of the contract goes on."""
    newest = pipeline.contract
    pipeline.contract = newest.model_copy(update=_stored(pipeline, version))
    pipeline.replace_worker()
    pipeline.contract = newest
    return pipeline._worker


def _stored(pipeline: Pipeline, version: int) -> dict[str, Any]:
    stored = read_contract_version(pipeline.store, pipeline.contract, version)
    return {name: getattr(stored, name) for name in Contract.model_fields}


@pytest.mark.parametrize("claimed", [False, True], ids=["by version 1", "by version 3"])
def test_a_member_that_slept_through_two_changes_claims(pipeline: Pipeline, claimed: bool) -> None:
    """The former owner took up both versions.  If it claimed by the newest one, the state says so, and no claim leads back.
    Rows of version 3 that only its log has are never narrowed to version 1."""
    pipeline.produce(60)
    pipeline.ingest()
    pipeline.change_columns({"s": None}, {"b": "float64"})
    pipeline.change_columns({"a": "c"}, {"d": "string"})
    if claimed:
        pipeline.replace_worker()
    pipeline.produce(60)
    pipeline.ingest()
    worker = behind(pipeline, 1)
    before = pipeline._opened().states.read(pipeline.contract.regions)
    while len(worker.durable) < 2:
        worker.step(0)
    assert worker.terms.contract.version == 3 or not claimed, "taken up before it claims"
    pipeline.ingest()
    states = pipeline._opened().states.read(pipeline.contract.regions)
    assert {state.contract_version for state in before.values()} == {3 if claimed else 1}
    assert min(state.contract_version for state in states.values()) >= (3 if claimed else 1)
    while len(worker._flushes):
        worker.step(0)
    assert worker.terms.contract.version == 3
    check(pipeline)


def test_a_flush_that_failed_is_tried_again_by_the_newer_version(pipeline: Pipeline) -> None:
    """What was folded before the change is carried over: the manifest names one version for all rows."""
    pipeline.produce(80)
    pipeline.ingest()
    write, failing = pipeline.table.write_rows, [True]

    def fails(*args: Any) -> Any:
        if failing[0]:
            raise StoreUnavailable("no answer")
        return write(*args)

    worker = pipeline._worker
    object.__setattr__(worker._context.table, "write_rows", fails)
    worker._sealing.policy = SealPolicy(rows=1)
    until = time.monotonic() + 60
    while not (len(worker._flushes) == 2 and all(waiting.content for waiting in worker._flushes._waiting)):
        worker.step(0)
        assert time.monotonic() < until
    worker._sealing.policy = SealPolicy(rows=10**6)
    pipeline.change_columns({"a": "c", "tags": None}, {"b": "int32", "tags": "string"})
    pipeline.produce(40)
    pipeline.ingest()
    failing[0] = False
    check(pipeline)


def test_no_record_is_rejected_while_the_store_does_not_say_whether_there_is_a_newer_version(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline.produce(20)
    pipeline.ingest()
    before = dict(pipeline._worker.durable)
    store, get, silent = pipeline._worker._context.store, pipeline._worker._context.store.get, [True]

    def asked(key: str) -> bytes | None:
        if silent[0] and paths.parse_contract_version(key) == 2:
            raise StoreUnavailable("no answer")
        return get(key)

    monkeypatch.setattr(store, "get", asked)
    pipeline.change_columns(added={"b": "string"})
    pipeline.upsert("r0", 1, b="new")
    assert not pipeline.ingest_for(0.3)
    assert (pipeline._worker.durable, pipeline._worker.stopped) == (before, {})
    silent[0] = False
    pipeline.ingest()
    check(pipeline)


@pytest.mark.parametrize("policy", ["stop", "ignore"])
def test_a_bad_record_of_the_newest_version_is_bad(pipeline: Pipeline, policy: str) -> None:
    """Unless a version that comes later drops the column: then the record is read again, and its value passed over."""
    pipeline.upsert("r0", 1, a=1)
    pipeline.ingest()
    pipeline.change_columns(added={"b": "int8"}, on_bad_record=policy)
    pipeline.upsert("r0", 2, b=5)
    pipeline.ingest()
    partition = next(r.partition for r, at in pipeline._worker.durable.items() if at)
    pipeline._messages[partition].append(
        (pipeline._messages[partition][0][0], b'{"region": "r0", "id": 3, "b": 999}', "upsert")
    )
    if policy == "stop":
        assert not pipeline.ingest_for(0.3)
        assert [error.kind for error in pipeline._worker.stopped.values()] == ["bad_record"]
        pipeline.change_columns({"b": None}, {"b2": "int16"}, on_bad_record="ignore")
        pipeline.oracle["r0", 3] = {"region": "r0", "id": 3, "a": None, "s": None, "tags": None, "b2": None}
        terms = pipeline._worker.find_newer(pipeline._worker.terms, {})
        assert terms is not None
        pipeline._worker.take_up(terms.preparer, terms.dead_letters)
    pipeline.ingest()
    check(pipeline)


class Told(SilentObserver):
    """Keeps what is told of names."""

    def __init__(self) -> None:
        self.uses = Counter[OtherName]()

    def other_names(self, uses: Mapping[OtherName, int]) -> None:
        self.uses.update(uses)


def test_producers_of_old_and_new_columns_at_once(tmp_path: Path) -> None:
    """An upsert without a column gets the default, a patch leaves it alone, rows from before keep null.  The old name of a
    column counts as its new one, and that of a dropped one is passed over."""
    told = Told()
    pipeline = Pipeline(tmp_path, COLUMNS, partitions=2, observer=told)
    for id in range(4):
        pipeline.upsert("r0", id, a=id, s="old")
    pipeline.ingest()
    pipeline.change_columns({"a": "amount", "tags": None}, {"note": 'string = "none"', "more": "int64"})
    rows = pipeline.oracle
    pipeline.patch("r0", 2, more=5)  # a name that only the newer version has: what follows is of that version
    assert rows["r0", 2]["note"] is None
    pipeline._send("upsert", "r0", 1, {})
    rows["r0", 1] = {"region": "r0", "id": 1, "amount": None, "s": None, "note": "none", "more": None}
    pipeline.upsert("r0", 5, note=None, amount=7)
    pipeline.patch("r0", 6, s="a patch makes a row of nulls")
    pipeline.produced("upsert", "r0", 3, {"a": 33, "s": "old", "tags": ["x"], "note": "given"})
    rows["r0", 3] = {"region": "r0", "id": 3, "amount": 33, "s": "old", "note": "given", "more": None}
    pipeline.produced("patch", "r0", 5, {"a": 77, "tags": None})
    rows["r0", 5] |= {"amount": 77}
    pipeline.produced("patch", "r0", 0, {"tags": None})
    pipeline.ingest()
    assert told.uses == {("former", "a"): 2, ("dropped", "tags"): 3}
    check(pipeline)
    pipeline.close()


def test_columns_that_others_drop_or_rename_stop_merges_and_not_ingest(pipeline: Pipeline) -> None:
    """Files of flushes are written by the contract's ids, whatever columns the table has by then."""
    pipeline.produce(20)
    pipeline.ingest()
    dataset = lance.dataset(pipeline.uri)
    dataset.drop_columns(["s"])
    renamed: Any = {"path": "a", "name": "other"}
    dataset.alter_columns(renamed)
    settings = Settings.model_validate({"table": {"uri": pipeline.uri}})
    with closing(ThreadTasks(workers=1)) as tasks:
        with pytest.raises(ContractMismatch, match="column 's'"):
            open_by(settings, tasks, SystemClock())
        opened = open_context(settings, tasks, SystemClock())
    assert opened.contract == pipeline.contract
    pipeline.replace_worker()
    pipeline.produce(20)
    pipeline.ingest()
    pipeline.hand_over()
    states = pipeline._opened().states.read(pipeline.contract.regions).values()
    assert {record.state.name for state in states for record in state.generations} == {"FLUSHED"}


def test_a_value_that_only_the_wider_type_holds(tmp_path: Path) -> None:
    """Once the contract has the wider type; rows of the narrower one are carried over in the same flush."""
    pipeline = Pipeline(tmp_path, pa.schema([*KEY, ("n", pa.int32())]), partitions=1, seal_rows=10**6)
    pipeline.upsert("r0", 1, n=7)
    pipeline.ingest()
    before = pipeline.contract
    n = before.columns[2]
    wide = n.model_copy(update={"type": "int64", "field_ids": (9,), "first_ids": n.field_ids})
    terms = {"columns": (*before.columns[:2], wide), "columns_change": "2-a", "highest_field_id": 9}
    newer = before.model_copy(update={"format": 2, "version": 2, **terms})
    assert isinstance(put_once(pipeline.store, paths.contract_version(2, None), encode_contract(newer)), Done)
    pipeline.produced("upsert", "r0", 2, {"n": 2**40})
    pipeline.ingest()
    assert entry_versions(pipeline) == [1, 2]
    pipeline.hand_over()
    opened = OpenedTable.over(pipeline.store, pipeline.table, newer, pipeline._new_tasks(), pipeline.clock)
    (region,) = newer.regions
    (record,) = opened.states.read([region])[region].generations
    flush = FlushRef.of(record)
    assert flush is not None
    (folded,) = read_flushed(opened, FlushCache(0), [(region, flush)], newer.rows)
    assert sorted(folded.rows["n"].to_pylist()) == [7, 2**40]
    pipeline.close()


def test_names_that_producers_make_up_count_together_beyond_a_hundred() -> None:
    metrics = IngestMetrics(SystemClock(), "orders", 1, IngestEvents(table="orders"))
    for number in range(150):
        metrics.other_names({OtherName("unknown", f"{number:03}" + "x" * 500): 2})
    metrics.other_names({OtherName("unknown", "000" + "x" * 500): 1, OtherName("former", "one more"): 1})
    (family,) = [one for one in metrics.registry.collect() if one.name == "lancewal_ingest_other_names"]
    values = {
        (sample.labels["field"], sample.labels["kind"]): sample.value
        for sample in family.samples
        if sample.name.endswith("_total")
    }
    assert sum(values.values()) == 302
    assert len(values) == 102
    assert (values["...", "unknown"], values["...", "former"], values["000" + "x" * 97, "unknown"]) == (100, 1, 3)
