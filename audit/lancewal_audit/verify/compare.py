"""Compare the states that the records of one share of the keys give with the merged table and with the read.

Comparisons, per key
 1. the merged table of version V, as a plain Lance reader sees it, with the fold of the records below W(V);
 2. the read at the receipt with the fold of the records below its cut;
 3. if both sources were read: Kafka's record at each offset with the WAL's.

A difference that the merged table has is not reported again for the read if the key has no later records.

If rows do not tell their partition, nothing orders the records of a key that came through several partitions.  The row
that the table shows for such a key may be a person's decision.  Such keys are counted, and only comparison 3 covers them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from lancewal_audit.verify.evidence import Evidence
from lancewal_audit.verify.key_fold import KeyState, RowOperation, Values, apply, plain_rows, same
from lancewal_audit.verify.report import MERGED, READ, WAL, Finding, Findings
from lancewal_audit.verify.scope import Scope
from lancewal_audit.verify.shares.by_share import PARTITION
from lancewal_core.names.ids import Region
from lancewal_core.rows.column_types import shown_rows, stored_array
from lancewal_core.rows.murmur2 import NO_PARTITION
from lancewal_core.rows.schema import OP, PRESENT, TIMESTAMP, RowSchema

LOOKED_UP = 1_000
"""Upper bound of the number of keys, with wrong or missing rows, for which hidden rows are searched."""

Key = Values


@dataclass(frozen=True, slots=True)
class WantedRow:
    """Row that the merged table should show, but shows another one or none.  ``verify`` searches for it among hidden
    rows."""

    key: Key
    state: KeyState


@dataclass(slots=True)
class Tally:
    """Counts of the compared records, keys and rows; see the fields of ``Report``."""

    records: int = 0
    keys: int = 0
    keys_partly: int = 0
    rows_unchecked: int = 0
    keys_in_conflict: int = 0
    rows_in_conflict: int = 0
    wanted: list[WantedRow] = field(default_factory=list)


class Comparison:
    """Comparison of all shares of the keys, one share after the other.  ``tally`` has the counts of the shares that
    were compared."""

    def __init__(self, scope: Scope, evidence: Evidence, findings: Findings) -> None:
        rows = scope.contract.rows
        self._rows = rows
        self._columns = rows.table
        self._key = key_reader(rows)
        self._eras = scope.eras
        self._evidence = evidence
        self._findings = findings
        self._merged = {region.partition: scope.merged(region) for region in scope.cut}
        self._whole = evidence.whole_partitions()
        self._both = {region.partition: evidence.both(region) for region in scope.cut}
        self._regions = {region.partition: region for region in scope.cut}
        self._expires = _expiry(scope)
        self._rows_tell_regions = scope.contract.rows_tell_partition
        self._deletes_may_be_gone = evidence.without_deletes()
        self._in_force = {
            key for part in (scope.aside.waiting, scope.aside.owners) for key in plain_rows(part, rows.primary_key)
        }
        self.tally = Tally()

    def table(self, records: Sequence[RowOperation], merged: pa.Table, read: pa.Table) -> None:
        """Compare one share of records with the table and with the read (comparisons 1 and 2).  ``records`` lie in the
        compared ranges, in any order.
        """
        below, behind = self._fold(records)
        conflicting = self._conflicting(records)
        for states in (below, behind):
            for key in conflicting:
                states.pop(key, None)
        self.tally.records += sum(self._key(record.values) not in conflicting for record in records)
        self.tally.keys += len(behind)
        self.tally.keys_partly += sum(state.known is not None for state in behind.values())
        if conflicting:
            seen = [self._key(values) for values in plain_rows(read, self._columns.names)]
            self.tally.rows_in_conflict += sum(key in conflicting for key in seen)
            self.tally.keys_in_conflict += len(conflicting & {*seen, *(self._key(r.values) for r in records)})
        told = self._compare(MERGED, below, merged, {}, conflicting)
        settled = {key: kinds for key, kinds in told.items() if behind.get(key) is below.get(key)}
        self._compare(READ, behind, read, settled, conflicting)

    def logs(self, topic: Sequence[RowOperation], wal: Sequence[RowOperation]) -> None:
        """Compare one share of Kafka's records with the WAL's (comparison 3)."""
        ours = {(r.partition, r.offset): r for r in self._overlap(topic)}
        theirs = {(r.partition, r.offset): r for r in self._overlap(wal)}
        for place in sorted(ours.keys() | theirs.keys()):
            here, there = ours.get(place), theirs.get(place)
            if there is None and here is not None:
                self._wal("wal_lacks", here, ())
            elif here is None and there is not None:
                if not self._evidence.compacted:
                    self._wal("wal_adds", there, ())
            elif here is not None and there is not None:
                columns = self._other_columns(here, there)
                if columns:
                    self._wal("wal_differs", there, columns)

    def rejected(self) -> None:
        """Compare the rejected records of both sources, at positions that both have."""
        for partition, region in self._regions.items():
            first, end = self._both[partition]
            if first == end:
                continue
            sides = (self._evidence.topic[region], self._evidence.wal[region])
            kafka, log = ({offset for offset in side.rejected if first <= offset < end} for side in sides)
            for offset in sorted(kafka - log):
                self._reject(region, offset, "a dead letter by the decoder, not in the WAL")
            for offset in sorted(log - kafka):
                if not self._evidence.compacted:
                    self._reject(region, offset, "a dead letter in the WAL, not by the decoder")

    # -- details -------------------------------------------------------------------------------------------------

    def _fold(self, records: Sequence[RowOperation]) -> tuple[dict[Key, KeyState], dict[Key, KeyState]]:
        """Return the states of the keys by the records before the watermarks, and by all records before the cut."""
        below: dict[Key, KeyState] = {}
        behind: dict[Key, KeyState] = {}
        for record in sorted(records, key=self._order):
            key = self._key(record.values)
            empty = record.partition in self._whole
            behind[key] = apply(behind.get(key), record, began_without_row=empty)
            if record.offset < self._merged.get(record.partition, 0):
                below[key] = behind[key]
        return below, behind

    def _conflicting(self, records: Sequence[RowOperation]) -> set[Key]:
        """Return the keys in conflict: those of the version that is read, and those whose records came through several
        partitions in one era."""
        if self._rows_tell_regions:
            return set()
        came: dict[tuple[Key, int], int] = {}
        found = set(self._in_force)
        for record in records:
            key, era = self._key(record.values), self._order(record)[0]
            if came.setdefault((key, era), record.partition) != record.partition:
                found.add(key)
        return found

    def _order(self, record: RowOperation) -> tuple[int, int, int]:
        era = self._eras.era_of(record.partition, record.offset) if self._eras.altered else 0
        return era, record.partition, record.offset

    def _compare(
        self,
        where: str,
        states: Mapping[Key, KeyState],
        table: pa.Table,
        settled: Mapping[Key, set[str]],
        conflicting: Collection[Key],
    ) -> dict[Key, set[str]]:
        """Report differences between states and rows, and return their kinds by key.

        Keys that are ``conflicting`` are left out, and kinds that are ``settled`` for a key are not reported again."""
        found: dict[Key, list[Values]] = {}
        partitions: dict[Key, int] = {}
        belongs = table[PARTITION].to_pylist()
        for values, partition in zip(plain_rows(table, self._columns.names), belongs, strict=True):
            key = self._key(values)
            if key in conflicting:
                continue
            found.setdefault(key, []).append(values)
            partitions[key] = partition
        told: dict[Key, set[str]] = {}

        def tell(kind: str, key: Key, text: str = "", columns: Iterable[int] = ()) -> None:
            told.setdefault(key, set()).add(kind)
            if kind in settled.get(key, ()):
                return
            state = states.get(key)
            names = tuple(self._columns.names[i] for i in columns)
            partition = partitions.get(key) if state is None else state.partition
            shown = kept_key(self._findings, kind, where, self._rows, key)
            self._findings.add(
                Finding(
                    kind, where, text, shown,
                    None if partition == NO_PARTITION else partition,
                    None if state is None else state.offset, names,
                )
            )  # fmt: skip

        for key, rows in found.items():
            state = states.get(key)
            equal = [state is not None and state.exists and not state.differing(values) for values in rows]
            if len(rows) > 1:
                among = f"{len(rows)} rows" if state is None else f"{len(rows)} rows, {sum(equal)} as its records say"
                tell("duplicate", key, among)
            if state is None:
                if partitions[key] in self._whole:
                    tell("foreign", key)
                elif where == READ:
                    self.tally.rows_unchecked += len(rows)
            elif not state.exists:
                tell("deleted", key)
            elif not any(equal):
                tell("differs", key, columns=state.differing(rows[0]))
                self._want(where, key, state)
        for key, state in states.items():
            if state.exists and key not in found and not self._may_be_absent(state):
                tell("missing", key)
                self._want(where, key, state)
        return told

    def _may_be_absent(self, state: KeyState) -> bool:
        """Return whether the row may rightly be missing: it has expired, or compaction may have removed the key's
        delete."""
        if state.partition in self._deletes_may_be_gone:
            return True
        if self._expires is None:
            return False
        at, threshold = self._expires
        time = state.values[at]
        return isinstance(time, int) and time < threshold

    def _want(self, where: str, key: Key, state: KeyState) -> None:
        if where == MERGED and len(self.tally.wanted) < LOOKED_UP:
            self.tally.wanted.append(WantedRow(key, state))

    def _overlap(self, records: Iterable[RowOperation]) -> list[RowOperation]:
        found = []
        for record in records:
            first, end = self._both.get(record.partition, (0, 0))
            if first <= record.offset < end:
                found.append(record)
        return found

    def _other_columns(self, here: RowOperation, there: RowOperation) -> tuple[str, ...]:
        names = [*self._columns.names, OP, PRESENT, TIMESTAMP]
        ours, theirs = ((*r.values, r.op, r.present, r.timestamp) for r in (here, there))
        return tuple(name for name, a, b in zip(names, ours, theirs, strict=True) if not same(a, b))

    def _wal(self, kind: str, record: RowOperation, columns: tuple[str, ...]) -> None:
        key = kept_key(self._findings, kind, WAL, self._rows, self._key(record.values))
        where = self._object_of(self._regions[record.partition], record.offset)
        self._findings.add(Finding(kind, WAL, "", key, record.partition, record.offset, columns, where))

    def _reject(self, region: Region, offset: int, text: str) -> None:
        where = self._object_of(region, offset)
        self._findings.add(Finding("wal_rejects", WAL, text, None, region.partition, offset, (), where))

    def _object_of(self, region: Region, offset: int) -> str | None:
        return self._evidence.wal_records.places[region].object_of(offset)


def _expiry(scope: Scope) -> tuple[int, int] | None:
    """Return the number of the column by which rows expire, and its smallest value that has not expired.

    None if rows never expire."""
    ttl = scope.contract.ttl
    if ttl is None:
        return None
    columns = scope.contract.rows.table
    return columns.get_field_index(ttl.column), ttl.threshold(columns.field(ttl.column).type, scope.now_ms)


def key_reader(rows: RowSchema) -> Callable[[Values], Key]:
    """Return a function from the values of a row to those of its primary key."""
    at = [rows.table.names.index(name) for name in rows.primary_key]
    return lambda values: tuple([values[i] for i in at])


def key_table(rows: RowSchema, keys: Sequence[Key]) -> pa.Table:
    """Return keys as a table of the primary key's columns."""
    columns = [stored_array([key[at] for key in keys], field.type) for at, field in enumerate(rows.key)]
    return pa.table(columns, schema=rows.key)


def kept_key(findings: Findings, kind: str, where: str, rows: RowSchema, key: Key) -> dict[str, object] | None:
    """Return the key as a finding of this kind and place shows it; None if the finding is only counted."""
    return shown_key(rows, key) if findings.keeps(kind, where) else None


def shown_key(rows: RowSchema, key: Key) -> dict[str, object]:
    """Return a key's columns as JSON values (``shown_rows``)."""
    (shown,) = shown_rows(key_table(rows, [key]))
    return shown
