"""Frames: how a value, or a header beside it, names the schema that the value was written under.

| frame | bytes | schema |
|---|---|---|
| id | 0, then 4 bytes, the highest first | ``id-N`` |
| GUID | 1, then 16 bytes | ``guid-...`` |

Serializers put the frame before the payload, or into the header ``__value_schema_id``.  If a record has that header,
its value is the payload alone.  Keys of records have a header of their own (``record_keys.KEY_SCHEMA_HEADER``).

Apicurio's serializers may put a schema's id into a header of their own.  Such a value has no frame, though it may
begin as one, and is refused.

Protobuf's frame ends with the *path* to the message: a count and so many numbers, as zigzag varints.  A count of 0
stands for the first message.  A number has no more bytes than it needs.

Source: the wire format in the documentation of Confluent's schema registry, and its Python serializers.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancewal_core.names.ids import SchemaKey
from lancewal_ingest.decode.framed.payloads import Payloads
from lancewal_ingest.decode.outcomes import WRONG_FORMAT, Refusal
from lancewal_ingest.decode.value_decoder import Indexes, RefusedValue, mask_of

SCHEMA_HEADER = "__value_schema_id"
_ID_BYTES, _GUID_BYTES = 5, 17
_FIRST_WRITTEN_OUT = (0,)
"""Path to the first message as a count of 1 and the number 0.  Nearly all serializers write a count of 0 in place of it."""
_BY_ID, _BY_GUID = 0, 1
_PATH_MAX = 64
"""Maximum number of numbers in a path.  No column can be a message that is nested deeper."""
_VARINT_BYTES_MAX = 5
_PATH_BYTES_MAX = (_PATH_MAX + 1) * _VARINT_BYTES_MAX
_SEVEN = 7
"""Bits of a number in each byte of a path."""
APICURIO_IDS = ("apicurio.value.globalId", "apicurio.value.contentId")
"""Headers with the schema's id of a value that has no frame, whatever its first bytes are."""
APICURIO_ADVICE = (
    "have Apicurio's serializer write content ids of 4 bytes before the value by apicurio.registry.headers.enabled=false, "
    "apicurio.registry.use-id=contentId, and apicurio.registry.as-confluent=true (release 2) or "
    "apicurio.registry.id-handler=io.apicurio.registry.serde.Default4ByteIdHandler (release 3)"
)
"""Settings with which Apicurio's serializers write a frame that names a content id.  Lookups by id in Apicurio's
registry take content ids.  A global id may name another schema there."""

NamedInFrame = tuple[SchemaKey, tuple[int, ...]]
"""A schema, and Protobuf's path to a message of it.  The path is empty for other formats, and for the first message unless
its path is written out before the value."""


@dataclass(frozen=True, slots=True)
class Framed:
    """Values that name one schema and one message of it."""

    key: SchemaKey
    path: tuple[int, ...]
    """Protobuf's path to the message.  It is empty for other formats, and for the first message unless its path is
    written out before the value."""
    indexes: npt.NDArray[np.int64]
    """Indexes of the values, ascending."""
    payloads: Payloads

    def some(self, chosen: npt.NDArray[np.bool_]) -> Framed:
        """Return the values for which ``chosen`` is true."""
        return Framed(self.key, self.path, self.indexes[chosen], self.payloads.some(chosen))


def key_of_id(number: int) -> SchemaKey:
    return SchemaKey(f"id-{number}")


def key_of_guid(guid: bytes) -> SchemaKey:
    return SchemaKey(f"guid-{uuid.UUID(bytes=guid)}")


class FrameReader:
    """Reader of the frames of many values.

    ``expected``: the format's name in messages.  ``paths``: whether a frame ends with a path.  ``header``: the name
    of the header that may hold the frame.
    """

    def __init__(self, expected: str, *, paths: bool, header: str = SCHEMA_HEADER) -> None:
        self._expected = expected
        self._paths = paths
        self._header = header
        self._head_bytes = _ID_BYTES + (1 if paths else 0)
        self._head: Any = itemgetter(slice(self._head_bytes))

    def shared(self, values: Sequence[bytes | None], named: pa.Array | None) -> NamedInFrame | None:
        """Return the schema and the path if all values have the same usual frame, as they nearly always do.  None:
        each frame must be read (``read``).

        The usual frame is an id before the payload, and a count of 0 in place of a path.  ``named``: the header of
        each value that may hold its frame, null without one; None if no value has one.
        """
        if None in values or (named is not None and named.null_count < len(named)):
            return None
        return self._of_all(map(self._head, values))

    def _of_all(self, heads: Iterable[bytes]) -> NamedInFrame | None:
        """Return what the heads of some frames name if all are the head of the same usual frame, else None."""
        distinct = set(heads)
        return self._usual(distinct.pop()) if len(distinct) == 1 else None

    def _usual(self, head: bytes) -> NamedInFrame | None:
        """Return the schema that the head of a usual frame names, with an empty path; None for any other frame."""
        key, _ = _key(head)
        if key is None or len(head) < self._head_bytes or any(head[_ID_BYTES:]):
            return None
        return key, ()

    def read(self, values: Sequence[bytes], named: pa.Array | None) -> tuple[list[Framed], list[RefusedValue]]:
        """Group the values by schema and path, and refuse those without a frame.

        ``named``: the header of each value that may hold its frame, null without one; None if no value has one.
        """
        headers: Sequence[bytes | None] = [None] * len(values)
        frames = values
        if named is not None and named.null_count < len(named):
            headers = named.to_pylist()
            frames = [value if header is None else header for value, header in zip(values, headers, strict=True)]
        heads = list(map(self._head, frames))
        if frames is values and (shared := self._of_all(heads)) is not None:
            return [Framed(*shared, np.arange(len(values)), Payloads.of(values, self._head_bytes))], []
        found = defaultdict[NamedInFrame, list[Indexes]](list)
        nbytes = np.zeros(len(values), np.int64)
        refused: list[RefusedValue] = []
        for head, indexes in _by_text(heads):
            usual = self._usual(head)
            if usual is not None:
                found[usual].append(indexes)
                nbytes[indexes] = self._head_bytes
                continue
            for index in indexes.tolist():
                try:
                    one, nbytes[index] = self._frame(frames[index], in_header=headers[index] is not None)
                    found[one].append(np.array([index]))
                except Refusal as refusal:
                    refused.append(RefusedValue.of(index, refusal))
        if named is not None:  # a header has the frame, and the value is the payload alone
            nbytes[mask_of(named.is_valid())] = 0
        payloads = Payloads.of(values, nbytes)
        framed = []
        for (key, path), some in found.items():
            at = np.sort(np.concatenate(some))
            framed.append(Framed(key, path, at, payloads.some(at)))
        return framed, refused

    def _frame(self, frame: bytes, *, in_header: bool) -> tuple[NamedInFrame, int]:
        """Return what a frame names, and the frame's number of bytes.  Raises ``Refusal`` if there is no frame."""
        key, nbytes = _key(frame)
        if key is None:
            raise Refusal(WRONG_FORMAT, self._no_frame(frame, in_header=in_header))
        if not self._paths:
            return (key, ()), nbytes
        path = _path(frame[nbytes : nbytes + _PATH_BYTES_MAX])
        if path is None:
            message = "expected the path to a message after the schema's id: a count of at most 64, and so many numbers"
            raise Refusal(WRONG_FORMAT, message)
        numbers, path_bytes = path
        # Contracts have one form of keys for both ways to write this path in a header.
        plain = in_header and numbers == _FIRST_WRITTEN_OUT
        return (key, () if plain else numbers), nbytes + path_bytes

    def _no_frame(self, given: bytes, *, in_header: bool) -> str:
        if in_header:
            return (
                f"header {self._header}: expected byte 0 and a schema's id of 4 bytes, or byte 1 and a GUID of 16 bytes"
            )
        if len(given) >= _ID_BYTES and given[0] == _BY_ID:
            return f"the schema's id is 0. If it is an id of 8 bytes: {APICURIO_ADVICE}"
        return (
            f"expected {self._expected} with the frame of a schema registry. The frame is byte 0 and a schema's id of 4 "
            f"bytes, or byte 1 and a GUID of 16, or the header {self._header}"
        )


def _by_text(texts: Sequence[bytes]) -> Iterator[tuple[bytes, Indexes]]:
    """Yield each distinct text with the indexes that it has, in ascending order."""
    encoded = pa.array(texts, pa.binary()).dictionary_encode()
    codes = encoded.indices.to_numpy()
    ends = np.cumsum(np.bincount(codes))[:-1]
    # Without texts there is one piece, which is empty.
    yield from zip(encoded.dictionary.to_pylist(), np.split(np.argsort(codes, kind="stable"), ends), strict=False)


def _key(frame: bytes) -> tuple[SchemaKey | None, int]:
    """Return the schema that a frame names, and the frame's number of bytes without a path; None and 0 if there is no
    frame.
    """
    if len(frame) >= _ID_BYTES and frame[0] == _BY_ID and any(frame[1:_ID_BYTES]):
        return key_of_id(int.from_bytes(frame[1:_ID_BYTES])), _ID_BYTES
    if len(frame) >= _GUID_BYTES and frame[0] == _BY_GUID:
        return key_of_guid(frame[1:_GUID_BYTES]), _GUID_BYTES
    return None, 0


def _path(data: bytes) -> tuple[tuple[int, ...], int] | None:
    """Return the path at the beginning of ``data``, and its number of bytes; None if there is none."""
    at, numbers, count = 0, list[int](), None
    while count is None or len(numbers) < count:
        number = shift = 0
        for byte in data[at : at + _VARINT_BYTES_MAX]:
            at += 1
            number |= (byte & 0x7F) << shift
            shift += _SEVEN
            if byte < 0x80:
                break
        else:
            return None
        if not byte and shift > _SEVEN:
            return None
        number = number >> 1 ^ -(number & 1)
        if number < 0:
            return None
        if count is None:
            count = number
            if count > _PATH_MAX:
                return None
        else:
            numbers.append(number)
    return tuple(numbers), at
