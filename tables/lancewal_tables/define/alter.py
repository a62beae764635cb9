"""``lancewal table alter``: a new version of the contract.

Guarantees
 1. A key never has unmerged rows under both contracts.  The old contract ends only when every durable row is merged.
    If the old partitions stay, nothing more may become durable under it either: Kafka holds nothing beyond, or a
    record which ends what is drained (``lancewal_core.table.drain``); the drain is closed, and every log is ended
    that may still grow by it.
 2. The contract is swapped by compare-and-swap: of two commands at once one wins, the other says so.
 3. Every process that works by the old contract notices: ingest because the topic is not the contract's, the flusher
    before it trims, a reader before its next strong read.
 4. A refusal names every partition that prevents the change, why, and the command for it.
 5. ``look_only`` refuses what would be refused now, and stores nothing: it returns the contract that would
    be put.

Steps
 1. The topic must be what the command says, and not what the contract says.
 2. Each region of the old contract: durable position = merged position.
 3. ``alter``: that is where Kafka or the drain ends, by the version of the drain read before step 2; then close it.
 4. End what is OPEN, as a new owner would (``end_region``).  Then step 2 again: what Kafka has lost may have been in
    flight, and become durable since.  It is merged first, for which ingest is not needed.  ``rebind``: before step 2,
    since the former topic no longer has an owner who would seal.
 5. Put the next version of the contract.  Cut short between 3 and 5, the command goes on at 4 when it is run again.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from pydantic import ValidationError

from lancewal_core.errors import ContractMismatch, InvalidInput, InvalidSettings, KafkaUnavailable
from lancewal_core.names.ids import OwnerId, Position, Region
from lancewal_core.open import Address, open_by
from lancewal_core.process.clock import SystemClock
from lancewal_core.process.tasks import ThreadTasks
from lancewal_core.region.durable_position import durable_positions
from lancewal_core.region.end_region import end_region
from lancewal_core.region.opened_table import OpenedTable
from lancewal_core.region.state import GenerationState
from lancewal_core.rows.ttl import check_ttl
from lancewal_core.settings.load import Settings
from lancewal_core.settings.sections import Start
from lancewal_core.store.object_store import ObjectStore
from lancewal_core.store.versioned import Declined, Swapped, Version, swap
from lancewal_core.table.checks import check_place, check_settings, check_table
from lancewal_core.table.contract import (
    BESIDE_ROWS,
    Contract,
    changed_terms,
    check_dead_letters,
    contract_family,
    decode_contract,
    encode_contract,
    read_contract,
)
from lancewal_core.table.drain import Drain, close, drained_since, read_drain
from lancewal_tables.define.topic import brokers_of, no_dead_letter_topic, no_warning

if TYPE_CHECKING:
    from lancewal_kafka.topic import TopicInspector, TopicState


class AskedTopic(Protocol):
    """See ``TopicInspector``."""

    def describe(self, topic: str) -> TopicState: ...

    def begins(self, topic: str, partitions: Collection[int]) -> Mapping[int, Position]: ...

    def ends(self, topic: str, partitions: Collection[int], *, committed: bool = True) -> Mapping[int, Position]: ...


_MERGE = "Merge what is durable: `lancewal merge` (ingest is not needed for it)"
"""Advice for records that ingest takes no more."""
_ALTER = OwnerId("table-alter")
"""Owner that a fence names whose log was ended by an alteration."""


def alter_partitions(settings: Settings, partitions: int, *, look_only: bool = False) -> Contract:
    """Take up partitions that were added to the topic.  ``InvalidInput`` if guarantee 1 does not hold."""
    with _opened(settings) as opened:
        return add_partitions(opened, lambda: uuid.uuid4().hex, partitions, brokers_of(settings), look_only=look_only)


def add_partitions(
    opened: OpenedTable, new_id: Callable[[], str], partitions: int, kafka: AskedTopic, *, look_only: bool = False
) -> Contract:
    """All steps, for a table opened with its newest contract."""
    store, old = opened.store, opened.contract
    # Step 1
    topic = kafka.describe(old.topic)
    if topic.topic_id != old.topic_id:
        raise _not_so(old, f"has id {topic.topic_id}, not {old.topic_id}: see `lancewal table alter --topic-id`")
    if topic.partitions != partitions:
        raise _not_so(old, f"has {topic.partitions} partitions, not {partitions}")
    if partitions <= old.partitions:
        raise InvalidSettings(f"the contract says {old.partitions} partitions already: {partitions} adds none")
    drain = read_drain(store, old)
    if drain is None or not drain.closed:
        # Step 2
        reached = _reached(opened)
        # Step 3
        numbers = range(old.partitions)
        lows, ends = kafka.begins(old.topic, numbers), kafka.ends(old.topic, numbers)
        highs = kafka.ends(old.topic, numbers, committed=False)
        spans = [_Span(lows[p], ends[p], highs[p]) for p in numbers]
        left = [one for p, at in enumerate(reached) for one in _left(old.topic, at, spans[p], drain, partitions)]
        if left:
            raise _not_yet(old, left, reached)
        to = tuple(at.merged for at in reached)
        since = drained_since(store, old)
        ended = Drain(contract_version=since, partitions=partitions, to=to, write_id=new_id())
        if not look_only:
            close(store, opened.clock, new_id, old, drain, ended)
    # Step 4
    for region in () if look_only else old.regions:
        end_region(opened, new_id, _ALTER, region)
    reached = _reached(opened)
    late = [one for at in reached for one in _unmerged(at)]
    if late:
        raise _not_merged(old, late)
    # Step 5
    merged = tuple(at.merged for at in reached)
    new = old.model_copy(update={"version": old.version + 1, "partitions": partitions, "altered_at": merged})
    return new if look_only else put_next(store, old, new)


@dataclass(frozen=True, slots=True)
class _Reached:
    """How far a region has come; ``durable`` is None where it begins with the first record that Kafka has."""

    region: Region
    durable: Position | None
    merged: Position
    open_from: Position | None
    """Beginning of the generation that is OPEN; None if none is."""


@dataclass(frozen=True, slots=True)
class _Span:
    """Records that Kafka has of a partition: from ``low`` to ``end``, and to ``high`` with what is not committed yet."""

    low: Position
    end: Position
    high: Position


@dataclass(frozen=True, slots=True)
class _Left:
    """Work that is left to do for a partition, and the command for it where that is one."""

    partition: int
    problem: str
    command: str | None = None


def _left(topic: str, at: _Reached, span: _Span, drain: Drain | None, partitions: int) -> list[_Left]:
    low, end, high = span.low, span.end, span.high
    partition, durable = at.region.partition, low if at.durable is None else at.durable
    found = _unmerged(at)
    if drain is not None and drain.partitions == partitions and partition in drain.new:
        end, high = (min(until, Position(drain.to[partition])) for until in (end, high))
        low = min(low, end)
    if low > durable:
        deleted = f"Kafka deleted offsets {durable} to {low - 1} before they became durable"
        found.append(_Left(partition, deleted, f"lancewal offset accept-loss {topic}-{partition}"))
    if end > max(low, durable):
        found.append(_Left(partition, f"Kafka holds offsets {max(low, durable)} to {end - 1}, not durable yet"))
    if high > end:
        # Its records would come by the new contract, though they lie here by the old number.
        found.append(_Left(partition, f"a transaction is open from position {end} on: let it end"))
    return found


def _unmerged(at: _Reached) -> list[_Left]:
    if at.durable is None or at.durable <= at.merged:
        return []
    return [_Left(at.region.partition, f"offsets {at.merged} to {at.durable - 1} are not merged yet")]


def _not_yet(contract: Contract, left: list[_Left], reached: list[_Reached]) -> InvalidInput:
    commands = [f"`{found.command}`" for found in left if found.command is not None]
    advice = f"To go on without what Kafka deleted: {', '.join(commands)}. " if commands else ""
    waiting = [at.region.partition for at in reached if _waits_for_a_seal(at)]
    seal = (
        f". Durable rows of partitions {', '.join(map(str, waiting))} are in open generations, which no merge takes: ingest "
        "seals them after `ingest.seal_age_s`, or as it ends. To hasten that, stop it (SIGTERM) once all is durable, then "
        "`lancewal merge`"
    )
    return _refused(
        contract,
        left,
        f"Nothing was changed. {advice}With the producers stopped, start ingest again (`lancewal ingest run`), which takes "
        "what the old partitions hold. Let ingest and flusher work until `lancewal status` shows nothing unmerged, and run "
        f"the command again{seal if waiting else ''}",
    )


def _waits_for_a_seal(at: _Reached) -> bool:
    return at.durable is not None and at.open_from is not None and at.durable > max(at.open_from, at.merged)


def _not_merged(contract: Contract, left: list[_Left]) -> InvalidInput:
    return _refused(
        contract, left, f"Ingest takes no more by the old number. {_MERGE}, and run the command again, which goes on"
    )


def _refused(contract: Contract, left: list[_Left], way_on: str) -> InvalidInput:
    return InvalidInput(
        f"topic {contract.topic}: {'; '.join(f'partition {found.partition}: {found.problem}' for found in left)}. {way_on}",
        topic=contract.topic,
        partitions=tuple(sorted({found.partition for found in left})),
    )


def _reached(opened: OpenedTable) -> list[_Reached]:
    _, in_force = opened.watermarks.newest()
    contract, indexes = opened.contract, opened.read_indexes()
    found = []
    for region, durable in durable_positions(opened, contract.regions).items():
        mark = in_force.regions.get(region)
        merged = mark.next if mark is not None else contract.start_of(region.partition) or Position(0)
        newest = indexes[region].newest if region in indexes else None
        open_from = newest.first if newest is not None and newest.state is GenerationState.OPEN else None
        found.append(_Reached(region, durable, merged, open_from))
    return found


def rebind_topic(
    settings: Settings,
    topic_id: str,
    inspector: TopicInspector | None = None,
    start: Start = "earliest",
    *,
    look_only: bool = False,
) -> Contract:
    """Take up a topic that was deleted and made again under its name.

    It is read from its first record, from its end, or from the first record at or after a time.  What lies before is
    never read: the table has it already where the topic was restored from a backup."""
    with _opened(settings) as opened:
        inspector = inspector or brokers_of(settings)
        return take_up_topic(opened, lambda: uuid.uuid4().hex, topic_id, inspector, start, look_only=look_only)


def take_up_topic(
    opened: OpenedTable,
    new_id: Callable[[], str],
    topic_id: str,
    inspector: TopicInspector,
    start: Start = "earliest",
    *,
    look_only: bool = False,
) -> Contract:
    """All steps, for a table opened with its newest contract."""
    old = opened.contract
    # Step 1
    topic = inspector.describe(old.topic)
    if topic.topic_id != topic_id:
        raise _not_so(old, f"has id {topic.topic_id}, not {topic_id}")
    if topic_id == old.topic_id:
        raise InvalidSettings(f"the contract names topic id {topic_id} already")
    # Step 4
    for region in () if look_only else old.regions:
        end_region(opened, new_id, _ALTER, region)
    # Step 2
    for at in _reached(opened):
        if at.durable is not None and at.durable > at.merged:
            raise _unfinished(
                old, at.region.partition, f"offsets {at.merged} to {at.durable - 1} are not merged yet", _MERGE
            )
    new = old.model_copy(
        update={
            "version": old.version + 1, "topic_id": topic_id, "partitions": topic.partitions,
            "start": (0,) * topic.partitions if start == "earliest" else inspector.starts(topic, start),
            "altered_at": (),
        }
    )  # fmt: skip
    # Step 5
    return new if look_only else put_next(opened.store, old, new)


def alter_terms(
    settings: Settings,
    changes: Mapping[str, object],
    inspector: TopicInspector | None = None,
    warn: Callable[[str], object] = no_warning,
    *,
    look_only: bool = False,
) -> Contract:
    """Alter terms that decide no row (``BESIDE_ROWS``), by their names in the contract.

    Nothing need be merged, and a process that goes on by the version before does no harm.  ``warn`` is called for a
    dead-letter topic that is newly named, or newly used, and does not exist."""
    assert changes.keys() <= BESIDE_ROWS
    settings.need("table.uri")
    address = Address.of(settings)
    store = address.store()
    old = read_contract(store, address.uri)
    check_place(address.uri, old)
    check_table(address.table().newest(), old)
    if changes.get("group_id", old.group_id) != old.group_id:
        changes = {**changes, "former_group_id": old.group_id}
    try:
        new = Contract.model_validate({**old.model_dump(), **changes, "version": old.version + 1})
    except ValidationError as error:
        wrong = error.errors()[0]
        raise InvalidInput(f"{wrong['loc'][0]}: {wrong['msg']}. Nothing was changed") from error
    try:
        check_dead_letters(new)
    except InvalidInput as error:
        raise InvalidInput(f"{error}. Nothing was changed") from error
    check_ttl(new.ttl, new.rows, new.patches)
    if not changed_terms(old, new):
        raise InvalidSettings("the contract says so already: nothing was changed")
    try:
        check_settings(settings, new)
    except ContractMismatch as error:
        raise ContractMismatch(
            "nothing was changed: your settings would contradict the new contract, and every service would refuse them. "
            f"Change or remove these first. By the new contract: {error}",
            **error.where,
        ) from error
    letters = None if _letters(new) <= _letters(old) else _missing_letters(settings, new, inspector)
    altered = new if look_only else put_next(store, old, new)
    if letters is not None:
        warn(letters)
    return altered


def _letters(contract: Contract) -> set[tuple[str, str]]:
    """Return the settings that send letters to a dead-letter topic, each with the topic.  An operator who rejects a
    record always sends."""
    policies = {"by hand": "dead-letter", "bad-record": contract.on_bad_record, "misrouted": contract.on_misrouted}
    return {(what, contract.dead_letters) for what, policy in policies.items() if policy == "dead-letter"}


def _missing_letters(settings: Settings, contract: Contract, inspector: TopicInspector | None) -> str | None:
    """A warning, as at create.  The change needs no broker, so one that cannot be asked holds nothing up."""
    if inspector is None and not settings.kafka.bootstrap_servers:
        return None
    try:
        return no_dead_letter_topic(inspector or brokers_of(settings), contract.dead_letters)
    except KafkaUnavailable as error:
        return f"whether the dead-letter topic {contract.dead_letters!r} exists is not known: {error}"


@contextmanager
def _opened(settings: Settings) -> Iterator[OpenedTable]:
    settings.need("table.uri", "kafka.bootstrap_servers")
    with closing(ThreadTasks(workers=1)) as tasks:
        yield open_by(settings, tasks, SystemClock())


def put_next(store: ObjectStore, old: Contract, new: Contract) -> Contract:
    """Swap in the next version of the contract; ``ContractMismatch`` if somebody else was faster."""

    family = contract_family(old.making)

    def decide(found: Version | None) -> Contract | None:
        unchanged = found is not None and decode_contract(found.data, family.key(found.version)) == old
        return new if unchanged else None

    match swap(store, family, SystemClock(), decide, encode_contract):
        case Swapped():
            return new
        case Declined():
            raise ContractMismatch("somebody else changed the contract at the same time: look at `lancewal table show`")


def _unfinished(contract: Contract, partition: int, problem: str, way_on: str) -> InvalidInput:
    return InvalidInput(
        f"topic {contract.topic} partition {partition}: {problem}. {way_on}, and run the command again",
        topic=contract.topic,
        partition=partition,
    )


def _not_so(contract: Contract, problem: str) -> InvalidSettings:
    return InvalidSettings(f"topic {contract.topic} {problem}. Nothing was changed")
