"""A SAS token of a container of the local Azure server, as Microsoft documents its signature."""

from __future__ import annotations

import base64
import hashlib
import hmac
from datetime import UTC, datetime
from urllib.parse import quote

from lancewal_demo.stack.clouds import AzureServer

_VERSION = "2021-08-06"


def sas_token(container: str, rights: str, until_s: float) -> str:
    """Return a token with ``rights``, letters in Microsoft's order; good until a time in seconds since 1970."""
    until = datetime.fromtimestamp(until_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    resource = f"/blob/{AzureServer.account}/{container}"
    # Permissions, start, end, resource, policy, address, protocol, version, kind, snapshot, scope, and five headers.
    text = "\n".join([rights, "", until, resource, "", "", "", _VERSION, "c", "", "", *[""] * 5])
    digest = hmac.new(base64.b64decode(AzureServer.key), text.encode(), hashlib.sha256).digest()
    signature = quote(base64.b64encode(digest).decode(), safe="")
    return f"sv={_VERSION}&se={quote(until, safe='')}&sr=c&sp={rights}&sig={signature}"
