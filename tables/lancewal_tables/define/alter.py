"""``lancewal table alter``: write a new version of the contract.

Guarantees
 1. A key never has unmerged rows under both contracts.  The old contract ends only when every durable row is merged.
    If the old partitions stay, no more rows may become durable under the old contract either.  Kafka then has no later
    record of an old partition, or a record at which the drain ends (``lancewal_core.table.drain``).  The drain is
    closed, and every log that may still grow under the old contract is ended.
 2. The contract is swapped by compare-and-swap.  If two commands run at once, one wins and the other reports that.
 3. Every process that works by the old contract notices the new one.  Ingest finds that the topic differs from its
    contract, the flusher notices before it trims, and a reader before its next strong read.
 4. A refusal names every partition that prevents the change, the reason, and the command that helps.
 5. ``look_only`` makes the same checks and stores nothing.  It returns the contract that would be put.

Steps
 1. Check that the topic is as the command says, and differs from the contract.
 2. Check that each region of the old contract has its durable position equal to its merged position.
 3. ``add_partitions`` alone: check that Kafka or the drain ends at these positions, by the version of the drain that was
    read before step 2.  Then close the drain.
 4. End each OPEN generation, as a new owner would (``end_region``), and repeat step 2.  Records that Kafka has lost may
    have been in flight, and become durable since.  They are merged first, which does not need ingest.  ``rebind_topic``
    ends generations before step 2, since the former topic no longer has an owner who would seal them.
 5. Put the next version of the contract.  If the command is interrupted between steps 3 and 5, it continues at step 4
    when it is run again.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from pydantic import ValidationError

from lancewal_core.errors import ContractMismatch, InvalidInput, InvalidSettings, KafkaUnavailable, counted
from lancewal_core.names.ids import OwnerId, Position, Region
from lancewal_core.open import Address, open_by
from lancewal_core.process.clock import SystemClock
from lancewal_core.process.tasks import ThreadTasks
from lancewal_core.record_keys.key_form import schema_of_form
from lancewal_core.record_keys.key_format import has_key_forms
from lancewal_core.region.durable_position import durable_positions
from lancewal_core.region.end_region import end_region
from lancewal_core.region.opened_table import OpenedTable
from lancewal_core.region.state import GenerationState
from lancewal_core.rows.ttl import check_ttl
from lancewal_core.settings.load import Settings
from lancewal_core.settings.sections import TYPED_FORMATS, Start
from lancewal_core.store.object_store import ObjectStore
from lancewal_core.table.checks import check_place, check_settings
from lancewal_core.table.columns.restored import check_fit
from lancewal_core.table.contract import (
    BESIDE_ROWS,
    Contract,
    changed_terms,
    check_dead_letters,
    put_next,
    read_contract,
)
from lancewal_core.table.drain import Drain, close, drained_since, read_drain, takes_no_more
from lancewal_core.wal.writer_schemas import WriterSchemas
from lancewal_tables.define.topic import brokers_of, no_dead_letter_topic, no_warning

if TYPE_CHECKING:
    from lancewal_kafka.topic import TopicInspector, TopicState


class AskedTopic(Protocol):
    """Questions about a topic that ``add_partitions`` asks.  ``TopicInspector`` answers them."""

    def describe(self, topic: str) -> TopicState: ...

    def begins(self, topic: str, partitions: Collection[int]) -> Mapping[int, Position]: ...

    def ends(self, topic: str, partitions: Collection[int], *, committed: bool = True) -> Mapping[int, Position]: ...


_MERGE = "Merge the durable rows: `lancewal merge` (ingest need not run)"
"""Advice in a message: merge rows that are durable under the old contract."""
_FOLLOWED = frozenset({"on_unknown_column", "on_unavailable_value", "key_forms"})
"""Terms that change rows, and may be altered while rows are unmerged: each log entry names the contract version by
which its records were decoded.  They are terms of ``contract.VALUE_TERMS`` or ``contract.COLUMN_TERMS``, so a running
process adopts them.  ``alter_terms`` fails by its assertion if a term that an option changes is missing here."""
_ALTER = OwnerId("table-alter")
"""Owner that a fence names if ``lancewal table alter`` ended the log."""


def alter_partitions(settings: Settings, partitions: int, *, look_only: bool = False) -> Contract:
    """Add the topic's new partitions to the contract, and return the new contract.  Errors: see ``add_partitions``."""
    with _opened(settings) as opened:
        return add_partitions(opened, lambda: uuid.uuid4().hex, partitions, brokers_of(settings), look_only=look_only)


def add_partitions(
    opened: OpenedTable, new_id: Callable[[], str], partitions: int, kafka: AskedTopic, *, look_only: bool = False
) -> Contract:
    """Add the topic's new partitions to the contract (steps 1 to 5), and return the new contract.  ``partitions``: the
    topic's new number of partitions.  The table must be opened with its newest contract.

    Raises ``InvalidInput`` if records of old partitions are not all durable and merged (guarantee 1).  Raises
    ``InvalidSettings`` if the topic has another id or number of partitions, or if the contract already has at least
    ``partitions``.  Raises ``InvalidSettings`` too if the table has no partitioner (``none``).
    """
    store, old = opened.store, opened.contract
    # Step 1
    topic = kafka.describe(old.topic)
    if topic.topic_id != old.topic_id:
        raise _not_so(old, f"has id {topic.topic_id}, not {old.topic_id}: see `lancewal table alter --topic-id`")
    if topic.partitions != partitions:
        raise _not_so(old, f"has {counted(topic.partitions, 'partition')}, not {partitions}")
    if partitions <= old.partitions:
        raise InvalidSettings(
            f"the contract already has {counted(old.partitions, 'partition')}: {partitions} would add none"
        )
    if old.partitioner == "none":
        raise InvalidSettings(takes_no_more(old.topic, partitions, old.partitions))
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
        raise _refused(
            old,
            late,
            f"Ingest consumes no more records by the old number of partitions. {_MERGE}, and run the command "
            "again to continue",
        )
    # Step 5
    merged = tuple(at.merged for at in reached)
    new = old.model_copy(update={"version": old.version + 1, "partitions": partitions, "altered_at": merged})
    return new if look_only else put_next(store, opened.clock, old, new)


@dataclass(frozen=True, slots=True)
class _Reached:
    """Positions of a region.  ``durable`` is None if the region begins with the first record that Kafka has."""

    region: Region
    durable: Position | None
    merged: Position
    open_from: Position | None
    """First position of the OPEN generation; None if no generation is OPEN."""


@dataclass(frozen=True, slots=True)
class _Span:
    """Positions of a partition in Kafka: committed records lie from ``low`` up to ``end``, uncommitted ones up to ``high``."""

    low: Position
    end: Position
    high: Position


@dataclass(frozen=True, slots=True)
class _Left:
    """A reason why a partition prevents the change, and the command that removes the reason, if there is one."""

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
        "seals them after `ingest.seal_age_s`, or when it ends. To merge them sooner, stop ingest (SIGTERM) once all "
        "records are durable, then run `lancewal merge`"
    )
    return _refused(
        contract,
        left,
        f"Nothing was changed. {advice}With the producers stopped, start ingest again (`lancewal ingest run`), which takes "
        "the records of the old partitions. Let ingest and flusher work until `lancewal status` shows nothing unmerged, and "
        f"run the command again{seal if waiting else ''}",
    )


def _waits_for_a_seal(at: _Reached) -> bool:
    return at.durable is not None and at.open_from is not None and at.durable > max(at.open_from, at.merged)


def _refused(contract: Contract, left: list[_Left], way_on: str) -> InvalidInput:
    return InvalidInput(
        f"topic {contract.topic}: {'; '.join(f'partition {found.partition}: {found.problem}' for found in left)}. {way_on}",
        topic=contract.topic,
        partitions=tuple(sorted({found.partition for found in left})),
    )


def _reached(opened: OpenedTable) -> list[_Reached]:
    _, in_force = opened.watermarks.newest()
    contract, states = opened.contract, opened.read_states()
    found = []
    for region, durable in durable_positions(opened, contract.regions).items():
        mark = in_force.regions.get(region)
        merged = mark.next if mark is not None else contract.start_of(region.partition) or Position(0)
        newest = states[region].newest if region in states else None
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
    """Write a contract for a topic that was deleted and recreated with the same name, and return the contract.

    ``start``: where reading begins: at the first record, at the end, or at the first record at or after a time.
    Earlier records are never read; if the topic was restored from a backup, the table already has them.  Raises the
    errors of ``take_up_topic``.
    """
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
    """Write a contract for a recreated topic (steps 1, 4, 2 and 5), and return the contract.  The table must be opened
    with its newest contract.

    Raises ``InvalidInput`` if durable rows are not merged.  Raises ``InvalidSettings`` if the topic's id is not
    ``topic_id``, or if the contract already has this id.
    """
    old = opened.contract
    # Step 1
    topic = inspector.describe(old.topic)
    if topic.topic_id != topic_id:
        raise _not_so(old, f"has id {topic.topic_id}, not {topic_id}")
    if topic_id == old.topic_id:
        raise InvalidSettings(f"the contract already names topic id {topic_id}")
    # Step 4
    for region in () if look_only else old.regions:
        end_region(opened, new_id, _ALTER, region)
    # Step 2
    late = [one for at in _reached(opened) for one in _unmerged(at)]
    if late:
        raise _refused(old, late, f"{_MERGE}, and run the command again")
    new = old.model_copy(
        update={
            "version": old.version + 1, "topic_id": topic_id, "partitions": topic.partitions,
            "start": (0,) * topic.partitions if start == "earliest" else inspector.starts(topic, start),
            "altered_at": (),
        }
    )  # fmt: skip
    # Step 5
    return new if look_only else put_next(opened.store, opened.clock, old, new)


def alter_terms(
    settings: Settings,
    changes: Mapping[str, object],
    inspector: TopicInspector | None = None,
    warn: Callable[[str], object] = no_warning,
    *,
    look_only: bool = False,
) -> Contract:
    """Change terms of the contract, and return the new contract.  The terms do not affect which rows records give
    (``BESIDE_ROWS``), or each log entry names the contract that has them (``_FOLLOWED``).

    ``changes``: new values by the terms' names in the contract; for ``key_forms`` the additional ones.  Rows need not
    be merged first, and a process with the former contract does no harm.  ``warn`` gets a warning if a dead-letter
    topic that is newly named or used does not exist, or brokers cannot be asked.  It also gets one for an additional
    key form whose schema no record has named.
    """
    assert changes.keys() <= BESIDE_ROWS | _FOLLOWED | {"format"}
    address = Address.of(settings)
    store = address.store()
    old = read_contract(store, address.uri)
    check_place(address.uri, old)
    check_fit(store, address.table().newest(), old)
    if "key_forms" in changes:
        changes = {**changes, "key_forms": _with_forms(old, changes["key_forms"])}
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
    if new.on_unknown_column == "add" and new.value_format not in TYPED_FORMATS:
        raise InvalidInput(
            f"--on unknown-column=add: the table's format of values is {new.value_format}, which has no schema that says the "
            "type of a new column; use reject or ignore. Nothing was changed"
        )
    if "on_other_record" in changes and new.value_record is None:
        raise InvalidInput(
            "--on other-record: the policy needs table.format.record, which the table's contract does not have. Set "
            "it when you create a table (`lancewal table create`). Nothing was changed"
        )
    if not changed_terms(old, new):
        raise InvalidSettings("the contract already has these terms: nothing was changed")
    check_settings_of(settings, new, store)
    letters = None if _letters(new) <= _letters(old) else _missing_letters(settings, new, inspector)
    warnings = [*([] if letters is None else [letters]), *_never_named(store, old, new)]
    altered = new if look_only else put_next(store, SystemClock(), old, new)
    for text in warnings:
        warn(text)
    return altered


def _with_forms(old: Contract, further: object) -> tuple[object, ...]:
    if not has_key_forms(old.key_format):
        raise InvalidInput(
            f"--key-form: the table's format of keys is {old.key_format}, and such keys name no schema. Nothing was changed"
        )
    return tuple(dict.fromkeys([*old.key_forms, *(further if isinstance(further, tuple) else ())]))


def _never_named(store: ObjectStore, old: Contract, new: Contract) -> Iterator[str]:
    """Yield a warning for each new key form whose schema ingest has not stored.  Ingest stores each schema that a
    record names, before it accepts or rejects the record."""
    schemas = WriterSchemas(store, new.making)
    for form in new.key_forms:
        key = None if form in old.key_forms else schema_of_form(form)
        if key is not None and not schemas.read(key):
            yield (
                f"no record that ingest has read names schema {key}: is the number right? key_form_changed and `lancewal "
                "table show` name the schemas of keys. Once accepted, a schema stays"
            )


def check_settings_of(settings: Settings, new: Contract, store: ObjectStore) -> None:
    """Raise ``ContractMismatch`` if the settings would contradict a new contract, which is not stored yet."""
    try:
        check_settings(settings, new, store)
    except ContractMismatch as error:
        raise ContractMismatch(
            "nothing was changed: your settings would contradict the new contract, and every service would refuse them. "
            f"Change or remove these first. By the new contract: {error}",
            **error.where,
        ) from error


def _letters(contract: Contract) -> set[tuple[str, str]]:
    """Return the policies that send records to a dead-letter topic, each with the topic.

    A record that an operator rejects (``by hand``) is always sent."""
    policies = {"by hand": "dead-letter", **contract.record_policies}
    return {(what, contract.dead_letters) for what, policy in policies.items() if policy == "dead-letter"}


def _missing_letters(settings: Settings, contract: Contract, inspector: TopicInspector | None) -> str | None:
    """Return a warning if the dead-letter topic does not exist, or if the brokers cannot be asked; else None."""
    if inspector is None and not settings.kafka.bootstrap_servers:
        return None
    try:
        return no_dead_letter_topic(inspector or brokers_of(settings), contract.dead_letters)
    except KafkaUnavailable as error:
        return f"cannot find out whether the dead-letter topic {contract.dead_letters!r} exists: {error}"


@contextmanager
def _opened(settings: Settings) -> Iterator[OpenedTable]:
    settings.need("table.uri", "kafka.bootstrap_servers")
    with closing(ThreadTasks(workers=1)) as tasks:
        yield open_by(settings, tasks, SystemClock())


def _not_so(contract: Contract, problem: str) -> InvalidSettings:
    return InvalidSettings(f"topic {contract.topic} {problem}. Nothing was changed")
