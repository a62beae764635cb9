"""Outcome of one region's records under the contract: rows, records that cannot become rows, gaps, or a stop.

Guarantees
 1. An entry over [first, next) is the same under every policy.  Good records are rows, and bad ones are listed in it
    with what is wrong with them.  Records that are passed over are gaps, as offsets without a record are.  Policies
    decide where an entry ends and which of the listed records become dead letters.
 2. If a policy is ``stop``, the partition stops right before the first record to which the policy applies.
    ``on_wrong_format`` applies only to a partition without a row (``NoRowYet``).  It stops such a partition before a
    record that is recognised as of another format.  It also does so before bad record number ``FIRST_RECORDS``, if all
    bad records so far are of one kind.  A record whose key has a form that the contract does not list stops the
    partition under every policy (``KeyFormChanged``).  If records are read again (``reads_again``), such a record is
    rejected instead.  It still stops the partition if the contract lists no form at all, because then no entry has a
    row with such a key.
 3. A record that is passed over is asked for nothing: neither for its partition, nor for its key.  It is no row and no
    bad record for ``on_wrong_format``, and ends no drain.
 4. Letters and entry are of one version of the contract, and the entry names it.  That version says whether a listed
    record became a dead letter or was ignored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise, repeat
from types import MappingProxyType
from typing import NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lancewal_core.errors import counted
from lancewal_core.names.ids import Position, Region
from lancewal_core.record_keys.key_form import KeyForm
from lancewal_core.rows.murmur2 import NO_PARTITION
from lancewal_core.rows.row_range import RowRange
from lancewal_core.rows.schema import OFFSET, OP, Op
from lancewal_core.settings.sections import Policy
from lancewal_core.table.contract import KEY_FORM_CHANGED, MISROUTED, Contract
from lancewal_core.table.drain import Drain
from lancewal_core.wal.entry import FIRST_RECORDS, Entry, NoRowYet, RejectedOffset
from lancewal_ingest.append.draining import DrainLimit
from lancewal_ingest.append.routing import Partitions, Routing
from lancewal_ingest.append.shared_rows import SharedPart
from lancewal_ingest.append.stops import UNKNOWN_COLUMN, Stop, stopped_by, stopped_by_format, stopped_by_misrouted
from lancewal_ingest.decode.decoder import Decoder
from lancewal_ingest.decode.metadata import MetadataColumns
from lancewal_ingest.decode.naming import OtherName, naming_of
from lancewal_ingest.decode.outcomes import OF_COLUMNS, WRONG_FORMAT, Decoded, Rejected
from lancewal_ingest.decode.value_decoder import NO_SCHEMAS, NamedBy, Schemas, Weights
from lancewal_ingest.decode.weight import pieces
from lancewal_ingest.envelopes.envelope import envelope_of
from lancewal_ingest.formats import record_keys, value_decoder
from lancewal_kafka.records import Records

R = TypeVar("R", Rejected, RejectedOffset)

TOGETHER_BYTES = 8 << 20
"""Largest weight of regions that are decoded together into one batch.  While one of them keeps its rows, the whole
batch stays in memory.  A single region may weigh more."""
_RECORD_BYTES = 1 << 10
"""Least weight that a record counts for in ``TOGETHER_BYTES``.  More than some thousand records at a time gain
nothing."""


@dataclass(frozen=True, slots=True)
class Consumed:
    """All records of one region in [first, next); ``first`` is its durable position."""

    region: Region
    first: Position
    next: Position
    records: Records
    nbytes: int = 0
    """Weight of the records (``decode.weight``); ``Preparer.prepare_all`` groups regions by this weight."""
    no_row_yet: NoRowYet | None = None
    """Rejected records before ``first``, while the region has had no row.  None if it has had a row, or if records are
    read again, because then no policy stops a partition."""


class PrepareOutcome(NamedTuple):
    """Result for the consumed records of one region."""

    entry: Entry | None
    """Entry to write; None if the very first record stops the partition."""
    letters: tuple[Rejected, ...]
    """Rejected records of the entry that are to be sent as dead letters."""
    stop: Stop | None


class Together(NamedTuple):
    """Result for one of several regions that were prepared in one call."""

    outcome: PrepareOutcome
    shared: SharedPart | None
    """Place of the entry's rows in a batch that other entries share.  None if the entry has a batch of its own."""
    by_terms: bool = False
    """Whether a newer contract may decide otherwise about a record of this region, or of one decoded with it."""
    other_names: Mapping[OtherName, int] = MappingProxyType({})
    """How often rows used each name that is not a current name of a column.  One region of those that were decoded
    together has the counts of all of them."""
    new_fields: Mapping[str, pa.DataType] = MappingProxyType({})
    """New fields of records (``DecodedValues.new_fields``).  One region of those that were decoded together has the new
    fields of all of them."""
    passed_over: Mapping[str, int] = MappingProxyType({})
    """Number of records that are passed over, by kind.  Records after a stop count too.  One region of those that were
    decoded together has the counts of all of them."""
    changed_ms: int = 0
    """Time at which the source made one of the newest changes, in milliseconds since 1970; 0 if unknown.  One region of
    those that were decoded together has it for all of them (``DecodedValues.changed_ms``)."""


_MAY_STOP = (
    *("on_bad_record", "on_wrong_format", "on_misrouted"),
    *("on_unknown_schema", "on_other_record", "on_unavailable_value"),
)
"""Names of the contract's policies that can be ``stop`` or ``dead-letter``."""


def lenient(contract: Contract) -> Contract:
    """Return the contract with each ``stop`` policy replaced by ``dead-letter``, so that no record stops a
    partition."""
    update = {name: "dead-letter" for name in _MAY_STOP if getattr(contract, name) == "stop"}
    update["on_truncate"] = "ignore"  # which never has a dead letter
    # Both reject records whose fields have no column, but ``add`` stops no partition.
    on_unknown_column = "ignore" if contract.on_unknown_column == "ignore" else "add"
    return contract.model_copy(update={**update, "on_unknown_column": on_unknown_column})


class Preparer:
    """Decoder of consumed records.  It checks them against the contract, and makes the entries of a segment."""

    def __init__(
        self,
        contract: Contract,
        drain: Drain | None = None,
        schemas: Schemas = NO_SCHEMAS,
        *,
        reads_again: bool = False,
    ) -> None:
        """``reads_again``: no policy stops a partition (``lenient``).  Either the records have an entry already, or a
        person skips bad ones.  Only a key form stops it, under a contract that lists none (guarantee 2).
        """
        self.contract = contract = lenient(contract) if reads_again else contract
        self._drained = None if drain is None else DrainLimit(contract, drain)
        rows = contract.rows
        self._decoder = Decoder(
            rows,
            value_decoder(
                contract.value_format,
                rows,
                naming_of(contract),
                schemas,
                contract.schema_versions,
                envelope_of(contract),
            ),
            patches=contract.patches,
            record_bytes_max=contract.record_bytes_max,
            keys=record_keys(contract, schemas),
            metadata=MetadataColumns(rows, _metadata_of(contract), contract.topic),
        )
        self.weights = self._decoder.weights
        self._routing = Routing(contract)
        self._stops_for_columns = self._decoder.schemas_have_fields and contract.on_unknown_column == "reject"
        """Whether a field of a schema without a column stops a partition.  Its producer writes more such records, and
        a letter for each of them would help nobody."""
        self._fields_are_columns = self._decoder.schemas_have_fields or contract.envelope != "none"
        """Whether a field without a column is nearly always a column of the source, so that messages name it."""
        self._stops_for_keys = not (reads_again and contract.key_forms)

    @property
    def names_schemas(self) -> bool:
        """Whether values name the schemas that they were written under."""
        return self._decoder.names_schemas

    def schemas_of(self, records: Records) -> Sequence[NamedBy]:
        """Return the schemas that the values of records name, each with the indexes of the records."""
        return self._decoder.schemas_of(records)

    def prepare(self, consumed: Consumed) -> PrepareOutcome:
        (found,) = self.prepare_all([consumed])
        return found.outcome

    def prepare_all(self, consumed: Sequence[Consumed]) -> list[Together]:
        """Return the outcome for the records of each region, in the order of ``consumed``."""
        outcomes: list[Together] = []
        consumed = [self._shortened(one) for one in consumed]
        weights = np.array([max(c.nbytes, _RECORD_BYTES * len(c.records.offsets)) for c in consumed], np.int64)
        for begin, end in pairwise([0, *pieces(weights, TOGETHER_BYTES)]):
            outcomes += self._together(consumed[begin:end], weights[begin:end])
        return outcomes

    def _shortened(self, consumed: Consumed) -> Consumed:
        """Return only the first ``FIRST_RECORDS`` records if these stop a partition without a row; otherwise all.

        A wrong topic brings as many records as fit into a segment, and rejecting each of them takes seconds."""
        records = consumed.records
        if consumed.no_row_yet is None or len(records) <= FIRST_RECORDS:
            return consumed
        end = Position(records.offsets[FIRST_RECORDS])
        first = replace(consumed, next=end, records=records.part(0, FIRST_RECORDS), nbytes=0)
        (found,) = self._together([first], np.zeros(1, np.int64))
        return consumed if found.outcome.stop is None else first

    def _together(self, group: Sequence[Consumed], weights: Weights) -> list[Together]:
        if len(group) == 1:
            records = group[0].records
            lies = np.full(len(records), group[0].region.partition, np.int32)
            decoded = self._decoder.decode(records, lies)
            outcome = self._outcome(group[0], decoded, self._routing.partitions(records, decoded, lies))
            return [_counted(Together(outcome, None, _by_terms(decoded, group)), decoded)]
        records = Records.joined([c.records for c in group])
        counts = [len(c.records.offsets) for c in group]
        lies = np.repeat(np.array([c.region.partition for c in group], np.int32), counts)
        decoded = self._decoder.decode(records, lies)
        belongs = self._routing.partitions(records, decoded, lies)
        all_rows = decoded.rows.num_rows == len(records) and not decoded.other_names
        if self._drained is None and all_rows and np.array_equal(belongs, lies):
            found = self._all_rows(group, decoded.rows, counts, weights)
            return [_counted(found[0], decoded), *found[1:]]
        rows = np.concatenate([[0], np.cumsum(decoded.is_row)])
        bad = np.concatenate([[0], np.cumsum(decoded.is_rejected)])
        placed = np.concatenate([[0], np.cumsum(decoded.is_placed)])
        ends = list(accumulate(counts))
        begins = [end - count for end, count in zip(ends, counts, strict=True)]
        outcomes = [
            self._outcome(
                one, decoded.part(begin, end, int(rows[begin]), int(bad[begin])), belongs[placed[begin] : placed[end]]
            )
            for one, begin, end in zip(group, begins, ends, strict=True)
        ]
        by_terms = _by_terms(decoded, group)
        found = [Together(outcome, None, by_terms) for outcome in outcomes]
        return [_counted(found[0], decoded), *found[1:]]

    def _all_rows(
        self, group: Sequence[Consumed], rows: pa.RecordBatch, counts: Sequence[int], weights: Weights
    ) -> list[Together]:
        """Return the outcomes for regions that are not drained, each of whose records is a row of its partition.

        ``rows`` are shared by all entries, so no entry is computed by itself."""
        nbytes = (weights * (rows.get_total_buffer_size() / max(int(weights.sum()), 1))).astype(np.int64).tolist()
        version = self.contract.version
        parts = map(SharedPart, map(RowRange, repeat(rows), accumulate(counts, initial=0), counts), nbytes)
        return [
            Together(PrepareOutcome(Entry(c.region, c.first, c.next, version, part.range, ()), (), None), part)
            for c, part in zip(group, parts, strict=True)
        ]

    def _outcome(self, consumed: Consumed, decoded: Decoded, belongs: Partitions) -> PrepareOutcome:
        next_, region = consumed.next, consumed.region
        rows, rejected = decoded.rows, decoded.rejected
        stop: Stop | None = None
        if self._drained is not None:
            stop = self._drained.stop(region, next_, consumed.records, decoded, belongs)
            if stop is not None:
                next_ = max(stop.at, consumed.first)
                rows, rejected = below(next_, rows, rejected)
        misrouted = self._misrouted(consumed, next_, decoded, belongs)
        if misrouted:
            at = {one.offset for one in misrouted}
            others = (one for one in rejected if one.offset not in at)
            rejected = tuple(sorted([*others, *misrouted], key=lambda one: one.offset))
            if self.contract.on_misrouted != "stop":
                rows = rows.filter(pc.invert(pc.is_in(rows.column(OFFSET), pa.array([*at], pa.int64()))))
        first = self._first_stop(consumed, rows, rejected)
        if first is not None:
            stop, next_ = first, first.at
            rows, rejected = below(next_, rows, rejected)
        if next_ == consumed.first:
            return PrepareOutcome(None, (), stop)
        entry = Entry(
            region,
            consumed.first,
            next_,
            self.contract.version,
            rows,
            tuple(RejectedOffset(r.offset, r.kind) for r in rejected),
        )
        to_send = tuple(r for r in rejected if self.contract.policy_of(r.kind) == "dead-letter")
        return PrepareOutcome(entry, to_send, stop)

    def ignored(self, entry: Entry) -> list[RejectedOffset]:
        """Return the rejected offsets of an entry that the contract ignores: they are not dead letters."""
        return [r for r in entry.rejected if self.contract.policy_of(r.kind) == "ignore"]

    def _misrouted(self, consumed: Consumed, next_: Position, decoded: Decoded, belongs: Partitions) -> list[Rejected]:
        """Return the misrouted records below ``next_``, in their order; only the first of them if it stops the
        partition."""
        wrong = np.flatnonzero(belongs != consumed.region.partition)
        if not len(wrong):
            return []
        offsets = np.fromiter(consumed.records.offsets, np.int64)[decoded.is_placed][wrong]
        count = int(np.searchsorted(offsets, next_))
        count = min(count, 1) if self.contract.on_misrouted == "stop" else count
        subject = self._routing.subject
        return [
            Rejected(offset, MISROUTED, f"the record's {subject} belongs {self._place(place)}")
            for offset, place in zip(offsets[:count].tolist(), belongs[wrong[:count]].tolist(), strict=True)
        ]

    def _place(self, belongs: int) -> str:
        return "to no partition" if belongs == NO_PARTITION else f"to partition {belongs} of {self.contract.partitions}"

    def _first_stop(self, consumed: Consumed, rows: pa.RecordBatch, rejected: Sequence[Rejected]) -> Stop | None:
        """Return the stop before the first record that stops the partition; None if no record does."""
        region = consumed.region
        bad = next((r for r in rejected if self._policy_of(r.kind) == "stop"), None)
        other = self._other_format(consumed, rows, rejected)
        if other is not None and (bad is None or other.offset < bad.offset):
            found = f"{other.message} ({other.kind})" if other.kind == WRONG_FORMAT else _all_bad(rejected, other)
            return Stop(region, Position(other.offset), stopped_by_format(other, region, found))
        if bad is None:
            return None
        if bad.kind == MISROUTED:
            row = rows.slice(below(Position(bad.offset), rows, ())[0].num_rows, 1)
            records = consumed.records
            cause = self._routing.cause(records, records.offsets.index(bad.offset), row, region)
            return Stop(region, Position(bad.offset), stopped_by_misrouted(bad, region, cause))
        error = stopped_by(bad, region, reads_schemas=self._stops_for_columns, names_columns=self._fields_are_columns)
        form = KeyForm(bad.found) if bad.kind == KEY_FORM_CHANGED else None
        return Stop(region, Position(bad.offset), error, key_form=form)

    def _policy_of(self, kind: str) -> Policy:
        """Return the policy for a record that is not a row, by the kind of its rejection."""
        if kind == KEY_FORM_CHANGED and self._stops_for_keys:
            return "stop"
        return "stop" if self._stops_for_columns and kind == UNKNOWN_COLUMN else self.contract.policy_of(kind)

    def _other_format(self, consumed: Consumed, rows: pa.RecordBatch, rejected: Sequence[Rejected]) -> Rejected | None:
        """Return the first record by which a partition without a row stops under ``on_wrong_format``; None if none
        does.

        A delete is no row here (``NoRowYet``)."""
        told = consumed.no_row_yet
        if told is None or self.contract.on_wrong_format != "stop":
            return None
        is_row = rows.column(OP).to_numpy() != Op.DELETE
        first_row = rows.column(OFFSET)[int(np.argmax(is_row))].as_py() if is_row.any() else consumed.next
        for one in rejected:
            if one.offset > first_row:
                return None
            if one.kind == WRONG_FORMAT:
                return one
            if told.rejected < FIRST_RECORDS:
                told = told.plus(NoRowYet(1, one.kind))
                if told.rejected == FIRST_RECORDS and told.kind not in ("", MISROUTED):
                    return one
        return None


def _all_bad(rejected: Sequence[Rejected], last: Rejected) -> str:
    """Return the text that the first ``FIRST_RECORDS`` records, up to ``last``, are all bad of one kind.

    The text has the most frequent message among the records of ``rejected``, and how many have it."""
    alike = [one.message for one in rejected if one.kind == last.kind and one.offset <= last.offset]
    ((most, count),) = Counter(alike).most_common(1)
    return (
        f"the first {FIRST_RECORDS} records are all bad of one kind ({last.kind}). {count} of the last "
        f"{counted(len(alike), 'record')}: {most}"
    )


def _by_terms(decoded: Decoded, group: Sequence[Consumed]) -> bool:
    """Return whether a newer contract may decide otherwise about a record.

    This is so if a record was rejected for its columns, or uses a name that is not a current name of a column.  While a
    region has no row, the format of values may have been altered, so any rejection counts."""
    names = any(name.use not in ("not_utf8", "unavailable") for name in decoded.other_names)
    if names or any(rejected.kind in OF_COLUMNS for rejected in decoded.rejected):
        return True
    return bool(decoded.rejected) and any(one.no_row_yet is not None for one in group)


def _counted(first: Together, decoded: Decoded) -> Together:
    """Return the result of the first region, with what was counted in all regions."""
    return first._replace(
        other_names=decoded.other_names,
        new_fields=decoded.new_fields,
        passed_over=decoded.passed_over,
        changed_ms=decoded.changed_ms,
    )


def _metadata_of(contract: Contract) -> Mapping[str, str]:
    return {name: source.metadata for name, source in contract.sources.items() if source.metadata is not None}


def below(cut: Position, rows: pa.RecordBatch, rejected: Sequence[R]) -> tuple[pa.RecordBatch, tuple[R, ...]]:
    """Return the rows and the rejected records whose offsets are below ``cut``."""
    count = int(np.searchsorted(rows.column(OFFSET).to_numpy(), cut))
    return rows.slice(0, count), tuple(r for r in rejected if r.offset < cut)
