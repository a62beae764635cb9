"""One folder in each kind of object store: its address, and options that lead to a server of ours or to a real one."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import assert_never

import pytest

from lancewal_demo.stack import S3Server
from lancewal_demo.stack.clouds import AzureServer, GcsServer

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


FIXTURES = {"s3": "s3", "az": "azure", "gs": "gcs"}
"""The fixture of the run's server, by its kind."""

StoreServer = S3Server | AzureServer | GcsServer

SERVERS: Mapping[str, Callable[[Path], StoreServer]] = {"s3": S3Server, "az": AzureServer, "gs": GcsServer}
"""A server over a folder, by its kind."""


def at_real_server(request: pytest.FixtureRequest, kind: str, bucket: str, folder: str) -> tuple[str, dict[str, str]]:
    """Return an address in a bucket or container of the run's server, which is made, and options that lead there."""
    return inside(request.getfixturevalue(FIXTURES[kind]), bucket, folder)


def inside(server: StoreServer, bucket: str, folder: str) -> tuple[str, dict[str, str]]:
    """Return an address in a bucket or container of the server, which is made, and options that lead there."""
    match server:
        case S3Server():
            options = {name.lower(): value for name, value in server.environment.items()}
            return f"s3://{server.bucket(bucket)}/{folder}", options
        case AzureServer():
            return f"az://{server.container(bucket)}/{folder}", server.options
        case GcsServer():
            return f"gs://{server.bucket(bucket)}/{folder}", server.options
        case _:
            assert_never(server)


def origin(server: StoreServer) -> str:
    """Return the address of the server itself, as ``http://HOST:PORT``."""
    return "/".join(server.endpoint.split("/")[:3])


def through(options: Mapping[str, str], endpoint: str) -> dict[str, str]:
    """Return the options of a server with another address, ``http://HOST:PORT``: that of a proxy before it."""
    if "azure_storage_endpoint" in options:
        return {**options, "azure_storage_endpoint": f"{endpoint}/{options['azure_storage_account_name']}"}
    if "google_service_account" in options:
        others = {name: value for name, value in options.items() if name != "google_service_account"}
        key = json.loads(Path(options["google_service_account"]).read_text()) | {"gcs_base_url": endpoint}
        return {**others, "google_service_account_key": json.dumps(key)}
    return {**options, "aws_endpoint": endpoint}
