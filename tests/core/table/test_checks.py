"""Settings and table versions that fit the contract, and those that do not."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, cast

import pyarrow as pa
import pytest

from lancewal_core.errors import ContractMismatch
from lancewal_core.names import paths
from lancewal_core.process.clock import SystemClock
from lancewal_core.settings.load import Settings
from lancewal_core.table.checks import (
    check_columns,
    check_settings,
    check_topics,
    former_setting,
    topics_are_bound,
)
from lancewal_core.table.columns.versions import foreign_columns
from lancewal_core.table.contract import Column, Contract, encode_contract
from lancewal_core.table.protocol import COLUMNS_MARK, PinnedTable
from tests.twins.memory_store import MemoryStore

TERMS: dict[str, Any] = {
    "table_uuid": "uuid-1",
    "topic": "orders",
    "topic_id": "id",
    "partitions": 1,
    "primary_key": ("k",),
    "region_key": ("k",),
    "start": (0,),
    "columns": (Column(name="k", type="int64", field_ids=(0,)), Column(name="at", type="date32", field_ids=(1,))),
    "patches": False,
}
NEVER = Contract.model_validate(TERMS)
EXPIRES = Contract.model_validate({**TERMS, "ttl_column": "at", "ttl_s": 3600})


def settings(**table: Any) -> Settings:
    return Settings.model_validate({"table": table})


def test_settings_may_say_that_rows_never_expire() -> None:
    never = settings(ttl_column="", ttl_s=0)
    check_settings(never, NEVER)
    check_settings(settings(), EXPIRES)
    check_settings(settings(ttl_column="at", ttl_s="1h"), EXPIRES)
    for wrong, contract in ((never, EXPIRES), (settings(ttl_column="at", ttl_s=60), NEVER)):
        with pytest.raises(ContractMismatch, match=r"table\.ttl_column.*table\.ttl_s|table\.ttl_s"):
            check_settings(wrong, contract)


def test_settings_in_force_are_those_of_the_contract() -> None:
    """As `lancewal config show` prints them, defaults included."""
    shown = settings(topic="orders", primary_key=["k"], region_key=["k"], patches=False).model_dump(mode="json")
    check_settings(Settings.model_validate(shown), NEVER)


SOURCES = Contract.model_validate(
    {
        **TERMS,
        "format": 2,
        "columns": (
            Column(name="k", type="int64", field_ids=(0,), field="key"),
            Column(name="at", type="timestamp[us, UTC]", field_ids=(1,), json_form="epoch_ms"),
        ),
    }
)


def test_forms_and_fields_of_columns_are_those_of_the_contract() -> None:
    right = {"k": {"type": "int64", "field": "key"}, "at": {"json": "epoch_ms", "type": "timestamp[us,UTC]"}}
    check_settings(settings(columns=right), SOURCES)
    for wrong in ({**right, "k": "int64"}, {**right, "at": {"type": "timestamp[us, UTC]", "json": "epoch_s"}}):
        with pytest.raises(
            ContractMismatch, match=r"at: timestamp\[us, UTC\], json epoch_ms.*if producers.*--add-column"
        ):
            check_settings(settings(columns=wrong), SOURCES)
    with pytest.raises(ContractMismatch, match=r"only\)$"):
        check_settings(settings(columns={"k": "int64"}), SOURCES)


def test_columns_of_metadata_are_those_of_the_contract() -> None:
    place = Column(name="place", type="int64", field_ids=(2,), metadata="kafka.offset")
    contract = SOURCES.model_copy(update={"columns": (*SOURCES.columns, place)})
    columns = {"k": {"type": "int64", "field": "key"}, "at": {"json": "epoch_ms", "type": "timestamp[us, UTC]"}}
    check_settings(settings(columns=columns, metadata_columns={"place": "kafka.offset"}), contract)
    check_settings(settings(columns=columns), contract)
    with pytest.raises(ContractMismatch, match=r"table\.metadata_columns .*place: int32, from kafka\.partition"):
        check_settings(settings(metadata_columns={"place": "kafka.partition"}), contract)


def allowing(*topics: str, **table: Any) -> Settings:
    return Settings.model_validate({"table": table, "kafka": {"topics": list(topics)}})


LETTERS = Contract.model_validate({**TERMS, "dead_letter_topic": "payments"})


@pytest.mark.parametrize(
    ("topics", "contract", "refused"),
    [
        (("orders", "orders.dead-letters"), NEVER, ()),
        (("orders*",), NEVER, ()),
        (("*",), LETTERS, ()),
        (("orders", "pay*s"), LETTERS, ()),
        (("orders",), NEVER, ("orders.dead-letters",)),
        (("order", "rders.*", "Orders*"), NEVER, ("orders", "orders.dead-letters")),
        (("orders*",), LETTERS, ("payments",)),
        (("payments*",), LETTERS, ("orders",)),
        # A point stands for itself.
        (("orders", "orders.dead.letters"), NEVER, ("orders.dead-letters",)),
    ],
)  # fmt: skip
def test_a_contract_names_no_topic_that_is_not_allowed(
    topics: tuple[str, ...], contract: Contract, refused: tuple[str, ...]
) -> None:
    for check in (check_settings, check_topics):
        if not refused:
            check(allowing(*topics), contract)
            continue
        with pytest.raises(ContractMismatch) as error:
            check(allowing(*topics), contract)
        assert f"does not allow {' and '.join(map(repr, refused))}:" in str(error.value)
        assert "LANCEWAL_KAFKA__TOPICS" in str(error.value)


def test_without_allowed_topics_those_of_the_table_compare_as_far_as_they_are_set() -> None:
    check_topics(settings(), LETTERS)
    check_topics(settings(topic="orders"), LETTERS)
    check_topics(settings(topic="orders", dead_letter_topic="payments"), LETTERS)
    for wrong in (settings(topic="trips"), settings(dead_letter_topic="orders.dead-letters")):
        with pytest.raises(ContractMismatch, match=r"table\.(topic|dead_letter_topic) .* the table's contract says"):
            check_topics(wrong, LETTERS)


@pytest.mark.parametrize(
    ("given", "bound"),
    [
        (settings(), False),
        (settings(topic="orders"), False),
        (settings(dead_letter_topic="letters"), False),
        (settings(topic="orders", dead_letter_topic="letters"), True),
        (allowing("orders*"), True),
    ],
)
def test_topics_are_bound_by_settings_alone(given: Settings, bound: bool) -> None:
    assert topics_are_bound(given) is bound


@dataclass(frozen=True)
class Columns:
    """Columns of a table version."""

    schema: pa.Schema
    field_ids: Any
    version: int = 7


KEY = pa.field("k", pa.int64(), nullable=False)
ADDRESS = "struct<zip: string, lines: list<struct<text: string>>>"
CHANGED = Contract.model_validate(
    {
        **TERMS,
        "version": 3,
        "format": 2,
        "columns_change": "3-a",
        "columns": (
            Column(name="k", type="int64", field_ids=(0,)),
            Column(name="at", type="date32", field_ids=(1,)),
            Column(name="address", type=ADDRESS, field_ids=(2, 3, 4, 5, 6)),
            Column(name="fare", type="float64", field_ids=(8,), first_ids=(7,)),
        ),
    }
)
LINES = pa.list_(pa.struct([("text", pa.string())]))


def version(
    ids: Any = MappingProxyType({}), mark: str | None = "3-a", address: Any = None, drop: str = "", **fields: Any
) -> PinnedTable:
    """The contract's columns but for ``ids`` and ``fields``, by name: a type, or a field of another name."""
    ids = {"k": (0,), "at": (1,), "address": (2, 3, 4, 5, 6), "fare": (8,), **ids}
    address = address or pa.struct([("zip", pa.string()), ("lines", LINES)])
    types = {"k": KEY, "at": pa.date32(), "address": address, "fare": pa.float64(), **fields}
    found = {
        (type_.name if isinstance(type_, pa.Field) else name): (type_, ids[name])
        for name, type_ in types.items()
        if name != drop
    }
    schema = pa.schema([t if isinstance(t, pa.Field) else pa.field(n, t) for n, (t, _) in found.items()])
    metadata = {} if mark is None else {COLUMNS_MARK: mark.encode()}
    return cast("PinnedTable", Columns(schema.with_metadata(metadata), {n: own for n, (_, own) in found.items()}))


RENAMED = {"address": pa.field("a", pa.struct([("postcode", pa.string()), ("lines", LINES)]))}
FOREIGN_MEMBER = pa.struct([("geo", pa.list_(pa.float32(), 2)), ("zip", pa.string()), ("lines", LINES)])
NOT_NULL_MEMBER = pa.struct([pa.field("g", pa.int8(), nullable=False), ("zip", pa.string()), ("lines", LINES)])
FITTING: list[tuple[PinnedTable, tuple[str, ...]]] = [
    (version(), ()),
    # Columns of other programs, of any types.
    (version({"e": (20,)}, e=pa.list_(pa.float32(), 4)), ("e",)),
    (version({"m": (20, 21, 22, 23)}, m=pa.map_(pa.string(), pa.int8())), ("m",)),
    (version({"address": (2, 20, 3, 4, 5, 6)}, address=FOREIGN_MEMBER), ("address.geo",)),
    # Another change is unfinished: names and more columns do not matter.
    (version(mark="4-b", **RENAMED), ()),
    (version(mark=None, fare=pa.field("price", pa.float64())), ()),
    (version({"n": (9,)}, mark="4-b", n=pa.string()), ("n",)),
]
MISFITS: list[tuple[PinnedTable, str]] = [
    (version(drop="at"), r"column 'at' is missing\."),
    (version({"at": (9,)}), r"'at' has field ids \(9,\), the contract says \(1,\): it was dropped and recreated"),
    (version({"at": (9,)}, at=pa.timestamp("us")), r"column 'at' has type timestamp\[us\], the contract says date32"),
    (version(at=pa.timestamp("us")), r"column 'at' has type timestamp\[us\], the contract says date32"),
    (version({"fare": (7,)}, fare=pa.float32()), "column 'fare' has type float32, the contract says float64"),
    (version(**RENAMED), "column 'address' is missing, and has become 'a'; column 'address.zip' is missing, and has"),
    (version(fare=pa.field("price", pa.float64())), "column 'fare' is missing, and has become 'price'"),
    (version(k=pa.field("k", pa.int64())), "column 'k' is nullable.*alter_columns.*False"),
    (version(fare=pa.field("fare", pa.float64(), nullable=False)), "column 'fare' is not nullable.*True"),
    (version({"e": (20,)}, e=pa.field("e", pa.int8(), nullable=False)), "'e' is not in the contract and not nullable"),
    (version({"address": (2, 4, 5, 6)}, address=pa.struct([("lines", LINES)])), "column 'address.zip' is missing"),
    (version(address=pa.struct([("zip", pa.binary()), ("lines", LINES)])), "'address.zip' has type binary, the contr"),
    (version({"address": (2,)}, address=pa.list_(pa.float32(), 2)), r"'address' has type fixed_size_list.*\[2\], the"),
    (version({"address": (2, 3)}, address=pa.large_list(pa.int8())), "'address' has type large_list.*, the contract"),
    (version({"address": (2, 3, 4, 9, 6)}), "column 'address.lines' has other items"),
    (
        version({"address": (2, 20, 3, 4, 5, 6)}, address=NOT_NULL_MEMBER),
        "'address.g' is not in the contract and not n",
    ),
]


@pytest.mark.parametrize(("pinned", "foreign"), FITTING)
def test_versions_that_fit(pinned: PinnedTable, foreign: tuple[str, ...]) -> None:
    check_columns(pinned, CHANGED)
    assert foreign_columns(pinned, CHANGED) == foreign


@pytest.mark.parametrize(("pinned", "says"), MISFITS)
def test_versions_that_do_not_fit(pinned: PinnedTable, says: str) -> None:
    with pytest.raises(ContractMismatch, match=f"^version 7 of the Lance table does not have .*{says}"):
        check_columns(pinned, CHANGED)


def changed(*columns: tuple[str, str]) -> Contract:
    """The version after ``NEVER`` with these columns."""
    named = tuple(Column(name=name, type=type_, field_ids=(at,)) for at, (name, type_) in enumerate(columns))
    return NEVER.model_copy(update={"format": 2, "version": 2, "columns": named, "columns_change": "2-a"})


def test_columns_of_an_earlier_version_are_no_reason_to_end() -> None:
    """Whoever changes columns changes settings before or after: ``alter`` first, and then the chart."""
    store = MemoryStore(SystemClock())
    old, new, later = NEVER, changed(("k", "int64"), ("day", "date32")), changed(("k", "int64"))
    later = later.model_copy(update={"version": 3, "columns_change": "3-a"})
    for one in (old, new):
        store.put_if_absent(paths.contract_version(one.version, None), encode_contract(one))
    asked = list[str]()
    get = store.get
    store.get = lambda key: (asked.append(key), get(key))[1]  # type: ignore[method-assign, func-returns-value]
    first, second = {"k": "int64", "at": "date32"}, {"k": "int64", "day": "date32"}
    for columns, version in ((first, 1), (second, 2), ({"k": "int64"}, None)):
        given = settings(columns=columns)
        check_settings(given, later, store)
        assert former_setting(given, later, store) == version
    with pytest.raises(ContractMismatch, match=r"table\.columns"):
        check_settings(settings(columns={"k": "int64", "at": "date32"}), later)
    for columns in ({"k": "int32"}, {"at": "date32", "k": "int64"}, {"k": "int64", "other": "date32"}):
        with pytest.raises(ContractMismatch, match=r"table\.columns"):
            check_settings(settings(columns=columns), later, store)
    asked.clear()
    check_settings(settings(columns={"k": "int64"}), later, store)
    check_settings(settings(), later, store)
    with pytest.raises(ContractMismatch):
        check_settings(settings(columns={"k": "int8"}), old, store)
    assert asked == [], "only a difference from changed columns costs requests"


def test_add_is_refused_for_a_format_without_schemas() -> None:
    with pytest.raises(ValueError, match="on_unknown_column is add, but json has no schema"):
        settings(on_unknown_column="add")
    with pytest.raises(ContractMismatch, match=r"table\.on_unknown_column.*'ignore'.*'reject'"):
        check_settings(settings(on_unknown_column="ignore"), NEVER)
