"""Object keys: what is built is parsed back, and nothing hostile leaves its folder."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancewal_core.errors import InvalidInput
from lancewal_core.names import paths
from lancewal_core.names.ids import (
    Generation,
    LogId,
    Making,
    Page,
    Position,
    Region,
    SchemaKey,
    Sequence,
    TableVersion,
    TopicId,
)

words = st.text("abzAZ059._-", min_size=1, max_size=30).filter(lambda word: word not in (".", ".."))
u64 = st.integers(0, 2**64 - 1)
regions = st.builds(Region, words, st.text("aZ09_-", min_size=1).map(TopicId), st.integers(0, 2**31 - 1))
hostile = st.one_of(
    st.sampled_from(
        [
            "",
            ".",
            "..",
            "a/b",
            "/",
            "../x",
            "a\x00",
            "a b",
            "é",
            "a%2f",
            "a\n",
            "\u0661",
        ]  # An Arabic digit is no digit here.
    ),
    st.text(max_size=8).filter(lambda text: not re.fullmatch("[a-zA-Z0-9._-]+", text)),
)
files = st.sampled_from(paths.FlushFile)

REGION = Region("orders.eu", TopicId("AAAAAAAAQACAAAAAAAAAAQ"), 17)
PAGE = Page("orders.eu", TopicId("AAAAAAAAQACAAAAAAAAAAQ"), 3, None)
FOLDER = "_lancewal/regions/orders.eu/AAAAAAAAQACAAAAAAAAAAQ/00017/"


def test_the_keys_are_those_of_the_format() -> None:
    assert paths.contract_version(1, None) == "_lancewal/contract/18446744073709551614.json"
    assert paths.merge_record(TableVersion(5), None) == "_lancewal/merges/18446744073709551610.json"
    assert paths.merge_finished(TableVersion(5), None) == "_lancewal/merges/18446744073709551610.finished.json"
    assert paths.load_record("orders-2026", None) == "_lancewal/loads/orders-2026.json"
    assert paths.subscription_names(2, None) == "_lancewal/subscriptions/names/18446744073709551613.json"
    assert paths.subscription_version("a1", 2, None) == "_lancewal/subscriptions/of/a1/18446744073709551613.json"
    schema = SchemaKey("id-7")
    assert paths.writer_schema_version(schema, 1, None) == "_lancewal/schemas/id-7/18446744073709551614.json"
    assert paths.probe("run-1") == "_lancewal/probe/run-1"
    assert paths.store_proof("ab" * 32) == f"_lancewal/store/{'ab' * 32}.json"
    assert paths.parcel_part("a1", 3) == "_lancewal/parcels/a1/00003"
    assert paths.wal_segment(LogId("a1"), Sequence(3)) == "_lancewal/wal/a1/00000000000000000003.arrow"
    bundle = paths.wal_bundle(LogId("a1"), Sequence(3), Sequence(34))
    assert bundle == "_lancewal/wal/a1/00000000000000000034.bundle-00000000000000000003.arrow"
    folder = "_lancewal/pages/orders.eu/AAAAAAAAQACAAAAAAAAAAQ/00003/"
    assert paths.page_version(PAGE, 1) == folder + "18446744073709551614.binpb"
    assert paths.history_page(REGION, Generation(9), None) == FOLDER + "history/00000000000000000009.binpb"
    assert paths.flush_file("a1", paths.FlushFile.MANIFEST) == "_lancewal/flushes/a1/manifest.json"
    assert {file.value for file in paths.FlushFile} == {"manifest.json", "deletes.arrow", "patches.arrow"}


def test_keys_of_a_making_lie_in_its_folder() -> None:
    making = Making("0a1b")
    page = replace(PAGE, making=making)
    assert paths.contract_version(1, making) == paths.contract_version(1, None)
    assert paths.contract_version(2, making) == "_lancewal/made/0a1b/contract/18446744073709551613.json"
    folder = "_lancewal/made/0a1b/pages/orders.eu/AAAAAAAAQACAAAAAAAAAAQ/00003/"
    assert paths.page_version(page, 1) == folder + "18446744073709551614.binpb"
    assert paths.parse_page_version(paths.page_version(page, 1)) == (page, 1)
    assert paths.making_of(folder) == making
    guid = SchemaKey("guid-0f8fad5b-d9cb-469f-a165-70867728950e")
    key = paths.writer_schema_version(guid, 2, making)
    assert key == f"_lancewal/made/0a1b/schemas/{guid}/18446744073709551613.json"
    assert paths.parse_writer_schema_version(key) == (guid, 2)
    subscriptions = "_lancewal/subscriptions/made/0a1b/"
    assert paths.subscription_names(1, making) == f"{subscriptions}names/18446744073709551614.json"
    key = paths.subscription_version("c", 1, making)
    assert key == f"{subscriptions}of/c/18446744073709551614.json"
    assert paths.parse_subscription_version(key) == ("c", 1)
    assert paths.parse_subscription_names(paths.subscription_names(7, making)) == 7
    assert paths.subscriptions_making(key) == making
    assert paths.subscriptions_making(paths.subscription_version("made", 1, None)) is None
    for key in (
        paths.page_version(PAGE, 1),
        "_lancewal/made/..",
        "_lancewal/made/../pages/",
        "x/_lancewal/made/a/pages/",
    ):
        assert paths.making_of(key) is None, key
    with pytest.raises(InvalidInput):
        paths.page_version(replace(PAGE, making=Making("..")), 1)


def test_keys_lie_under_their_prefixes() -> None:
    pairs = [
        (paths.contract_version(1, None), paths.contract_prefix(None)),
        (paths.merge_record(TableVersion(1), None), paths.merges_prefix(None)),
        (paths.merge_finished(TableVersion(1), None), paths.merges_prefix(None)),
        (paths.wal_segment(LogId("a"), Sequence(0)), paths.log_prefix(LogId("a"))),
        (paths.log_prefix(LogId("a")), paths.WAL),
        (paths.page_version(PAGE, 1), paths.page_prefix(PAGE)),
        (paths.page_prefix(PAGE), paths.pages_prefix(None)),
        (paths.history_page(REGION, Generation(1), None), paths.history_prefix(REGION, None)),
        (paths.flush_prefix("a"), paths.FLUSHES),
        (paths.history_prefix(REGION, None), paths.region_prefix(REGION, None)),
        (paths.subscription_names(1, None), paths.subscription_names_prefix(None)),
        (paths.writer_schema_version(SchemaKey("id-1"), 1, None), paths.writer_schema_prefix(SchemaKey("id-1"), None)),
        (paths.writer_schema_prefix(SchemaKey("id-1"), None), paths.writer_schemas_prefix(None)),
        (paths.subscription_version("a", 1, None), paths.subscription_prefix("a", None)),
        (paths.subscription_prefix("a", Making("b")), paths.subscriptions_prefix(Making("b"))),
        (paths.subscriptions_prefix(Making("b")), paths.SUBSCRIPTIONS),
    ]
    for key, prefix in pairs:
        assert key.startswith(prefix)
        assert prefix.endswith("/")
        assert prefix.startswith(paths.ROOT)


@given(u64)
def test_versions_come_back(version: int) -> None:
    assert paths.parse_contract_version(paths.contract_version(version, None)) == version
    assert paths.parse_merge_record(paths.merge_record(TableVersion(version), None)) == version
    assert paths.parse_merge_finished(paths.merge_finished(TableVersion(version), None)) == version
    assert paths.parse_merge_record(paths.merge_finished(TableVersion(version), None)) is None
    assert paths.parse_merge_finished(paths.merge_record(TableVersion(version), None)) is None


@given(u64, u64)
def test_newer_versions_sort_first(one: int, other: int) -> None:
    assert (paths.inverted_version(one) < paths.inverted_version(other)) == (one > other)


@given(words.map(LogId), u64.map(Sequence))
def test_log_keys_come_back(log: LogId, sequence: Sequence) -> None:
    assert paths.parse_wal_segment(paths.wal_segment(log, sequence)) == (log, sequence)
    assert paths.parse_log_prefix(paths.log_prefix(log)) == log


@given(words.map(LogId), u64, u64)
def test_bundle_keys_come_back_and_lie_behind_the_last_segment(log: LogId, one: int, other: int) -> None:
    first, last = Sequence(min(one, other)), Sequence(max(one, other))
    key = paths.wal_bundle(log, first, last)
    assert paths.parse_wal_bundle(key) == (log, first, last)
    assert paths.parse_wal_segment(key) is None
    assert paths.wal_segment(log, last) < key
    assert last == 2**64 - 1 or key < paths.wal_segment(log, Sequence(last + 1))


@given(regions, u64)
def test_region_keys_come_back(region: Region, number: int) -> None:
    generation = Generation(number)
    page = Page.of(region, 7, None)
    assert paths.parse_page_version(paths.page_version(page, number)) == (page, number)
    assert paths.parse_history_page(paths.history_page(region, generation, None)) == (region, generation)
    assert paths.parse_loss_record(paths.loss_record(region, Position(number), None)) == (region, number, 1)
    assert paths.parse_loss_record(paths.loss_record(region, Position(number), None, 17)) == (region, number, 17)


@given(words, files)
def test_keys_of_flushes_come_back(name: str, file: paths.FlushFile) -> None:
    key = paths.flush_file(name, file)
    assert paths.parse_flush_file(key) == (name, file)
    assert key.startswith(paths.flush_prefix(name))


PARSERS: list[Callable[[str], object]] = [
    paths.parse_contract_version,
    paths.parse_drain_version,
    paths.parse_conflicts_object,
    paths.parse_merge_record,
    paths.parse_merge_finished,
    paths.parse_log_prefix,
    paths.parse_wal_segment,
    paths.parse_wal_bundle,
    paths.parse_page_version,
    paths.parse_history_page,
    paths.parse_loss_record,
    paths.parse_flush_file,
    paths.parse_probe,
    paths.parse_store_proof,
    paths.parse_load_record,
    paths.parse_subscription_names,
    paths.parse_subscription_version,
    paths.parse_writer_schema_version,
]
ONE_OF_EACH = [
    paths.contract_version(1, None),
    paths.drain_version(1, None),
    paths.conflicts_object("0badcafe"),
    paths.merge_record(TableVersion(1), None),
    paths.merge_finished(TableVersion(1), None),
    paths.log_prefix(LogId("a")),
    paths.wal_segment(LogId("a"), Sequence(1)),
    paths.wal_bundle(LogId("a"), Sequence(1), Sequence(20)),
    paths.page_version(PAGE, 1),
    paths.history_page(REGION, Generation(1), None),
    paths.loss_record(REGION, Position(1), None, 2),
    paths.flush_file("a", paths.FlushFile.DELETES),
    paths.probe("a"),
    paths.store_proof("0" * 64),
    paths.load_record("a", None),
    paths.subscription_names(1, None),
    paths.subscription_version("a", 1, None),
    paths.writer_schema_version(SchemaKey("id-12"), 1, None),
]


@pytest.mark.parametrize("key", ONE_OF_EACH)
def test_each_key_has_exactly_one_parser(key: str) -> None:
    assert [parse(key) is not None for parse in PARSERS] == [other == key for other in ONE_OF_EACH]


@given(st.sampled_from(ONE_OF_EACH), st.data())
def test_a_changed_key_is_parsed_only_if_it_would_be_built(key: str, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(key)))
    changed = key[:at] + data.draw(st.sampled_from(["", "0", "9", "/", ".", "x", "\n", "F", "\u0661"])) + key[at + 1 :]
    wal = paths.parse_wal_segment(changed)
    bundle = paths.parse_wal_bundle(changed)
    states = paths.parse_page_version(changed)
    page = paths.parse_history_page(changed)
    flush = paths.parse_flush_file(changed)
    contract = paths.parse_contract_version(changed)
    assert wal is None or paths.wal_segment(*wal) == changed
    assert bundle is None or paths.wal_bundle(*bundle) == changed
    assert states is None or paths.page_version(*states) == changed
    assert page is None or paths.history_page(*page, None) == changed
    loss = paths.parse_loss_record(changed)
    assert loss is None or paths.loss_record(loss[0], loss[1], None, loss[2]) == changed
    assert flush is None or paths.flush_file(*flush) == changed
    schema = paths.parse_writer_schema_version(changed)
    assert schema is None or paths.writer_schema_version(*schema, None) == changed
    assert contract is None or paths.contract_version(contract, None) == changed


@pytest.mark.parametrize(
    "key",
    [
        "_lancewal/contract/99999999999999999999.json",
        "_lancewal/wal/a/99999999999999999999.arrow",
        "_lancewal/wal/../00000000000000000001.arrow",
        "_lancewal/wal/./",
        "_lancewal/keys/..",
        "_lancewal/pages/../id/00001/00000000000000000001.binpb",
        "_lancewal/pages/t/../00001/00000000000000000001.binpb",
        "_lancewal/pages/t/id/000001/00000000000000000001.binpb",
        "_lancewal/pages/t/id/1/00000000000000000001.binpb",
        "_lancewal/pages/t/id/2147483648/00000000000000000001.binpb",
        "_lancewal/pages/t/id/00001/99999999999999999999.binpb",
        "_lancewal/regions/t/id/00001/history/99999999999999999999.binpb",
        "_lancewal/regions/t/id/00001/losses/00000000000000000001-1.json",
        "_lancewal/regions/t/id/00001/losses/00000000000000000001-02.json",
        "_lancewal/regions/t/id/00001/losses/00000000000000000001-10000.json",
        "_lancewal/flushes/../manifest.json",
        "_lancewal/flushes/a/manifest.json\n",
        "_lancewal/flushes/a/other.json",
        "x/_lancewal/wal/a/00000000000000000001.arrow",
        "_lancewal/made/a/wal/a/00000000000000000001.arrow",
        "_lancewal/made/a/contract/18446744073709551614.json",
        "_lancewal/made/../contract/18446744073709551613.json",
        "_lancewal/made/a/made/b/contract/18446744073709551613.json",
    ],
)
def test_keys_that_are_never_built_are_passed_over(key: str) -> None:
    assert [parse(key) for parse in PARSERS] == [None] * len(PARSERS)


@given(hostile)
def test_hostile_names_are_refused(text: str) -> None:
    builds: tuple[Callable[[], str], ...] = (
        lambda: paths.check_topic(text),
        lambda: paths.region_prefix(Region(text, TopicId("id"), 0), None),
        lambda: paths.region_prefix(Region("t", TopicId(text), 0), None),
        lambda: paths.page_prefix(Page(text, TopicId("id"), 0, None)),
        lambda: paths.page_prefix(Page("t", TopicId(text), 0, None)),
        lambda: paths.log_prefix(LogId(text)),
        lambda: paths.wal_segment(LogId(text), Sequence(0)),
        lambda: paths.probe(text),
        lambda: paths.store_proof(text),
        lambda: paths.load_record(text, None),
        lambda: paths.subscription_version(text, 1, None),
        lambda: paths.flush_prefix(text),
    )
    for build in builds:
        with pytest.raises(InvalidInput):
            build()


def test_numbers_that_do_not_fit_are_refused() -> None:
    builds: tuple[Callable[[], str], ...] = (
        lambda: paths.inverted_version(-1),
        lambda: paths.inverted_version(2**64),
        lambda: paths.wal_segment(LogId("a"), Sequence(-1)),
        lambda: paths.wal_bundle(LogId("a"), Sequence(2), Sequence(1)),
        lambda: paths.wal_segment(LogId("a"), Sequence(2**64)),
        lambda: paths.region_prefix(Region("t", TopicId("id"), -1), None),
        lambda: paths.region_prefix(Region("t", TopicId("id"), 2**31), None),
        lambda: paths.page_prefix(Page("t", TopicId("id"), -1, None)),
        lambda: paths.page_prefix(Page("t", TopicId("id"), 2**31, None)),
        lambda: paths.page_version(PAGE, -1),
        lambda: paths.history_page(REGION, Generation(-1), None),
        lambda: paths.check_topic("t" * 250),
    )
    for build in builds:
        with pytest.raises(InvalidInput):
            build()
    assert paths.check_topic("t" * 249) == "t" * 249
