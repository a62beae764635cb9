"""Headers of many records at once give what each record's headers give alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancewal_core.rows.schema import Op
from lancewal_ingest.decode import decoder
from lancewal_ingest.decode.headers import ASIDE, HeaderColumns
from lancewal_ingest.decode.json.decoder import JsonDecoder
from lancewal_ingest.decode.operations import CUT_HEADERS, ORIGINAL, Headers, op_of, record_bytes
from lancewal_ingest.decode.outcomes import Refusal
from lancewal_ingest.decode.value_decoder import NO_HEADERS, DecodedValues, HeaderValues, NamesNoSchema, Ops, Places
from lancewal_kafka.headers import UNREADABLE_HEADERS
from tests.ingest.decode.json.cases import ROWS, Ways, records

FOREIGN = [
    "traceparent",
    "__debezium.context.connectorName",
    "confluent.value.schemaId",
    "original.lancewal.op",
    "",
    "ä",
]
OURS = [
    "lancewal.op",
    "LANCEWAL.OP",
    "lancewal.source",
    "lancewal.kind",
    "lancewal.x",
    *CUT_HEADERS,
    ORIGINAL + CUT_HEADERS[0],
]
VALUES = [None, b"", b"upsert", b"patch", b"delete", b"Upsert", b"00-4bf92f3577b34da6"]
LISTS = (
    st.none()
    | st.just(UNREADABLE_HEADERS)
    | st.lists(st.tuples(st.sampled_from([*FOREIGN, *OURS]), st.sampled_from(VALUES)), max_size=4)
    | st.lists(st.tuples(st.sampled_from(FOREIGN), st.sampled_from(VALUES)), max_size=4)
)


@given(st.lists(LISTS, max_size=8))
def test_many_records_are_classified_as_each_alone(of_records: Sequence[Headers]) -> None:
    columns = HeaderColumns(of_records)
    for op, headers in zip(columns.ops().tolist(), of_records, strict=True):
        try:
            alone = op_of(headers)
        except Refusal:
            assert op == ASIDE
        else:
            assert op in (ASIDE, Op.UPSERT if alone is None else alone)


@given(st.lists(LISTS, max_size=8))
def test_sizes(of_records: Sequence[Headers]) -> None:
    columns, overhead = HeaderColumns(of_records), 200
    alone = [sum(len(name) + len(value or b"") + overhead for name, value in headers or []) for headers in of_records]
    assert columns.sizes(overhead).tolist() == alone
    assert columns.longest() >= max((record_bytes(None, None, headers) for headers in of_records), default=0)


def test_no_record_with_headers_of_others_is_examined_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some of these records have one ``lancewal.op`` beside the headers of others."""
    monkeypatch.setattr(decoder, "op_of", lambda headers: pytest.fail(f"examined {headers}"))
    others: list[tuple[str, bytes | None]] = [(name, b"x") for name in FOREIGN]
    named: list[Headers] = [None, [], others, [*others, ("lancewal.op", b"delete")], [("lancewal.op", b"patch")]]
    decoded = Ways().decoder().decode(records([b'{"id":1,"k":"a"}'] * 5, headers=named))
    assert decoded.rows["_op"].to_pylist() == [Op.UPSERT, Op.UPSERT, Op.UPSERT, Op.DELETE, Op.PATCH]
    assert np.all(decoded.is_row)


class WithHeader(NamesNoSchema):
    """JSON, whose rows hold a header that the format names."""

    headers = ("source", "none")

    def __init__(self) -> None:
        self._json = JsonDecoder(ROWS)
        self.growth, self.names = self._json.growth, self._json.names

    def decode(
        self, values: Sequence[bytes], ops: Ops, headers: HeaderValues = NO_HEADERS, places: Places | None = None
    ) -> DecodedValues:
        assert [len(array) for array in headers.values()] == [len(values)] * 2
        assert headers["none"].null_count == len(values)
        found = self._json.decode(values, ops)
        parts = []
        for part in found.parts:
            columns = list(part.columns)
            columns[ROWS.columns.names.index("bin")] = headers["source"].take(pa.array(part.indexes))
            parts.append(replace(part, columns=columns))
        return replace(found, parts=parts)


@pytest.mark.parametrize("piece_bytes", [1, 1 << 30])
def test_a_format_gets_the_headers_that_it_names(piece_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In each piece, beside records that it does not get: tombstones, and those whose headers are bad."""
    monkeypatch.setattr(decoder, "PIECE_BYTES", piece_bytes)
    given: list[tuple[bytes | None, Headers]] = [
        (b'{"id":1,"k":"a"}', [("source", b"first"), ("x", b"y"), ("source", b"last")]),
        (None, [("source", b"of a tombstone")]),
        (b'{"id":2,"k":"a"}', [("source", b"two")]),
        (b'{"id":3,"k":"a"}', [("source", b"bad"), ("lancewal.x", b"")]),
        (b'{"id":4,"k":"a"}', None),
        (b"{", [("source", b"no row")]),
        (b'{"id":6,"k":"a"}', [("source", None), ("lancewal.op", b"patch")]),
        (b'{"id":7,"k":"a"}', [("source", b"seven")]),
    ]
    batch = records([value for value, _ in given], headers=[headers for _, headers in given])
    rows = Ways().decoder(WithHeader()).decode(batch).rows
    found = dict(zip(rows["id"].to_pylist(), rows["bin"].to_pylist(), strict=True))
    assert found == {1: b"last", 2: b"two", 4: None, 6: None, 7: b"seven"}
