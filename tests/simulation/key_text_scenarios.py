"""A compacted topic whose keys are JSON in any text: what compaction keeps of two texts of one key, and what is made of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from lancewal_core.errors import RetentionLost
from lancewal_core.names.ids import OwnerId
from lancewal_core.rows.murmur2 import partition_of
from lancewal_core.rows.schema import Op
from lancewal_ingest.commands.operator.accept_loss import accept_loss
from tests.simulation import oracle
from tests.simulation.checker import require
from tests.simulation.stage import Member, Stage
from tests.support.regions import by_number
from tests.twins.sim_clock import EPOCH_MS

_TOMBSTONES_S = 10.0


def _stage() -> Stage:
    stage = Stage(key_format="json")
    stage.topic.tombstones_s = _TOMBSTONES_S
    return stage


def _texts(k: int, partition: int) -> list[bytes]:
    """Texts of the key that lie in one partition."""
    texts = (b'{"k":' + b" " * n + b"%d}" % k for n in range(50))
    return [text for text in texts if partition_of(text, 2) == partition]


def _send(stage: Stage, key: bytes, k: int, op: Op | None = Op.UPSERT, named: int | None = None) -> None:
    """A row or a tombstone of ``k``; ``named`` is the key of the row where it is another one."""
    now_ms = EPOCH_MS + int(stage.scheduler.now * 1000)

    def make(offset: int) -> oracle.Record:
        if op is Op.DELETE:
            return oracle.Record(offset, now_ms, key, None, None, op, k, {})
        return replace(oracle.upsert(offset, now_ms, key, k if named is None else named), op=op, k=k)

    stage.topic.append(partition_of(key, 2), make)


def _clean(stage: Stage) -> None:
    for partition in stage.topic.partitions:
        partition.clean(EPOCH_MS + int((stage.scheduler.now - _TOMBSTONES_S) * 1000))


def _lost_at_the_start(stage: Stage) -> Member:
    """A row under one text of its key, deleted under another: the row's record is left, and the tombstone gone."""
    one, other, *_ = _texts(1, 0)
    _send(stage, one, 1)
    _send(stage, other, 1, Op.DELETE)
    for k in (2, 3):
        _send(stage, _texts(k, 0)[0], k)
    stage.scheduler.now += _TOMBSTONES_S + 5
    _clean(stage)
    require([r.k for r in stage.topic.partitions[0].held(0, 9)] == [1, 2, 3], "compaction has left something else")
    a = stage.member("a", 0, 1)
    stage.step(a, 3)
    return a


def a_delete_under_another_text_is_gone() -> None:
    """The partition does not begin, since the row would come back.  A person accepts that."""
    stage = _stage()
    a = _lost_at_the_start(stage)
    stage.check()
    found = by_number(a.worker.stopped)
    require({p: type(error) for p, error in found.items()} == {0: RetentionLost}, "stopped:", found)
    context = a.worker._context
    accept_loss(context, OwnerId("person"), stage.region(0), lambda: a.source.offsets(stage.region(0)))
    stage.topic.partitions[0].lost.add(1)
    b = stage.member("b")
    stage.take_over(a, b, 0, 1)
    stage.step(b, 3)
    require(not b.worker.stopped, "stopped after the loss was accepted:", b.worker.stopped)
    require(by_number(b.worker.durable)[0] == 4, "durable:", b.worker.durable)
    stage.check()


def a_key_that_is_not_its_row_s() -> None:
    """Compaction would remove another key's row for it.  It is a dead letter, and no row."""
    stage = _stage()
    a = stage.member("a", 0, 1)
    text = _texts(1, 0)[0]
    _send(stage, text, 1)
    _send(stage, text, 1, None, named=2)
    stage.step(a, 3)
    stage.check()
    stage.seal(a)
    stage.round(stage.flusher("f"))
    stage.check_table()


def two_texts_of_one_key() -> None:
    """Rows and deletes under two texts, while compaction works: offsets order them, whichever records are left."""
    stage = _stage()
    a, b, f = stage.member("a", 0, 1), stage.member("b"), stage.flusher("f")
    one, other, *_ = _texts(1, 0)
    owner = a
    for turn, acts in enumerate(["r R d", "R r D", "D r", "d R r", "r d", "R D r D"]):
        for act in acts.split():
            _send(stage, one if act.islower() else other, 1, Op.DELETE if act in "dD" else Op.UPSERT)
        _send(stage, _texts(7 + turn, 1)[0], 7 + turn)
        stage.scheduler.now += 1
        _clean(stage)
        if turn == 3:
            stage.take_over(a, b, 0, 1)
            owner = b
        stage.step(owner, 3)
        require(not owner.worker.stopped, "stopped:", owner.worker.stopped)
        stage.check()
        if turn % 2:
            stage.seal(owner)
            stage.round(f)
            stage.check_table()
        stage.scheduler.now += _TOMBSTONES_S - 4


def nobody_reads_for_longer_than_deletes_stay() -> None:
    """As of any compacted topic: the partition stops and says so."""
    stage = _stage()
    a, b = stage.member("a", 0, 1), stage.member("b")
    one, other, *_ = _texts(1, 0)
    _send(stage, one, 1)
    stage.step(a, 3)
    stage.group.expel(a.process.name)
    _send(stage, other, 1, Op.DELETE)
    stage.scheduler.now += _TOMBSTONES_S + 5
    _clean(stage)
    stage.take_over(a, b, 0, 1)
    found = by_number(b.worker.stopped)
    require({p: type(error) for p, error in found.items()} == {0: RetentionLost}, "stopped:", found)


SCENARIOS: dict[Callable[[], None], tuple[str, str]] = {
    a_delete_under_another_text_is_gone: (
        "a region that begins has missed no delete",
        "instead of {1: KeyState.kind=.gone",
    ),
    a_key_that_is_not_its_row_s: ("a key is not compared with its row", r"rejected set\(\) bad are {1}"),
}

ACCIDENTS: list[Callable[[], None]] = [two_texts_of_one_key, nobody_reads_for_longer_than_deletes_stay]
