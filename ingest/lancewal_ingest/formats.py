"""Choice of the decoder for a table's record values, by the format that its contract names."""

from __future__ import annotations

from typing import Literal

from lancewal_core.rows.schema import RowSchema
from lancewal_ingest.decode.json.decoder import JsonDecoder
from lancewal_ingest.decode.naming import PLAIN, Naming
from lancewal_ingest.decode.value_decoder import ValueDecoder


def value_decoder(value_format: Literal["json"], rows: RowSchema, naming: Naming = PLAIN) -> ValueDecoder:
    """Return the decoder of a format for the columns of ``rows``.  ``InvalidSchema`` if the format cannot hold a column, or a
    default is not a value of its column."""
    match value_format:
        case "json":
            return JsonDecoder(rows, naming)
