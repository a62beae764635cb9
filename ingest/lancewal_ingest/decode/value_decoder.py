"""The door of a format of record values: bytes in; columns, operations and refusals out.

What is the same of every format stands above it (``decoder``): headers and operations, sizes, records without a value, which
columns a delete keeps, offsets, and rows too large for a segment.

Guarantees of a ``ValueDecoder``; ``tests/conformance/test_value_decoder.py`` holds every format to them
 1. Each value is one row or is refused, whatever its bytes are.  Nothing else is raised, nothing dropped: what a value holds
    and no column does refuses it.
 2. What becomes of a value follows from its bytes, its operation and the table's columns alone: its neighbours, and what was
    decoded before, change nothing.
 3. A row has each cell exactly as the value says it; what its column cannot hold exactly is refused, never rounded or cut.
    An absent column is null.  No column of the primary key is ever null.
 4. Of a patch, ``present`` has the columns that the value holds, null or not; of others it is null.  Every operation is
    checked alike: a delete may hold a whole row.
 5. A refusal has one of ``outcomes.KINDS``, and its message nothing of the value's content.
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
    """In no order."""


class Growth(Protocol):
    """Bytes that a row may take in Arrow beyond those which every row does: its slots of fixed size (``weight``)."""

    def each(self, values: Sequence[bytes | None]) -> Weights:
        """Return the bytes of each value; 0 where there is none.  At little cost: every record is asked for, before it
        is decoded."""

    def largest(self, nbytes: int) -> int:
        """The most that a value of so many bytes, or fewer, can come to."""


class ValueDecoder(Protocol):
    """Decoder of one table's values; see the guarantees."""

    @property
    def growth(self) -> Growth: ...

    def decode(self, values: Sequence[bytes], ops: Ops) -> DecodedValues:
        """Rows and refusals of ``values``, with an operation for each."""
