"""Addresses of tables: what may stand in one.

Guarantees:

1. An address with user information (``s3://KEY:SECRET@bucket/t``) is refused wherever it comes from, and no part of it is in
   the message: addresses stand in logs, errors, plans of Spark and metrics.
2. A table is at one place: an address that Lance takes for another folder than lancewal does, or that names none, is refused
   before anything is written.
"""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit

from lancewal_core.errors import InvalidSettings

NO_USER_INFORMATION = (
    "the table's address has user information before its bucket or host (it is not shown here): credentials are given by "
    "storage.options from a secret, by AWS_* variables or by a role"
)


def split_address(uri: str) -> SplitResult:
    """The parts of ``uri``; ``InvalidSettings`` for one with user information, or that is none at all.

    A secret may have a slash in it, so that what is left of the bucket's name is behind it: no bucket has a colon in its name.
    """
    try:
        parts = urlsplit(uri)
    except ValueError:
        raise InvalidSettings("the table's address is none (it is not shown here)") from None
    if "@" in parts.netloc or ":" in parts.netloc:
        raise InvalidSettings(NO_USER_INFORMATION)
    return parts


def table_address(uri: str) -> SplitResult:
    """The same of where a table lies: a local path, ``file:///`` or ``s3://bucket/prefix``; ``InvalidSettings`` else."""
    parts = split_address(uri)
    if wrong := _wrong(uri, parts):
        raise InvalidSettings(f"address {uri!r}: {wrong}")
    return parts


def _wrong(uri: str, parts: SplitResult) -> str:
    match parts.scheme:
        case "":
            # Lance would write into the home folder, and all else into one that is called ~.
            return "nothing fills in ~ here: write the whole path" if uri.split("/")[0] == "~" else ""
        case "file":
            # Lance decodes %20, leaves out what is behind ? and #, and takes file://a/b for /b.
            plain = parts.netloc in ("", "localhost") and parts.path.startswith("/") and not set("%?#") & set(uri)
            return "" if plain else "expected file:/// and a path from the root on, without %, ? and #; or a local path"
        case "s3":
            return "" if parts.netloc else "expected s3://bucket/prefix: it names no bucket"
        case _:
            return "expected a local path, file:// or s3://"
