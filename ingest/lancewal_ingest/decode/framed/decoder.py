"""``ValueDecoder`` of the formats of a schema registry: values by the stored schemas that they name.

1. A value is decoded by the schema that the table has stored for the name in its frame, never by what a registry
   says.  A schema may have several versions.  The contract and the place of the record say which version counts
   (``writer_schemas``).  A value whose schema is not stored is refused as ``unknown_schema``.  Ingest looks schemas
   up before it decodes, and lets the partition wait until they are stored.
2. Values of one schema are decoded together, by one ``PayloadDecoder``.  The most recently used decoders stay in
   memory.
3. If a schema is not valid, or cannot fill the columns, each of its values is refused, with the kind of the error
   (``SchemaUnusable``).
4. If payloads do not tell which columns a patch has, the header ``lancewal.fields`` does: names of columns, separated
   by commas.  Other columns of the payload do not count.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from threading import Lock
from types import MappingProxyType
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lancewal_core.names.ids import SchemaKey
from lancewal_core.rows.schema import Op, RowSchema
from lancewal_core.wal.writer_schemas import WriterSchema
from lancewal_ingest.decode.framed.frames import (
    APICURIO_ADVICE,
    APICURIO_IDS,
    SCHEMA_HEADER,
    Framed,
    FrameReader,
)
from lancewal_ingest.decode.framed.kept import KeptByText
from lancewal_ingest.decode.framed.payloads import PayloadDecoder, SchemaUnusable
from lancewal_ingest.decode.naming import Naming
from lancewal_ingest.decode.operations import FIELDS_HEADER
from lancewal_ingest.decode.outcomes import Refusal
from lancewal_ingest.decode.part import DecodedPart, present_bitmap
from lancewal_ingest.decode.value_decoder import (
    NO_HEADERS,
    DecodedValues,
    HeaderValues,
    NamedBy,
    NamedMessage,
    Ops,
    Places,
    RefusedValue,
    Schemas,
    Weights,
    joined,
)
from lancewal_ingest.decode.weight import lengths
from lancewal_kafka.headers import HeaderList

NOTHING_ACCEPTED: Mapping[str, int] = MappingProxyType({})
_GROWTH = 64
"""Assumed number of bytes that a row takes for each byte of a payload, while its schema is not in memory."""
_MADE_MAX = 4096
"""Maximum number of decoders that stay in memory, errors about unusable schemas included.  A limit is needed since
each hostile value may name another path."""


class FramedFormat(Protocol):
    """A format of payloads, such as Avro, set up for the columns of one contract."""

    name: str
    """The format's name in messages."""
    paths: bool
    """Whether frames end with the path to a message (``frames``)."""
    schemas_have_fields: bool
    """Whether schemas say which fields payloads have, and of which types."""
    tells_operations: bool
    """Whether payloads tell their operations (``ValueDecoder.tells_operations``)."""

    def decoder(self, schema: WriterSchema, path: tuple[int, ...]) -> PayloadDecoder:
        """Return the decoder of payloads of one writer schema.

        Raises ``SchemaUnusable`` if the schema is not valid, is of another kind, cannot fill the columns, or names its
        records differently (``check_record``).
        """


class FramedDecoder:
    """``ValueDecoder`` of values that name a stored schema.

    ``accepted``: for some schemas, how many of their versions count by the contract; of all others, one.  ``header``:
    the header that may hold the frame.
    """

    names_schemas = True

    def __init__(
        self,
        format_: FramedFormat,
        rows: RowSchema,
        naming: Naming,
        schemas: Schemas,
        accepted: Mapping[str, int] = NOTHING_ACCEPTED,
        header: str = SCHEMA_HEADER,
    ) -> None:
        self._format = format_
        self.tells_operations = format_.tells_operations
        self.schemas_have_fields = format_.schemas_have_fields
        self._header = header
        self._frames = FrameReader(format_.name, paths=format_.paths, header=header)
        self._schemas = schemas
        self._accepted = accepted
        self._rows = rows
        self._naming = naming
        self._lock = Lock()
        self._made = KeptByText[PayloadDecoder | SchemaUnusable](_MADE_MAX)
        self.largest_growth: tuple[int, ...] = (_GROWTH, 0)
        """Largest growth of all schemas so far (``PayloadDecoder.growth``)."""
        self.names: Collection[str] = naming.in_values(rows.called(naming.fields)).columns.names
        self._ids_elsewhere = APICURIO_IDS if header == SCHEMA_HEADER else ()
        self.headers: Sequence[str] = (header, FIELDS_HEADER, *self._ids_elsewhere)
        self.growth = FramedGrowth(self, self._frames, header)

    def other_format(self, value: bytes, headers: HeaderList | None) -> str | None:
        """Return advice if a header shows that Apicurio's serializer wrote the value; otherwise None."""
        found = next((name for name, _ in headers or () if name in self._ids_elsewhere), None)
        return None if found is None else f"the schema's id is in the header {found}: {APICURIO_ADVICE}"

    def decode(
        self, values: Sequence[bytes], ops: Ops, headers: HeaderValues = NO_HEADERS, places: Places | None = None
    ) -> DecodedValues:
        groups, refused = self._frames.read(values, self._in_headers(headers))
        results: list[DecodedValues] = []
        for version, group in self._by_version(groups, places):
            decoder = self._decoder(group.key, version, group.path)
            if isinstance(decoder, SchemaUnusable):
                results.append(decoder.result(group.indexes, self._naming))
                continue
            found = decoder.decode(group.payloads, ops[group.indexes]).at(group.indexes)
            fields = headers.get(FIELDS_HEADER)
            parts = [self._patches(part, decoder, fields, refused) for part in found.parts]
            results.append(replace(found, parts=parts))
        return joined([DecodedValues([], refused), *results])

    def schemas_of(self, values: Sequence[bytes | None], headers: HeaderValues) -> Sequence[NamedBy]:
        return [(key, indexes) for key, _, indexes in self.messages_of(values, headers)]

    def messages_of(self, values: Sequence[bytes | None], headers: HeaderValues) -> Sequence[NamedMessage]:
        """Return the schemas that values name.  Each comes with the path of its message (``frames``) and the indexes of
        its values.

        The path of a schema's first message is empty, unless it is written out before the value.
        """
        named = self._in_headers(headers)
        shared = self._frames.shared(values, named)
        if shared is not None:
            return [(*shared, np.arange(len(values)))]
        groups, _ = self._frames.read([value or b"" for value in values], named)
        return [(group.key, group.path, group.indexes) for group in groups]

    def _in_headers(self, headers: HeaderValues) -> pa.Array | None:
        """Return, for each value, the content of the header that has its frame; null without one.

        The content is empty if only a header of Apicurio has the schema's id (``APICURIO_IDS``): such a value has no
        frame.
        """
        named = headers.get(self._header)
        for name in self._ids_elsewhere:
            ids = headers.get(name)
            if ids is not None and ids.null_count < len(ids):
                no_frame = pc.if_else(ids.is_valid(), pa.scalar(b"", pa.binary()), pa.scalar(None, pa.binary()))
                named = no_frame if named is None else pc.coalesce(named, no_frame)
        return named

    def growth_of(self, key: SchemaKey, path: tuple[int, ...]) -> tuple[int, int]:
        """Return the largest growth (``PayloadDecoder.growth``) among the versions of a schema that may decode the
        payload.
        """
        count, largest = self._accepted.get(key, 1), (0, 0)
        known = self._schemas.known(key)
        if not known and self._schemas.asked_first:
            return largest
        if len(known) < count:
            return _GROWTH, 0
        for version in range(1, count + 1):
            decoder = self._decoder(key, version, path)
            if not isinstance(decoder, SchemaUnusable):
                largest = max(largest[0], decoder.growth[0]), max(largest[1], decoder.growth[1])
        return largest

    def _by_version(self, groups: Sequence[Framed], places: Places | None) -> Iterator[tuple[int, Framed]]:
        """Yield each version of a schema, by its number, with the values that it decodes.

        The contract says how many versions count.  Each later version says from which positions on it does.
        """
        for group in groups:
            accepted = self._accepted.get(group.key, 1)
            if accepted == 1 or places is None:
                yield 1, group
                continue
            here = places.of(group.indexes)
            counts = np.ones(len(group.indexes), np.int64)
            for number, version in enumerate(self._schemas.read(group.key, accepted)[1:accepted], 2):
                before = np.zeros(len(counts), np.bool_)
                for partition, position in version.since.items():
                    before |= (here.partitions == int(partition)) & (here.offsets < position)
                counts[~before] = number
            for number in np.unique(counts).tolist():
                yield number, group.some(counts == number)

    def _decoder(self, key: SchemaKey, version: int, path: tuple[int, ...]) -> PayloadDecoder | SchemaUnusable:
        versions = self._schemas.read(key, version)
        if not versions or (writer := versions[version - 1].writer) is None:
            return SchemaUnusable(f"the table has no schema for {key}, which the frame names", "unknown_schema")
        made_for = f"{key} {version} {path}".encode()
        with self._lock:
            found = self._made.get(made_for)
            if found is None:
                try:
                    found = self._format.decoder(writer, path)
                except SchemaUnusable as unusable:
                    found = SchemaUnusable(f"schema {key}: {unusable}", unusable.kind)
                self._made.put(made_for, found, writer.nbytes)
                if not isinstance(found, SchemaUnusable):
                    self.largest_growth = tuple(map(max, self.largest_growth, found.growth))
        return found

    def _patches(
        self, part: DecodedPart, decoder: PayloadDecoder, fields: pa.Array | None, refused: list[RefusedValue]
    ) -> DecodedPart:
        """Return the part.  Its patches have only the columns that their headers ``lancewal.fields`` name.

        Patches are refused if they need this header and it is missing, or if it names wrong columns.
        """
        patches = part.ops.to_numpy() == Op.PATCH
        if decoder.tells_null or not patches.any():
            return part
        texts: list[bytes | None] = [None] * len(patches)
        if fields is not None:
            texts = fields.take(pa.array(part.indexes)).to_pylist()
        if decoder.tells_presence:
            patches &= np.array([text is not None for text in texts])
        kept, has = np.ones(len(patches), np.bool_), np.ones((len(self._rows.columns), len(patches)), np.bool_)
        present: list[bytes | None] = part.present.to_pylist()
        named: dict[bytes | None, frozenset[str] | Refusal] = {}
        for place in np.flatnonzero(patches).tolist():
            text = texts[place]
            if text not in named:
                named[text] = self._named(text, decoder)
            columns = named[text]
            if isinstance(columns, Refusal):
                kept[place] = False
                refused.append(RefusedValue.of(int(part.indexes[place]), columns))
            else:
                has[:, place] = [name in columns for name in self._rows.columns.names]
                present[place] = present_bitmap(self._rows, columns)
        places = np.arange(len(patches))
        named_alone = [
            array if own.all() else array.take(pa.array(places, mask=~own))
            for array, own in zip(part.columns, has, strict=True)
        ]
        whole = replace(part, columns=named_alone, present=pa.array(present, pa.binary()))
        return whole if kept.all() else whole.where(kept)

    def _named(self, text: bytes | None, decoder: PayloadDecoder) -> frozenset[str] | Refusal:
        """Return the columns, by the table's names, that the text of a header gives a patch.  The primary key is
        always among them.
        """
        if text is None:
            return Refusal(
                "patch_fields", f"expected the header {FIELDS_HEADER}: the patch's columns, separated by commas"
            )
        names = [name.strip() for name in text.decode("utf-8", "replace").split(",")]
        of_table = {self._naming.fields.get(name, name): name for name in self._rows.columns.names}
        if (known := self._naming.names) is not None:
            called = [name for name in names if name in of_table or known.use_of(name) is None]
            names = called + known.fields_of(name for name in names if name not in of_table)
        unknown = [name for name in names if name not in of_table]
        if unknown:
            return Refusal("patch_fields", f"header {FIELDS_HEADER}: expected only names of columns", unknown[0])
        missing = [name for name in names if name not in decoder.fills]
        if missing:
            return Refusal(
                "patch_fields", f"column {missing[0]!r} is in the header {FIELDS_HEADER}, but not in the schema"
            )
        return frozenset([*(of_table[name] for name in names), *self._rows.primary_key])


class FramedGrowth:
    """``Growth`` of values with frames.

    A value whose schema is not in memory counts with ``_GROWTH``.  A value that waits for its schema counts with its
    own size only, because no row is made of it yet.
    """

    def __init__(self, decoder: FramedDecoder, frames: FrameReader, header: str) -> None:
        self._decoder = decoder
        self._frames = frames
        self._header = header
        self.headers: Sequence[str] = (header,)

    def each(self, values: Sequence[bytes | None], headers: HeaderValues = NO_HEADERS) -> Weights:
        grown: Weights = lengths(values)
        named = headers.get(self._header)
        shared = self._frames.shared(values, named)
        if shared is not None:
            factor, fixed = self._decoder.growth_of(*shared)
            return grown * factor + fixed
        groups, _ = self._frames.read([value or b"" for value in values], named)
        for group in groups:
            factor, fixed = self._decoder.growth_of(group.key, group.path)
            grown[group.indexes] = grown[group.indexes] * factor + fixed
        return grown

    def largest(self, nbytes: int) -> int:
        factor, fixed = self._decoder.largest_growth
        return factor * nbytes + fixed
