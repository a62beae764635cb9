"""Dead letters in groups: the number of letters of each kind and column, and the times of the first and the last.

Guarantees
 1. Memory is bounded: a group holds a few figures and one example, and there are at most ``GROUPS_MAX`` groups.
    Letters of further groups are counted by kind alone.
 2. Any record can be added.  A record without valid headers of a letter counts as ``foreign``.
 3. Letters of other tables count as ``elsewhere``.  A letter is of another table if its record is of another topic, or
    if it names the default consumer group of another table.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from lancewal_core.names.words import is_topic
from lancewal_core.table.contract import MISROUTED, UNREADABLE
from lancewal_ingest.decode.operations import KIND_HEADER, SOURCE_HEADER
from lancewal_ingest.decode.outcomes import KINDS
from lancewal_kafka.headers import UNREADABLE_HEADERS
from lancewal_kafka.records import Records

GROUPS_MAX = 1_000
"""Largest number of groups of kind and column.  Producers choose the names of unexpected members, so there may be any
number."""
FURTHER = "..."
"""Value of ``column`` in the group that counts a kind's letters for which there was no room among ``GROUPS_MAX``
groups."""
_MESSAGE_MAX = 300
_NAME_MAX = 200
_KINDS = frozenset([*KINDS, MISROUTED, UNREADABLE])
_MESSAGE_HEADER = "__connect.errors.exception.message"
_GROUP_HEADER = "__connect.errors.connector.name"
_SOURCE = re.compile(r"(?P<topic>[a-zA-Z0-9._-]{1,249})-(?P<partition>[0-9]{1,9})-(?P<offset>[0-9]{1,18})", re.ASCII)
_QUOTED = r"""(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""
_COLUMN = re.compile(rf"(?:schema [a-z0-9-]{{1,60}}: )?column ({_QUOTED})", re.DOTALL)
_FOUND = re.compile(r"\. Found: (['\"].*)\Z", re.DOTALL)
_DEFAULT_GROUP = re.compile(r"lancewal-[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}")
_NO_TIME = -1


@dataclass(frozen=True, slots=True)
class LetterGroup:
    """Letters of one kind about one column."""

    kind: str
    column: str
    """The column, or the unexpected member or header; empty if the kind is about the whole record."""
    letters: int
    first_ms: int | None
    """Kafka's time of the oldest letter, in milliseconds since 1970; None if Kafka has no time for any."""
    last_ms: int | None
    """Kafka's time of the newest letter, in the same form."""
    example: tuple[str, int, int]
    """Topic, partition and offset of the record of the newest letter."""
    message: str
    """Message of the newest letter: what was expected of the record."""


class LetterGroups:
    """Counter of the dead letters of one table.  ``elsewhere`` counts letters about other topics, and letters of tables
    whose default consumer group is not ``default_group``.  ``foreign`` counts records that are not letters.

    Letters without a time count.  Other letters count if their Kafka time is from ``since_ms`` to before ``until_ms``.
    """

    def __init__(
        self, topic: str, default_group: str, since_ms: int | None = None, until_ms: int | None = None
    ) -> None:
        self._topic = topic
        self._default_group = default_group
        self._since_ms = since_ms or 0
        self._until_ms = math.inf if until_ms is None else until_ms
        self._groups: dict[tuple[str, str], LetterGroup] = {}
        self.elsewhere = 0
        self.foreign = 0

    @property
    def letters(self) -> int:
        """Number of letters in groups."""
        return sum(group.letters for group in self._groups.values())

    def groups(self) -> list[LetterGroup]:
        """Return the groups, the largest first."""
        return sorted(self._groups.values(), key=lambda one: (-one.letters, one.kind, one.column))

    def add(self, records: Records) -> None:
        """Count records of the dead-letter topic, in any order."""
        for time_ms, headers in zip(records.timestamps, records.headers, strict=True):
            if not self._asked_for(time_ms):
                continue
            found = {} if headers == UNREADABLE_HEADERS else dict(headers or [])
            letter = _letter_of(found, None if time_ms == _NO_TIME else time_ms)
            if letter is None:
                self.foreign += 1
            elif letter.example[0] != self._topic or self._of_another(_text(found, _GROUP_HEADER)):
                self.elsewhere += 1
            else:
                self._count(letter)

    def _asked_for(self, time_ms: int) -> bool:
        return time_ms == _NO_TIME or self._since_ms <= time_ms < self._until_ms

    def _of_another(self, group: str) -> bool:
        return group != self._default_group and _DEFAULT_GROUP.fullmatch(group) is not None

    def _count(self, letter: LetterGroup) -> None:
        key = (letter.kind, letter.column)
        if key not in self._groups and len(self._groups) >= GROUPS_MAX:
            key = (letter.kind, FURTHER)
        known = self._groups.get(key)
        if known is None:
            self._groups[key] = replace(letter, column=key[1])
            return
        newer = known.last_ms is None or (letter.last_ms is not None and letter.last_ms >= known.last_ms)
        times = [at for at in (known.first_ms, known.last_ms, letter.last_ms) if at is not None]
        self._groups[key] = replace(
            letter if newer else known,
            column=key[1],
            letters=known.letters + 1,
            first_ms=min(times, default=None),
            last_ms=max(times, default=None),
        )


def _letter_of(headers: Mapping[str, bytes | None], time_ms: int | None) -> LetterGroup | None:
    """Return a letter by its headers, as a group of one; None if the record is not a letter of lancewal.

    If several headers had one name, the caller keeps the last: that one is ours."""
    source, kind = _SOURCE.fullmatch(_text(headers, SOURCE_HEADER)), _text(headers, KIND_HEADER)
    if source is None or not is_topic(source["topic"]) or kind not in _KINDS:
        return None
    message = _text(headers, _MESSAGE_HEADER)
    example = source["topic"], int(source["partition"]), int(source["offset"])
    return LetterGroup(kind, _column_of(message), 1, time_ms, time_ms, example, message[:_MESSAGE_MAX])


def _text(headers: Mapping[str, bytes | None], name: str) -> str:
    return (headers.get(name) or b"")[:4_096].decode(errors="replace")


def _column_of(message: str) -> str:
    """Return the column or member that a message is about; empty if none.

    Our messages begin with the column, after the schema if its type does not fit, and end with the unexpected name.
    Column and name are joined by a point."""
    column, found = _COLUMN.match(message), _FOUND.search(message)
    names = [one[1] for one in (column, found) if one is not None]
    return ".".join(name.removesuffix("...")[1:].removesuffix(name[0]) for name in names)[:_NAME_MAX]
