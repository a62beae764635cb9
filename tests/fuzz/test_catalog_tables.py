"""Damaged lists of a catalog's tables: entries as the bytes say, or an error that names the object."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancewal_core.catalog.table_name import is_table_name
from lancewal_core.errors import FormatUnknown, ObjectCorrupt
from lancewal_core.names import paths
from lancewal_core.process.clock import SystemClock
from tests.golden import json_formats as golden
from tests.support.fuzzing import damaged, fuzz, memory_bound, outcome
from tests.twins.memory_store import MemoryStore

SOUND = golden.encoded()["catalog_tables_1.json"]
KEY = paths.catalog_tables_version(1)


@fuzz(150)
@given(damaged([SOUND]) | st.binary(max_size=100))
def test_a_damaged_list_is_named(data: bytes) -> None:
    store = MemoryStore(SystemClock())
    store.put_if_absent(KEY, data)
    with memory_bound(64 << 20):
        tables = outcome(golden.catalog_of(store).tables, KEY)
    assert all(is_table_name(name) and entry.name == name for name, entry in (tables or {}).items())


def changed(**entry: object) -> bytes:
    """The list with other values in the entry of shop.orders."""
    found = json.loads(SOUND)
    found["tables"]["shop.orders"].update(entry)
    return json.dumps(found).encode()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        SOUND[:-1],
        SOUND.replace(b'"shop.orders":', b'"../orders":'),
        SOUND.replace(b'"shop.orders":', b'"shop.items":'),
        changed(name="../orders"),
        changed(uri=""),
        changed(uri="x" * 5000),
        changed(table_uuid="../x"),
        changed(state="moved"),
        changed(changed_ms=-1),
        changed(more=1),
    ],
)
def test_no_entry_of_a_damaged_list_is_used(data: bytes) -> None:
    """And no change is built upon it."""
    store = MemoryStore(SystemClock())
    store.put_if_absent(KEY, data)
    catalog = golden.catalog_of(store)
    for act in (
        catalog.tables,
        lambda: catalog.table("gone"),
        lambda: catalog.swap_table("shop.items", None, golden.NAMED.model_copy(update={"name": "shop.items"})),
    ):
        with pytest.raises(ObjectCorrupt) as refused:
            act()
        assert refused.value.where["object"] == KEY
    assert [info.key for info in store.list("")] == [KEY]


def test_a_list_of_a_later_release_is_refused_by_name() -> None:
    store = MemoryStore(SystemClock())
    store.put_if_absent(KEY, SOUND.replace(b'"format":1', b'"format":9', 1))
    with pytest.raises(FormatUnknown, match="list of tables"):
        golden.catalog_of(store).tables()
