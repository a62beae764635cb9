"""A store that lets nobody in: its code and text are in the message, and what to set."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler

import pytest

from lancewal_core.errors import StoreUnavailable
from lancewal_core.store.object_store import PutUnknown
from lancewal_core.store.obstore import TableStore, open_store
from lancewal_core.store.refusal import what_to_set
from tests.support.served import served
from tests.support.store_addresses import KEY, at_server

ENDPOINTS = {"s3": "aws_endpoint", "gs": "google_base_url", "abfss": "azure_storage_endpoint"}
XML = '<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{}</Code><Message>{}</Message><RequestId>1</RequestId></Error>'


@contextmanager
def refusing(status: int, code: str, text: str) -> Iterator[str]:
    """A server that gives this answer to everything."""
    body = XML.format(code, text).encode()

    class Refuses(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_HEAD = do_PUT = do_POST = do_DELETE = do_GET  # noqa: N815 # the names that the class looks for

        def log_message(self, format: str, *args: object) -> None: ...

    with served(Refuses) as address:
        yield address


def store_at(endpoint: str, scheme: str = "s3", **options: str) -> TableStore:
    uri, given = at_server(scheme, endpoint)
    return open_store(uri, {**given, **options})


def refusals(store: TableStore) -> tuple[str, str]:
    """What a read and a put say."""
    with pytest.raises(StoreUnavailable) as raised:
        store.get("x")
    outcome = store.put_if_absent("x", b"1")
    assert isinstance(outcome, PutUnknown)
    return str(raised.value), outcome.cause


@pytest.mark.parametrize(
    ("scheme", "status", "code", "named"),
    [
        ("s3", 403, "AccessDenied", "grant these credentials the rights"),
        ("s3", 403, "SignatureDoesNotMatch", "correct storage.options aws_secret_access_key"),
        ("s3", 403, "InvalidAccessKeyId", "correct storage.options aws_access_key_id"),
        ("s3", 404, "NoSuchBucket", "correct table.uri or storage.options aws_endpoint"),
        ("s3", 400, "InvalidBucketName", "correct table.uri"),
        ("s3", 400, "AuthorizationHeaderMalformed", "set storage.options aws_region"),
        ("gs", 403, "AccessDenied", "grant these credentials the rights"),
        ("gs", 401, "AuthenticationRequired", "correct storage.options google_service_account"),
        ("gs", 403, "SignatureDoesNotMatch", "correct storage.options google_service_account"),
        ("gs", 404, "NoSuchBucket", "correct table.uri or storage.options google_base_url"),
        ("gs", 400, "InvalidBucketName", "correct table.uri"),
        ("abfss", 403, "AuthorizationPermissionMismatch", "grant these credentials the rights"),
        ("abfss", 403, "AuthorizationFailure", "grant these credentials the rights"),
        ("abfss", 403, "AuthenticationFailed", "correct storage.options azure_storage_account_key"),
        ("abfss", 403, "InvalidAuthenticationInfo", "or renew the token in azure_storage_sas_token"),
        ("abfss", 403, "AccountIsDisabled", "enable it, or correct table.uri"),
        (
            "abfss",
            404,
            "ContainerNotFound",
            "create it, or correct table.uri or storage.options azure_storage_endpoint",
        ),
        ("abfss", 400, "InvalidResourceName", "correct table.uri"),
    ],
)
def test_a_refusal_has_the_stores_code_and_text_and_what_to_set(
    scheme: str, status: int, code: str, named: str
) -> None:
    with refusing(status, code, "Not\nlike this.") as endpoint:
        for text in refusals(store_at(endpoint, scheme)):
            assert f"{code}: Not like this." in text
            assert text.endswith(named) or named in text.rpartition("; ")[2]
            assert at_server(scheme, endpoint)[0] in text
            assert endpoint in text
            assert "<" not in text
            assert KEY not in text
            assert "canary" not in text


@pytest.mark.parametrize("scheme", ENDPOINTS)
def test_http_without_allow_http_names_the_setting(scheme: str) -> None:
    for text in refusals(store_at("http://127.0.0.1:9", scheme, allow_http="false")):
        assert "http:// needs storage.options allow_http: 'true'" in text


@pytest.mark.parametrize("scheme", ENDPOINTS)
@pytest.mark.parametrize("endpoint", ["http://127.0.0.1:1", "http://nobody.invalid:1"])
def test_a_wrong_host_names_the_endpoint_option(endpoint: str, scheme: str) -> None:
    for text in refusals(store_at(endpoint, scheme)):
        assert "correct " in text.rpartition("; ")[2]
        assert ENDPOINTS[scheme] in text.rpartition("; ")[2]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (
            "Error performing PUT http://169.254.169.254/latest/api/token - error sending request: connection refused",
            "there are no credentials: set storage.options aws_access_key_id and aws_secret_access_key",
        ),
        (
            "Generic N/A error: LanceError(IO): Failed to get AWS credentials: ProviderError(ProviderError",
            "there are no credentials: set storage.options aws_access_key_id and aws_secret_access_key",
        ),
        (
            "creating a table at az://lake/t: 403 Forbidden: AuthorizationPermissionMismatch",
            "or set others in storage.options azure_storage_account_key",
        ),
        (
            "Generic GCS error: Error performing PUT http://metadata.google.internal/x - error sending request",
            "there are no credentials: set storage.options google_service_account",
        ),
        (
            "Generic MicrosoftAzure error: Error performing GET http://169.254.169.254/metadata/identity/oauth2/token",
            "there are no credentials: set storage.options azure_storage_account_key or azure_storage_sas_token",
        ),
        ("Server returned non-2xx status code: 503 Service Unavailable: SlowDown: please", None),
        ("operation timed out", None),
    ],
)
def test_missing_credentials_are_named_and_what_may_pass_gets_no_advice(text: str, named: str | None) -> None:
    assert what_to_set(text) == "" if named is None else named in what_to_set(text)
