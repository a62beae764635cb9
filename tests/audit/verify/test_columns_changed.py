"""``verify`` of a table whose columns were changed: records are decoded by the version that their entry names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lancewal_audit.verify import verification
from lancewal_audit.verify.evidence import Evidence
from lancewal_audit.verify.records.source import EntryPlaces, Range, RegionRecords
from lancewal_audit.verify.records.topic import TopicReader
from lancewal_audit.verify.report import Report, report_text
from lancewal_audit.verify.scope import Scope
from lancewal_audit.verify.verification import VerifyRequest, verify_table
from lancewal_core.names import paths
from lancewal_core.names.ids import LogId, Position, Region
from lancewal_core.names.ids import Sequence as Number
from lancewal_core.region.opened_table import OpenedTable
from lancewal_core.settings.load import Settings
from lancewal_ingest.decode.value_decoder import NO_SCHEMAS
from lancewal_ingest.regions.flush_queue import FlushQueue
from lancewal_kafka.records import Records
from lancewal_reader.point.receipt import receipt_of
from lancewal_reader.table import open_table
from tests.audit.repair.test_segment import damage, pieces, repair, state_of
from tests.support.pipeline import KEY, Pipeline
from tests.support.repairs import check_strong

COLUMNS = pa.schema(
    [
        *KEY,
        ("a", pa.int64()),
        ("s", pa.string()),
        ("tags", pa.list_(pa.string())),
        ("st", pa.struct([("x", pa.int32())])),
    ]
)


class PipelineTopic(TopicReader):
    """The pipeline's topic, whose records are all there."""

    def __init__(self, pipeline: Pipeline, scope: Scope) -> None:
        self._pipeline = pipeline
        self._eras = scope.eras
        self._columns_of = scope.contract
        self._preparers: dict[int, Any] = {}
        self._schemas: Any = NO_SCHEMAS
        self.versions = None
        self.compacted = False

    def ranges(
        self, cut: Mapping[Region, Position], beginnings: Mapping[Region, Position | None], losses: Any
    ) -> dict[Region, Range]:
        return {region: Range(region, Position(0), end, whole=True) for region, end in cut.items()}

    def read(self, ranges: Mapping[Region, Range], losses: Mapping[Region, Sequence[Any]]) -> Iterator[RegionRecords]:
        for region, range_ in ranges.items():
            taken = list(enumerate(self._pipeline.messages(region.partition)))[range_.begin : range_.end]
            if taken:
                records = Records(
                    [offset for offset, _ in taken],
                    [self._pipeline.record_ms(region.partition, offset) for offset, _ in taken],
                    [key for _, (key, _, _) in taken],
                    [value for _, (_, value, _) in taken],
                    [None if op == "upsert" else [("lancewal.op", op.encode())] for _, (_, _, op) in taken],
                )  # fmt: skip
                yield from self._taken(region, records, ())


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    made = Pipeline(tmp_path, COLUMNS, partitions=2, seal_rows=10**6, on_bad_record="ignore")
    yield made
    made.close()


def verify(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, sources: str, at: str | None = None) -> Report:
    real = verification._evidence

    def evidence(settings: Settings, opened: OpenedTable, scope: Scope, asked: verification.Sources) -> Evidence:
        if sources == "wal":
            return real(settings, opened, scope, asked)
        topic: Any = PipelineTopic(pipeline, scope)
        return Evidence(scope, real(settings, opened, scope, "wal").wal_records, topic, from_wal=sources == "both")

    with monkeypatch.context() as patch:
        patch.setattr(verification, "_evidence", evidence)
        return verify_table(Settings(), pipeline.uri, VerifyRequest(sources="wal", at=at))


def three_versions(pipeline: Pipeline, *, merge: bool) -> None:
    """Records whose meaning follows from the version of their entry: the same text is another row, or none, by another."""
    both = [("r0", 1), ("r3", 1)]
    for region, id in both:
        pipeline.produced("upsert", region, 90, {"note": "no column yet"})
        pipeline.upsert(region, id, a=1, s="old", tags=["x"], st={"x": 1})
    pipeline.produce(60)
    pipeline.ingest()
    if merge:
        pipeline.merge_all()
    pipeline.change_columns({"tags": None}, {"note": 'string = "none"'})
    for region, id in both:
        pipeline._send("upsert", region, id + 1, {})
        pipeline.oracle[region, id + 1] = {**pipeline._nulls(region, id + 1), "note": "none"}
        pipeline.patch(region, id, note="patched")
    pipeline.produce(60)
    pipeline.ingest()
    pipeline.change_columns({"a": "c", "note": None}, {"note": "int64", "tags": "list<int64>"})
    pipeline.produce(60)
    for region, id in both:
        pipeline.patch(region, id, tags=[5], note=7)
    pipeline.ingest()


@pytest.mark.in_turns("sources", "merge", each=2)
@pytest.mark.parametrize("merge", [False, True], ids=["unmerged", "merged in between"])
@pytest.mark.parametrize("sources", ["wal", "topic", "both"])
def test_a_sound_table_of_three_versions_has_no_difference(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, sources: str, merge: bool
) -> None:
    three_versions(pipeline, merge=merge)
    for _ in range(2):
        report = verify(pipeline, monkeypatch, sources)
        assert report.counts == {}, report_text(report)
        pipeline.merge_all()


@pytest.mark.parametrize("sources", ["wal", "topic"])
def test_a_wrong_value_of_a_changed_column_is_found(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, sources: str
) -> None:
    three_versions(pipeline, merge=False)
    pipeline.merge_all()
    import lance

    lance.dataset(pipeline.uri).update({"note": "8"}, where="region = 'r0' and id = 1")
    report = verify(pipeline, monkeypatch, sources)
    assert sum(report.counts.values()) >= 1, report_text(report)


def test_positions_are_divided_by_the_versions_of_their_entries() -> None:
    places = EntryPlaces()

    def divided(first: int, end: int) -> list[tuple[object, int, int]]:
        between = lambda before, after: (("between", before, after),)  # noqa: E731
        found = places.versions(Position(first), Position(end), between)  # type: ignore[arg-type] # to see its arguments
        return [(version, low, high) for (version,), low, high in found]

    assert divided(0, 9) == [(("between", None, None), 0, 9)]
    for first, next_, version in ((10, 20, 1), (20, 30, 2), (45, 50, 4)):
        places.add(LogId("a" * 16), Number(first), Position(first), Position(next_), version)
    places.add_named(Position(35), Position(40), 3)
    assert divided(0, 60) == [
        (("between", None, 1), 0, 10),
        (1, 10, 20),
        (2, 20, 30),
        (("between", 2, 3), 30, 35),
        (3, 35, 40),
        (("between", 3, 4), 40, 45),
        (4, 45, 50),
        (("between", 4, None), 50, 60),
    ]
    assert divided(15, 25) == [(1, 15, 20), (2, 20, 25)]
    assert divided(32, 38) == [(("between", 2, 3), 32, 35), (3, 35, 38)]
    assert divided(41, 43) == [(("between", 3, 4), 41, 43)]


@pytest.mark.in_turns("sources", "merge", each=2)
@pytest.mark.parametrize("merge", [False, True], ids=["unmerged", "merged in between"])
@pytest.mark.parametrize("sources", ["wal", "topic"])
def test_receipts_from_between_the_changes_show_the_columns_of_then(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, sources: str, merge: bool
) -> None:
    receipts = list[str]()

    def read() -> None:
        receipts.append(str(receipt_of(open_table(pipeline.uri).to_arrow().schema)))

    def step() -> None:
        pipeline.produce(40)
        pipeline.ingest()
        read()
        if merge:
            pipeline.merge_all()
            read()

    pipeline.produced("upsert", "r0", 90, {"note": "no column yet"})
    step()
    pipeline.change_columns({"tags": None}, {"note": 'string = "none"'})
    read()
    step()
    pipeline.change_columns({"a": "c", "note": None}, {"note": "int64", "tags": "list<int64>"})
    read()
    step()
    pipeline.merge_all()
    for receipt in receipts:
        report = verify(pipeline, monkeypatch, sources, at=receipt)
        assert report.records >= 40
        assert report.counts == {}, report_text(report)


@pytest.mark.parametrize("how", ["lost", "its rows"])
@pytest.mark.parametrize("which", [0, 1], ids=["last before the change", "first after the change"])
def test_a_repaired_segment_beside_a_change_of_columns_is_no_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: int, how: str
) -> None:
    """Its records may be rows of either version: ``verify`` asks them as the repair did."""
    pipeline = Pipeline(tmp_path, COLUMNS, partitions=1, seal_rows=10**6, on_bad_record="ignore")
    for turn in range(2):
        for id in range(4):
            pipeline.upsert("r0", id, a=turn, **({"note": "new"} if turn else {}))
            pipeline.ingest()
        if not turn:
            pipeline.produced("upsert", "r0", 9, {"note": "early"})  # a row by the second version alone
            pipeline.ingest()
            pipeline.change_columns({}, {"note": "string"})
    held = pieces(pipeline, log := state_of(pipeline, 0).generations[-1].log)
    border = [piece.contract_version for piece in held].index(2)
    path = Path(pipeline.uri) / paths.wal_segment(log, held[border - 1 + which].sequence)
    damage(path, how)
    assert repair(pipeline, path)
    if which == 0 and how != "its rows":  # else an entry or a trailer says its version
        pipeline.oracle["r0", 9] = {**pipeline._nulls("r0", 9), "note": "early"}
    pipeline.merge_all()
    check_strong(pipeline)
    report = verify(pipeline, monkeypatch, "both")
    assert report.counts == {}, report_text(report)
    pipeline.close()


def test_the_end_of_a_generation_is_repaired_by_the_versions_of_the_entries_around_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if one of them is of the next generation: columns that came later decide no record of the gap."""
    pipeline = Pipeline(tmp_path, COLUMNS, partitions=1, seal_rows=4, on_unknown_column="ignore")
    with monkeypatch.context() as patched:
        patched.setattr(FlushQueue, "advance", lambda self: None)  # else nothing needs the segment
        for id in range(4):
            pipeline.produced("upsert", "r0", id, {"a": 0, "extra": "early"})
            pipeline.oracle["r0", id] = {**pipeline._nulls("r0", id), "a": 0}
            pipeline.ingest()
        for id, column in enumerate(("note", "extra")):
            pipeline.change_columns({}, {column: "string"})
            pipeline.upsert("r0", id, a=1, **{column: "new"})
            pipeline.ingest()
        first, second = state_of(pipeline, 0).generations
        assert (first.next, first.log) == (second.first, second.log)
    held = pieces(pipeline, first.log)
    assert [piece.contract_version for piece in held] == [1, 1, 1, 1, 2, 3]
    path = Path(pipeline.uri) / paths.wal_segment(first.log, held[3].sequence)
    damage(path, "lost")
    assert repair(pipeline, path)
    pipeline.merge_all()
    check_strong(pipeline)
    report = verify(pipeline, monkeypatch, "both")
    assert report.counts == {}, report_text(report)
    pipeline.close()
