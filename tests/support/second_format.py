"""A second format of values beside JSON, which tests know as ``reversed``: JSON from its last byte to its first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal
from unittest import mock

from lancewal_core.rows.schema import RowSchema
from lancewal_core.table.contract import Contract
from lancewal_ingest import formats
from lancewal_ingest.append import prepare
from lancewal_ingest.decode.json.decoder import JsonDecoder
from lancewal_ingest.decode.naming import Naming
from lancewal_ingest.decode.value_decoder import (
    NO_HEADERS,
    DecodedValues,
    HeaderValues,
    NamesNoSchema,
    Ops,
    Places,
    ValueDecoder,
)

NAME = "reversed"


class _Reversed(NamesNoSchema):
    def __init__(self, rows: RowSchema, naming: Naming) -> None:
        self._json = JsonDecoder(rows, naming)
        self.growth = self._json.growth
        self.names = self._json.names
        self.headers: Sequence[str] = ()

    def decode(
        self, values: Sequence[bytes], ops: Ops, headers: HeaderValues = NO_HEADERS, places: Places | None = None
    ) -> DecodedValues:
        return self._json.decode([value[::-1] for value in values], ops)


@contextmanager
def two_formats() -> Iterator[None]:
    """Contracts may name the second format meanwhile."""

    def decoder(name: Any, rows: RowSchema, naming: Naming, *more: Any) -> ValueDecoder:
        return _Reversed(rows, naming) if name == NAME else formats.value_decoder(name, rows, naming, *more)

    field = Contract.model_fields["value_format"]
    before = field.annotation
    field.annotation = Literal["json", "reversed"]
    Contract.model_rebuild(force=True)
    try:
        with mock.patch.object(prepare, "value_decoder", decoder):
            yield
    finally:
        field.annotation = before
        Contract.model_rebuild(force=True)
