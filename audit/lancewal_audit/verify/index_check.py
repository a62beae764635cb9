"""``lancewal verify --indexes``: check that each secondary index finds the rows that a scan without it finds.

Guarantees
 1. Nothing is changed, and each comparison is within one version of the table.
 2. A reported row was found by a value that it does not have, was found twice, or was not found by a value that it has.
 3. The report names each index that cannot be checked, or by which Lance does not answer, with the reason.  An index whose
    files cannot be read is a finding.
 4. Time: some hundred queries to each index, and one scan of the indexed columns for all indexes.  Memory: the sample, one
    answer (``ANSWER_ROWS_MAX``), one batch of the scan.

Only a sample of the keys is asked for: an index may be wrong about other values.  Former values are known only from records
that the topic or the WAL still has.

Steps
 1. Make the questions from the sample, by the kind of index (``index_answers``).
 2. Ask each index.
 3. Scan: count the rows of each question, and find the sampled keys and their vectors.
 4. Ask the vector indexes (``index_vectors``).
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancewal_audit.verify.compare import shown_key
from lancewal_audit.verify.index_answers import (
    IndexAnswer,
    Questions,
    Words,
    column_of,
    values_of,
    words_of,
)
from lancewal_audit.verify.index_sample import IndexSample
from lancewal_audit.verify.index_vectors import VectorRow, ask_vectors, uses_vector_index
from lancewal_audit.verify.report import Finding, Findings, IndexReport
from lancewal_core.errors import ObjectCorrupt, VersionGone
from lancewal_core.process.library_errors import first_line
from lancewal_core.rows.column_types import shown_rows
from lancewal_core.rows.key_set import KeySet
from lancewal_core.rows.schema import RowSchema
from lancewal_core.table.lance.errors import reading
from lancewal_core.table.lance.index_build import IndexBuild, index_builds
from lancewal_core.table.lance.pinned import LancePinnedTable
from lancewal_reader.forms.conditions.exact_values import has_no_literal

_VALUES = ("BTREE", "BITMAP", "ZONEMAP", "BLOOMFILTER", "LABEL_LIST", "NGRAM")
_ROW_ID = "_rowid"
_BATCH_ROWS = 65_536
_NAMED = 20
"""Upper bound of the rows of one answer that become findings with a key.  Other wrong rows become findings without a
key."""


@dataclass(slots=True)
class _Asking:
    """Questions to one index, its answers, and the counts of the scan."""

    build: IndexBuild
    unindexed: int
    questions: Questions | None = None
    answers: dict[int, IndexAnswer] = field(default_factory=dict)
    counts: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    asked: int = 0
    found: int = 0
    """Number of findings about this index."""
    why_not: str = ""
    """Why the index is not checked; empty if it is."""


class IndexCheck:
    """The check of all indexes of a version.  The caller fills ``sample``, share by share, before ``run``."""

    def __init__(self, pinned: LancePinnedTable, rows: RowSchema, keys_max: int) -> None:
        self._pinned = pinned
        self._dataset = pinned.dataset
        self._rows = rows
        self._keys = list(rows.primary_key)
        uncovered = {
            index.name: sum(f.live_rows for f in pinned.fragments() if f.fragment_id not in index.covered)
            for index in pinned.indexes()
        }
        self._asking = [_Asking(build, uncovered.get(build.name, 0)) for build in index_builds(self._dataset)]
        for asking in self._asking:
            asking.why_not = _why_not(asking.build, rows)
        columns = sorted({asking.build.path[0] for asking in self._looked_at})
        self.sample = IndexSample(rows, columns, keys_max)

    @property
    def _looked_at(self) -> list[_Asking]:
        return [asking for asking in self._asking if not asking.why_not]

    def run(self, findings: Findings) -> tuple[IndexReport, ...]:
        """Ask all indexes (steps 1 to 4), add the findings, and return a report for each index."""
        for asking in self._asking:
            if asking.build.damaged:
                self._tell(findings, asking, "index_damaged", [None], asking.build.unknown)
        # Steps 1 and 2
        for asking in self._looked_at:
            if not asking.build.kind.startswith("IVF_"):
                with self._reading(asking, findings):
                    self._ask(asking)
        # Step 3
        with reading(f"scanning version {self._pinned.version}"):
            vectors = self._scan()
        for asking in self._looked_at:
            self._tell_answers(asking, findings)
        # Step 4
        for asking in self._looked_at:
            if asking.build.kind.startswith("IVF_"):
                with self._reading(asking, findings):
                    self._ask_vectors(asking, vectors.get(asking.build.path, []), findings)
        return tuple(_report(asking) for asking in self._asking)

    @contextmanager
    def _reading(self, asking: _Asking, findings: Findings) -> Iterator[None]:
        """Turn an error of an index that cannot be read into a finding.  Errors of the store are raised as they are."""
        try:
            with reading(f"asking index {asking.build.name} of version {self._pinned.version}", names_nothing=True):
                yield
        except (ObjectCorrupt, VersionGone) as error:
            asking.why_not = asking.why_not or "it cannot be read"
            asking.answers.clear()
            self._tell(findings, asking, "index_damaged", [None], first_line(error))

    def _ask(self, asking: _Asking) -> None:
        build = asking.build
        type_ = _type_of(self._rows.table, build.path)
        known = [_member(value, build.path[1:]) for key in self.sample.keys for value in key.values[build.path[0]]]
        if build.kind == "INVERTED":
            texts = [value for value in known if isinstance(value, str)]
            asking.questions = Words(build, words_of(texts, build.parameters))
        else:
            asking.questions = values_of(build, type_, known)
        questions = asking.questions
        asking.counts = np.zeros(len(questions), np.int64)
        if not len(questions):
            asking.why_not = "no sampled key has a value to ask for"
        elif not questions.uses_index(self._dataset):
            asking.why_not = "Lance answers by another index of the column, or by none"
        else:
            for number in range(len(questions)):
                answer = questions.ask(self._dataset, number, self._keys)
                if answer is not None:
                    asking.asked += 1
                    asking.answers[number] = answer

    def _scan(self) -> Mapping[tuple[str, ...], list[VectorRow]]:
        """Scan the table and count the rows of each question (step 3).

        Return the sampled rows with their vectors, by the column of each vector index."""
        looked_at = self._looked_at
        vectors = [asking.build.path for asking in looked_at if asking.build.kind.startswith("IVF_")]
        found: dict[tuple[str, ...], list[VectorRow]] = {path: [] for path in vectors}
        columns = sorted({*self._keys, *(asking.build.path[0] for asking in looked_at)})
        keys = KeySet(self.sample.key_table())
        if not self._pinned.fragments() or not looked_at:
            return found
        scanner = self._dataset.scanner(
            columns=columns, with_row_id=True, batch_size=_BATCH_ROWS, use_scalar_index=False
        )
        for batch in scanner.to_batches():
            for asking in looked_at:
                if asking.questions is not None and asking.answers:
                    asking.counts += asking.questions.count(column_of(batch, asking.build.path))
            places = keys.places([batch.column(name) for name in self._keys])
            at = np.flatnonzero(places >= 0)
            for path in vectors:
                held = column_of(batch, path).take(pa.array(at))
                for place, row, vector in zip(places[at], at, held.to_pylist(), strict=True):
                    if vector is not None and _is_near_to_something(vector):
                        row_id = batch.column(_ROW_ID)[int(row)].as_py()
                        found[path].append(self._vector_row(int(place), row_id, vector, path))
        return found

    def _vector_row(self, place: int, row_id: int, vector: Sequence[float], path: Sequence[str]) -> VectorRow:
        known = [_member(value, path[1:]) for value in self.sample.keys[place].values[path[0]]]
        before = [
            np.array(v, np.float64) for v in known if isinstance(v, list) and v != vector and _is_near_to_something(v)
        ]
        return VectorRow(place, row_id, np.array(vector, np.float64), before)

    def _tell_answers(self, asking: _Asking, findings: Findings) -> None:
        for number, answer in asking.answers.items():
            missing = [None] * (int(asking.counts[number]) - answer.counted) if answer.whole else []
            for kind, keys, text in (
                ("index_wrong", self._shown(answer.wrong), "found by a value that it does not have"),
                ("index_twice", self._shown(answer.twice), "found more than once"),
                ("index_missing", missing, "a row with a value asked for is not found"),
            ):
                self._tell(findings, asking, kind, keys, text)

    def _ask_vectors(self, asking: _Asking, rows: Sequence[VectorRow], findings: Findings) -> None:
        if not rows:
            asking.why_not = "no sampled key has a vector to ask for"
            return
        if not uses_vector_index(self._dataset, asking.build, rows[0].vector):
            asking.why_not = "Lance answers by another index of the column, or by none"
            return
        answer = ask_vectors(self._dataset, asking.build, rows)
        asking.asked = answer.asked
        for kind, found, text in (
            ("index_wrong", answer.wrong, "found by a vector that it does not have"),
            ("index_twice", answer.twice, "found more than once"),
            ("index_missing", answer.missing, "not found, though all partitions were probed"),
        ):
            keys = [shown_key(self._rows, self.sample.keys[number].key) for number in found]
            self._tell(findings, asking, kind, keys, text)

    def _shown(self, rows: pa.Table) -> list[Mapping[str, object] | None]:
        if not rows.num_rows:
            return []
        named = shown_rows(rows.slice(0, _NAMED))
        return [*named, *([None] * (rows.num_rows - len(named)))]

    def _tell(
        self, findings: Findings, asking: _Asking, kind: str, keys: Sequence[Mapping[str, object] | None], text: str
    ) -> None:
        asking.found += len(keys)
        for key in keys:
            where = f"index {asking.build.name}"
            findings.add(Finding(kind, where, text, key, columns=(".".join(asking.build.path),)))


def _why_not(build: IndexBuild, rows: RowSchema) -> str:
    if not build.path or build.path[0] not in rows.table.names:
        return "its column is not one of the contract"
    if build.damaged:
        return build.unknown
    if build.kind == "INVERTED":
        if build.unknown or "document_granularity" in build.parameters:
            return build.unknown or "each element of a list is a document of its own"
        if not pa.types.is_string(_type_of(rows.table, build.path)):
            return "it is not over a column of texts"
        return ""
    if build.kind.startswith("IVF_"):
        return build.unknown
    if build.kind not in _VALUES:
        return f"indexes of kind {build.kind} are not known here"
    asked = _type_of(rows.table, build.path)
    asked = asked.value_type if build.kind == "LABEL_LIST" else asked
    return f"Lance's SQL has no literals of {asked}" if has_no_literal(asked) else ""


def _is_near_to_something(vector: Sequence[float | None]) -> bool:
    """Return whether all numbers of a vector are finite.  Rows that users wrote may have nulls or NaN in a vector."""
    return None not in vector and bool(np.isfinite(np.array(vector, np.float64)).all())


def _type_of(columns: pa.Schema, path: Sequence[str]) -> pa.DataType:
    found = columns.field(path[0]).type
    for name in path[1:]:
        found = found.field(name).type
    return found


def _member(value: object, path: Sequence[str]) -> object:
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _report(asking: _Asking) -> IndexReport:
    build = asking.build
    return IndexReport(
        build.name, build.kind, ".".join(build.path), asking.unindexed, asking.asked, asking.found, not asking.why_not,
        asking.why_not, f"lancewal repair index {shlex.quote(build.name)}" if asking.found else "",
    )  # fmt: skip
