"""The receipt of a read: the table's uuid and place, the table version, and a position for each region.  Each result
has one.

A plain copy of a table's folder keeps the table's uuid, but has another place.  A receipt of the one is therefore not
accepted for the other, whose versions may have become different since.

A receipt is in the Arrow schema metadata as JSON, under ``lancewal.receipt``.  As text it is one word
(``checked_text``) to keep, to send, and to give back as a point.  Wherever a receipt is accepted, all three forms are.

After its kind the word has the table uuid, place, version, number of keys left out, and the positions.  Regions are
grouped by topic and topic id, each with its partition and position.  A receipt has exactly one text, so texts may be
compared.  A text that is not a receipt's is ``InvalidInput``, never another receipt.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import pyarrow as pa

from lancewal_core.errors import InvalidInput
from lancewal_core.names.ids import Position, Region, TableUuid, TableVersion
from lancewal_core.names.words import is_word
from lancewal_core.store.address import same_place
from lancewal_core.store.json_object import JsonFault, JsonObject, region_named
from lancewal_reader.point.checked_text import PREFIX, RECEIPT, TOKEN, Bytes, by_topic, checked, number, text, unchecked

METADATA_KEY = b"lancewal.receipt"
FORMAT = 1


@dataclass(frozen=True, slots=True)
class Receipt:
    """State that a read saw: the version of the table with ``table_uuid``, and for each partition the records before
    its position.

    ``str()`` returns the text that every command and API accepts as a point.
    """

    table_uuid: TableUuid
    version: TableVersion
    positions: dict[Region, Position]
    place: str
    """Place where the table was read (``lancewal_core.store.address``)."""
    left_out: int = 0
    """Number of keys in conflict whose unmerged records this read left out.  If it is above 0, no other table version
    is known to show the same rows.
    """

    def __str__(self) -> str:
        data = bytes([RECEIPT]) + text(self.table_uuid) + text(self.place)
        data += number(self.version) + number(self.left_out)
        regions = sorted(self.positions)
        return checked(data + by_topic((r.name.rpartition("/")[0], (r.partition, self.positions[r])) for r in regions))

    def check_table(self, table_uuid: TableUuid, place: str) -> None:
        """Raise ``InvalidInput`` unless the receipt is of a read of this table at this place."""
        if not same_place(self.place, place):
            raise InvalidInput(
                f"the receipt is of a read at {self.place}, but this table is at {place}. Read the table that gave it, by "
                "the address that it names"
            )
        if self.table_uuid != table_uuid:
            raise InvalidInput(
                f"the receipt is of the table with uuid {self.table_uuid}, this one has {table_uuid}: read the table that "
                "gave it"
            )

    @staticmethod
    def parse(text: str | bytes) -> Receipt:
        """Parse a receipt from its text, or from the JSON in a result's metadata.  Raises ``InvalidInput`` if it is
        neither.
        """
        word = text.strip() if isinstance(text, str) else text.decode(errors="replace").strip()
        if not word.startswith(PREFIX):
            return Receipt.from_json(text)
        try:
            return _read(word)
        except (JsonFault, ValueError) as error:
            raise InvalidInput(
                f"not a receipt: {error}; give the whole text, from {PREFIX!r} on, as the read printed it"
            ) from error

    def to_json(self) -> str:
        cut = {region.name: position for region, position in sorted(self.positions.items())}
        content = {"format": FORMAT, "table": self.table_uuid, "place": self.place, "version": self.version, "cut": cut}
        return json.dumps({**content, "left_out": self.left_out} if self.left_out else content)

    @staticmethod
    def from_json(text: str | bytes) -> Receipt:
        """Return the receipt of this text (bytes as in a schema's metadata, or text).  Raises ``InvalidInput`` if it is
        not one.
        """
        try:
            content = JsonObject.parse(text)
            if content.whole("format") != FORMAT:
                raise InvalidInput(
                    f"receipt format {content.whole('format')} is not known to this release: upgrade lancewal"
                )
            positions = content.inner("cut")
            cut = {region_named(name): Position(positions.whole(name)) for name in positions.members}
            return Receipt(
                TableUuid(content.word("table")),
                TableVersion(content.whole("version", low=1)),
                cut,
                content.text("place"),
                content.whole("left_out") if "left_out" in content.members else 0,
            )
        except JsonFault as error:
            raise InvalidInput(
                f"not a receipt: {error}; give a text that begins with {PREFIX!r}, or the JSON in a result's metadata"
            ) from error


def with_receipt(schema: pa.Schema, receipt: Receipt) -> pa.Schema:
    """Return the schema with the receipt in its metadata."""
    return schema.with_metadata({**(schema.metadata or {}), METADATA_KEY: receipt.to_json().encode()})


def receipt_of(schema: pa.Schema) -> Receipt:
    """Return the receipt in a result's schema metadata.  Raises ``InvalidInput`` if there is none."""
    text = (schema.metadata or {}).get(METADATA_KEY)
    if text is None:
        raise InvalidInput(
            "this schema has no metadata lancewal.receipt: give the schema of a result as lancewal returned it"
        )
    return Receipt.from_json(text)


def _read(word: str) -> Receipt:
    reader = Bytes(unchecked(word))
    kind = reader.number()
    if kind == TOKEN:
        raise ValueError("it is a token, which names no version; at_least takes it")
    if kind != RECEIPT:
        raise ValueError("it is of another kind, or of a newer release")
    uuid, place, version, left_out = reader.text(), reader.text(), reader.number(), reader.number()
    if not is_word(uuid) or version < 1:
        raise ValueError("its table uuid or its version is not valid")
    positions = {
        region_named(f"{topic}/{partition}"): Position(position) for topic, (partition, position) in reader.by_topic(2)
    }
    receipt = Receipt(TableUuid(uuid), TableVersion(version), positions, place, left_out)
    if reader.left or str(receipt) != word:
        raise ValueError("it does not have the form of a receipt")
    return receipt
