"""Headers of many records at once give what each record's headers give alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancewal_core.rows.schema import Op
from lancewal_ingest.decode import decoder
from lancewal_ingest.decode.headers import ASIDE, HeaderColumns
from lancewal_ingest.decode.operations import CUT_HEADERS, ORIGINAL, Headers, op_of, record_bytes
from lancewal_ingest.decode.outcomes import Refusal
from lancewal_kafka.records import UNREADABLE_HEADERS
from tests.ingest.decode.json.cases import Ways, records

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
