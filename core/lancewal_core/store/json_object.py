"""A stored JSON object, read strictly.  ``JsonFault`` names a member that has a wrong type or is out of its range.

1. The text holds one object, as bytes in UTF-8.  No name is twice in an object, and no number is ``NaN`` or
   ``Infinity``.  Nesting that Python's parser cannot follow is a fault like any other.
2. An integer is written as one: ``1.0``, ``true`` and ``"1"`` are not 1.
3. A message names the member and what was expected.  It has at most ``_SHOWN`` characters of each part of the content.

The caller adds the name of the object and turns the fault into an error of lancewal.  ``json_model`` reads models by
the same rules.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn, TypeGuard

from lancewal_core.names import paths
from lancewal_core.names.ids import Region
from lancewal_core.names.words import FORM, is_word

WHOLE_MAX = 2**63 - 1
"""Largest integer in stored JSON, that of a signed 64-bit number.  Positions, versions and sizes are such numbers."""
_SHOWN = 60


class JsonFault(ValueError):
    """The text is not the object that was expected.  The message says what is wrong, and the caller adds the name of
    the object."""


@dataclass(frozen=True, slots=True)
class JsonObject:
    """Members of an object.  ``path`` is its place in the text, for messages."""

    members: dict[str, object]
    path: str = ""

    @staticmethod
    def parse(text: str | bytes) -> JsonObject:
        """Raise ``JsonFault`` unless ``text`` is one object."""
        parsed = parse_value(text)
        if not isinstance(parsed, dict):
            raise JsonFault("it is not a JSON object")
        return JsonObject(parsed)

    def inner(self, name: str) -> JsonObject:
        found = self.raw(name)
        if not isinstance(found, dict):
            raise self._wrong(name, "an object")
        return JsonObject(found, self._path(name))

    def inners(self) -> Iterator[tuple[str, JsonObject]]:
        """Return all members, each of which must be an object."""
        for name in self.members:
            yield name, self.inner(name)

    def optional(self, name: str) -> JsonObject | None:
        """Return an inner object, or None for null; the member must be there."""
        return None if self.raw(name) is None else self.inner(name)

    def values(self, name: str) -> list[object]:
        found = self.raw(name)
        if not isinstance(found, list):
            raise self._wrong(name, "an array")
        return found

    def text(self, name: str) -> str:
        found = self.raw(name)
        if not isinstance(found, str):
            raise self._wrong(name, "a string")
        return found

    def word(self, name: str) -> str:
        """Return a member that is an identifier (``names.words``)."""
        found = self.text(name)
        if not is_word(found):
            raise self._wrong(name, f"an identifier: {FORM}")
        return found

    def whole(self, name: str, low: int = 0, high: int = WHOLE_MAX) -> int:
        """Return a member that is an integer from ``low`` to ``high``."""
        found = self.members.get(name)
        if type(found) is int and low <= found <= high:  # as ``is_whole``: some objects have thousands of them
            return found
        self.raw(name)
        raise self._wrong(name, f"an integer from {low} to {high}")

    def whole_or_null(self, name: str) -> int | None:
        """Return an integer, as ``whole`` does, or None for null; the member must be there."""
        return None if self.raw(name) is None else self.whole(name)

    def wholes(self, name: str, low: int = 0, high: int = WHOLE_MAX) -> list[int]:
        """Return a member that is an array of integers from ``low`` to ``high``."""
        found = self.values(name)
        integers = [value for value in found if is_whole(value, low, high)]
        if len(integers) != len(found):
            raise self._wrong(name, f"an array of integers from {low} to {high}")
        return integers

    def raw(self, name: str) -> object:
        """Return a member that may be any JSON value."""
        if name not in self.members:
            raise JsonFault(f"it has no {self._path(name)!r}")
        return self.members[name]

    def _path(self, name: str) -> str:
        return f"{self.path}.{name[:_SHOWN]}" if self.path else name[:_SHOWN]

    def _wrong(self, name: str, expected: str) -> JsonFault:
        return JsonFault(f"its {self._path(name)!r} is not {expected}")


def parse_value(text: str | bytes) -> object:
    """Return the JSON value in ``text``.  Raises ``JsonFault`` if ``text`` is not JSON."""
    try:
        whole = text if isinstance(text, str) else text.decode()
        return json.loads(whole, object_pairs_hook=_members, parse_constant=_constant)
    except RecursionError:
        raise JsonFault("its values are nested too deep") from None
    except JsonFault:
        raise
    except ValueError as error:  # also: not UTF-8, thousands of digits
        raise JsonFault(f"it is not JSON: {str(error)[:_SHOWN]}") from None


def is_whole(value: object, low: int = 0, high: int = WHOLE_MAX) -> TypeGuard[int]:
    """Return whether a JSON value is an integer from ``low`` to ``high``."""
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def region_named(name: str) -> Region:
    """Return the region of this name.  Raises ``JsonFault`` for a text that no region has as its name."""
    region = paths.parse_region(name)
    if region is None:
        raise JsonFault(f"{name[:_SHOWN]!r} is not a region")
    return region


def _members(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise JsonFault("it names a member twice")
    return members


def _constant(_: str) -> NoReturn:
    raise JsonFault("NaN and Infinity are not JSON numbers")
