"""Put together the report of a run from its findings and counts."""

from __future__ import annotations

import json
from dataclasses import dataclass

from lancewal_audit.verify.compare import Tally
from lancewal_audit.verify.evidence import Evidence
from lancewal_audit.verify.report import Findings, IndexReport, RegionReport, Report
from lancewal_audit.verify.scope import Scope
from lancewal_core.errors import InvalidInput
from lancewal_core.names.ids import Region
from lancewal_reader.point.receipt import Receipt


@dataclass(frozen=True, slots=True)
class VerifyRun:
    """Facts about one run for its report: what was asked for, and the numbers of rows that were read."""

    uri: str
    asked_at: str | None
    fraction: float
    foreign_rows_differ: bool
    rows_read: int
    rows_merged: int
    indexes: tuple[IndexReport, ...] | None
    """Reports about secondary indexes; None if ``--indexes`` was not given."""


def summarise(run: VerifyRun, scope: Scope, evidence: Evidence, tally: Tally, findings: Findings) -> Report:
    """Return the report of a run: the ranges compared, the counts and the findings."""
    # A hidden row is missing or differs as well.
    only_named = ("hidden", "wal_held") if run.foreign_rows_differ else ("hidden", "wal_held", "foreign")
    named_only = sum(findings.counts[kind] for kind in only_named)
    names = [name for name, side in (("the topic", evidence.topic), ("the WAL", evidence.wal)) if side]
    return Report(
        uri=run.uri,
        table_uuid=scope.contract.table_uuid,
        receipt=json.loads(scope.receipt.to_json()),
        sources=" and ".join(names) or "nothing",
        sample=run.fraction,
        regions=tuple(_region(scope, evidence, region) for region in sorted(scope.cut)),
        records=tally.records,
        keys=tally.keys,
        keys_partly=tally.keys_partly,
        rows_read=run.rows_read,
        rows_merged=run.rows_merged,
        rows_unchecked=tally.rows_unchecked,
        counts={kind: count for kind, count in findings.counts.items() if count},
        findings=tuple(findings.kept),
        differences=sum(findings.counts.values()) - named_only,
        notes=(*_notes(scope, tally, run), *_index_notes(scope, run.indexes)),
        indexes=run.indexes or (),
        keys_in_conflict=tally.keys_in_conflict,
        rows_in_conflict=tally.rows_in_conflict,
    )


def _region(scope: Scope, evidence: Evidence, region: Region) -> RegionReport:
    kafka, log, chosen = evidence.topic.get(region), evidence.wal.get(region), evidence.chosen(region)
    first, end = evidence.both(region)
    return RegionReport(
        region=region.name,
        partition=region.partition,
        cut=scope.cut[region],
        merged=scope.merged(region),
        topic="" if kafka is None else kafka.text,
        wal="" if log is None else log.text,
        compared_from="topic" if chosen is kafka else "wal",
        compared=chosen.text,
        from_the_beginning=chosen.whole,
        why_not=chosen.why_not_whole,
        topic_with_wal=f"[{first}, {end})" if first < end else "",
        accepted_losses=tuple(f"[{loss.first}, {loss.next})" for loss in scope.losses[region]),
        rejected=sum(chosen.begin <= offset < chosen.end for offset in chosen.rejected),
    )


def _notes(scope: Scope, tally: Tally, run: VerifyRun) -> list[str]:
    notes = []
    if _receipt_version(run.asked_at) not in (None, scope.receipt.version):
        notes.append(f"the receipt's table version is gone; version {scope.receipt.version} shows the same rows")
    if scope.eras.rebound:
        notes.append("rows of an earlier topic of this name may be in the table: no record of it is left")
    if tally.rows_unchecked and not tally.keys and run.rows_read:
        notes.append("no row could be compared: no record of any of them is left")
    elif tally.rows_unchecked and not scope.empty_before:
        notes.append(
            "rows without a record left could not be compared. They are not named as foreign either, because the table is not "
            "known to have begun without rows"
        )
    return notes


def _receipt_version(at: str | None) -> int | None:
    """Return the table version of a receipt; None if the point has another form."""
    try:
        return None if at is None else Receipt.parse(at).version
    except InvalidInput:
        return None


def _index_notes(scope: Scope, indexes: tuple[IndexReport, ...] | None) -> list[str]:
    if indexes is None:
        count = len(scope.pinned.indexes())
        return [f"secondary indexes that were not looked at: {count}; --indexes does"] if count else []
    return []
