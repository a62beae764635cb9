"""Reads at a receipt: the rows of an earlier read again, cell by cell, or the named error; never other rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

from lancewal_core.errors import InvalidInput, OutsideHistoryWindow, TokenTimeout, VersionGone
from lancewal_core.names import paths
from lancewal_core.names.ids import Position, TableUuid, TableVersion
from lancewal_core.region.state import GenerationState
from lancewal_core.store.address import place_of
from lancewal_core.table.contract import encode_contract
from lancewal_flusher.garbage import find as garbage
from lancewal_flusher.merge.plan import MergeLimits
from lancewal_reader.plan.at_receipt import plan_at
from lancewal_reader.plan.log_entries import EntryRef
from lancewal_reader.plan.strong import FlushRef, ReadPlan
from lancewal_reader.point.at import At
from lancewal_reader.point.receipt import Receipt, receipt_of
from lancewal_reader.reading import reads as reads_module
from lancewal_reader.reading.scan import scan_plan
from lancewal_reader.table import Table, open_table
from tests.support.indexes import newest_state
from tests.support.pipeline import EVERY_TYPE, SMALL, Pipeline, by_key

WINDOW_S = 24 * 3600


@dataclass(frozen=True, slots=True)
class Read:
    """What a read gave.  ``receipt`` is as it stood in the result's metadata."""

    receipt: bytes
    rows: list[str]


def rows_of(rows: pa.Table) -> list[str]:
    """Every cell, in an order that does not depend on the read's; keys may be there twice."""
    return sorted(repr(list(row.items())) for row in rows.to_pylist())


def read(table: Table, **arguments: Any) -> Read:
    return as_read(table.to_arrow(**arguments))


def as_read(found: pa.Table) -> Read:
    return Read(found.schema.metadata[b"lancewal.receipt"], rows_of(found))


def again(table: Table, earlier: Read) -> list[str]:
    """The rows at a receipt; the result's own receipt must be equal but for the version."""
    found = table.to_arrow(at=earlier.receipt)
    assert receipt_of(found.schema).positions == Receipt.from_json(earlier.receipt).positions
    return rows_of(found)


def clean_up(pipeline: Pipeline) -> None:
    """A user removes all versions but the newest, and the tagged ones, while a flusher runs."""
    pipeline.merge()
    lance.dataset(pipeline.uri).cleanup_old_versions(
        older_than=timedelta(0), delete_unverified=False, error_if_tagged_old_versions=False
    )


def compact(pipeline: Pipeline) -> None:
    lance.dataset(pipeline.uri).optimize.compact_files()


@pytest.fixture
def pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pipeline]:
    monkeypatch.setattr(garbage, "HISTORY_PAGE_AT", 4)
    monkeypatch.setattr(garbage, "HISTORY_PAGE_REST", 1)
    made = Pipeline(tmp_path, seed=3, seal_rows=25, batch=15, grace_s=0, history_window_s=WINDOW_S)
    yield made
    made.close()


def plan_of(table: Table, receipt: bytes | Receipt) -> ReadPlan:
    return plan_at(table._reads.context, receipt if isinstance(receipt, Receipt) else Receipt.from_json(receipt))


@pytest.mark.in_turns("seed", each=3)
@pytest.mark.parametrize("seed", range(3))
def test_every_receipt_gives_its_rows_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(garbage, "HISTORY_PAGE_AT", 3)
    monkeypatch.setattr(garbage, "HISTORY_PAGE_REST", 1)
    pipeline = Pipeline(tmp_path, EVERY_TYPE, seed=seed, seal_rows=20, batch=20, grace_s=0)
    rng = pipeline.rng
    kept = open_table(pipeline.uri)
    reads: list[Read] = []
    for step in range(14):
        pipeline.produce(rng.randrange(60))
        pipeline.ingest()
        found = kept.to_arrow()
        assert by_key(found) == pipeline.oracle
        reads.append(as_read(found))
        if rng.random() < 0.3:
            reads.append(read(kept, consistency="eventual"))
        match rng.randrange(7):
            case 0:
                pipeline.crash()
            case 1 | 2:
                pipeline.merge(MergeLimits(adopt_rows=rng.choice([1, 30, 1000])))
            case 3:
                pipeline.merge_all(MergeLimits(adopt_rows=rng.choice([1, 30, 1000])))
            case 4:
                pipeline.hand_over()
                pipeline.ingest()
            case 5:
                pipeline.append_by_hand([{"region": "by hand", "id": step, "a": step}])
            case _:
                compact(pipeline)
        pipeline.collect()
        for earlier in rng.sample(reads, min(3, len(reads))):
            assert again(rng.choice([kept, open_table(pipeline.uri)]), earlier) == earlier.rows
    pipeline.merge_all()
    pipeline.collect()
    assert any("history" in path.parts for path in pipeline.objects(".binpb"))
    fresh = open_table(pipeline.uri)
    for earlier in reads:
        whole = fresh.to_arrow(at=earlier.receipt).to_pylist()
        assert sorted(repr(list(row.items())) for row in whole) == earlier.rows
        names = ["s", "id", "st"]
        some = fresh.to_arrow(columns=names, filter="a IS NOT NULL", at=earlier.receipt).to_pylist()
        assert sorted(map(repr, some)) == sorted(repr({n: r[n] for n in names}) for r in whole if r["a"] is not None)
    pipeline.close()


def test_clean_ups_and_expired_windows_give_the_rows_or_the_named_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(garbage, "HISTORY_PAGE_AT", 3)
    monkeypatch.setattr(garbage, "HISTORY_PAGE_REST", 1)
    outcomes = dict.fromkeys(["again", "stand-in", "version gone", "outside"], 0)
    for seed in range(12):
        if seed > 1 and all(outcomes.values()):
            break
        pipeline = Pipeline(
            tmp_path / str(seed), seed=seed, seal_rows=20, batch=20, grace_s=0, history_window_s=WINDOW_S
        )
        reads: list[Read] = []
        for _ in range(16):
            pipeline.produce(pipeline.rng.randrange(50), ids=8)
            pipeline.ingest()
            consistency = pipeline.rng.choice(["strong", "strong", "eventual"])
            reads.append(read(open_table(pipeline.uri), consistency=consistency))
            anything(pipeline, len(reads))
            pipeline.collect()
            table = open_table(pipeline.uri)
            for earlier in pipeline.rng.sample(reads, min(5, len(reads))):
                outcomes[outcome(table, earlier)] += 1
        pipeline.close()
    assert all(outcomes.values()), outcomes


def anything(pipeline: Pipeline, step: int) -> None:
    """What flusher and users may do."""
    match pipeline.rng.randrange(8):
        case 0 | 1 | 2:
            pipeline.merge_all(MergeLimits(adopt_rows=pipeline.rng.choice([1, 1000])))
        case 3:  # a key that Kafka has as well
            region, id = pipeline.rng.choice(sorted(pipeline.oracle) or [("r1", 1)])
            pipeline.append_by_hand([{"region": region, "id": id, "s": "by hand"}])
        case 4:
            lance.dataset(pipeline.uri).tags.create(f"t{step}", lance.dataset(pipeline.uri).version)
        case 5:
            pipeline.clock.ahead_s += WINDOW_S * 1.1
        case 6:
            clean_up(pipeline)
        case _:
            compact(pipeline)
            clean_up(pipeline)


def outcome(table: Table, earlier: Read) -> str:
    """How reading again ends; other rows than before end the test."""
    try:
        found = table.to_arrow(at=earlier.receipt)
    except VersionGone:
        return "version gone"
    except OutsideHistoryWindow:
        return "outside"
    assert rows_of(found) == earlier.rows
    same = receipt_of(found.schema).version == Receipt.from_json(earlier.receipt).version
    return "again" if same else "stand-in"


def test_any_cut_of_the_records_below_an_early_version(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cuts inside entries, generations in every state, in the index and in pages."""
    monkeypatch.setattr("lancewal_reader.plan.at_receipt._STRIDE", 3)
    version = pipeline.table.newest().version
    for act in (pipeline.merge_all, pipeline.crash, pipeline.merge_all, pipeline.hand_over, pipeline.merge_all) * 2:
        pipeline.produce(60)
        pipeline.ingest()
        act()
        pipeline.ingest()
        pipeline.collect()
    pipeline.produce(50)
    pipeline.hand_over()
    pipeline.produce(50)
    pipeline.ingest()
    state = newest_state(pipeline.store, pipeline.clock, pipeline.contract.regions[0])
    assert state is not None
    assert {r.state for r in state.generations} >= {GenerationState.OPEN, GenerationState.FLUSHED}
    assert state.generations[0].generation > 1, "a page holds the first ones"
    table = open_table(pipeline.uri)
    rng, seen = pipeline.rng, set()
    for _ in range(40):
        cut = {
            r: Position(rng.randrange(len(pipeline.messages(r.partition)) + 1))
            for r in pipeline.contract.regions
            if rng.random() < 0.9
        }
        receipt = Receipt(pipeline.contract.uuid, version, cut, place_of(pipeline.uri))
        assert by_key(table.to_arrow(at=receipt)) == pipeline.fold_at(cut)
        seen |= {type(source) for delta in plan_of(table, receipt).deltas for source in delta.sources}
    assert seen == {EntryRef, FlushRef}


def test_a_receipt_in_an_open_generation_and_after_it_was_sealed_merged_and_paged(pipeline: Pipeline) -> None:
    pipeline.produce(20)
    pipeline.ingest()
    earlier = read(open_table(pipeline.uri))
    kept = open_table(pipeline.uri)

    def kinds() -> set[type]:
        return {type(s) for d in plan_of(kept, earlier.receipt).deltas for s in d.sources}

    assert again(kept, earlier) == earlier.rows
    pipeline.produce(15)
    pipeline.ingest()
    assert again(kept, earlier) == earlier.rows
    assert kinds() == {EntryRef}
    for _ in range(6):
        pipeline.produce(30)
        pipeline.merge_all()
        pipeline.collect()
        assert again(kept, earlier) == earlier.rows
        assert kinds() == {EntryRef}, "the cut divides a generation"
    assert any("history" in p.parts for p in pipeline.objects(".binpb"))


def test_whole_generations_whose_files_are_gone_are_read_from_the_log(pipeline: Pipeline) -> None:
    pipeline.produce(60)
    pipeline.ingest()
    pipeline.hand_over()
    pipeline.ingest()
    earlier = read(open_table(pipeline.uri))
    pipeline.merge_all()
    for path in pipeline.objects("manifest.json"):
        path.unlink()
    assert again(open_table(pipeline.uri), earlier) == earlier.rows


def test_after_the_history_window_the_error_states_it(pipeline: Pipeline) -> None:
    pipeline.produce(60)
    pipeline.merge_all()
    merged = read(open_table(pipeline.uri), consistency="eventual")
    pipeline.produce(60)
    pipeline.ingest()
    earlier = read(open_table(pipeline.uri))
    pipeline.merge_all()
    table = open_table(pipeline.uri)
    pipeline.clock.ahead_s = WINDOW_S - 60
    pipeline.collect()
    pipeline.collect()
    assert again(table, earlier) == earlier.rows
    pipeline.clock.ahead_s = WINDOW_S + 60
    for _ in range(2):  # the boundary moves; then what is behind it is deleted
        pipeline.collect()
        with pytest.raises(OutsideHistoryWindow, match=f"Generations are kept for {WINDOW_S} s after"):
            table.to_arrow(at=earlier.receipt)
    assert again(table, merged) == merged.rows, "the table version alone holds it"


def test_trimmed_between_plan_and_read_is_the_named_error(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline.produce(60)
    pipeline.ingest()
    earlier = read(open_table(pipeline.uri))
    pipeline.merge_all()
    pipeline.clock.ahead_s = WINDOW_S + 60

    def trim_first(*arguments: Any) -> Iterator[pa.RecordBatch]:
        pipeline.collect()
        pipeline.collect()
        return scan_plan(*arguments)

    monkeypatch.setattr(reads_module, "scan_plan", trim_first)
    with pytest.raises(OutsideHistoryWindow):
        open_table(pipeline.uri).to_arrow(at=earlier.receipt)


def test_a_version_that_was_cleaned_up_is_read_from_its_compaction(pipeline: Pipeline) -> None:
    for _ in range(3):
        pipeline.produce(40)
        pipeline.merge_all(MergeLimits(adopt_rows=1))
    pipeline.produce(40)
    pipeline.ingest()
    earlier = read(open_table(pipeline.uri))
    version = Receipt.from_json(earlier.receipt).version
    lance.dataset(pipeline.uri).update_config({"mine": "1"})
    clean_up(pipeline)
    table = open_table(pipeline.uri)
    found = table.to_arrow(at=earlier.receipt)
    assert rows_of(found) == earlier.rows
    assert receipt_of(found.schema).version == version + 1
    pipeline.append_by_hand([{"region": "x", "id": 1}])
    clean_up(pipeline)
    with pytest.raises(VersionGone, match=f"table version {version} of the receipt is gone.*{WINDOW_S} s"):
        table.to_arrow(at=earlier.receipt)


def test_a_version_that_was_cleaned_up_is_read_from_an_older_one_behind_merges(pipeline: Pipeline) -> None:
    pipeline.produce(40)
    pipeline.merge_all()
    tagged = lance.dataset(pipeline.uri).version
    lance.dataset(pipeline.uri).tags.create("mine", tagged)
    for _ in range(2):
        pipeline.produce(40)
        pipeline.merge_all()
    pipeline.produce(40)
    pipeline.ingest()
    earlier = read(open_table(pipeline.uri))
    assert Receipt.from_json(earlier.receipt).version == tagged + 2
    pipeline.append_by_hand([{"region": "x", "id": 1}])
    clean_up(pipeline)
    found = open_table(pipeline.uri).to_arrow(at=earlier.receipt)
    assert rows_of(found) == earlier.rows
    assert receipt_of(found.schema).version == tagged


def test_what_is_no_receipt_of_this_table_is_refused(pipeline: Pipeline) -> None:
    pipeline.produce(60)
    pipeline.merge_all()
    table = open_table(pipeline.uri)
    receipt = receipt_of(table.scan().schema)
    region = pipeline.contract.regions[0]
    other = replace(region, partition=9)
    merged = receipt.positions[region]
    wrong: list[tuple[Receipt | str, str]] = [
        (replace(receipt, table_uuid=TableUuid("other")), "is of the table with uuid other, this one has table-uuid"),
        (replace(receipt, place="s3://bucket/t"), f"a read at s3://bucket/t, but this table is at {pipeline.uri}"),
        (
            replace(receipt, positions={**receipt.positions, other: Position(1)}),
            f"{other.name}, which the table does not have",
        ),
        (
            replace(receipt, positions={**receipt.positions, region: Position(merged - 1)}),
            "holds records after the receipt's positions",
        ),
        (replace(receipt, positions={region: merged}), "holds records after the receipt's positions"),
        (replace(receipt, version=TableVersion(99)), "names table version 99, and the newest is"),
        ("{}", "not a receipt"),
        ("no json", "not a receipt"),
    ]
    for at, text in wrong:
        with pytest.raises(InvalidInput, match=text):
            table.scan(at=at)
    with pytest.raises(InvalidInput, match="consistency='eventual' cannot be given together"):
        table.scan(at=receipt, consistency="eventual")


def test_a_cut_behind_everything_durable_is_named(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lancewal_reader.plan.strong.PLANS_MAX", 2)
    pipeline.produce(30)
    pipeline.ingest()
    table = open_table(pipeline.uri)
    receipt = receipt_of(table.scan().schema)
    beyond = {region: Position(position + 5) for region, position in receipt.positions.items()}
    table.subscriptions().create("kept", receipt)
    future = replace(receipt, positions=beyond)
    region = min(beyond)
    says = f"has not reached: {region.topic}-{region.partition}: {beyond[region]}, and the table is at {beyond[region] - 5}"
    uses: list[Callable[[], object]] = [
        lambda: table.scan(at=future),
        lambda: table.changes(receipt, future),
        lambda: table.changes(future),
        lambda: next(table.follow(future, mode="all")),
        lambda: table.subscriptions().commit("kept", future),
    ]
    for use in uses:
        with pytest.raises(InvalidInput, match=says):
            use()


def test_a_read_at_a_receipt_does_not_move_the_reader(pipeline: Pipeline) -> None:
    pipeline.produce(30)
    pipeline.ingest()
    table = open_table(pipeline.uri)
    earlier = read(table)
    pipeline.produce(30)
    pipeline.merge_all()
    assert by_key(table.to_arrow()) == pipeline.oracle
    assert again(table, earlier) == earlier.rows
    assert by_key(table.to_arrow()) == pipeline.oracle


def test_after_an_alteration_receipts_from_before_and_after_it(pipeline: Pipeline) -> None:
    """A kept reader takes the new contract up; a version from before does not stand in for one behind it."""
    kept = open_table(pipeline.uri)
    pipeline.produce(40)
    pipeline.ingest()
    before = read(kept)
    pipeline.merge_all()
    merged = receipt_of(kept.scan(consistency="eventual").schema)
    ends = tuple(int(merged.positions.get(r, 0)) for r in pipeline.contract.regions)
    altered = pipeline.contract.model_copy(update={"version": 2, "partitions": 4, "altered_at": ends})
    pipeline.store.put_if_absent(paths.contract_version(2, None), encode_contract(altered))
    assert again(kept, before) == before.rows
    assert kept.contract == altered
    early = Receipt.from_json(before.receipt).version
    mixed = {r: Position(p + 1) for r, p in merged.positions.items()}
    with pytest.raises(VersionGone):
        kept.scan(at=replace(merged, version=early, positions=mixed))


def test_a_kept_reader_takes_points_and_tokens_of_partitions_that_were_added(pipeline: Pipeline) -> None:
    pipeline.produce(40)
    pipeline.merge_all()
    kept, tokens = open_table(pipeline.uri), open_table(pipeline.uri)
    merged = kept.receipt().positions
    ends = tuple(int(merged[r]) for r in pipeline.contract.regions)
    added = len(ends)
    altered = pipeline.contract.model_copy(update={"version": 2, "partitions": added + 1, "altered_at": ends})
    pipeline.store.put_if_absent(paths.contract_version(2, None), encode_contract(altered))
    point = At.positions({**dict(enumerate(ends)), added: 0})
    assert by_key(kept.to_arrow(at=point)) == pipeline.oracle
    with pytest.raises(TokenTimeout, match=f"orders-{added}: 0 of 1"):
        tokens.receipt(at_least=f"orders-{added}-0", timeout_s=0)
    with pytest.raises(InvalidInput, match=f"with partitions 0 to {added}"):
        tokens.receipt(at_least=f"orders-{added + 1}-0", timeout_s=0)


def test_the_columns_are_those_of_the_contract(pipeline: Pipeline) -> None:
    pipeline.produce(30)
    pipeline.ingest()
    table = open_table(pipeline.uri)
    earlier = read(table)
    assert table.to_arrow(at=earlier.receipt.decode()).schema.equals(SMALL.remove_metadata())
    assert table.to_arrow(columns=["s"], at=earlier.receipt).column_names == ["s"]
