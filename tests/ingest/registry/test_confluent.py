"""The client of a registry against a server that answers as Confluent's documentation says, and in all other ways."""

from __future__ import annotations

import base64
import json
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lancewal_core.errors import InvalidSettings, RegistryRefused, RegistryUnavailable
from lancewal_core.names.ids import SchemaKey
from lancewal_core.settings.sections import RegistrySettings
from lancewal_core.wal.writer_schemas import WriterSchema
from lancewal_ingest.registry import confluent
from lancewal_ingest.registry.confluent import ConfluentRegistry
from tests.support.certificates import make_certificates
from tests.support.stub_registry import Answer, StubRegistry, serving

SEVEN = SchemaKey("id-7")
GUID = SchemaKey("guid-0f8fad5b-d9cb-469f-a165-70867728950e")
SECRET = "hunter2xq"


@pytest.fixture
def server() -> Iterator[StubRegistry]:
    with serving() as server:
        yield server


def registry(server: StubRegistry, **options: str) -> ConfluentRegistry:
    return ConfluentRegistry(RegistrySettings(url=server.url, options=options))


def test_a_schema_by_id_and_by_guid(server: StubRegistry) -> None:
    server.has("/schemas/ids/7", '"long"')
    server.has(f"/schemas/guids/{GUID.removeprefix('guid-')}", '{"type": "object"}', schemaType="JSON")
    assert registry(server).schema(SEVEN) == WriterSchema("avro", '"long"')
    assert registry(server).schema(GUID) == WriterSchema("json-schema", '{"type": "object"}')


def test_a_later_answer_may_differ(server: StubRegistry) -> None:
    client = registry(server)
    assert client.schema(SEVEN) is None
    for text in ('"long"', '"int"'):
        server.has("/schemas/ids/7", text)
        assert client.schema(SEVEN) == WriterSchema("avro", text)
    del server.answers["/schemas/ids/7"]
    assert client.schema(SEVEN) is None


def test_references_come_before_what_refers_to_them(server: StubRegistry) -> None:
    def refer(*names: str) -> dict[str, Any]:
        return {"schemaType": "PROTOBUF", "references": [{"name": n, "subject": n, "version": 2} for n in names]}

    server.has("/schemas/ids/7", "top", **refer("a", "b"))
    for name, of in (("a", ("c",)), ("b", ("c", "a")), ("c", ())):
        server.has(f"/subjects/{name}/versions/2", f"text of {name}", subject=name, version=2, id=9, **refer(*of))
    expected = tuple((name, f"text of {name}") for name in "cab")
    assert registry(server).schema(SEVEN) == WriterSchema("protobuf", "top", expected)


@pytest.mark.parametrize("path", ["/subjects/a/versions/2", "/schemas/ids/7"])
def test_references_without_end_are_refused(server: StubRegistry, path: str) -> None:
    server.has("/schemas/ids/7", "top", references=[{"name": "a", "subject": "a", "version": 2}])
    number = iter(range(10**6))

    def another() -> Answer:
        name = f"x{next(number)}"
        refers = [{"name": name, "subject": "a", "version": 2}]
        return 200, json.dumps({"schema": "x", "subject": "a", "version": 2, "id": 1, "references": refers}).encode()

    server.answers["/subjects/a/versions/2"] = another
    with pytest.raises(RegistryUnavailable, match="deep"):
        registry(server).schema(SEVEN)


def test_a_reference_that_is_missing_is_named(server: StubRegistry) -> None:
    server.has("/schemas/ids/7", "top", references=[{"name": "a.proto", "subject": "s", "version": 3}])
    with pytest.raises(RegistryUnavailable, match=r"'a.proto', version 3 of subject 's'"):
        registry(server).schema(SEVEN)


def test_a_context_is_part_of_the_path(server: StubRegistry) -> None:
    server.has("/contexts/:.prod:/schemas/ids/7", '"long"')
    here = ConfluentRegistry(RegistrySettings(url=f"{server.url}/", context=".prod"))
    assert here.schema(SEVEN) == WriterSchema("avro", '"long"')


@pytest.mark.parametrize(
    ("answer", "refused"),
    [
        ((401, b'{"error_code": 401, "message": "Unauthorized"}'), True),
        ((403, b"no"), True),
        ((404, b"<html>not here</html>"), False),
        ((404, b'{"error_code": 404, "message": "HTTP 404 Not Found"}'), False),
        ((429, b'{"error_code": 429, "message": "slow down"}'), False),
        ((500, b'{"error_code": 50001, "message": "backend"}'), False),
        ((503, b""), False),
        ((200, b"<html>sign in</html>"), False),
        ((200, b"[]"), False),
        ((200, b"{}"), False),
        ((200, b'"x"'), False),
        ((200, b'{"schema": 7}'), False),
        ((200, b'{"schema": "x", "schemaType": "THRIFT"}'), False),
        ((200, b'{"schema": "x", "references": 7}'), False),
        ((200, b'{"schema": "x", "references": [{"name": 7, "subject": "a", "version": 1}]}'), False),
        ((200, b'{"schema": "x", "references": [{"name": ["a"], "subject": "a", "version": 1}]}'), False),
        ((200, b'{"schema": "\\ud800"}'), False),
        ((200, b"\xff\xfe"), False),
        ((204, b""), False),
        ((302, b""), False),
    ],
    ids=str,
)
def test_all_other_answers_are_none(server: StubRegistry, answer: Answer, refused: bool) -> None:
    server.answers["/schemas/ids/7"] = answer
    with pytest.raises(RegistryUnavailable) as caught:
        registry(server).schema(SEVEN)
    assert isinstance(caught.value, RegistryRefused) == refused
    assert server.url in str(caught.value)
    assert len(server.asked) == 1


def test_a_silent_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confluent, "TIMEOUT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        with pytest.raises(RegistryUnavailable, match="has not answered"):
            ConfluentRegistry(RegistrySettings(url=url)).schema(SEVEN)
    with pytest.raises(RegistryUnavailable, match="has not answered"):
        ConfluentRegistry(RegistrySettings(url=url)).schema(SEVEN)


def test_a_second_address_is_asked_too(server: StubRegistry) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        gone = f"http://127.0.0.1:{closed.getsockname()[1]}"
    server.has("/schemas/ids/7", '"long"')
    here = ConfluentRegistry(RegistrySettings(url=f"{gone}, {server.url}"))
    assert here.schema(SEVEN) == WriterSchema("avro", '"long"')


def test_credentials_are_sent_and_never_shown(server: StubRegistry) -> None:
    server.answers["/schemas/ids/7"] = (401, b'{"error_code": 401, "message": "Unauthorized"}')
    with pytest.raises(RegistryRefused) as caught:
        registry(server, **{"basic.auth.user.info": f"me:{SECRET}"}).schema(SEVEN)
    assert SECRET not in str(caught.value)
    token = {
        "bearer.auth.credentials.source": "STATIC_TOKEN",
        "bearer.auth.token": SECRET,
        "bearer.auth.logical.cluster": "lsrc-1",
    }
    with pytest.raises(RegistryRefused) as caught:
        registry(server, **token).schema(SEVEN)
    assert SECRET not in str(caught.value)
    expected = [f"Basic {base64.b64encode(f'me:{SECRET}'.encode()).decode()}", f"Bearer {SECRET}"]
    assert [headers["Authorization"] for _, headers in server.asked] == expected


def test_a_token_server_that_is_away(server: StubRegistry) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        gone = f"http://127.0.0.1:{closed.getsockname()[1]}"
    oauth = {
        "bearer.auth.credentials.source": "OAUTHBEARER",
        "bearer.auth.client.id": "me",
        "bearer.auth.client.secret": SECRET,
        "bearer.auth.scope": "schema",
        "bearer.auth.issuer.endpoint.url": f"{gone}/token",
        "bearer.auth.logical.cluster": "lsrc-1",
    }
    with pytest.raises(RegistryUnavailable, match="no token") as caught:
        registry(server, **oauth).schema(SEVEN)
    assert SECRET not in str(caught.value)


def test_certificates_of_both_sides(server: StubRegistry, tmp_path: Path) -> None:
    made = make_certificates(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*made.server)
    context.load_verify_locations(made.ca)
    context.verify_mode = ssl.CERT_REQUIRED
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.has("/schemas/ids/7", '"long"')
    url, ours = server.url.replace("http:", "https:"), {"ssl.ca.location": str(made.ca)}
    with pytest.raises(RegistryRefused, match="authority of the certificate"):
        ConfluentRegistry(RegistrySettings(url=url, options={"ssl.ca.location": str(made.other_ca)})).schema(SEVEN)
    with pytest.raises(RegistryUnavailable):
        ConfluentRegistry(RegistrySettings(url=url, options=ours)).schema(SEVEN)
    client = {"ssl.certificate.location": str(made.client.certificate), "ssl.key.location": str(made.client.key)}
    both = ConfluentRegistry(RegistrySettings(url=url, options={**ours, **client}))
    assert both.schema(SEVEN) == WriterSchema("avro", '"long"')


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"no.such.option": SECRET}, "no.such.option"),
        ({"basic.auth.user.info": SECRET}, "username"),
        ({"ssl.ca.location": "/no/such/file"}, "No such file"),
        ({"bearer.auth.credentials.source": "GUESSED"}, "bearer.auth.credentials.source"),
    ],
    ids=lambda given: str(given)[:40],
)
def test_options_that_the_client_does_not_take(options: dict[str, str], text: str) -> None:
    with pytest.raises(InvalidSettings, match=text) as caught:
        ConfluentRegistry(RegistrySettings(url="http://127.0.0.1:1", options=options))
    assert "registry.options" in str(caught.value)
    assert SECRET not in str(caught.value).replace("no.such.option", "")
