"""Addresses of tables: which ones are allowed, and which of them are one place.

Guarantees:

1. An address with user information (``s3://KEY:SECRET@bucket/t``) is refused wherever it comes from.  No part of it is
   in the message, since addresses appear in logs, errors, plans of Spark and metrics.  One form with ``@`` has
   no user information: ``abfss://container@account.dfs.core.windows.net``.
2. An address names one folder.  Lance or the store may read an address as another folder than lancewal does, or as
   none.  Such an address is refused before anything is written.

A table's *place* is its address, absolute and in one form.  A copy of the folder has another place.  Two spellings of
one local folder are one place (``same_place``), also through links that this machine can follow.  A stored place keeps
its links, since on another machine other links may lead to the folder.  A folder with two addresses, such as a bucket
that is also mounted, counts as two places: nobody can tell it from a copy.  One address on two machines, or at two
servers, counts as one.

A container of Azure belongs to an account, so its place has the form of ``abfss``, which names both.  Addresses get
this form where they enter (``whole_address``).  An endpoint is no part of a place: a private link leads to the same
account.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from lancewal_core.errors import InvalidSettings
from lancewal_core.process.library_errors import without_secrets
from lancewal_core.store.schemes import AZURE_HOST, OTHER_SPELLINGS, SCHEMES, any_of

NO_USER_INFORMATION = (
    "the address has user information before its bucket or host (it is not shown here). Give credentials by "
    "storage.options from a secret, by variables of the environment or by a role"
)

_NO_CHARACTER = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff\ufffe\uffff]")
"""Characters that Lance refuses in paths.  S3's listings cannot show them either, since listings are XML."""
_DECODED = re.compile("%[0-9A-Fa-f]{2}")
_ON_AZURE = re.compile(rf"(?P<container>[a-z0-9$-]{{1,63}})@(?P<account>[a-z0-9]{{3,24}}){re.escape(AZURE_HOST)}")
"""Container and account in an address of ``abfss``."""
_EXPECTED = f"a local path, file:// or {', '.join(f'{name}://' for name in SCHEMES)}"


def split_address(uri: str) -> SplitResult:
    """Return the parts of ``uri``.  Raises ``InvalidSettings`` if it has user information or is not an address.

    If a secret contains a slash, the part before the slash looks like the bucket's name.  It has a colon, which no
    bucket's name has.
    """
    try:
        parts = urlsplit(uri)
    except ValueError:
        raise InvalidSettings(f"the address is not valid (it is not shown here): expected {_EXPECTED}") from None
    if "@" in parts.netloc and parts.scheme == "abfss" and _ON_AZURE.fullmatch(parts.netloc):
        return parts
    if "@" in parts.netloc and parts.scheme in OTHER_SPELLINGS:  # in Hadoop's form of an address
        raise InvalidSettings(f"the address (it is not shown here): {_other_spelling(parts.scheme)}")
    if "@" in parts.netloc or ":" in parts.netloc:
        raise InvalidSettings(NO_USER_INFORMATION)
    return parts


def local_folder(uri: str) -> Path | None:
    """Return the folder that ``uri`` names; None if it does not name a local one."""
    parts = split_address(uri)
    return Path(parts.path if parts.scheme == "file" else uri).absolute() if parts.scheme in ("", "file") else None


def holder_and_account(parts: SplitResult) -> tuple[str, str]:
    """Return the bucket or container of an address, and the account that it names; empty if it names none."""
    found = _ON_AZURE.fullmatch(parts.netloc)
    return (found["container"], found["account"]) if found else (parts.netloc, "")


def whole_address(uri: str, options: Mapping[str, str] | None, environment: Mapping[str, str] = os.environ) -> str:
    """Return ``uri`` with the storage account in it, if it is an address in a store with accounts.  Return any other
    address unchanged.

    The account is that of the storage ``options``, else that of the environment.  If neither names one, the address
    stays as it is, and opening it fails.
    """
    parts = split_address(uri)
    scheme = SCHEMES.get(parts.scheme)
    if scheme is None or not scheme.accounts or not parts.netloc or holder_and_account(parts)[1]:
        return uri
    given = {name.lower(): value for name, value in (options or {}).items()}
    account = any_of(scheme.accounts, given) or any_of(scheme.accounts, scheme.of_environment(environment))
    below = uri.partition("://")[2][len(parts.netloc) :]  # with ? and #, which are refused later
    return f"abfss://{parts.netloc}@{account}{AZURE_HOST}{below}" if account else uri


def as_spark_writes(uri: str) -> str:
    """Return an address that was written for Spark: its ``s3a://`` is our ``s3://``."""
    return f"s3://{uri[6:]}" if uri.startswith("s3a://") else uri


def table_address(uri: str) -> SplitResult:
    """Return the parts of a table's address: a local path, ``file:///``, or one of ``SCHEMES``.  Raises
    ``InvalidSettings`` for others.
    """
    return _checked(uri, _wrong_of_files, _wrong_of_table)


def files_address(uri: str) -> SplitResult:
    """Return the parts of the address of files to load.  Raises ``InvalidSettings`` if it is not valid.  Some addresses
    are allowed here that no table may have.  Lance never opens them, and Spark writes folders with names such as
    ``at=10%3A00``.
    """
    return _checked(uri, _wrong_of_files)


def _checked(uri: str, *rules: Callable[[str, SplitResult], str]) -> SplitResult:
    parts = split_address(uri)
    for rule in rules:
        if wrong := rule(uri, parts):
            raise InvalidSettings(f"address {without_secrets(uri)!r}: {wrong}")
    return parts


def _wrong_of_files(uri: str, parts: SplitResult) -> str:
    match parts.scheme:
        case "":
            # Lance would write into the home folder, and all else into one that is called ~.
            return "~ is not expanded here: write the whole path" if uri.split("/")[0] == "~" else ""
        case "file":
            # Lance decodes %20, leaves out what is after ? and #, and takes file://a/b for /b.
            plain = parts.netloc in ("", "localhost") and parts.path.startswith("/") and not set("%?#") & set(uri)
            return "" if plain else "expected file:/// and a path from the root on, without %, ? and #; or a local path"
        case scheme if scheme in SCHEMES:
            form, holder = SCHEMES[scheme].form, SCHEMES[scheme].holder
            if not parts.netloc:
                return f"expected {form}: the address names no {holder}"
            # The store would get what is before ? and #, and takes the others for another folder or for none.
            parts_below = uri.partition("://")[2].rstrip("/").split("/")[1:]
            odd = set("?#") & set(uri) or {"", ".", ".."} & set(parts_below)
            return f"expected {form} without ?, #, empty parts and parts . and .." if odd else ""
        case scheme if scheme in OTHER_SPELLINGS:
            return _other_spelling(scheme)
        case _:
            return f"expected {_EXPECTED}"


def _other_spelling(scheme: str) -> str:
    return f"Lance cannot open {scheme}://: write {SCHEMES[OTHER_SPELLINGS[scheme]].form}"


def _wrong_of_table(uri: str, parts: SplitResult) -> str:
    """Return why Lance would refuse the address with an error of its own, or take it for another folder than lancewal
    does.  Return an empty text if the address is fine."""
    if found := _NO_CHARACTER.search(uri):
        return f"the character {found[0]!a} cannot be in the address of a table"
    if parts.scheme and uri.endswith(" "):
        return "it has a space at its end, which Lance leaves out"
    found = _DECODED.search(uri) if parts.scheme in SCHEMES else None
    if found:
        return (
            f"Lance decodes {found[0]} in it and keeps a part of the table in another folder. Choose a folder without a "
            "percent sign before two hex digits"
        )
    return ""


def place_of(uri: str) -> str:
    """Return the place of the table at ``uri``.  A place is an address too: an absolute local folder, or
    ``s3://bucket/prefix`` and the like."""
    folder = local_folder(uri)
    if folder is not None:
        return os.path.abspath(folder)
    parts = split_address(whole_address(uri, None))
    return f"{parts.scheme}://{parts.netloc}/{parts.path.strip('/')}"


def no_table_advice(uri: str) -> str:
    """Return advice for an address without a table.  The advice warns against creating a second table if the table
    existed before.
    """
    if "/" not in uri:
        return "A name is looked up where a catalog is set (catalog.root), and an address has a slash, such as ./orders"
    return (
        "Correct the address (table.uri, --table), or see `lancewal catalog check` if a catalog led here. `lancewal table "
        "create` makes a table that was never made"
    )


def same_place(one: str, other: str) -> bool:
    """Return whether two places are the same: equal texts, or local paths that lead to the same folder on this
    machine."""
    return one == other or one_text(one) == one_text(other)


def one_text(place: str) -> str:
    """Return a text that is equal for two places if they are one (``same_place``)."""
    return os.path.realpath(place) if os.path.isabs(place) else place
