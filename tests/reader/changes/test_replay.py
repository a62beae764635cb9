"""Images before and after each record, against a dict that applies one record after the other."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lancewal_core.rows.schema import Op
from lancewal_reader.changes import replay as replay_module
from lancewal_reader.changes.replay import Replay
from tests.core.rows.test_fold import NAMES, SCHEMA, SEQUENCES, VALUES, Key, Operation, batch, values

Row = dict[str, Any]
Change = tuple[int, Row | None, Row | None]
"""Place of the record, row before, row after."""
NOTHING: Row = dict.fromkeys(VALUES)
STARTS = st.dictionaries(st.tuples(st.sampled_from("ab"), st.integers(0, 2)), values(required=True), max_size=5)


def applied(state: dict[Key, Row], sequence: Iterable[Operation]) -> list[Change]:
    """The changes of the records, one after the other; ``state`` becomes the one after them."""
    changes = []
    for place, item in enumerate(sequence):
        key = item.r, item.id
        before = state.get(key)
        match item.op:
            case Op.UPSERT:
                state[key] = {**NOTHING, **item.values}
            case Op.PATCH:
                state[key] = {**(before or NOTHING), **item.values}
            case Op.DELETE:
                state.pop(key, None)
        if before is not None or key in state:
            changes.append((place, before, state.get(key)))
    return changes


def table_of(state: dict[Key, Row]) -> pa.Table:
    return pa.Table.from_pylist([{**row, "r": r, "id": id} for (r, id), row in state.items()], SCHEMA.table)


def state_of(rows: pa.Table) -> dict[Key, Row]:
    return {(row["r"], row["id"]): {name: row[name] for name in VALUES} for row in rows.to_pylist()}


def changes_of(replay: Replay, sequence: list[Operation]) -> list[Change]:
    found = []
    for part in replay.images():
        assert part.before.schema == part.after.schema == SCHEMA.table
        rows = zip(part.places, part.before.to_pylist(), part.after.to_pylist(), part.had, part.has, strict=True)
        for place, before, after, had, has in rows:
            assert {(row["r"], row["id"]) for row in (before, after)} == {(sequence[place].r, sequence[place].id)}
            images = [
                {name: row[name] for name in VALUES} if there else None for row, there in ((before, had), (after, has))
            ]
            found.append((int(place), images[0], images[1]))
    return found


@settings(max_examples=50)
@given(STARTS, SEQUENCES, st.lists(st.integers(0, 14), max_size=3), st.integers(1, 5))
def test_images_are_the_dicts_wherever_records_are_cut(
    start: dict[Key, Row], sequence: list[Operation], cuts: list[int], slice_rows: int
) -> None:
    state = {key: {**NOTHING, **row} for key, row in start.items()}
    before = table_of(state)
    edges = [0, *sorted(min(cut, len(sequence)) for cut in cuts), len(sequence)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replay_module, "SLICE_ROWS", slice_rows)
        for a, b in pairwise(edges):
            part = sequence[a:b]
            replay = Replay(pa.Table.from_batches([batch(part)], SCHEMA.wal), before, SCHEMA)
            assert changes_of(replay, part) == applied(state, part)
            after = replay.states()
            assert state_of(after.rows) == state
            assert after.partials.num_rows == 0
            gone = {(row["r"], row["id"]) for row in after.gone.to_pylist()}
            assert gone == {key for key in {(item.r, item.id) for item in part} if key not in state}
            before = after.rows


def test_no_records_leave_the_rows_as_they_are() -> None:
    rows = table_of({("a", 1): {**NOTHING, "a": 5}})
    replay = Replay(SCHEMA.wal.empty_table(), rows, SCHEMA)
    assert list(replay.images()) == []
    assert replay.states().rows.select(NAMES).equals(rows)


def test_a_delete_forgets_cells_that_an_older_record_had() -> None:
    """A patch after a delete shows nulls, also where the delete's own record has values."""
    upsert, patch = Operation(Op.UPSERT, "a", 1, {"a": 1, "s": "x"}), Operation(Op.PATCH, "a", 1, {"s": "y"})
    rows = pa.Table.from_batches([batch([upsert, Operation(Op.DELETE, "a", 1, {"a": 7}), patch])], SCHEMA.wal)
    replay = Replay(rows, SCHEMA.table.empty_table(), SCHEMA)
    (images,) = replay.images()
    assert [row["a"] for row in images.after.to_pylist()][2] is None
    assert images.has.tolist() == [True, False, True]
    assert state_of(replay.states().rows) == {("a", 1): {**NOTHING, "s": "y"}}
