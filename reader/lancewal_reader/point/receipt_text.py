"""The text of a receipt: one word (``checked_text``) to keep, to send, and to give back as a point.

After its kind the word has the table uuid, place, version, number of keys left out, and the positions.  Regions are grouped by
topic and topic id, each with its partition and position.  A receipt has exactly one text, so texts may be compared.
A text that is not a receipt's is ``InvalidInput``, never another receipt.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from lancewal_core.errors import InvalidInput
from lancewal_core.names.ids import Position, Region
from lancewal_core.names.words import is_word
from lancewal_core.store.json_object import JsonFault, region_named
from lancewal_reader.point.checked_text import PREFIX, RECEIPT, TOKEN, Bytes, checked, number, text, unchecked

Parts = tuple[str, str, int, int, Mapping[Region, Position]]
"""Table uuid, place, version, number of keys left out, positions."""


def write_text(parts: Parts) -> str:
    uuid, place, version, left_out, positions = parts
    data = bytes([RECEIPT]) + text(uuid) + text(place) + number(version) + number(left_out)
    topics = [
        (topic, list(regions))
        for topic, regions in itertools.groupby(sorted(positions), key=lambda r: r.name.rpartition("/")[0])
    ]
    data += number(len(topics))
    for topic, regions in topics:
        data += text(topic) + number(len(regions))
        for region in regions:
            data += number(region.partition) + number(positions[region])
    return checked(data)


def read_text(word: str) -> Parts:
    """Return the parts that ``write_text`` wrote; ``InvalidInput`` for any other text."""
    try:
        return _read(word)
    except (JsonFault, ValueError) as error:
        raise InvalidInput(
            f"not a receipt: {error}; give the whole text, from {PREFIX!r} on, as the read printed it"
        ) from error


def _read(word: str) -> Parts:
    reader = Bytes(unchecked(word))
    kind = reader.number()
    if kind == TOKEN:
        raise ValueError("it is a token, which names no version; at_least takes it")
    if kind != RECEIPT:
        raise ValueError("it is of another kind, or of a newer release")
    uuid, place, version, left_out = reader.text(), reader.text(), reader.number(), reader.number()
    if not is_word(uuid) or version < 1:
        raise ValueError("its table uuid or its version is not valid")
    positions: dict[Region, Position] = {}
    for _ in range(reader.number()):
        topic = reader.text()
        for _ in range(reader.number()):
            region = region_named(f"{topic}/{reader.number()}")
            positions[region] = Position(reader.number())
    if reader.left or write_text((uuid, place, version, left_out, positions)) != word:
        raise ValueError("it is not as a receipt is written")
    return uuid, place, version, left_out, positions
