"""A receipt as one word: ``lw1.`` and the base64url of its bytes, to be kept, sent, and given back as a point.

The bytes are: 1 (a receipt), table uuid, place, version, keys left out, and the regions grouped by topic and topic id, each
with its partition and position; then the CRC-32C of all that.  Numbers are varints (7 bits a byte, the lowest first), texts
have their length before them.  One receipt has one text, so texts may be compared.

What was cut short, mistyped or made longer is ``InvalidInput``, which says so: never another receipt.
"""

from __future__ import annotations

import base64
import itertools
from collections.abc import Mapping

import google_crc32c

from lancewal_core.errors import InvalidInput
from lancewal_core.ids import Position, Region
from lancewal_core.store.json_object import WHOLE_MAX, JsonFault, region_named
from lancewal_core.words import is_word

PREFIX = "lw1."
_RECEIPT = 1
_CHECKSUM_BYTES = 4
Parts = tuple[str, str, int, int, Mapping[Region, Position]]
"""Table uuid, place, version, keys left out, positions."""


def write_text(parts: Parts) -> str:
    uuid, place, version, left_out, positions = parts
    data = bytes([_RECEIPT]) + _text(uuid) + _text(place) + _number(version) + _number(left_out)
    topics = [
        (topic, list(regions))
        for topic, regions in itertools.groupby(sorted(positions), key=lambda r: r.name.rpartition("/")[0])
    ]
    data += _number(len(topics))
    for topic, regions in topics:
        data += _text(topic) + _number(len(regions))
        for region in regions:
            data += _number(region.partition) + _number(positions[region])
    checked = data + google_crc32c.value(data).to_bytes(_CHECKSUM_BYTES, "big")
    return PREFIX + base64.urlsafe_b64encode(checked).rstrip(b"=").decode()


def read_text(text: str) -> Parts:
    """What ``write_text`` wrote."""
    try:
        return _read(text)
    except (JsonFault, ValueError) as error:
        raise InvalidInput(
            f"not a receipt: {error}; give the whole text, from {PREFIX!r} on, as the read printed it"
        ) from error


def _read(text: str) -> Parts:
    encoded = text.removeprefix(PREFIX)
    try:
        whole = base64.b64decode(encoded + "=" * (-len(encoded) % 4), altchars=b"-_", validate=True)
    except ValueError:
        raise ValueError("the text is damaged: it is no base64url") from None
    data, checksum = whole[:-_CHECKSUM_BYTES], whole[-_CHECKSUM_BYTES:]
    if google_crc32c.value(data) != int.from_bytes(checksum, "big") or len(checksum) < _CHECKSUM_BYTES:
        raise ValueError("the text is damaged: its checksum does not agree")
    reader = _Bytes(data)
    if reader.number() != _RECEIPT:
        raise ValueError("it is of another kind, or of a newer release")
    uuid, place, version, left_out = reader.text(), reader.text(), reader.number(), reader.number()
    if not is_word(uuid) or version < 1:
        raise ValueError("its table uuid or its version is none")
    positions: dict[Region, Position] = {}
    for _ in range(reader.number()):
        topic = reader.text()
        for _ in range(reader.number()):
            region = region_named(f"{topic}/{reader.number()}")
            positions[region] = Position(reader.number())
    if reader.left or write_text((uuid, place, version, left_out, positions)) != PREFIX + encoded:
        raise ValueError("it is not as a receipt is written")
    return uuid, place, version, left_out, positions


def _number(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def _text(value: str) -> bytes:
    data = value.encode()
    return _number(len(data)) + data


class _Bytes:
    """Reads from the beginning; ``ValueError`` beyond the end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def number(self) -> int:
        value = shift = 0
        while True:
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << shift
            shift += 7
            if value > WHOLE_MAX or shift > 63:
                raise ValueError("a number in it is too large")
            if byte < 0x80:
                return value

    def text(self) -> str:
        return self._take(self.number()).decode()

    def _take(self, count: int) -> bytes:
        if count > self.left:
            raise ValueError("it ends too early")
        self._at += count
        return self._data[self._at - count : self._at]
