"""A format of values that passes some over, which tests put in the place of JSON: JSON, beside heartbeats."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from unittest import mock

import numpy as np

from lancewal_core.rows.schema import RowSchema
from lancewal_ingest.append import prepare
from lancewal_ingest.decode.json.decoder import JsonDecoder
from lancewal_ingest.decode.naming import Naming
from lancewal_ingest.decode.value_decoder import NO_HEADERS, DecodedValues, HeaderValues, NamesNoSchema, Ops, Places

HEARTBEATS = {b"alive": "heartbeat", b"begin": "transaction"}
"""Values that are passed over, and their kinds."""


class WithHeartbeats(NamesNoSchema):
    """A ``ValueDecoder``."""

    def __init__(self, rows: RowSchema, naming: Naming) -> None:
        self._json = JsonDecoder(rows, naming)
        self.growth = self._json.growth
        self.names = self._json.names
        self.headers: Sequence[str] = ()

    def decode(
        self, values: Sequence[bytes], ops: Ops, headers: HeaderValues = NO_HEADERS, places: Places | None = None
    ) -> DecodedValues:
        kinds = [HEARTBEATS.get(value, "") for value in values]
        rest = np.array([at for at, kind in enumerate(kinds) if not kind], np.int64)
        found = self._json.decode([values[at] for at in rest.tolist()], ops[rest])
        return DecodedValues(
            [replace(part, indexes=rest[part.indexes]) for part in found.parts],
            [replace(one, place=int(rest[one.place])) for one in found.refused],
            passed_over={
                kind: np.array([at for at, one in enumerate(kinds) if one == kind]) for kind in {*kinds} - {""}
            },
        )


@contextmanager
def values_have_heartbeats() -> Iterator[None]:
    """Tables of JSON have values of this format meanwhile."""
    with mock.patch.object(prepare, "value_decoder", lambda _, rows, naming, *rest: WithHeartbeats(rows, naming)):
        yield
