"""``lancewal offset reject --through``: what of a range becomes dead letters, what rows, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from lancewal_core.errors import (
    InvalidInput,
    KafkaUnavailable,
    KeyFormChanged,
    PartitionCountChanged,
    RecordsUnreadable,
)
from lancewal_core.names.ids import OwnerId, Position, Region
from lancewal_core.record_keys.key_format import encode_region_key
from lancewal_core.region.durable_position import durable_position
from lancewal_core.rows.murmur2 import partition_of
from lancewal_core.table.drain import Drain
from lancewal_core.wal import segment
from lancewal_ingest.commands.operator.reject import Partition, Passed, reject
from lancewal_ingest.decode.outcomes import Rejected
from lancewal_ingest.kafka.source import Offsets
from lancewal_kafka.records import Records
from lancewal_reader.table import open_table
from tests.ingest.regions.test_key_forms import KeyedPlace
from tests.ingest.regions.test_schema_waits import FramedPlace
from tests.support.fake_registry import JSON, FakeRegistry
from tests.support.pipeline import Pipeline, by_key
from tests.support.regions import region
from tests.support.repairs import content

HERE, ELSEWHERE = (
    next(f"r{n}" for n in range(99) if partition_of(encode_region_key(f"r{n}"), 2) == partition) for partition in (0, 1)
)
STOPS_AT = Position(3)


class Letters:
    """Dead letters that were acknowledged: (offset, kind); refuses all from the ``refuses``-th call on."""

    def __init__(self, pipeline: Pipeline, refuses: int | None = None) -> None:
        self.sent: list[tuple[int, str]] = []
        self._pipeline = pipeline
        self._refuses = refuses
        self._calls = 0

    def send(self, region: Region, records: Records, rejected: Sequence[Rejected]) -> None:
        if self._calls == self._refuses:
            raise KafkaUnavailable("not now")
        self._calls += 1
        assert rejected
        assert durable(self._pipeline) <= rejected[0].offset, "durable before it was acknowledged"
        assert {letter.offset for letter in rejected} <= set(records.offsets)
        self.sent += [(letter.offset, letter.kind) for letter in rejected]


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    """Of partition 0, offsets 3, 4, 6 and 9 are misrouted, 7 is no row, all others are good; it has stopped at 3."""
    made = Pipeline(tmp_path, partitions=2, seed=7, seal_rows=100_000)
    for offset in range(12):
        match offset:
            case 3 | 4 | 6 | 9:
                value = json.dumps({"region": ELSEWHERE, "id": offset, "a": -1}).encode()
                made._messages[0].append((encode_region_key(ELSEWHERE), value, "upsert"))
            case 7:
                made._messages[0].append((encode_region_key(HERE), b"{", "upsert"))
            case _:
                made.upsert(HERE, offset, a=offset)
    while not made._worker.stopped:
        made._worker.step(0)
    yield made
    made.close()


def durable(pipeline: Pipeline) -> int:
    found = durable_position(pipeline._worker._context, pipeline.contract.regions[0])
    assert found is not None
    return found


Read = Callable[[Region, Position, Position], tuple[Records, Position]]


def pass_over(
    pipeline: Pipeline,
    letters: Letters,
    through: int,
    offset: int = STOPS_AT,
    at_once: int = 2,
    read: Read | None = None,
    look_only: bool = False,
) -> Passed:
    """Reads so many records at once, or as ``read`` does."""
    source = pipeline._worker._source

    def some(region: Region, first: Position, end: Position) -> tuple[Records, Position]:
        behind = Position(min(first + at_once, end))
        taken = pipeline.messages(region.partition)[first:behind]
        return Records(
            list(range(first, behind)), [0] * len(taken), [k for k, _, _ in taken], [v for _, v, _ in taken],
            [None] * len(taken),
        ), behind  # fmt: skip

    kafka = Partition(lambda: source.offsets(pipeline.contract.regions[0]), read or some, letters, look_only)
    return reject(
        pipeline._worker._context,
        OwnerId("person"),
        pipeline.contract.regions[0],
        Position(offset),
        Position(through),
        kafka,
    )


@pytest.mark.parametrize("at_once", [1, 2, 3, 100])
def test_of_a_range_only_what_is_no_row_here_is_rejected(pipeline: Pipeline, at_once: int) -> None:
    letters = Letters(pipeline)
    passed = pass_over(pipeline, letters, 10, at_once=at_once)
    assert letters.sent == [(3, "misrouted"), (4, "misrouted"), (6, "misrouted"), (7, "not_json"), (9, "misrouted")]
    assert (passed.first.offset, dict(passed.rejected)) == (3, {"misrouted": 4, "not_json": 1})
    assert (passed.rows, passed.goes_on) == (3, 11)
    assert durable(pipeline) == 11
    pipeline.crash()
    assert by_key(open_table(pipeline.uri).to_arrow()) == pipeline.oracle
    pipeline.merge_all()
    assert by_key(open_table(pipeline.uri).to_arrow(consistency="eventual")) == pipeline.oracle


def test_to_look_says_the_same_and_changes_nothing(pipeline: Pipeline) -> None:
    letters, before = Letters(pipeline), content(pipeline.uri)
    seen = pass_over(pipeline, letters, 10, look_only=True)
    assert (letters.sent, content(pipeline.uri)) == ([], before)
    assert seen == pass_over(pipeline, letters, 10)
    assert len(letters.sent) == 5


def test_what_is_read_at_once_and_is_more_than_a_segment_takes_goes_into_several(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment, "SEGMENT_ROWS_BYTES_MAX", 200)
    monkeypatch.setattr("lancewal_ingest.commands.operator.reject.PIECE_BYTES", 600)
    passed = pass_over(pipeline, Letters(pipeline), 11, at_once=100)
    assert (passed.rows, passed.goes_on, durable(pipeline)) == (4, 12, 12)


def test_what_the_newest_version_ignores_is_passed_without_a_letter(pipeline: Pipeline) -> None:
    """The member that stopped at it works by the version before."""
    worker = pipeline._worker
    newest = pipeline.contract.model_copy(update={"version": 2, "on_misrouted": "ignore"})
    worker._context = replace(worker._context, contract=newest)
    letters = Letters(pipeline)
    passed = pass_over(pipeline, letters, 10)
    assert (passed.first.offset, passed.first.kind, passed.goes_on, durable(pipeline)) == (3, "misrouted", 11, 11)
    assert (dict(passed.rejected), passed.letters, letters.sent) == (
        {"misrouted": 4, "not_json": 1},
        1,
        [(7, "not_json")],
    )


def test_one_record_alone(pipeline: Pipeline) -> None:
    letters = Letters(pipeline)
    assert pass_over(pipeline, letters, STOPS_AT).goes_on == 4
    assert (letters.sent, durable(pipeline)) == ([(3, "misrouted")], 4)


def test_while_partitions_are_drained_it_goes_no_further_than_ingest(pipeline: Pipeline) -> None:
    worker = pipeline._worker
    by_number = {partition_of(encode_region_key(ELSEWHERE), n) == 0: n for n in range(3, 30)}
    for here, ends in ((True, STOPS_AT), (False, 5)):
        drain = Drain(contract_version=1, partitions=by_number[here], to=(5, 0), write_id="x")
        worker._context = replace(worker._context, drain=drain)
        letters = Letters(pipeline)
        if here:  # by the new number the record is right: it is not rejected
            with pytest.raises(PartitionCountChanged, match="table alter"):
                pass_over(pipeline, letters, 10)
        else:
            assert pass_over(pipeline, letters, 10).goes_on == ends
        assert durable(pipeline) == ends
        assert letters.sent == ([] if here else [(3, "misrouted"), (4, "misrouted")])


def test_while_partitions_are_drained_what_cannot_be_read_is_passed_no_further_either(pipeline: Pipeline) -> None:
    drain = Drain(contract_version=1, partitions=3, to=(5, 0), write_id="x")
    pipeline._worker._context = replace(pipeline._worker._context, drain=drain)

    def unreadable(region: Region, at: Position, end: Position) -> tuple[Records, Position]:
        raise RecordsUnreadable("what lies there cannot be read", behind=end)

    letters = Letters(pipeline)
    passed = pass_over(pipeline, letters, 10, read=unreadable)
    assert (passed.goes_on, durable(pipeline)) == (5, 5)
    assert letters.sent == [(3, "unreadable"), (4, "unreadable")]
    with pytest.raises(PartitionCountChanged, match="table alter"):
        pass_over(pipeline, letters, 10, offset=5, read=unreadable)


def test_where_the_range_ends_the_partition_stops_again(pipeline: Pipeline) -> None:
    pass_over(pipeline, Letters(pipeline), 6)
    pipeline.replace_worker()
    while not pipeline._worker.stopped:
        pipeline._worker.step(0)
    assert pipeline._worker.stopped[region(0)].where["offset"] == 7


def test_letters_that_are_not_acknowledged_end_it_behind_whole_pieces(pipeline: Pipeline) -> None:
    letters = Letters(pipeline, refuses=1)
    with pytest.raises(KafkaUnavailable):
        pass_over(pipeline, letters, 10)
    assert (letters.sent, durable(pipeline)) == ([(3, "misrouted"), (4, "misrouted")], 5)
    with pytest.raises(InvalidInput, match="the record at offset 5 is a good one"):
        pass_over(pipeline, Letters(pipeline), 10, offset=5)
    pipeline.replace_worker()
    while not pipeline._worker.stopped:
        pipeline._worker.step(0)
    assert pass_over(pipeline, Letters(pipeline), 10, offset=6).goes_on == 11
    pipeline.crash()
    assert by_key(open_table(pipeline.uri).to_arrow()) == pipeline.oracle


@pytest.mark.parametrize(
    ("offset", "through", "text"),
    [
        (4, 10, "goes on at offset 3, not at 4"),
        (2, 10, "goes on at offset 3, not at 2"),
        (3, 2, "through offset 2: expected one from 3 to 11"),
        (3, 12, "through offset 12: expected one from 3 to 11"),
    ],
)
def test_what_is_refused_changes_nothing(pipeline: Pipeline, offset: int, through: int, text: str) -> None:
    letters = Letters(pipeline)
    with pytest.raises(InvalidInput, match=f"{text}.*Nothing was changed"):
        pass_over(pipeline, letters, through, offset=offset)
    assert (letters.sent, durable(pipeline)) == ([], 3)


def test_a_record_whose_schema_is_not_stored_is_not_rejected() -> None:
    place = FramedPlace(FakeRegistry(id_7=JSON), on_bad_record="stop")
    worker = place.worker_here()
    place.source.coming = [place.framed(0, [7]), place.framed(1, [0, 7, 8, 7])]
    for _ in range(6):
        worker.step()
    assert [error.kind for error in worker.stopped.values()] == ["bad_record"]
    held, sent = place.framed(1, [0, 7, 8, 7]).records[place.region()], list[int]()

    def read(region: Region, first: Position, end: Position) -> tuple[Records, Position]:
        return held.part(first - 1, end - 1), end

    letters = Mock(send=lambda region, records, rejected: sent.extend(one.offset for one in rejected))
    kafka = Partition(lambda: Offsets(Position(0), Position(5)), read, letters)
    context = replace(place.context, schemas=None)
    with pytest.raises(InvalidInput, match=r"offset 3 names schema id-8.* Records before 3 are done"):
        reject(context, OwnerId("person"), place.region(), Position(1), Position(4), kafka)
    assert (sent, durable_position(context, place.region())) == ([1], 3)
    with pytest.raises(InvalidInput, match=r"unknown-schema=dead-letter`. Nothing was changed"):
        reject(context, OwnerId("person"), place.region(), Position(3), Position(3), kafka)


@pytest.mark.parametrize("on_bad_record", ["dead-letter", "ignore", "stop"])
def test_a_record_of_another_key_form_is_rejected_and_one_before_the_first_form_is_not(on_bad_record: str) -> None:
    place = KeyedPlace(FakeRegistry(id_7=JSON, id_8=JSON))
    worker = place.worker_here()
    place.alter(worker, on_bad_record=on_bad_record)
    place.source.coming = [place.keyed(0, [7]), place.keyed(1, [8, 7])]
    for _ in range(6):
        worker.step()
    assert [error.kind for error in worker.stopped.values()] == ["key_form_changed"]
    held, sent = place.keyed(1, [8, 7, 8]).records[place.region()], list[tuple[int, str]]()

    def read(region: Region, first: Position, end: Position) -> tuple[Records, Position]:
        return held.part(first - 1, end - 1), end

    letters = Mock(send=lambda region, records, rejected: sent.extend((one.offset, one.kind) for one in rejected))
    kafka = Partition(lambda: Offsets(Position(0), Position(4)), read, letters)
    context = replace(place.context, schemas=None, contract=place.newest())
    passed = reject(context, OwnerId("person"), place.region(), Position(1), Position(2), kafka)
    assert (passed.rows, passed.rejected, passed.goes_on) == (1, {"key_form_changed": 1}, 3)
    assert sent == [(1, "key_form_changed")]
    assert context.contract.has_letter("key_form_changed")

    no_form = replace(context, contract=context.contract.model_copy(update={"key_forms": ()}))
    with pytest.raises(KeyFormChanged, match="the table has no key yet"):
        reject(no_form, OwnerId("person"), place.region(), Position(3), Position(3), kafka)
    assert (len(sent), durable_position(context, place.region())) == (1, 3)
