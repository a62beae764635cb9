"""What becomes of records that are no rows, by each pair of policies."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pytest

from lancewal_core.errors import BadRecord, ContractMismatch, LancewalError, Misrouted, WrongFormat
from lancewal_core.names.ids import Position, Region, TopicId
from lancewal_core.record_keys.key_format import encode_region_key
from lancewal_core.rows.murmur2 import partition_of
from lancewal_core.settings.load import Settings
from lancewal_core.settings.sections import POLICIES, Policy
from lancewal_core.table.checks import check_settings
from lancewal_core.table.contract import Column, Contract
from lancewal_core.wal.entry import NoRowYet
from lancewal_ingest.append.prepare import Consumed, Preparer, lenient
from lancewal_ingest.decode.json.decoder import JsonDecoder
from lancewal_ingest.decode.value_decoder import DecodedValues
from lancewal_kafka.records import Records

CONTRACT = Contract(
    version=7, table_uuid="u", topic="t", topic_id="i", partitions=3, primary_key=("id",), region_key=("id",),
    start=(0,) * 3, columns=(Column(name="id", type="int64", field_ids=(0,)),),
)  # fmt: skip
HERE = [id_ for id_ in range(50) if partition_of(encode_region_key(id_), 3) == 1]
ELSEWHERE = [id_ for id_ in range(50) if id_ not in HERE]
VALUES = [
    b'{"id": %d}' % HERE[0], b"no json", b'{"id": %d}' % ELSEWHERE[0], b'{"id": %d}' % HERE[1], b"{}",
    b'{"id": %d}' % ELSEWHERE[1], b'{"id": %d}' % HERE[2],
]  # fmt: skip
BAD, WRONG = [1, 4], [2, 5]


def consumed() -> Consumed:
    count = len(VALUES)
    records = Records(list(range(count)), [0] * count, [None] * count, list(VALUES), [None] * count)
    return Consumed(Region("t", TopicId("i"), 1), Position(0), Position(count), records)


def by(on_bad_record: Policy, on_misrouted: Policy) -> Contract:
    return CONTRACT.model_copy(update={"on_bad_record": on_bad_record, "on_misrouted": on_misrouted})


@pytest.mark.parametrize(("on_bad_record", "on_misrouted"), list(itertools.product(POLICIES, POLICIES)))
def test_policies_decide_where_an_entry_ends_and_what_becomes_a_letter(
    on_bad_record: Policy, on_misrouted: Policy
) -> None:
    policies = {**dict.fromkeys(BAD, on_bad_record), **dict.fromkeys(WRONG, on_misrouted)}
    end = min((offset for offset, policy in policies.items() if policy == "stop"), default=len(VALUES))
    preparer = Preparer(by(on_bad_record, on_misrouted))
    entry, letters, stop = preparer.prepare(consumed())
    assert entry is not None
    assert (entry.first, entry.next, entry.contract_version) == (0, end, 7)
    assert entry.rows["id"].to_pylist() == [i for i, at in ((HERE[0], 0), (HERE[1], 3), (HERE[2], 6)) if at < end]
    assert [r.offset for r in entry.rejected] == [offset for offset in sorted(policies) if offset < end]
    of = {name: [o for o in sorted(policies) if o < end and policies[o] == name] for name in POLICIES}
    assert [letter.offset for letter in letters] == of["dead-letter"]
    assert [r.offset for r in preparer.ignored(entry)] == of["ignore"]
    stopped_by = None if stop is None else type(stop.error)
    assert stopped_by == (None if end == len(VALUES) else BadRecord if end in BAD else Misrouted)


@pytest.mark.parametrize(("on_bad_record", "on_misrouted"), list(itertools.product(POLICIES, POLICIES)))
def test_an_entry_is_read_again_alike_whatever_the_policies(on_bad_record: Policy, on_misrouted: Policy) -> None:
    """As verify and repairs read it, and as an operator passes what has stopped: that is never ignored in silence."""
    contract = by(on_bad_record, on_misrouted)
    entry, letters, stop = Preparer(lenient(contract)).prepare(consumed())
    expected, _, _ = Preparer(by("dead-letter", "dead-letter")).prepare(consumed())
    assert stop is None
    assert entry == expected
    ignored = {o for o in BAD if on_bad_record == "ignore"} | {o for o in WRONG if on_misrouted == "ignore"}
    assert {letter.offset for letter in letters} == {*BAD, *WRONG} - ignored


FRAMED = b"\x00\x00\x00\x00\x07\x02a"
ROW, TYPE = VALUES[0], b'{"id": "%d"}' % HERE[0]


def told(
    values: Sequence[bytes | None], no_row_yet: NoRowYet | None, **terms: object
) -> tuple[int, int, LancewalError | None]:
    """Where the entry ends, how many letters it has, and what stops the partition."""
    keys = [encode_region_key(HERE[0]) if value is None else None for value in values]
    records = Records([*range(len(values))], [0] * len(values), keys, list(values), [None] * len(values))
    consumed = Consumed(
        Region("t", TopicId("i"), 1), Position(0), Position(len(values)), records, no_row_yet=no_row_yet
    )
    entry, letters, stop = Preparer(CONTRACT.model_copy(update=terms)).prepare(consumed)
    return 0 if entry is None else entry.next, len(letters), None if stop is None else stop.error


@pytest.mark.parametrize(
    ("values", "before", "end"),
    [
        ([FRAMED], NoRowYet(), 0),
        ([TYPE, FRAMED, ROW], NoRowYet(), 1),
        ([FRAMED], NoRowYet(5000, ""), 0),
        ([ROW, FRAMED], NoRowYet(), None),
        ([FRAMED], None, None),
        ([TYPE] * 100, NoRowYet(), 99),
        ([TYPE] * 99 + [ROW], NoRowYet(), None),
        ([TYPE] * 50, NoRowYet(50, "type"), 49),
        ([TYPE] * 50, NoRowYet(50, "range"), None),
        ([TYPE] * 50, NoRowYet(50, ""), None),
        ([TYPE] * 50, NoRowYet(100, "type"), None),
        ([b"{}"] + [TYPE] * 200, NoRowYet(), None),
        ([TYPE] * 98 + [ROW] + [TYPE] * 50, NoRowYet(), None),
        ([TYPE] * 200, None, None),
        ([None, FRAMED], NoRowYet(), 1),
        ([None, ROW, FRAMED], NoRowYet(), None),
        ([None, *[TYPE] * 99, None, TYPE], NoRowYet(), 101),
    ],
)
def test_first_records_stop_a_partition_without_a_row(
    values: Sequence[bytes | None], before: NoRowYet | None, end: int | None
) -> None:
    """A delete without a value is no row."""
    found, letters, error = told(values, before)
    assert found == (len(values) if end is None else end)
    assert isinstance(error, WrongFormat) == (end is not None)
    assert letters == sum(value not in (ROW, None) for value in values[:found])
    lenient_, _, none = told(values, before, on_wrong_format="dead-letter")
    assert (lenient_, none) == (len(values), None)


def test_no_policy_of_a_lenient_contract_stops_a_partition() -> None:
    """Not even one for the first records of a partition, whoever asks about them."""
    stops = dict.fromkeys(("on_bad_record", "on_wrong_format", "on_misrouted"), "stop")
    contract = lenient(CONTRACT.model_copy(update=stops))
    terms = {name: policy for name, policy in contract.model_dump().items() if name.startswith("on_")}
    assert "stop" not in terms.values()
    assert stops.keys() <= terms.keys()
    assert told([FRAMED, VALUES[2], *[TYPE] * 100], NoRowYet(), **terms) == (102, 102, None)


def test_a_stop_says_where_why_and_what_to_do() -> None:
    _, _, error = told([TYPE, FRAMED], NoRowYet())
    assert error is not None
    assert (error.where["offset"], error.where["partition"], error.kind) == (1, 1, "wrong_format")
    for part in (
        "topic t partition 1 offset 1: expected plain JSON", "Confluent's wire format", "table.format.value",
        "table.on_wrong_format is 'stop'", "--on wrong-format=dead-letter", "lancewal offset reject t-1-1",
    ):  # fmt: skip
        assert part in str(error)


@pytest.mark.parametrize(
    ("values", "before", "named"),
    [
        ([TYPE] * 100, NoRowYet(),
         ["all bad of one kind (type). 100 of the last 100 records: column 'id'", "json: number_text"]),
        ([TYPE] * 7, NoRowYet(93, "type"), ["7 of the last 7 records: column 'id'", "--add-column"]),
        ([b'{"quantity": 1, "id": 2}'] * 100, NoRowYet(),
         ["100 of the last 100 records: expected no members but the columns ['id']", "--add-column", "`field`",
          "--on unknown-column=ignore", "lancewal dead-letter list"]),
        ([b"no json"] * 100, NoRowYet(), ["all bad of one kind (not_json)"]),
    ],
)  # fmt: skip
def test_a_stop_by_many_bad_records_says_what_most_have_and_what_to_do(
    values: Sequence[bytes], before: NoRowYet, named: Sequence[str]
) -> None:
    error = told(values, before)[2]
    assert isinstance(error, WrongFormat)
    for part in (*named, "The partition has no row yet", "--on wrong-format=dead-letter"):
        assert part in str(error)
    assert ("--add-column" in str(error)) == (values[0] != b"no json")


@pytest.mark.parametrize("values", [[FRAMED, VALUES[2]], [VALUES[2], FRAMED]])
def test_the_first_of_two_stops_counts(values: Sequence[bytes]) -> None:
    end, _, error = told(values, NoRowYet())
    assert (end, type(error)) == (0, WrongFormat if values[0] == FRAMED else Misrouted)


def test_misrouted_records_are_neither_rows_nor_of_another_format() -> None:
    assert told([VALUES[2]] * 100, NoRowYet(), on_misrouted="dead-letter") == (100, 100, None)
    end, _, error = told([VALUES[2], FRAMED], NoRowYet(), on_misrouted="dead-letter")
    assert (end, type(error)) == (1, WrongFormat)


@pytest.mark.parametrize(
    ("value", "kind", "advice"),
    [
        (
            b'{"id": 1, "vip": true}',
            "no members but the columns ['id']. Add",
            ["--add-column", "--rename-column", "--on unknown-column=ignore"],
        ),
        (b'{"id": 9223372036854775808}', "(range)", ["--widen-column", "--on bad-record=dead-letter"]),
        (b'{"id": "x"}', "(type)", ["--on bad-record=dead-letter"]),
    ],
)
def test_a_stop_by_a_bad_record_says_what_is_wrong_and_what_to_do(
    value: bytes, kind: str, advice: Sequence[str]
) -> None:
    """Advice about one kind does not stand in the error of another one."""
    error = told([value], NoRowYet(), on_bad_record="stop")[2]
    assert isinstance(error, BadRecord)
    text = str(error)
    assert kind in text
    commands = {"--add-column", "--rename-column", "--widen-column", "--on unknown-column=ignore"}
    assert {one for one in commands if one in text} == commands & set(advice)
    assert all(one in text for one in advice)
    assert "`lancewal offset reject t-1-0`" in text


def test_a_stop_names_the_new_column_of_a_connector() -> None:
    value = b'{"op": "c", "source": {}, "before": null, "after": {"id": %d, "vip": true}}' % HERE[0]
    key = b'{"id":%d}' % HERE[0]
    terms = {"envelope": "debezium", "key_format": "json-compact", "partitioner": "none", "on_bad_record": "stop"}
    consumed = Consumed(
        Region("t", TopicId("i"), 1), Position(0), Position(1), Records([0], [0], [key], [value], [None])
    )
    stop = Preparer(CONTRACT.model_copy(update=terms)).prepare(consumed)[2]
    assert stop is not None
    assert "Found: 'vip'. Add the column" in str(stop.error)


def test_a_bad_record_stops_by_its_own_policy_first() -> None:
    end, _, error = told([FRAMED], NoRowYet(), on_bad_record="stop")
    assert (end, type(error)) == (0, BadRecord)


@pytest.mark.parametrize(("value", "end"), [(FRAMED, 0), (TYPE, 99), (ROW, 5000)])
def test_a_wrong_topic_is_not_decoded_to_the_end_of_a_segment(
    value: bytes, end: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded: list[int] = []
    decode = JsonDecoder.decode

    def counting(decoder: JsonDecoder, values: Sequence[bytes], *more: Any) -> DecodedValues:
        decoded.append(len(values))
        return decode(decoder, values, *more)

    monkeypatch.setattr(JsonDecoder, "decode", counting)
    found, _, _ = told([value] * 5000, NoRowYet())
    assert found == end
    assert sum(decoded) == (5100 if end == 5000 else 200)


@pytest.mark.parametrize(
    ("terms", "values", "policy"),
    [
        ({"on_bad_record": "stop"}, [ROW, b"{}"], "bad-record"),
        ({"on_wrong_format": "stop"}, [FRAMED], "wrong-format"),
        ({"on_misrouted": "stop"}, [VALUES[2]], "misrouted"),
    ],
)
def test_a_stop_names_the_command_and_the_setting_that_let_records_pass(
    terms: dict[str, object], values: list[bytes], policy: str
) -> None:
    """``table alter`` refuses a policy that the settings contradict, so the setting must be changed first."""
    settings = Settings.model_validate({"table": dict.fromkeys(terms, "stop")})
    new = CONTRACT.model_copy(update=dict.fromkeys(terms, "dead-letter"))
    (name,) = terms
    with pytest.raises(ContractMismatch, match=f"table.{name}"):
        check_settings(settings, new)
    _, _, error = told(values, NoRowYet(), **terms)
    assert f"`lancewal table alter --on {policy}=dead-letter`" in str(error)
    assert f"table.{name}, change it there first" in str(error)
