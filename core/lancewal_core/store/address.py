"""Addresses of tables: what may stand in one.

Guarantee: an address with user information (``s3://KEY:SECRET@bucket/t``) is refused wherever it comes from, and no part of it
is in the message: addresses stand in logs, errors, plans of Spark and metrics.
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
