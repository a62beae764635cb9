"""Interface of a format of record values: bytes in; columns, operations and refusals out.

``decoder`` does what is the same for every format: headers and operations, sizes, records without a value, offsets,
and rows too large for a segment.  It also says which columns a delete keeps.

Guarantees of a ``ValueDecoder``; ``tests/conformance/test_value_decoder.py`` holds every format to them
 1. Each value is one row or is refused, whatever its bytes are.  Nothing else is raised, and nothing is dropped: a
    value that holds something for which there is no column is refused.
 2. What becomes of a value follows from its bytes, its operation and the table's columns alone.  Its neighbours, and
    what was decoded before, change nothing.
 3. A row has each cell exactly as the value says it.  What its column cannot hold exactly is refused, never rounded
    or cut.  An absent column is null.  No column of the primary key is ever null.
 4. ``present`` of a patch has the columns that the value holds, null or not; of other operations it is null.  Every
    operation is checked alike: a delete may hold a whole row.
 5. A refusal has one of ``outcomes.KINDS``, and its message has nothing of the value's content.
 6. ``growth`` never says less than a row takes.
 7. Calls may come from several threads at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from lancewal_ingest.decode.part import DecodedPart

Ops = npt.NDArray[np.uint8]
"""An ``Op`` for each value."""
Weights = npt.NDArray[np.int64]
"""Bytes for each record."""


@dataclass(frozen=True, slots=True)
class RefusedValue:
    """A value that is no row."""

    place: int
    """Place among the values."""
    kind: str
    message: str
    found: str = ""
    """See ``Rejected.found``."""


@dataclass(frozen=True, slots=True)
class DecodedValues:
    parts: Sequence[DecodedPart]
    """Rows; ``DecodedPart.indexes`` are places among the values, of all parts together each once."""
    refused: Sequence[RefusedValue]
    """Refused values, in no order."""


class Growth(Protocol):
    """Bytes that a row may take in Arrow beyond those that every row takes: its slots of fixed size (``weight``)."""

    def each(self, values: Sequence[bytes | None]) -> Weights:
        """Return the bytes of each value; 0 if there is none.

        The cost must be low: every record is asked for, before it is decoded."""

    def largest(self, nbytes: int) -> int:
        """Return the most that a value of this many bytes, or fewer, can take."""


class ValueDecoder(Protocol):
    """Decoder of one table's values; see the guarantees."""

    @property
    def growth(self) -> Growth: ...

    def decode(self, values: Sequence[bytes], ops: Ops) -> DecodedValues:
        """Rows and refusals of ``values``, with an operation for each."""
