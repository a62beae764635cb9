"""Headers of many messages, in one column of Arrow.

1. Arrow takes all headers of the messages that a poll returns in one pass of C.  As Python objects each header would
   take 200 bytes until its record is durable, and Python's garbage collector would visit all of them.
2. The headers of a message are at the message's index, as the client gave them.
3. If no message has headers, there is no column.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import overload

import pyarrow as pa

HeaderList = list[tuple[str, bytes | None]]
"""Headers of one message as the client gives them: pairs of a name and a value."""
UNREADABLE_HEADERS: HeaderList = [("\udcff", None)]
"""Placeholder for the headers of a message with a name that is not UTF-8.  The placeholder's name is a lone
surrogate, which no client decodes to."""

_MAPS = pa.map_(pa.string(), pa.binary())
_BYTES = "surrogatepass"
"""Python's error handler that encodes lone surrogates as bytes, and decodes them."""


class MessageHeaders(Sequence[HeaderList | None]):
    """The headers of each message, in order; None for a message without any."""

    __slots__ = ("_length", "_parts")

    def __init__(self, of_messages: Iterable[HeaderList | None] = ()) -> None:
        given = list(of_messages)
        self._length = len(given)
        self._parts: list[pa.MapArray | int] = [_maps(given) if any(given) else len(given)] if given else []
        """Consecutive parts of the sequence: a column, or the number of messages without headers."""

    @classmethod
    def joined(cls, parts: Iterable[Sequence[HeaderList | None]]) -> MessageHeaders:
        """Return the headers of all parts, one part after the other."""
        found = cls()
        for part in parts:
            found.extend(part)
        return found

    @property
    def column(self) -> pa.MapArray | None:
        """Headers of all messages, as maps of names to values; None if no message has any."""
        if all(isinstance(part, int) for part in self._parts):
            return None
        if len(self._parts) > 1:
            arrays = [pa.nulls(part, _MAPS) if isinstance(part, int) else part for part in self._parts]
            self._parts = [pa.concat_arrays(arrays)]
        return self._parts[0]

    def extend(self, more: Sequence[HeaderList | None]) -> None:
        """Append the headers of further messages."""
        more = more if isinstance(more, MessageHeaders) else MessageHeaders(more)
        for part in more._parts:
            last = self._parts[-1] if self._parts else None
            if isinstance(last, int) and isinstance(part, int):
                self._parts[-1] = last + part
            else:
                self._parts.append(part)
        self._length += more._length

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, at: int) -> HeaderList | None: ...
    @overload
    def __getitem__(self, at: slice) -> MessageHeaders: ...
    def __getitem__(self, at: int | slice) -> HeaderList | MessageHeaders | None:
        begin, end, _ = (at if isinstance(at, slice) else slice(at, at + 1)).indices(self._length)
        column, length = self.column, max(0, end - begin)
        part = length if column is None else column.slice(begin, length)
        if isinstance(at, slice):
            found = MessageHeaders()
            found._parts, found._length = [part], length
            return found
        if not length:
            raise IndexError(at)
        return None if isinstance(part, int) or part.null_count else _list(part)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # it is not fixed


def _maps(of_messages: list[HeaderList | None]) -> pa.MapArray:
    try:
        return pa.array(of_messages, _MAPS)
    except UnicodeEncodeError:  # a placeholder
        in_bytes = [one and [(bytes_of(name), value) for name, value in one] for one in of_messages]  # type: ignore[misc]  # bytes
        return pa.array(in_bytes, pa.map_(pa.binary(), pa.binary())).cast(_MAPS, safe=False)


def bytes_of(name: str) -> bytes:
    """Return the bytes of a header's name, as a column holds them."""
    return name.encode("utf-8", _BYTES)


def text_of(name: bytes) -> str:
    """Return the name of a header from its bytes in a column."""
    return name.decode("utf-8", _BYTES)


def _list(of_one: pa.MapArray) -> HeaderList:
    begin, end = of_one.offsets.to_pylist()
    names = of_one.keys.slice(begin, end - begin).cast(pa.binary()).to_pylist()
    return list(zip(map(text_of, names), of_one.items.slice(begin, end - begin).to_pylist(), strict=True))
