"""Values that upb wrote become their cells, both readers agree on any bytes, and no row is another one than upb's."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tests.ingest.decode.framed.outcomes import by_one, decoded, outcomes, texts
from tests.ingest.decode.framed.protobuf.cases import Table, cells_of_upb, message_class, passes_over_entries, tables
from tests.support.fuzzing import damaged, fuzz


@fuzz(120)
@given(tables())
def test_what_a_producer_has_written_is_what_the_columns_hold(table: Table) -> None:
    of = table.decoder
    found = decoded(of, table.written)
    assert found.refused == []
    for part in found.parts:
        for field, column in zip(table.columns, part.columns, strict=True):
            assert column.type == field.type
            expected = texts(pa.array([row[field.name] for row in table.cells], field.type))
            # The entries of a map have no order, and upb writes them in any.
            assert [sorted(text) for text in texts(column)] == [sorted(expected[place]) for place in part.indexes]
    assert by_one(of, table.written) == outcomes(found)


@fuzz(120)
@given(st.data(), tables())
def test_both_readers_agree_on_any_bytes(data: st.DataObject, table: Table) -> None:
    of = table.decoder
    values = data.draw(st.lists(damaged(table.written) | st.binary(max_size=30), min_size=1, max_size=12))
    together = outcomes(decoded(of, values))
    assert together == by_one(of, values)
    assert outcomes(decoded(of, values[::-1])) == {len(values) - 1 - place: text for place, text in together.items()}


@fuzz(120)
@given(st.data(), tables())
def test_a_row_of_any_bytes_is_that_of_upb(data: st.DataObject, table: Table) -> None:
    of, upb = table.decoder, message_class(table.text, "Row")
    joined = st.tuples(damaged(table.written), damaged(table.written)).map(b"".join)
    values = data.draw(st.lists(damaged(table.written) | joined, min_size=1, max_size=12))
    for part in decoded(of, values).parts:
        parsed = [upb.FromString(values[place]) for place in part.indexes]
        alike = [not passes_over_entries(message) for message in parsed]
        rows = [cells_of_upb(message, table.columns) for message, whole in zip(parsed, alike, strict=True) if whole]
        for field, column in zip(table.columns, part.columns, strict=True):
            expected = texts(pa.array([row[field.name] for row in rows], field.type))
            assert [sorted(text) for text in texts(column.filter(pa.array(alike)))] == [
                sorted(text) for text in expected
            ]
