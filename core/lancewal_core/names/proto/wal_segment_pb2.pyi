from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class WalSegmentTable(_message.Message):
    __slots__ = ("log", "sequence", "writer", "written_at_ms", "body", "fence", "bundle")
    class Body(_message.Message):
        __slots__ = ("schema", "entries", "batches")
        SCHEMA_FIELD_NUMBER: _ClassVar[int]
        ENTRIES_FIELD_NUMBER: _ClassVar[int]
        BATCHES_FIELD_NUMBER: _ClassVar[int]
        schema: WalSegmentTable.Section
        entries: _containers.RepeatedCompositeFieldContainer[WalSegmentTable.Entry]
        batches: _containers.RepeatedCompositeFieldContainer[WalSegmentTable.Batch]
        def __init__(self, schema: _Optional[_Union[WalSegmentTable.Section, _Mapping]] = ..., entries: _Optional[_Iterable[_Union[WalSegmentTable.Entry, _Mapping]]] = ..., batches: _Optional[_Iterable[_Union[WalSegmentTable.Batch, _Mapping]]] = ...) -> None: ...
    class Fence(_message.Message):
        __slots__ = ("writer_log",)
        WRITER_LOG_FIELD_NUMBER: _ClassVar[int]
        writer_log: str
        def __init__(self, writer_log: _Optional[str] = ...) -> None: ...
    class Bundle(_message.Message):
        __slots__ = ("body", "places", "segments")
        BODY_FIELD_NUMBER: _ClassVar[int]
        PLACES_FIELD_NUMBER: _ClassVar[int]
        SEGMENTS_FIELD_NUMBER: _ClassVar[int]
        body: WalSegmentTable.Body
        places: _containers.RepeatedScalarFieldContainer[int]
        segments: _containers.RepeatedCompositeFieldContainer[WalSegmentTable.Bundled]
        def __init__(self, body: _Optional[_Union[WalSegmentTable.Body, _Mapping]] = ..., places: _Optional[_Iterable[int]] = ..., segments: _Optional[_Iterable[_Union[WalSegmentTable.Bundled, _Mapping]]] = ...) -> None: ...
    class Bundled(_message.Message):
        __slots__ = ("size", "etag", "written_at_ms")
        SIZE_FIELD_NUMBER: _ClassVar[int]
        ETAG_FIELD_NUMBER: _ClassVar[int]
        WRITTEN_AT_MS_FIELD_NUMBER: _ClassVar[int]
        size: int
        etag: str
        written_at_ms: int
        def __init__(self, size: _Optional[int] = ..., etag: _Optional[str] = ..., written_at_ms: _Optional[int] = ...) -> None: ...
    class Section(_message.Message):
        __slots__ = ("start", "length", "checksum")
        START_FIELD_NUMBER: _ClassVar[int]
        LENGTH_FIELD_NUMBER: _ClassVar[int]
        CHECKSUM_FIELD_NUMBER: _ClassVar[int]
        start: int
        length: int
        checksum: int
        def __init__(self, start: _Optional[int] = ..., length: _Optional[int] = ..., checksum: _Optional[int] = ...) -> None: ...
    class Entry(_message.Message):
        __slots__ = ("region", "first_position", "next_position", "contract_version", "rows", "rejected", "record_time_min_ms", "record_time_max_ms", "deletes_only")
        REGION_FIELD_NUMBER: _ClassVar[int]
        FIRST_POSITION_FIELD_NUMBER: _ClassVar[int]
        NEXT_POSITION_FIELD_NUMBER: _ClassVar[int]
        CONTRACT_VERSION_FIELD_NUMBER: _ClassVar[int]
        ROWS_FIELD_NUMBER: _ClassVar[int]
        REJECTED_FIELD_NUMBER: _ClassVar[int]
        RECORD_TIME_MIN_MS_FIELD_NUMBER: _ClassVar[int]
        RECORD_TIME_MAX_MS_FIELD_NUMBER: _ClassVar[int]
        DELETES_ONLY_FIELD_NUMBER: _ClassVar[int]
        region: str
        first_position: int
        next_position: int
        contract_version: int
        rows: int
        rejected: _containers.RepeatedCompositeFieldContainer[WalSegmentTable.Rejected]
        record_time_min_ms: int
        record_time_max_ms: int
        deletes_only: bool
        def __init__(self, region: _Optional[str] = ..., first_position: _Optional[int] = ..., next_position: _Optional[int] = ..., contract_version: _Optional[int] = ..., rows: _Optional[int] = ..., rejected: _Optional[_Iterable[_Union[WalSegmentTable.Rejected, _Mapping]]] = ..., record_time_min_ms: _Optional[int] = ..., record_time_max_ms: _Optional[int] = ..., deletes_only: _Optional[bool] = ...) -> None: ...
    class Batch(_message.Message):
        __slots__ = ("section", "raw_bytes", "entries")
        SECTION_FIELD_NUMBER: _ClassVar[int]
        RAW_BYTES_FIELD_NUMBER: _ClassVar[int]
        ENTRIES_FIELD_NUMBER: _ClassVar[int]
        section: WalSegmentTable.Section
        raw_bytes: int
        entries: int
        def __init__(self, section: _Optional[_Union[WalSegmentTable.Section, _Mapping]] = ..., raw_bytes: _Optional[int] = ..., entries: _Optional[int] = ...) -> None: ...
    class Rejected(_message.Message):
        __slots__ = ("offset", "kind")
        OFFSET_FIELD_NUMBER: _ClassVar[int]
        KIND_FIELD_NUMBER: _ClassVar[int]
        offset: int
        kind: str
        def __init__(self, offset: _Optional[int] = ..., kind: _Optional[str] = ...) -> None: ...
    LOG_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    WRITER_FIELD_NUMBER: _ClassVar[int]
    WRITTEN_AT_MS_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    BUNDLE_FIELD_NUMBER: _ClassVar[int]
    log: str
    sequence: int
    writer: str
    written_at_ms: int
    body: WalSegmentTable.Body
    fence: WalSegmentTable.Fence
    bundle: WalSegmentTable.Bundle
    def __init__(self, log: _Optional[str] = ..., sequence: _Optional[int] = ..., writer: _Optional[str] = ..., written_at_ms: _Optional[int] = ..., body: _Optional[_Union[WalSegmentTable.Body, _Mapping]] = ..., fence: _Optional[_Union[WalSegmentTable.Fence, _Mapping]] = ..., bundle: _Optional[_Union[WalSegmentTable.Bundle, _Mapping]] = ...) -> None: ...
