"""Names of tables in a catalog, such as ``shop.orders``.

Guarantees
 1. A name is parts joined by dots.  A part has characters of ``[a-zA-Z0-9_-]``.  So a name has no slash, is a word
    (``names.words``), and cannot lead to another folder.
 2. The table of a name lies in the folder ``NAME.lance`` of the catalog's root.  Lance's directory namespace finds it
    there.
 3. In a pattern, ``*`` stands for any characters, dots too.  No other character is special.
"""

from __future__ import annotations

import fnmatch
import re

from lancewal_core.errors import InvalidInput
from lancewal_core.names.words import TABLE_NAME_MAX, table_pattern

NAME_MAX = TABLE_NAME_MAX
NAME_FORM = f"1 to {NAME_MAX} characters: parts of [a-zA-Z0-9_-], joined by dots"
_NAME = re.compile(r"[a-zA-Z0-9_-]+(?:\.[a-zA-Z0-9_-]+)*")
_SHOWN = 60
_SUFFIX = ".lance"


def is_table_name(text: str) -> bool:
    """Return whether this is a valid table name for a catalog."""
    return len(text) <= NAME_MAX and _NAME.fullmatch(text) is not None


def table_name(text: str) -> str:
    """Return ``text``.  Raises ``InvalidInput`` if it is not a valid table name for a catalog."""
    if not is_table_name(text):
        raise InvalidInput(f"{text[:_SHOWN]!a} is not the name of a table in a catalog: expected {NAME_FORM}")
    return text


def default_uri(root: str, name: str) -> str:
    """Return the address of the table ``name`` below the catalog's ``root``."""
    return f"{root.rstrip('/')}/{table_name(name)}{_SUFFIX}"


def matcher(pattern: str) -> re.Pattern[str]:
    """Compile a pattern to a regular expression that must match a whole name.  Raises ``InvalidInput`` if the pattern
    can match no name.
    """
    # Many stars take no time: the expression of `fnmatch` never looks for an earlier star's end twice.
    return re.compile(fnmatch.translate(table_pattern(pattern)))
