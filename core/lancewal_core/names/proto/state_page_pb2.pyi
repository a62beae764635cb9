from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class StatePageHead(_message.Message):
    __slots__ = ("format_version", "topic", "topic_id", "number", "regions_per_page", "write_id", "slots", "checksum")
    class Slot(_message.Message):
        __slots__ = ("partition", "size", "changed_at_ms")
        PARTITION_FIELD_NUMBER: _ClassVar[int]
        SIZE_FIELD_NUMBER: _ClassVar[int]
        CHANGED_AT_MS_FIELD_NUMBER: _ClassVar[int]
        partition: int
        size: int
        changed_at_ms: int
        def __init__(self, partition: _Optional[int] = ..., size: _Optional[int] = ..., changed_at_ms: _Optional[int] = ...) -> None: ...
    FORMAT_VERSION_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    REGIONS_PER_PAGE_FIELD_NUMBER: _ClassVar[int]
    WRITE_ID_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    format_version: int
    topic: str
    topic_id: str
    number: int
    regions_per_page: int
    write_id: str
    slots: _containers.RepeatedCompositeFieldContainer[StatePageHead.Slot]
    checksum: int
    def __init__(self, format_version: _Optional[int] = ..., topic: _Optional[str] = ..., topic_id: _Optional[str] = ..., number: _Optional[int] = ..., regions_per_page: _Optional[int] = ..., write_id: _Optional[str] = ..., slots: _Optional[_Iterable[_Union[StatePageHead.Slot, _Mapping]]] = ..., checksum: _Optional[int] = ...) -> None: ...
