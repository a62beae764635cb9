"""``lancewal dead-letter list``: the content of a table's dead-letter topic, in groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from lancewal_core.cli.groups import CommandApp
from lancewal_core.cli.options import Asked
from lancewal_core.cli.output import aligned, one_line
from lancewal_core.errors import InvalidInput, counted
from lancewal_core.process.clock import SystemClock, moment_of, ms_since_1970, utc_text
from lancewal_core.settings.durations import duration_s

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lancewal_ingest.kafka.letter_groups import LetterGroup, LetterGroups

app = CommandApp(help="Look at the dead letters of a table.")

_SHOWN = 60


@app.command(name="list")
def list_(
    asked: Asked,
    since: Annotated[
        str,
        typer.Option(
            help="Only letters from this time on: 24h for the last 24 hours, or 2026-01-31T00:00:00Z.", metavar="TIME"
        ),
    ] = "",
    until: Annotated[
        str, typer.Option(help="Only letters before this time; same formats as --since.", metavar="TIME")
    ] = "",
) -> None:
    """Count the letters of the dead-letter topic by kind and column, with the times of the first and the last.

    Reads the topic to its present end.  Changes nothing and joins no consumer group.  Each group names the record of
    its newest letter, and what was expected of this record.  Letters of other tables, and records that are not
    letters, are only counted.

    As JSON: `topic`, `letters`, `groups` (`kind`, `column`, `letters`, `first`, `last`, `topic`, `partition` and `offset` of a
    record, `message`), `elsewhere`, `foreign`, and `unread` (partition and reason).  `elsewhere` counts the letters of other
    tables, and `foreign` the records that are not letters.

    Example: lancewal dead-letter list --since 24h
    """
    from lancewal_core.open import Address
    from lancewal_core.table.checks import check_topics
    from lancewal_ingest.kafka.letter_groups import LetterGroups
    from lancewal_ingest.kafka.letter_reader import read_letters

    now_ms = SystemClock().now_ms()
    since_ms, until_ms = moment_ms("--since", since, now_ms), moment_ms("--until", until, now_ms)
    settings = asked.settings()
    settings.need("table.uri", "kafka.bootstrap_servers")
    contract = Address.of(settings).contract()
    check_topics(settings, contract)
    found = LetterGroups(contract.topic, f"lancewal-{contract.table_uuid}", since_ms, until_ms)
    group = settings.kafka.group(contract.table_uuid)
    unread = read_letters(settings.kafka.client(), group, contract.dead_letters, found.add, since_ms)
    topic = contract.dead_letters
    asked.report(letters_json(topic, found, unread), letters_text(topic, found, unread))


def moment_ms(option: str, text: str, now_ms: int) -> int | None:
    """Return the time that an option gives, in milliseconds since 1970; None if the text is empty.

    A duration such as ``24h`` means that long before now.  Otherwise the text is ISO 8601 with a zone; ``InvalidInput``
    if it is neither."""
    if not text:
        return None
    seconds = duration_s(text)
    if seconds is not None:
        return now_ms - int(seconds * 1000)
    moment = moment_of(text.strip())
    if moment is None:
        raise InvalidInput(
            f"{option} {text[:_SHOWN]!r}: expected a duration, as in 24h, or a time with its zone, as in 2026-01-31T00:00:00Z"
        )
    return max(0, ms_since_1970(moment))


def letters_json(topic: str, found: LetterGroups, unread: Mapping[int, str]) -> dict[str, object]:
    """Return the groups and counts of the letters in the form of the command's JSON."""
    return {
        "topic": topic,
        "letters": found.letters,
        "groups": [_group_json(group) for group in found.groups()],
        "elsewhere": found.elsewhere,
        "foreign": found.foreign,
        "unread": [{"partition": partition, "reason": reason} for partition, reason in sorted(unread.items())],
    }


def _group_json(group: LetterGroup) -> dict[str, object]:
    topic, partition, offset = group.example
    return {
        "kind": group.kind,
        "column": group.column or None,
        "letters": group.letters,
        "first": _time(group.first_ms),
        "last": _time(group.last_ms),
        "topic": topic,
        "partition": partition,
        "offset": offset,
        "message": group.message,
    }


def letters_text(topic: str, found: LetterGroups, unread: Mapping[int, str]) -> str:
    """Return the groups and counts of the letters as text for people."""
    groups = found.groups()
    rows = [
        (str(one.letters), one.kind, one_line(one.column or "-"), _time(one.first_ms) or "-", _time(one.last_ms) or "-",
         "{}-{}-{}".format(*one.example))
        for one in groups
    ]  # fmt: skip
    lines = aligned([("letters", "kind", "column", "first", "last", "newest record"), *rows], {0}) if rows else []
    shown = lines[:1]
    for line, group in zip(lines[1:], groups, strict=True):
        shown += [line, f"    {one_line(group.message)}"]
    left = []
    if found.elsewhere:
        left.append(f"{counted(found.elsewhere, 'letter')} of other tables")
    if found.foreign:
        left.append(f"{counted(found.foreign, 'record')} of other programs")
    return "\n".join(
        [
            f"{topic}: {counted(found.letters, 'letter')} in {counted(len(groups), 'group')}",
            *shown,
            *([f"not listed: {' and '.join(left)}"] if left else []),
            *(f"partition {at} was not read to its end: {one_line(why)}" for at, why in sorted(unread.items())),
        ]
    )


def _time(ms: int | None) -> str | None:
    return None if ms is None else utc_text(ms)
