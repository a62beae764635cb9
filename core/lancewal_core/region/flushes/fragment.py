"""A Lance fragment in the manifest of a flush.  A merge puts the fragment into the table unchanged.

Guarantee: the fragment names one data file in the table's own data folder, by a plain name alone, and hides no row.  So
stored bytes lead neither a read nor a commit to a file elsewhere, and Lance never gets a fragment that it cannot
handle.
"""

from __future__ import annotations

import json

from lancewal_core.names import paths
from lancewal_core.store.json_object import JsonFault, JsonObject

_INT32_MAX = 2**31 - 1
_KNOWN = frozenset(
    {"id", "files", "overlays", "physical_rows", "deletion_file", "row_id_meta", "created_at_version_meta",
     "last_updated_at_version_meta"}
)  # fmt: skip
_KNOWN_OF_FILE = frozenset(
    {"fields", "column_indices", "file_major_version", "file_minor_version", "file_size_bytes", "base_id", "path"}
)
_NUMBERS = ("fields", "column_indices")
_WHOLES = ("file_major_version", "file_minor_version", "file_size_bytes")


def fragment_text(value: object) -> str:
    """Return ``value`` of a manifest as JSON text.  Raises ``JsonFault`` unless it keeps the guarantee."""
    if not isinstance(value, dict):
        raise JsonFault("a fragment in it is not a JSON object")
    fragment = JsonObject(value, "fragments")
    _nothing_else(fragment, _KNOWN)
    fragment.whole("id", high=_INT32_MAX)
    fragment.whole("physical_rows", high=_INT32_MAX)
    for name in _KNOWN - {"id", "files", "physical_rows"}:
        if value.get(name):
            raise JsonFault(f"its fragments have {name!r}: fragments that no version has adopted never have this")
    match fragment.values("files"):
        case [dict() as members]:
            _check_file(JsonObject(members, "fragments.files"))
        case _:
            raise JsonFault("a fragment in it does not have exactly one data file")
    return json.dumps(value)


def _check_file(file: JsonObject) -> None:
    _nothing_else(file, _KNOWN_OF_FILE)
    if not paths.is_data_file(file.text("path")):
        raise JsonFault("its 'fragments.files.path' is not the name of a data file")
    if file.members.get("base_id") is not None:
        raise JsonFault("its data files lie in another folder than the table's own")
    for name in _NUMBERS:
        if name in file.members:
            file.wholes(name, -1, _INT32_MAX)
    for name in _WHOLES:
        if file.members.get(name) is not None:
            file.whole(name)


def _nothing_else(found: JsonObject, known: frozenset[str]) -> None:
    other = found.members.keys() - known
    if other:
        raise JsonFault(f"its {found.path!r} have unknown members, such as {min(other)[:60]!r}")
