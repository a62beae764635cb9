"""Values as Kafka Connect writes them, and what became of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from lancewal_core.rows.schema import Op, RowSchema
from lancewal_ingest.decode.connect.decoder import ConnectDecoder
from lancewal_ingest.decode.naming import PLAIN, Naming
from lancewal_ingest.decode.value_decoder import DecodedValues

Schema = Mapping[str, Any]
KEY: Schema = {"field": "id", "type": "int64"}


def struct(*fields: Schema, **more: object) -> Schema:
    return {"type": "struct", "fields": list(fields), **more}


def field(name: str, type_: str, named: str | None = None, **more: object) -> Schema:
    """An optional field."""
    return {"field": name, "type": type_, "optional": True, **({} if named is None else {"name": named}), **more}


def value(schema: Schema | None, payload: object) -> bytes:
    return json.dumps({"schema": schema, "payload": payload}, ensure_ascii=False).encode()


def rows_of(columns: Mapping[str, pa.DataType]) -> RowSchema:
    return RowSchema(pa.schema({"id": pa.int64(), **columns}), ("id",), ("id",))


def decoder(columns: Mapping[str, pa.DataType], naming: Naming = PLAIN) -> ConnectDecoder:
    return ConnectDecoder(rows_of(columns), naming)


def decode(of: ConnectDecoder, values: Sequence[bytes], op: Op = Op.UPSERT) -> DecodedValues:
    found = of.decode(values, np.full(len(values), op, np.uint8))
    places = [int(place) for part in found.parts for place in part.indexes] + [one.place for one in found.refused]
    assert sorted(places) == list(range(len(values)))
    for part in found.parts:
        for column in part.columns:
            column.validate(full=True)
    return found


def cells(found: DecodedValues) -> dict[int, list[Any]]:
    """The cells of each row, by the place of its value."""
    return {
        int(place): [column[row].as_py() for column in part.columns]
        for part in found.parts
        for row, place in enumerate(part.indexes)
    }


def refusals(found: DecodedValues) -> dict[int, tuple[str, str]]:
    return {one.place: (one.kind, one.message) for one in found.refused}
