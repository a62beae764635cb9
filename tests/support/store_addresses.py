"""One folder in each kind of object store: its address, and options that lead to a server of ours or to a real one."""

from __future__ import annotations

import base64
from collections.abc import Mapping

import pytest

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


REAL = (
    pytest.param("s3", marks=pytest.mark.s3),
    pytest.param("az", marks=pytest.mark.az),
    pytest.param("gs", marks=pytest.mark.gs),
)
"""Kinds of stores that have a real server in tests."""


def at_real_server(request: pytest.FixtureRequest, kind: str, bucket: str, folder: str) -> tuple[str, dict[str, str]]:
    """Return an address in a bucket or container of the run's server, which is made, and options that lead there."""
    match kind:
        case "s3":
            s3 = request.getfixturevalue("s3")
            return f"s3://{s3.bucket(bucket)}/{folder}", {name.lower(): value for name, value in s3.environment.items()}
        case "az":
            azure = request.getfixturevalue("azure")
            return f"az://{azure.container(bucket)}/{folder}", azure.options
        case _:
            gcs = request.getfixturevalue("gcs")
            return f"gs://{gcs.bucket(bucket)}/{folder}", gcs.options
