"""Key forms: the schemas of record keys that have one.

A serializer of a schema registry writes the schema's name before the key, or into a header.  So a row has another key
under another schema, and may lie in another partition.  A *key form* (form) is the schema's name, and whether the name
lies in the key's bytes.  A key of Kafka Connect's JSON holds the schema itself, and its form is a hash of that text:

| form | a record's key |
|---|---|
| ``id-7``, ``guid-...`` | begins with a frame that names this schema |
| ``header-id-7``, ``header-guid-...`` | is the payload alone; the header ``__key_schema_id`` names this schema |
| ``id-7.1.0`` and alike | is a Protobuf message that is not the schema's first one: its path follows |
| ``id-7.0`` | is the schema's first message, and the frame has its path written out |
| ``schema-`` and 32 hex digits | has a member ``schema`` with this text: the first half of its SHA-256 |

The row and the form determine the key's bytes only for one serializer.  Another one may write other bytes for the same
row, such as fields in another order.  Kafka takes these for another key, and the merge finds such keys in conflict.

Rules
 1. A contract lists the forms that the table takes (``Contract.key_forms``).  A record of another form is no row, and stops
    its partition, unless a person has accepted that form.
 2. Two schemas are two forms, even if they mean the same.  With the name in a frame, their keys differ.  With the name in
    a header, their keys are equal if both schemas write the same bytes; a person may know that, lancewal does not decide
    it.  Two texts of a schema are two schemas.
 3. ``lancewal schema accept`` gives a name another schema.  Keys of that name keep their form: the person who accepts the
    schema says that keys keep their partitions.
"""

from __future__ import annotations

import hashlib
import re
from typing import NewType

from lancewal_core.names.ids import SchemaKey
from lancewal_core.names.words import is_schema_key, schema_key_of

KeyForm = NewType("KeyForm", str)
"""Name of the schema of record keys, and whether the key's bytes or a header hold it (module docstring)."""
KEY_FORMS_MAX = 1_000
"""Largest number of key forms of one table.  The first one comes with the first record, each other one by a command."""
_IN_HEADER = "header-"
_PATH = re.compile(r"(\.(0|[1-9][0-9]{0,9})){0,64}")
_WRITTEN_OUT = re.compile(r"schema-[0-9a-f]{32}")
KEY_FORM_FORM = (
    "a schema's number from 1 to 2^32-1, or its GUID, after header- if a header of the record names it. Or schema- and the "
    "32 hex digits that the error names"
)


def key_form(schema: SchemaKey, path: tuple[int, ...], *, in_header: bool) -> KeyForm:
    """Return the key form of keys that name this schema, in a header or in their first bytes.

    ``path``: Protobuf's path to the message; empty for other formats, and for a schema's first message whose frame
    leaves the path out.
    """
    message = "".join(f".{number}" for number in path)
    return KeyForm(f"{_IN_HEADER if in_header else ''}{schema}{message}")


def key_form_written_out(schema: bytes) -> KeyForm:
    """Return the key form of keys that hold the text of their schema."""
    return KeyForm(f"schema-{hashlib.sha256(schema).hexdigest()[:32]}")


def is_key_form(text: str) -> bool:
    schema, dot, path = text.removeprefix(_IN_HEADER).partition(".")
    named = is_schema_key(schema) and _PATH.fullmatch(dot + path) is not None
    return named or _WRITTEN_OUT.fullmatch(text) is not None


def schema_of_form(form: KeyForm) -> SchemaKey | None:
    """Return the name of the schema that keys of this form name; None if they hold the schema itself."""
    schema = form.removeprefix(_IN_HEADER).partition(".")[0]
    return SchemaKey(schema) if is_schema_key(schema) else None


def key_form_of(text: str) -> KeyForm | None:
    """Return the key form that a person's text names; None if it names none.  A number or a GUID may stand for the
    schema.
    """
    if is_key_form(text):
        return KeyForm(text)
    called, dot, path = text.removeprefix(_IN_HEADER).partition(".")
    form = f"{_IN_HEADER if text.startswith(_IN_HEADER) else ''}{schema_key_of(called)}{dot}{path}"
    return KeyForm(form) if is_key_form(form) else None
