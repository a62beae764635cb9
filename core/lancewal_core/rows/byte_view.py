"""Arrow arrays as bytes: strings and binaries with the borders of their values, texts joined row by row, texts of
uuids."""

from __future__ import annotations

import binascii
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lancewal_core.errors import InvalidSchema


@dataclass(frozen=True, slots=True)
class ByteView:
    """The bytes of an array's values: value ``i`` is ``data[borders[i]:borders[i + 1]]``.  ``data`` is not a copy, so
    it must not be written to.
    """

    data: npt.NDArray[np.uint8]
    """The bytes of all values, one after the other, also those in null slots.  There may be other bytes around them."""
    borders: npt.NDArray[np.int64]
    """``len(array) + 1`` positions in ``data``, ascending."""

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """Bytes of each value."""
        return np.diff(self.borders)


def byte_view(array: pa.Array) -> ByteView:
    """Return the bytes of a (large_)string or (large_)binary array, sliced or not.  Raises ``InvalidSchema`` for other
    types.
    """
    if pa.types.is_string(array.type) or pa.types.is_binary(array.type):
        border_type: type[np.int32] | type[np.int64] = np.int32
    elif pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type):
        border_type = np.int64
    else:
        raise InvalidSchema(f"an array of type {array.type} has no bytes to view; pass strings or binaries")
    if len(array) == 0:  # such an array may come without buffers
        return ByteView(np.empty(0, np.uint8), np.zeros(1, np.int64))
    _validity, borders_buffer, data_buffer = array.buffers()
    borders = np.frombuffer(borders_buffer, border_type)[array.offset : array.offset + len(array) + 1].astype(np.int64)
    data = np.empty(0, np.uint8) if data_buffer is None else np.frombuffer(data_buffer, np.uint8)
    return ByteView(data, borders)


def join_texts(pieces: Iterable[bytes | pa.Array]) -> pa.Array:
    """Return for each row the text that joins its pieces, as a binary array.  A piece of ``bytes`` is the same in all
    rows.  The text is null if one of the row's pieces is null."""
    joined: list[object] = []
    before = b""
    for piece in pieces:
        if isinstance(piece, bytes):
            before += piece
        else:
            joined += [pa.scalar(before, pa.binary()), piece]
            before = b""
    return pc.binary_join_element_wise(*joined, pa.scalar(before, pa.binary()), pa.scalar(b"", pa.binary()))


_UUID_DIGITS = [place for place in range(36) if place not in (8, 13, 18, 23)]


def uuid_texts(array: pa.Array) -> pa.Array:
    """Return the canonical texts of uuids, in lower case, as a string array; nulls stay null."""
    ids = array.cast(pa.binary(16))
    if len(ids) == 0:
        return pa.array([], pa.string())
    data = ids.buffers()[1].slice(16 * ids.offset, 16 * len(ids))
    texts = np.full((len(ids), 36), ord("-"), np.uint8)
    texts[:, _UUID_DIGITS] = np.frombuffer(binascii.hexlify(data), np.uint8).reshape(-1, 32)
    found = pa.Array.from_buffers(pa.binary(36), len(ids), [None, pa.py_buffer(texts)]).cast(pa.binary())
    return pc.if_else(ids.is_valid(), found, pa.scalar(None, pa.binary())).cast(pa.string())
