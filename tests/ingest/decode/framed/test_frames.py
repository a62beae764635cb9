"""Frames before payloads and in headers, against Confluent's own serializer of ids."""

from __future__ import annotations

import io
import uuid
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry.common.serde import SchemaId
from hypothesis import given
from hypothesis import strategies as st

from lancewal_ingest.decode.framed.frames import FrameReader, key_of_guid, key_of_id
from tests.support.fuzzing import damaged, fuzz

GUID = uuid.UUID("0f8fad5b-d9cb-469f-a165-70867728950e")
PLAIN, WITH_PATHS = FrameReader("Avro", paths=False), FrameReader("Protobuf", paths=True)

ids = st.integers(1, 2**32 - 1)
guids = st.uuids()
paths = st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=5)
payloads = st.binary(max_size=12)


def frame(named: int | uuid.UUID, path: list[int] | None) -> bytes:
    if isinstance(named, int):
        return SchemaId("AVRO", named, message_indexes=path).id_to_bytes()
    return SchemaId("AVRO", guid=str(named), message_indexes=path).guid_to_bytes()


def read(reader: FrameReader, values: list[bytes], headers: list[bytes | None] | None = None) -> list[tuple[Any, ...]]:
    """Key, path and payload of each value, or the kind and message of its refusal."""
    named = None if headers is None else pa.array(headers, pa.binary())
    framed, refused = reader.read(values, named)
    found: dict[int, tuple[Any, ...]] = {one.place: (one.kind, one.message) for one in refused}
    for group in framed:
        assert group.indexes.tolist() == sorted(group.indexes.tolist())
        data = group.payloads.data.tobytes()
        ends = zip(group.indexes.tolist(), group.payloads.starts.tolist(), group.payloads.ends.tolist(), strict=True)
        path = group.path or ((0,) if reader is WITH_PATHS else ())
        found |= {index: (group.key, path, data[start:end]) for index, start, end in ends}
    assert sorted(found) == list(range(len(values)))
    assert len(framed) == len({(group.key, group.path) for group in framed})
    return [found[index] for index in range(len(values))]


def key_of(named: int | uuid.UUID) -> str:
    return key_of_id(named) if isinstance(named, int) else key_of_guid(named.bytes)


@fuzz(50)
@given(st.lists(st.tuples(ids | guids | st.sampled_from([7, GUID]), payloads, st.booleans()), max_size=8))
def test_all_frames_of_a_registry(written: list[tuple[int | uuid.UUID, bytes, bool]]) -> None:
    values = [payload if header else frame(named, None) + payload for named, payload, header in written]
    headers = [frame(named, None) if header else None for named, _, header in written]
    assert read(PLAIN, values, headers) == [(key_of(named), (), payload) for named, payload, _ in written]


@fuzz(50)
@given(
    st.lists(st.tuples(ids | guids | st.sampled_from([7]), st.just([0]) | paths, payloads, st.booleans()), max_size=8)
)
def test_frames_with_paths(written: list[tuple[int | uuid.UUID, list[int], bytes, bool]]) -> None:
    values = [payload if header else frame(named, path) + payload for named, path, payload, header in written]
    headers = [frame(named, path) if header else None for named, path, _, header in written]
    assert read(WITH_PATHS, values, headers) == [
        (key_of(named), tuple(path), payload) for named, path, payload, _ in written
    ]


@fuzz(100)
@given(st.lists(damaged([frame(7, [0]) + b"abc", frame(GUID, [1, 2]) + b"abc", frame(2**32 - 1, [3])]), max_size=6))
def test_any_bytes_have_a_frame_or_are_refused(values: list[bytes]) -> None:
    for reader in (PLAIN, WITH_PATHS):
        together = read(reader, values)
        assert together == [read(reader, [value])[0] for value in values]
        for value, found in zip(values, together, strict=True):
            schema = SchemaId("PROTOBUF" if reader is WITH_PATHS else "AVRO")
            try:
                rest = schema.from_bytes(io.BytesIO(value)).read()
            except Exception:
                assert found[0] == "wrong_format"
                continue
            if found[0] != "wrong_format":
                named = schema.guid or schema.id or 0
                path = tuple(schema.message_indexes or ())
                assert found == (key_of(named), path, rest)


@pytest.mark.parametrize(
    "value",
    [b"", b"\0", b"\0\0\0\0", b"{}", b"\1" + 15 * b"x", b"\2\0\0\0\7abc", b'{"id": 1}'],
    ids=str,
)
def test_a_value_without_a_frame_is_of_another_format(value: bytes) -> None:
    ((kind, message),) = read(PLAIN, [value])
    assert kind == "wrong_format"
    assert "expected Avro with the frame of a schema registry" in message


def test_a_path_to_the_first_message_counts_only_if_it_is_written_out_before_the_value() -> None:
    usual, written_out = b"\0\0\0\0\7\0", b"\0\0\0\0\7\2\0"
    headers = pa.array([None, None, usual, written_out], pa.binary())
    framed, _ = WITH_PATHS.read([written_out + b"a", usual + b"b", b"c", b"d"], headers)
    assert {group.path: group.indexes.tolist() for group in framed} == {(0,): [0], (): [1, 2, 3]}


def test_no_values_have_no_frames() -> None:
    for reader in (PLAIN, WITH_PATHS):
        assert reader.read([], None) == ([], [])


def test_an_id_of_eight_bytes_names_the_setting_of_apicurio() -> None:
    ((kind, message),) = read(PLAIN, [b"\0" + (7).to_bytes(8) + b"abc"])
    assert kind == "wrong_format"
    assert "Default4ByteIdHandler" in message
    assert "apicurio.registry.use-id=contentId" in message


@pytest.mark.parametrize("header", [b"", b"7", b"\0\0\0\0\0", b"\1" + 3 * b"x"], ids=str)
def test_a_header_that_names_no_schema(header: bytes) -> None:
    ((kind, message),) = read(PLAIN, [frame(7, None)], [header])
    assert kind == "wrong_format"
    assert "__value_schema_id" in message


@pytest.mark.parametrize(
    "path", [b"", b"\2", b"\1", b"\xff\xff\xff\xff\xff\xff\x01", b"\x80\x80\x04", b"\2\1"], ids=str
)
def test_a_path_that_is_none(path: bytes) -> None:
    ((kind, message),) = read(WITH_PATHS, [b"\0\0\0\0\7" + path])
    assert (kind, "path" in message) == ("wrong_format", True)
