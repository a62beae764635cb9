"""Report of ``lancewal verify``: what was compared, what could not be compared, and every difference with its kind.

A report holds keys, positions and names of columns, but no values of other columns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from lancewal_core.cli.output import aligned, one_line
from lancewal_core.errors import counted

KINDS: dict[str, str] = {
    "missing": "the key's records make a row, and the table has none",
    "differs": "the key's row has other values than its records give",
    "deleted": "the key's records delete it, and the table has a row",
    "duplicate": "the key has more than one row",
    "hidden": "a deletion vector hides the row that the key's records make",
    "foreign": "no record explains the row",
    "wal_missing": "the WAL must hold these records and does not",
    "wal_damaged": "a segment cannot be read",
    "wal_held": "a segment cannot be read, and nothing is lost: flushes or the table hold its rows",
    "wal_lacks": "Kafka's record is a row, and the WAL has none at its offset",
    "wal_adds": "the WAL has a row at an offset where Kafka has none",
    "wal_differs": "the WAL's row differs from the row that Kafka's record gives",
    "wal_rejects": "a record is a dead letter only in Kafka or only in the WAL",
    "index_wrong": "an index finds the row by a value, a word or a vector that the row does not have",
    "index_missing": "an index does not find a row by a value that the row has",
    "index_damaged": "a file of an index cannot be read",
    "index_twice": "an index finds the row more than once",
}
"""Kinds of findings and what they mean."""

MERGED = "merged table"
READ = "read"
WAL = "wal"


@dataclass(frozen=True, slots=True)
class Finding:
    """One difference, or one row that is only reported."""

    kind: str
    """One of ``KINDS``."""
    where: str
    """Side with the difference: ``merged table``, ``read``, ``wal``, or ``index`` and the index's name."""
    text: str
    """Explanation for people; may be empty."""
    key: Mapping[str, object] | None = None
    partition: int | None = None
    offset: int | None = None
    """Offset of the newest record of the key, or of the record itself."""
    columns: tuple[str, ...] = ()
    """Names of the columns that differ."""
    object: str | None = None
    """Object key of the WAL segment that the finding is about."""
    fragment: int | None = None
    row: int | None = None


@dataclass(slots=True)
class Findings:
    """Counts all findings, and keeps the first ``kept_max`` of each kind and place."""

    kept_max: int
    counts: Counter[str] = field(default_factory=Counter)
    kept: list[Finding] = field(default_factory=list)
    _places: Counter[tuple[str, str]] = field(default_factory=Counter)

    def keeps(self, kind: str, where: str) -> bool:
        """Return whether one more finding of this kind and place is kept, and not only counted."""
        return self._places[kind, where] < self.kept_max

    def add(self, finding: Finding) -> None:
        self.counts[finding.kind] += 1
        if self.keeps(finding.kind, finding.where):
            self._places[finding.kind, finding.where] += 1
            self.kept.append(finding)


@dataclass(frozen=True, slots=True)
class RegionReport:
    """Compared positions of one region.  Ranges are texts ``[first, next)``, ``nothing`` or empty."""

    region: str
    partition: int
    cut: int
    """Position up to which the read has the records."""
    merged: int
    """Position up to which the table version holds the records."""
    topic: str
    """Range of positions below ``cut`` that Kafka has; ``nothing``, or empty if Kafka was not read."""
    wal: str
    compared_from: str
    """Source of the records with which the region was compared: ``topic`` or ``wal``."""
    compared: str
    """Range of positions of the records from the source ``compared_from``."""
    from_the_beginning: bool
    why_not: str
    topic_with_wal: str
    """Range of positions at which the two sources were compared with each other."""
    accepted_losses: tuple[str, ...]
    rejected: int
    """Number of rejected records in the compared range."""


@dataclass(frozen=True, slots=True)
class IndexReport:
    """Result of the check of one secondary index of the merged table."""

    name: str
    kind: str
    column: str
    unindexed_rows: int
    """Number of rows that the index does not cover; queries scan them."""
    asked: int
    """Number of values, words or vectors that were looked up."""
    findings: int
    looked_at: bool
    why_not: str
    repair: str
    """The command that rebuilds the index, if it has findings."""


@dataclass(frozen=True, slots=True)
class Report:
    """Content of ``--report`` and of ``--output json``."""

    uri: str
    table_uuid: str
    receipt: Mapping[str, Any]
    sources: str
    sample: float
    """Fraction of the table's keys that was compared."""
    regions: tuple[RegionReport, ...]
    records: int
    """Number of compared upserts, patches and deletes of the chosen keys, without those of keys in conflict."""
    keys: int
    """Number of compared keys: those that have records."""
    keys_partly: int
    """Number of compared keys of which only patches are left.  Only the columns that the patches set were compared."""
    rows_read: int
    """Number of rows of the chosen keys in the read."""
    rows_merged: int
    """Number of rows of the chosen keys in the merged table."""
    rows_unchecked: int
    """Number of rows in the read for which no record is left to compare them with."""
    counts: Mapping[str, int]
    """Number of findings of each kind; kinds without findings are left out."""
    findings: tuple[Finding, ...]
    """The first findings of each kind and place."""
    differences: int
    """Number of findings that count as a difference."""
    notes: tuple[str, ...]
    indexes: tuple[IndexReport, ...] = ()
    """Results of the checks of secondary indexes; empty without ``--indexes``."""
    keys_in_conflict: int = 0
    """Number of keys whose records came through several partitions, including keys that a person has decided about.
    Nothing orders such records, so the keys' rows are not compared."""
    rows_in_conflict: int = 0
    """Number of rows in the read that have a key in conflict (``keys_in_conflict``)."""

    @property
    def equal(self) -> bool:
        return self.differences == 0

    @property
    def nothing_compared(self) -> bool:
        """Whether the table has rows but no record was left to compare them with, so that ``equal`` says nothing."""
        return self.rows_read > 0 and not self.keys

    def as_json(self) -> dict[str, Any]:
        return {"equal": self.equal, "nothing_compared": self.nothing_compared, **asdict(self)}


def report_text(report: Report) -> str:
    """Return the report as text for people."""
    share = "all keys" if report.sample >= 1 else f"{report.sample:.6g} of the keys"
    lines = [
        f"table     {report.uri}",
        f"read      version {report.receipt['version']}, {counted(report.rows_read, 'row')}; merged "
        f"{counted(report.rows_merged, 'row')}",
        f"records   {report.records} of {counted(report.keys, 'key')}, from {report.sources}; {share}",
        f"checked   {counted(report.rows_read - report.rows_unchecked - report.rows_in_conflict, 'row')}; unchecked "
        f"{report.rows_unchecked}; patches only {counted(report.keys_partly, 'key')}",
        *(
            [
                f"conflicts {counted(report.rows_in_conflict, 'row')} of {counted(report.keys_in_conflict, 'key')}, "
                "not compared"
            ]
            if report.keys_in_conflict
            else []
        ),
        "",
        *_aligned(
            [
                ("partition", "merged", "read to", "topic", "wal", "compared", "topic with wal", "dead letters", ""),
                *(_cells(region) for region in report.regions),
            ]
        ),
    ]
    if report.indexes:
        cells = [("index", "kind", "column", "unindexed", "asked", "findings", ""), *map(_index_cells, report.indexes)]
        lines += ["", *_aligned(cells)]
    lines += [f"\nnote: {one_line(note)}" for note in report.notes]
    for kind, count in report.counts.items():
        lines.append(f"\n{kind}: {count} ({KINDS[kind]})")
        shown = [finding for finding in report.findings if finding.kind == kind]
        lines += [f"  {finding_text(finding)}" for finding in shown]
        if count > len(shown):
            lines.append(f"  and {count - len(shown)} more")
    lines.append(f"\n{_verdict(report)}")
    return "\n".join(lines)


def _verdict(report: Report) -> str:
    if not report.equal:
        return counted(report.differences, "difference")
    if report.nothing_compared:
        return "nothing was compared"
    return "equal, as far as it was compared" if report.rows_unchecked or report.keys_in_conflict else "equal"


def finding_text(finding: Finding) -> str:
    """Return the finding as one line."""
    parts = [f"{finding.where}:"]
    if finding.key is not None:
        parts.append("(" + ", ".join(f"{name}={value!r}" for name, value in finding.key.items()) + ")")
    if finding.partition is not None:
        at = "" if finding.offset is None else f" offset {finding.offset}"
        parts.append(f"partition {finding.partition}{at}")
    if finding.columns:
        parts.append("columns " + ", ".join(finding.columns))
    if finding.fragment is not None:
        parts.append(f"fragment {finding.fragment} row {finding.row}")
    if finding.object is not None and finding.object not in finding.text:
        parts.append(finding.object)
    return one_line(" ".join([*parts, finding.text]).rstrip())


def _cells(region: RegionReport) -> tuple[str, ...]:
    compared = f"{region.compared} from {region.compared_from}" if region.compared_from else region.compared
    remark = "from the beginning" if region.from_the_beginning else region.why_not
    if region.accepted_losses:
        remark += "; accepted losses " + ", ".join(region.accepted_losses)
    return (
        str(region.partition), str(region.merged), str(region.cut), region.topic or "-", region.wal or "-", compared,
        region.topic_with_wal or "-", str(region.rejected), remark,
    )  # fmt: skip


def _index_cells(index: IndexReport) -> tuple[str, ...]:
    remarks = [] if index.looked_at else [f"not looked at: {index.why_not}"]
    remarks += [f"rebuild it: {index.repair}"] if index.repair else []
    return (
        index.name, index.kind, index.column, str(index.unindexed_rows), str(index.asked), str(index.findings),
        "; ".join(remarks),
    )  # fmt: skip


def _aligned(cells: list[tuple[str, ...]]) -> list[str]:
    return aligned([[one_line(cell) for cell in row] for row in cells])
