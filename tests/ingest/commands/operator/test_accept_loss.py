"""``lancewal offset accept-loss``, where offsets and deletes are lost at once, and where deletes are lost again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lancewal_core.errors import InvalidInput, KafkaBehind, RecordsGivenUp, TokenTimeout, TopicTruncated
from lancewal_core.names.ids import LogId, OwnerId, Position
from lancewal_core.region.loss_record import LossRecord, read_losses, replaced_below, write_loss
from lancewal_core.wal.writer import LogWriter
from lancewal_ingest.commands.operator.accept_loss import Accepted, accept_loss, plan_loss
from lancewal_ingest.context import IngestContext
from lancewal_ingest.kafka.source import Offsets
from lancewal_ingest.regions.open import open_region
from lancewal_ingest.retention.tombstones import lost_tombstones
from lancewal_kafka.retention import Compaction
from lancewal_reader.point.token import Token
from lancewal_reader.table import open_table
from tests.support.pipeline import Pipeline, by_key
from tests.support.repairs import content

DAY_S = 24 * 3600.0


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    """Durable up to 5, and nobody has read for 30 hours."""
    made = Pipeline(tmp_path, partitions=1, seed=5, seal_rows=100_000)
    for n in range(5):
        made.upsert("r1", n, a=1)
    made.ingest()
    made.hand_over()
    made.clock.ahead_s = 30 * 3600.0
    yield made
    made.close()


def context_of(pipeline: Pipeline) -> IngestContext:
    return pipeline._worker._context


def kafka(low: int, recent: int) -> Offsets:
    return Offsets(Position(low), Position(90), Compaction(DAY_S, Position(recent), Position(90)))


def accept(pipeline: Pipeline, offsets: Offsets) -> Accepted:
    return accept_loss(context_of(pipeline), OwnerId("person"), pipeline.contract.regions[0], lambda: offsets)


def recorded(pipeline: Pipeline) -> list[tuple[str, int, int]]:
    losses = read_losses(pipeline.store, pipeline.contract.regions[0], None)
    return [(loss.kind, loss.first, loss.next) for loss in losses]


def lost(pipeline: Pipeline, position: int, offsets: Offsets) -> bool:
    context = context_of(pipeline)
    state = context.states.read([pipeline.contract.regions[0]]).get(pipeline.contract.regions[0])
    found = lost_tombstones(context, pipeline.contract.regions[0], state, Position(position), offsets.compaction)
    return found is not None


def test_offsets_and_deletes_behind_them_are_both_recorded(pipeline: Pipeline) -> None:
    offsets = kafka(10, 24)
    assert lost(pipeline, 10, offsets)
    accepted = accept(pipeline, offsets)
    assert recorded(pipeline) == [("offsets", 5, 10), ("tombstones", 10, 24)]
    assert [loss.kind for loss in accepted.losses] == ["offsets", "tombstones"]
    assert accepted.goes_on == 10
    assert not lost(pipeline, 10, offsets)


@pytest.mark.parametrize("offsets", [kafka(10, 24), kafka(0, 24), Offsets(Position(0), Position(3))])
def test_to_look_says_what_would_be_accepted_and_changes_nothing(pipeline: Pipeline, offsets: Offsets) -> None:
    before = content(pipeline.uri)
    plan = plan_loss(context_of(pipeline), OwnerId("person"), pipeline.contract.regions[0], lambda: offsets)
    assert content(pipeline.uri) == before
    accepted = accept(pipeline, offsets)
    assert [(p.kind, p.first, p.next) for p in plan.losses] == [(a.kind, a.first, a.next) for a in accepted.losses]
    assert plan.goes_on == accepted.goes_on


def test_offsets_alone(pipeline: Pipeline) -> None:
    accept(pipeline, kafka(10, 10))
    assert recorded(pipeline) == [("offsets", 5, 10)]


def test_deletes_are_lost_again_before_ingest_starts(pipeline: Pipeline) -> None:
    assert accept(pipeline, kafka(0, 24)).goes_on == 5
    with pytest.raises(InvalidInput, match="nothing is lost"):
        accept(pipeline, kafka(0, 24))
    pipeline.clock.ahead_s += DAY_S
    assert lost(pipeline, 5, kafka(0, 60))
    assert accept(pipeline, kafka(0, 60)).goes_on == 5
    assert recorded(pipeline) == [("tombstones", 5, 24), ("tombstones", 24, 60)]
    assert not lost(pipeline, 5, kafka(0, 60))


def test_offsets_are_lost_where_only_deletes_were_accepted(pipeline: Pipeline) -> None:
    """Kafka drops the records themselves after a person has accepted their deletes."""
    accept(pipeline, kafka(0, 24))
    assert accept(pipeline, kafka(40, 40)).goes_on == 40
    assert recorded(pipeline) == [("offsets", 5, 40), ("tombstones", 5, 24)]


def test_more_is_lost_after_a_command_that_ended_half_way(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("lancewal_ingest.commands.operator.accept_loss.no_rows", None)
        with pytest.raises(TypeError):
            accept(pipeline, kafka(10, 10))
    assert recorded(pipeline) == [("offsets", 5, 10)]
    assert accept(pipeline, kafka(20, 20)).goes_on == 20
    assert recorded(pipeline) == [("offsets", 5, 20), ("offsets", 5, 10)]


def test_the_same_loss_is_recorded_once(pipeline: Pipeline) -> None:
    region = pipeline.contract.regions[0]
    for at in (1, 2):
        write_loss(pipeline.store, region, LossRecord(first=5, next=9, accepted_at_ms=at, accepted_by="person"), None)
    assert recorded(pipeline) == [("offsets", 5, 9)]


def test_a_lost_tail_is_waited_out_only_as_far_as_it_was_accepted(pipeline: Pipeline) -> None:
    """Durable up to 5: Kafka ends at 3, later at 2, and grows again."""
    region, context = pipeline.contract.regions[0], context_of(pipeline)

    def ends(high: int) -> Offsets:
        return Offsets(Position(0), Position(high))

    def opened(high: int) -> None:
        log = LogWriter(context.store, context.clock, LogId(f"log-{high}"), OwnerId("next"), context.contract.rows.wal)
        open_region(context, log, region, lambda: ends(high))

    with pytest.raises(TopicTruncated, match=f"`lancewal offset accept-loss {region.topic}-0`"):
        opened(3)
    assert accept(pipeline, ends(3)).goes_on == 5
    with pytest.raises(KafkaBehind, match="goes on at position 5"):
        opened(3)
    with pytest.raises(KafkaBehind):
        opened(4)
    with pytest.raises(TopicTruncated):
        opened(2)
    assert recorded(pipeline) == [("replaced", 3, 5)]
    assert replaced_below(read_losses(context.store, region, None)) == 5
    opened(5)


def test_a_read_that_must_see_a_record_that_was_given_up_says_so(pipeline: Pipeline) -> None:
    """As long as the table is there: while its entry is kept, and once all is trimmed."""
    with pytest.raises(TokenTimeout):
        open_table(pipeline.uri).receipt(at_least="orders-0-7", timeout_s=0)
    accept(pipeline, kafka(10, 24))
    for collected in (False, True):
        if collected:
            pipeline.merge()
            pipeline.clock.ahead_s += pipeline.contract.history_window_s + 3600
            pipeline.collect()
            pipeline.collect()
        table = open_table(pipeline.uri)
        for offset in (5, 9):
            told = f"record orders-0-{offset} will not become a row.*Produce it again"
            with pytest.raises(RecordsGivenUp, match=told) as found:
                table.receipt(at_least=f"orders-0-{offset}", timeout_s=0)
            assert found.value.where == {"topic": "orders", "partition": 0, "offset": offset}
        assert by_key(table.to_arrow(at_least="orders-0-4", timeout_s=0)) == pipeline.oracle
        table.receipt(at_least=Token({("orders", 0): Position(10)}), timeout_s=0)  # nobody's own record
