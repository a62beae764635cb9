"""Words: the form of stored identifiers, such as an owner, a log, a write id, a uuid, or the name of a file.

Guarantees
 1. A word has 1 to ``WORD_MAX`` characters of ``[a-zA-Z0-9._-]`` and is neither ``.`` nor ``..``.  So a word in a
    path cannot lead to another folder, and a word can be printed anywhere unchanged.
 2. Every decoder takes identifiers by ``word``, or by the types made of it (``json_model.Word``,
    ``JsonObject.word``).  Code that writes identifiers writes only words.
"""

from __future__ import annotations

import re
from functools import lru_cache

from lancewal_core.errors import InvalidInput

WORD_MAX = 255
"""Longest word, in characters: the longest name of a file."""
FORM = rf"1 to {WORD_MAX} characters of [a-zA-Z0-9._-], neither '.' nor '..'"
TOPIC_MAX = 249
"""Longest name of a topic that Kafka allows, in characters."""
TOPIC_FORM = rf"1 to {TOPIC_MAX} characters of [a-zA-Z0-9._-], neither '.' nor '..'"
CUT_NAME_MAX = 48
"""Longest name of a cut, in characters.  A snapshot's name contains the cut's name, and has 64 characters at most."""
_CUT_FORM = f"1 to {CUT_NAME_MAX} characters of [a-zA-Z0-9_-]"
TABLE_NAME_MAX = 200
"""Longest name of a table in a catalog, in characters.  With ``.lance`` after it, it is still the name of a file."""
_TABLE_PATTERN_FORM = f"1 to {TABLE_NAME_MAX} characters of [a-zA-Z0-9_.-] and *, which stands for any characters"
SCHEMA_KEY_FORM = "id- and a number from 1 to 2^32-1, or guid- and a UUID in lower case"
_SCHEMA_KEY = re.compile(r"id-([1-9][0-9]{0,9})|guid-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_CUT = re.compile(rf"[a-zA-Z0-9_-]{{1,{CUT_NAME_MAX}}}")
_TABLE_PATTERN = re.compile(rf"[a-zA-Z0-9_.*-]{{1,{TABLE_NAME_MAX}}}")
_WORD = re.compile(rf"[a-zA-Z0-9._-]{{1,{WORD_MAX}}}")
_OTHER = re.compile(r"[^a-zA-Z0-9._-]")
_SHOWN = 60


class NoWord(ValueError):
    """The text is not a valid identifier."""


def is_word(text: str) -> bool:
    return len(text) <= WORD_MAX and _is_word(text)


@lru_cache(4_096)  # of owners and logs a thousand regions name a few
def _is_word(text: str) -> bool:
    return _WORD.fullmatch(text) is not None and text not in (".", "..")


def is_topic(text: str) -> bool:
    """Return whether Kafka allows a topic of this name."""
    return len(text) <= TOPIC_MAX and is_word(text)


def cut_name(text: str) -> str:
    """Return ``text``.  Raises ``InvalidInput`` if no cut in a catalog can have this name."""
    if _CUT.fullmatch(text) is None:
        raise InvalidInput(f"{text[:_SHOWN]!a} is not the name of a cut: expected {_CUT_FORM}")
    return text


def is_schema_key(text: str) -> bool:
    """Return whether values can name a schema by this text (``SchemaKey``).  No value names the id 0."""
    match = _SCHEMA_KEY.fullmatch(text)
    return match is not None and (match[1] is None or int(match[1]) < 1 << 32)


def schema_key_of(text: str) -> str | None:
    """Return the schema's name for a number, a GUID or the name itself, as a person may write it.  None if the text is
    none of these.
    """
    lower = text.lower()
    named = lower if lower.startswith(("id-", "guid-")) else f"id-{lower}" if lower.isdecimal() else f"guid-{lower}"
    return named if is_schema_key(named) else None


def table_pattern(text: str) -> str:
    """Return ``text``.  Raises ``InvalidInput`` if it is not a pattern of table names in a catalog."""
    if _TABLE_PATTERN.fullmatch(text) is None:
        raise InvalidInput(f"{text[:_SHOWN]!a} is not a pattern of table names: expected {_TABLE_PATTERN_FORM}")
    return text


def dead_letters_of(topic: str) -> str:
    """Return the default dead-letter topic of a table."""
    return f"{topic}.dead-letters"


def word(text: str, what: str) -> str:
    """Return ``text`` if it is a word; raise ``NoWord`` otherwise.  ``what`` names the identifier in the message."""
    if not is_word(text):
        raise NoWord(f"its {what} {text[:_SHOWN]!a} is not an identifier: {FORM}")
    return text


def as_word(text: str, length: int = WORD_MAX) -> str:
    """Return ``text``, such as a host name, changed into a word of at most ``length`` characters; ``none`` if that is
    not possible."""
    made = _OTHER.sub("-", text)[:length]
    return made if is_word(made) else "none"
