"""One folder in each kind of object store, at a server of ours: its address, and options that lead to the server."""

from __future__ import annotations

import base64
from collections.abc import Mapping

KEY = base64.b64encode(b"canary").decode()
"""A key that no message may show."""


def at_server(scheme: str, endpoint: str, folder: str = "trips") -> tuple[str, Mapping[str, str]]:
    """Return an address, and the storage options with which requests go to ``endpoint``."""
    http = {"allow_http": "true"}
    match scheme:
        case "s3":
            keys = {"aws_access_key_id": "key", "aws_secret_access_key": KEY, "aws_region": "here"}
            return f"s3://bucket/{folder}", {"aws_endpoint": endpoint, **keys, **http}
        case "gs":
            return f"gs://bucket/{folder}", {"google_base_url": endpoint, "google_bearer_token": KEY, **http}
        case _:
            keys = {"azure_storage_account_key": KEY, "azure_storage_endpoint": f"{endpoint}/account"}
            return f"abfss://bucket@account.dfs.core.windows.net/{folder}", {**keys, **http}
