"""Encode bytes as one word: ``lw1.`` and the base64url of the bytes and their CRC-32C.

The first byte is the kind of the content: 1 a receipt, 2 a token.  Numbers are varints (7 bits a byte, the lowest
first), and texts have their length before them.  A word that was cut short, mistyped or made longer gives an error
that says so.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter

import google_crc32c

from lancewal_core.store.json_object import WHOLE_MAX

PREFIX = "lw1."
RECEIPT = 1
TOKEN = 2
_CHECKSUM_BYTES = 4


def checked(data: bytes) -> str:
    """Encode bytes and their checksum as one word."""
    whole = data + google_crc32c.value(data).to_bytes(_CHECKSUM_BYTES, "big")
    return PREFIX + base64.urlsafe_b64encode(whole).rstrip(b"=").decode()


def unchecked(text: str) -> bytes:
    """Decode a word that ``checked`` made.  Raises ``ValueError`` if the word is damaged."""
    encoded = text.removeprefix(PREFIX)
    try:
        whole = base64.b64decode(encoded + "=" * (-len(encoded) % 4), altchars=b"-_", validate=True)
    except ValueError:
        raise ValueError("the text is damaged: it is not base64url") from None
    data, checksum = whole[:-_CHECKSUM_BYTES], whole[-_CHECKSUM_BYTES:]
    if google_crc32c.value(data) != int.from_bytes(checksum, "big") or len(checksum) < _CHECKSUM_BYTES:
        raise ValueError("the text is damaged: its checksum does not match")
    return data


def number(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def text(value: str) -> bytes:
    data = value.encode()
    return number(len(data)) + data


def by_topic(rows: Iterable[tuple[str, Sequence[int]]]) -> bytes:
    """Encode rows of numbers, grouped by the topic at the beginning of each row.  Rows of one topic must be adjacent."""
    groups = [(topic, [numbers for _, numbers in some]) for topic, some in groupby(rows, itemgetter(0))]
    data = number(len(groups))
    for topic, some in groups:
        data += text(topic) + number(len(some)) + b"".join(number(value) for numbers in some for value in numbers)
    return data


class Bytes:
    """Reader of numbers and texts from bytes.  Raises ``ValueError`` when it reads past the end."""

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
                raise ValueError("a number in the text is too large")
            if byte < 0x80:
                return value

    def text(self) -> str:
        return self._take(self.number()).decode()

    def by_topic(self, width: int) -> Iterator[tuple[str, Sequence[int]]]:
        """Yield the rows that the function ``by_topic`` wrote, of ``width`` numbers each."""
        for _ in range(self.number()):
            topic = self.text()
            for _ in range(self.number()):
                yield topic, [self.number() for _ in range(width)]

    def _take(self, count: int) -> bytes:
        if count > self.left:
            raise ValueError("it ends too early")
        self._at += count
        return self._data[self._at - count : self._at]
