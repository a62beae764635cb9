"""Documents of a full text index: the rows in it, and how many words each has.

Lance computes scores from the documents of all segments of an index, including rows that were deleted since.
``DocumentLengths`` has the row ids, by which the caller can find the deleted ones.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from lancewal_core.table.lance.errors import reading
from lancewal_core.table.lance.index_build import TOKENIZER
from lancewal_core.table.lance.pinned import LancePinnedTable
from lancewal_core.table.lance.word_automaton import WordAutomaton

_INVERTED = "Inverted"
Trained = dict[str, Mapping[str, Any]]
"""Cache: folder of an index segment to the parameters by which its index was built.  They never change."""
_AUTOMATON = "_token_fst_bytes"


@dataclass(frozen=True, slots=True)
class TextIndex:
    """A full text index over one column."""

    name: str
    column: str
    segments: tuple[str, ...]
    """Folders of the segments' files."""
    covered: frozenset[int]
    """Live fragments that the index covers."""
    tokenizer: Mapping[str, Any]
    """Parameters of ``lance.tokenize``."""
    positions: bool
    """Whether the index stores the positions of words in texts."""
    here: bool
    """Whether all files of the index lie in this table's folder of indexes.  Files of a branch or a shallow clone may
    lie in another table's folder."""


@dataclass(frozen=True, slots=True)
class DocumentLengths:
    """Number of words of each document of an index.  A text without a word is not a document."""

    row_ids: npt.NDArray[np.uint64]
    """Row ids, ascending."""
    words: npt.NDArray[np.int64]


def text_indexes(pinned: LancePinnedTable, trained: Trained) -> Sequence[TextIndex]:
    """Return the full text index of each column that has exactly one.

    An index whose documents are not rows is left out.  ``trained``: cache of the parameters of segments.
    """
    here = not pinned.dataset.base_paths()
    live = {f.fragment_id for f in pinned.fragments()}
    found = [d for d in pinned.described_indexes() if d.index_type == _INVERTED and len(d.field_names) == 1]
    columns = [d.field_names[0] for d in found]
    return [
        TextIndex(
            d.name,
            d.field_names[0],
            tuple(str(s.uuid) for s in d.segments),
            frozenset[int]().union(*(frozenset(s.fragment_ids) for s in d.segments)) & live,
            _tokenizer(pinned, d, trained, here=here),
            bool(d.details.get("with_position")),
            here,
        )
        for d in found
        if columns.count(d.field_names[0]) == 1 and d.details and d.details.get("document_granularity", "row") == "row"
    ]


def _tokenizer(pinned: LancePinnedTable, description: Any, trained: Trained, *, here: bool) -> Mapping[str, Any]:
    """Return the parameters of the index's tokenizer.

    The description leaves out custom stop words (Lance 14), so the parameters are read from a segment, which has
    all."""
    told = dict(description.details)
    if description.segments:
        segment = str(description.segments[0].uuid)
        if segment not in trained:
            trained[segment] = (
                _parameters(pinned, description.name, segment) if here else _told(pinned, description.name)
            )
        told |= trained[segment]
    return {name: value for name, value in told.items() if name in TOKENIZER}


def _parameters(pinned: LancePinnedTable, name: str, segment: str) -> Mapping[str, Any]:
    stored = _metadata(pinned, segment).get(b"params")
    return _told(pinned, name) if stored is None else dict(json.loads(stored))


def _told(pinned: LancePinnedTable, name: str) -> Mapping[str, Any]:
    """Return the parameters that Lance's index statistics report; empty if no segment has live rows."""
    with reading(f"reading index {name}", names_nothing=True):
        segments = pinned.dataset.stats.index_stats(name)["indices"]
    return next((dict(segment["params"]) for segment in segments if segment.get("params")), {})


def _metadata(pinned: LancePinnedTable, segment: str) -> Mapping[bytes, bytes]:
    """Return the metadata of an index's segment."""
    found: Mapping[bytes, bytes] = pinned.index_file(f"{segment}/metadata.lance").metadata().schema.metadata
    return found


def document_lengths(pinned: LancePinnedTable, index: TextIndex) -> DocumentLengths:
    """Return the lengths of all documents of all segments, deleted ones too.  Raise ``VersionGone`` if a clean-up
    removed the version during the call.
    """
    ids, words = [np.zeros(0, np.uint64)], [np.zeros(0, np.int64)]
    for segment in index.segments:
        for partition in json.loads(_metadata(pinned, segment)[b"partitions"]):
            rows = pinned.index_file(f"{segment}/part_{partition}_docs.lance").read_all().to_table()
            ids.append(rows["_rowid"].to_numpy())
            words.append(rows["_num_tokens"].to_numpy().astype(np.int64))
    row_ids = np.concatenate(ids)
    order = np.argsort(row_ids, kind="stable")
    return DocumentLengths(row_ids[order], np.concatenate(words)[order])


def word_automata(pinned: LancePinnedTable, index: TextIndex) -> Sequence[WordAutomaton]:
    """Return the words of all documents of an index, deleted ones too: an automaton for each part of a segment.

    Raise ``ValueError`` if the words are stored in another form than Lance 14's.  Raise ``VersionGone`` if a clean-up
    removed the version during the call."""
    found = []
    for segment in index.segments:
        for partition in json.loads(_metadata(pinned, segment)[b"partitions"]):
            words = pinned.index_file(f"{segment}/part_{partition}_tokens.lance").read_all().to_table()
            if words.num_rows != 1 or _AUTOMATON not in words.column_names:
                raise ValueError(
                    f"index {index.name!r} stores words in {words.num_rows} rows with columns {words.column_names}; expected "
                    f"one row with column {_AUTOMATON!r}"
                )
            found.append(WordAutomaton(words[_AUTOMATON][0].as_py()))
    return found
