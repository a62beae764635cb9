from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class MemWalIndexDetails(_message.Message):
    __slots__ = ("mem_wal_list", "format_version", "content", "topic", "topic_id", "partition", "contract_version", "trimmed_generation", "trimmed_position", "write_id", "trimmed_record_time_max_ms", "no_row_yet", "checksum")
    class Content(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        CONTENT_UNSPECIFIED: _ClassVar[MemWalIndexDetails.Content]
        INDEX: _ClassVar[MemWalIndexDetails.Content]
        HISTORY: _ClassVar[MemWalIndexDetails.Content]
    CONTENT_UNSPECIFIED: MemWalIndexDetails.Content
    INDEX: MemWalIndexDetails.Content
    HISTORY: MemWalIndexDetails.Content
    class MemWalId(_message.Message):
        __slots__ = ("region", "generation")
        REGION_FIELD_NUMBER: _ClassVar[int]
        GENERATION_FIELD_NUMBER: _ClassVar[int]
        region: str
        generation: int
        def __init__(self, region: _Optional[str] = ..., generation: _Optional[int] = ...) -> None: ...
    class MemWal(_message.Message):
        __slots__ = ("id", "mem_table_location", "wal_location", "wal_entries", "state", "owner_id", "last_updated_dataset_version", "first_position", "next_position", "first_sequence", "end_sequence", "merged_at_ms", "sealed_at_ms", "flushed_at_ms", "record_time_min_ms", "record_time_max_ms")
        class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
            __slots__ = ()
            OPEN: _ClassVar[MemWalIndexDetails.MemWal.State]
            SEALED: _ClassVar[MemWalIndexDetails.MemWal.State]
            FLUSHED: _ClassVar[MemWalIndexDetails.MemWal.State]
            MERGED: _ClassVar[MemWalIndexDetails.MemWal.State]
        OPEN: MemWalIndexDetails.MemWal.State
        SEALED: MemWalIndexDetails.MemWal.State
        FLUSHED: MemWalIndexDetails.MemWal.State
        MERGED: MemWalIndexDetails.MemWal.State
        ID_FIELD_NUMBER: _ClassVar[int]
        MEM_TABLE_LOCATION_FIELD_NUMBER: _ClassVar[int]
        WAL_LOCATION_FIELD_NUMBER: _ClassVar[int]
        WAL_ENTRIES_FIELD_NUMBER: _ClassVar[int]
        STATE_FIELD_NUMBER: _ClassVar[int]
        OWNER_ID_FIELD_NUMBER: _ClassVar[int]
        LAST_UPDATED_DATASET_VERSION_FIELD_NUMBER: _ClassVar[int]
        FIRST_POSITION_FIELD_NUMBER: _ClassVar[int]
        NEXT_POSITION_FIELD_NUMBER: _ClassVar[int]
        FIRST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
        END_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
        MERGED_AT_MS_FIELD_NUMBER: _ClassVar[int]
        SEALED_AT_MS_FIELD_NUMBER: _ClassVar[int]
        FLUSHED_AT_MS_FIELD_NUMBER: _ClassVar[int]
        RECORD_TIME_MIN_MS_FIELD_NUMBER: _ClassVar[int]
        RECORD_TIME_MAX_MS_FIELD_NUMBER: _ClassVar[int]
        id: MemWalIndexDetails.MemWalId
        mem_table_location: str
        wal_location: str
        wal_entries: bytes
        state: MemWalIndexDetails.MemWal.State
        owner_id: str
        last_updated_dataset_version: int
        first_position: int
        next_position: int
        first_sequence: int
        end_sequence: int
        merged_at_ms: int
        sealed_at_ms: int
        flushed_at_ms: int
        record_time_min_ms: int
        record_time_max_ms: int
        def __init__(self, id: _Optional[_Union[MemWalIndexDetails.MemWalId, _Mapping]] = ..., mem_table_location: _Optional[str] = ..., wal_location: _Optional[str] = ..., wal_entries: _Optional[bytes] = ..., state: _Optional[_Union[MemWalIndexDetails.MemWal.State, str]] = ..., owner_id: _Optional[str] = ..., last_updated_dataset_version: _Optional[int] = ..., first_position: _Optional[int] = ..., next_position: _Optional[int] = ..., first_sequence: _Optional[int] = ..., end_sequence: _Optional[int] = ..., merged_at_ms: _Optional[int] = ..., sealed_at_ms: _Optional[int] = ..., flushed_at_ms: _Optional[int] = ..., record_time_min_ms: _Optional[int] = ..., record_time_max_ms: _Optional[int] = ...) -> None: ...
    class NoRowYet(_message.Message):
        __slots__ = ("rejected", "kind")
        REJECTED_FIELD_NUMBER: _ClassVar[int]
        KIND_FIELD_NUMBER: _ClassVar[int]
        rejected: int
        kind: str
        def __init__(self, rejected: _Optional[int] = ..., kind: _Optional[str] = ...) -> None: ...
    MEM_WAL_LIST_FIELD_NUMBER: _ClassVar[int]
    FORMAT_VERSION_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    CONTRACT_VERSION_FIELD_NUMBER: _ClassVar[int]
    TRIMMED_GENERATION_FIELD_NUMBER: _ClassVar[int]
    TRIMMED_POSITION_FIELD_NUMBER: _ClassVar[int]
    WRITE_ID_FIELD_NUMBER: _ClassVar[int]
    TRIMMED_RECORD_TIME_MAX_MS_FIELD_NUMBER: _ClassVar[int]
    NO_ROW_YET_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    mem_wal_list: _containers.RepeatedCompositeFieldContainer[MemWalIndexDetails.MemWal]
    format_version: int
    content: MemWalIndexDetails.Content
    topic: str
    topic_id: str
    partition: int
    contract_version: int
    trimmed_generation: int
    trimmed_position: int
    write_id: str
    trimmed_record_time_max_ms: int
    no_row_yet: MemWalIndexDetails.NoRowYet
    checksum: int
    def __init__(self, mem_wal_list: _Optional[_Iterable[_Union[MemWalIndexDetails.MemWal, _Mapping]]] = ..., format_version: _Optional[int] = ..., content: _Optional[_Union[MemWalIndexDetails.Content, str]] = ..., topic: _Optional[str] = ..., topic_id: _Optional[str] = ..., partition: _Optional[int] = ..., contract_version: _Optional[int] = ..., trimmed_generation: _Optional[int] = ..., trimmed_position: _Optional[int] = ..., write_id: _Optional[str] = ..., trimmed_record_time_max_ms: _Optional[int] = ..., no_row_yet: _Optional[_Union[MemWalIndexDetails.NoRowYet, _Mapping]] = ..., checksum: _Optional[int] = ...) -> None: ...
