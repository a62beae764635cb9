"""Text about a topic's newest records for ``lancewal config check``: how many of them would be rows, or why not.

Records are read and decoded as in ingest, by a contract that the settings declare.  Nothing is written, no group is
joined, and no content of a record is shown.  Settings stay valid whatever the text says: the topic may be absent, empty
or trimmed, and brokers may not answer.  If nothing was compared, the text says so.
"""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lancewal_core.errors import InvalidInput, LancewalError, NotALancewalTable, TableMissing, TopicMissing, counted
from lancewal_core.record_keys.key_format import has_region_key
from lancewal_core.record_keys.why_misrouted import other_partitioner
from lancewal_core.table.contract import MISROUTED, Column, Contract
from lancewal_ingest.commands.proposals.sampled_records import GROUP, newest_parts, table_of_records

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from lancewal_core.settings.load import Settings
    from lancewal_core.settings.sections import TableSettings
    from lancewal_ingest.append.prepare import Consumed
    from lancewal_kafka.topic import TopicFacts

RECORDS = 10
"""Number of newest records that are shown."""
_TIMEOUT_S = 10.0
_OPEN = "Format, columns, keys and partitioner were compared with no record."
_Why = tuple[str, str]
"""Kind and message of a bad record."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """One record, and why it would be bad: the kind and the message, both empty if it would be a row or passed over."""

    at: tuple[int, int, int]
    """Timestamp, partition and offset."""
    kind: str = ""
    message: str = ""
    passed_over: bool = False
    """Whether it would be neither a row nor bad."""


def newest_records(settings: Settings) -> str:
    """Return a text about the topic's newest records, or the reason why they could not be read.

    If the table is there, its contract decides about them, as in ingest, and not the settings."""
    contract, notes = _contract_of_table(settings)
    topic = settings.table.topic if contract is None else contract.topic
    given = {"table.topic": topic, "kafka.bootstrap_servers": settings.kafka.bootstrap_servers}
    missing = [name for name, value in given.items() if not value]
    if missing:
        unset = f"{' and '.join(missing)} {'are' if missing[1:] else 'is'} not set"
        return "\n".join([*notes, f"No topic was looked at, since {unset}. {_OPEN}"])
    return "\n".join([*notes, *_lines(settings, topic, contract)])


def _contract_of_table(settings: Settings) -> tuple[Contract | None, Sequence[str]]:
    """Return the contract of the table that the settings name, and lines about it; None if there is no such table."""
    from lancewal_core.catalog.named import may_be_name
    from lancewal_core.open import Address
    from lancewal_core.table.checks import check_settings

    uri = settings.table.uri
    if not uri or (settings.catalog.is_set and may_be_name(uri)):
        return None, ()
    try:
        address = Address.of(settings)
        contract = address.contract()
    except (TableMissing, NotALancewalTable):
        return None, ()
    except LancewalError as error:
        return None, [f"The table at {uri} was not read, so the settings alone say what its records are: {error}"]
    lines = [f"The table at {uri} is there: version {contract.version} of its contract says what its records are."]
    try:
        check_settings(settings, contract, address.store())
    except LancewalError as error:
        lines.append(f"  Services refuse these settings: {error}")
    return contract, lines


def _lines(settings: Settings, topic: str, contract: Contract | None) -> Iterator[str]:
    """Yield what the topic's newest records are by ``contract``, or by the settings if it is None."""
    from lancewal_kafka.topic import TopicInspector

    forms = set[str]()
    try:
        inspector = TopicInspector(settings.kafka.client(), _TIMEOUT_S)
        facts = inspector.identify(topic)
        parts = list(newest_parts(settings, inspector, topic, facts, RECORDS))
        if contract is None and _declares_rows(settings.table):
            contract = _contract_of(settings.table, facts, topic)
        seen = [one for part in parts for one in _seen(part, *_judged(settings, contract, part, forms))]
        advice = list(_of_connector(settings, contract, parts, facts.partitions))
    except TopicMissing:
        yield f"Topic {topic} does not exist. {_OPEN}"
        return
    except LancewalError as error:
        yield f"Topic {topic} was not looked at: {error}"
        return
    if not seen:
        yield f"Topic {topic} has no record yet. {_OPEN}"
        return
    seen = sorted(seen, key=lambda one: one.at)[-RECORDS:]
    placed = {(key, part.region.partition) for part in parts for key in part.records.keys}
    partitioner = settings.table.partitioner if contract is None else contract.partitioner
    other = other_partitioner(placed, facts.partitions, partitioner)
    yield _text(topic, seen, forms, other, declared=contract is not None)
    yield from advice


def _of_connector(
    settings: Settings, contract: Contract | None, parts: Sequence[Consumed], partitions: int
) -> Iterator[str]:
    """Yield what ``lancewal config init --from-debezium`` would say about these records, if the settings have an
    envelope."""
    table = settings.table
    ours = (table.format.envelope, table.format.value, table.format.key)
    if contract is not None:
        ours = (contract.envelope, contract.value_format, contract.key_format)
    if ours[0] == "none" or not parts:
        return
    compacted = not (table.patches if contract is None else contract.patches)
    try:
        found = table_of_records(settings, parts, partitions, compacted=compacted)
    except InvalidInput as refused:
        yield f"  connector: {refused}"
        return
    for name, our, other in zip(
        ("envelope", "value", "key"), ours, (found.envelope, found.value, found.key), strict=True
    ):
        if our != other:
            yield f"  connector: table.format.{name} is {our}, and the connector's records ask for {other}"
    yield from (f"  connector: {one}" for one in found.advice)


def _seen(part: Consumed, bad: Mapping[int, _Why], passed_over: Collection[int]) -> Iterable[_Seen]:
    return [
        _Seen((ms, part.region.partition, offset), *bad.get(offset, ("", "")), offset in passed_over)
        for ms, offset in zip(part.records.timestamps, part.records.offsets, strict=True)
    ]


def _declares_rows(table: TableSettings) -> bool:
    return bool(table.columns and table.primary_key and (table.region_key or not has_region_key(table.format.key)))


def _judged(
    settings: Settings, contract: Contract | None, part: Consumed, forms: set[str]
) -> tuple[Mapping[int, _Why], Collection[int]]:
    """Return why records would be bad, by offset, and the offsets of those that would be passed over.

    Add the schemas of the records' keys to ``forms``.

    Without a contract, since the settings do not declare columns and keys, only other formats are recognised."""
    from lancewal_core.rows.schema import OFFSET
    from lancewal_ingest.append.prepare import Preparer, lenient
    from lancewal_ingest.decode.json.foreign import wrong_format
    from lancewal_ingest.decode.outcomes import KINDS, WRONG_FORMAT
    from lancewal_ingest.registry.asked import AskedSchemas

    if contract is None:
        if settings.table.format.value != "json":
            return {}, ()
        values = zip(part.records.offsets, part.records.values, part.records.headers, strict=True)
        found = ((offset, wrong_format(value or b"", headers, ())) for offset, value, headers in values)
        return {offset: (WRONG_FORMAT, message) for offset, message in found if message is not None}, ()
    # Each record is judged, also behind one that would stop its partition.
    contract = lenient(contract)
    forms.update(contract.key_forms)
    schemas = AskedSchemas.of(settings.registry)
    (judged,) = Preparer(contract, schemas=schemas).prepare_all([part])
    while (stop := judged.outcome.stop) is not None and stop.key_form is not None:
        forms.add(stop.key_form)
        contract = contract.model_copy(update={"key_forms": (*contract.key_forms, stop.key_form)})
        (judged,) = Preparer(contract, schemas=schemas).prepare_all([part])
    entry, letters, _ = judged.outcome
    if entry is None:
        return {}, ()
    why = {one.offset: (one.kind, KINDS.get(one.kind, one.kind)) for one in entry.rejected}
    of_connector = contract.envelope != "none"  # an unexpected member is then a column of the source
    why |= {one.offset: (one.kind, one.with_name if of_connector else one.message) for one in letters}
    known = {*why, *entry.rows.column(OFFSET).to_pylist()}
    return why, [offset for offset in part.records.offsets if offset < entry.next and offset not in known]


def _contract_of(table: TableSettings, facts: TopicFacts, topic: str) -> Contract:
    """Return the contract of a table with these settings.  Bad records stop no partition."""
    from lancewal_core.rows.column_types import parse_type
    from lancewal_core.settings.declared import column_source, type_text

    declared = [(name, column, column_source(column)) for name, column in table.columns.items()]
    numbers = itertools.count()
    return Contract(
        table_uuid=GROUP,
        topic=topic,
        topic_id=facts.topic_id,
        partitions=facts.partitions,
        primary_key=table.primary_key,
        region_key=table.region_key,
        key_format=table.format.key,
        partitioner=table.partitioner,
        start=(-1,) * facts.partitions,
        columns=tuple(
            Column(
                name=name,
                type=type_text(column),
                field_ids=_ids(parse_type(type_text(column)), numbers),  # naming knows fields by them
                json_form=source.json,
                toast=source.toast,
                field=source.field,
            )
            for name, column, source in declared
        ),
        value_format=table.format.value,
        value_record=table.format.record or None,
        on_other_record=table.on_other_record,
        envelope=table.format.envelope,
        snapshot_rows=table.snapshot_rows,
        unavailable_value=table.format.unavailable_value,
        on_unavailable_value="ignore" if table.on_unavailable_value == "ignore" else "dead-letter",
        patches=table.patches,
        record_bytes_max=int(table.record_bytes_max),
        on_bad_record="dead-letter",
        on_misrouted="dead-letter",
        on_truncate="ignore",
        on_unknown_column=table.on_unknown_column,
    )


def _ids(type_: pa.DataType, numbers: Iterator[int]) -> tuple[int, ...]:
    """Return an id for a field and, depth first, for each field within it."""
    from lancewal_core.rows.carry import fields_within

    return (next(numbers), *(id_ for field in fields_within(type_) for id_ in _ids(field.type, numbers)))


def _text(topic: str, seen: Sequence[_Seen], forms: Collection[str], other: str | None, *, declared: bool) -> str:
    """Return what ``config check`` says of records.  ``other``: a sentence about another partitioner."""
    kinds = Counter(one.kind for one in seen if one.kind)
    passed_over = sum(one.passed_over for one in seen)
    good, of_all = len(seen) - kinds.total() - passed_over, f"of the newest {counted(len(seen), 'record')}"
    fine = (
        f"{good} {of_all} would be rows" if declared else f"{kinds.total()} {of_all} are known to be of another format"
    )
    lines = [f"Topic {topic}: {fine}."]
    if len(forms) > 1:
        lines.append(
            f"  Record keys of {len(forms)} schemas ({', '.join(sorted(forms))}): ingest takes the first that it meets, and "
            "stops partitions before records of another one (key_form_changed)"
        )
    if passed_over:
        lines.append(f"  {passed_over} passed over: neither rows nor bad, such as heartbeats")
    for kind, count in kinds.most_common():
        one = next(one for one in reversed(seen) if one.kind == kind)
        said = f"{one.message}. {other}" if kind == MISROUTED and other else one.message
        lines.append(f"  {count} {kind}: {said} (such as {topic}-{one.at[1]}-{one.at[2]})")
    if not declared:
        lines.append(f"  table.columns, primary_key or region_key are not set, so no record was decoded. {_OPEN}")
    return "\n".join(lines)
