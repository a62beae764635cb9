"""Lance's own codec of U64Segments: a row id sequence is a protobuf message whose field 1 is one."""

from __future__ import annotations

import json
from collections.abc import Sequence

from lance.fragment import RowIdMeta, RowIdSequence


def written_by_lance(values: Sequence[int]) -> bytes:
    """The U64Segment that Lance makes of these values, of less than 128 bytes."""
    sequence = bytes(json.loads(RowIdSequence(values).to_inline_metadata().json())["Inline"])
    assert sequence[:2] == bytes([0x0A, len(sequence) - 2])
    return sequence[2:]


def read_by_lance(segment: bytes) -> list[int]:
    """The values that Lance finds in a U64Segment, in their order."""
    length = len(segment)
    digits = []
    while length > 127:
        digits.append(length & 127 | 128)
        length >>= 7
    text = json.dumps({"Inline": [0x0A, *digits, length, *segment]})
    metadata = RowIdMeta.from_json(text)  # type: ignore[misc, call-arg]  # its stub forgets that it is static
    found: list[int] = RowIdSequence.from_inline_metadata(metadata).to_pyarrow().to_pylist()
    return found
