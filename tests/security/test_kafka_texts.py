"""What librdkafka says of properties that are secrets, or hold some, as it stands in our errors and in our log."""

from __future__ import annotations

import io
import logging
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from confluent_kafka import Consumer, KafkaError

from lancewal_core.cli.logs import LogFormat, LogLevel, configure_logging
from lancewal_core.errors import InvalidSettings
from lancewal_kafka.errors import text_of
from lancewal_kafka.topic import TopicInspector

CANARY = "canary-4f9b"
NOWHERE = "127.0.0.1:1"
TLS = {"bootstrap.servers": NOWHERE, "security.protocol": "SSL"}
TOKENS = {**TLS, "security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
OIDC = {**TOKENS, "sasl.oauthbearer.method": "oidc", "sasl.oauthbearer.client.id": "lancewal"}
ENDPOINT = {"sasl.oauthbearer.token.endpoint.url": f"http://user:{CANARY}@{NOWHERE}/token?sig={CANARY}"}
DEADLINE_S = 60.0


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    root = logging.getLogger()
    before, level, written = list(root.handlers), root.level, io.StringIO()
    monkeypatch.setattr(sys, "stderr", written)
    configure_logging(LogLevel.DEBUG, LogFormat.JSON)
    yield written
    structlog.reset_defaults()
    root.handlers[:] = before
    root.setLevel(level)


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ({"ssl.key.pem": CANARY}, "ssl.key.pem failed"),
        ({"ssl.certificate.pem": CANARY}, "ssl.certificate.pem failed"),
        ({"ssl.ca.pem": CANARY}, "ssl.ca.pem"),
        ({"ssl.key.location": "key", "ssl.key.password": CANARY}, "ssl.key.location failed"),
        ({"ssl.keystore.location": "key", "ssl.keystore.password": CANARY}, "ssl.keystore.location"),
    ],
)
def test_a_client_that_cannot_be_made_shows_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, properties: dict[str, str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "key").write_text("-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n")
    with pytest.raises(InvalidSettings, match=said) as caught:
        TopicInspector({**TLS, **properties})
    assert CANARY not in str(caught.value)


@pytest.mark.parametrize(
    ("properties", "logged"),
    [
        ({**TOKENS, "enable.sasl.oauthbearer.unsecure.jwt": "true", "sasl.oauthbearer.config": f"a {CANARY}"}, ""),
        ({**OIDC, "sasl.oauthbearer.client.secret": CANARY, **ENDPOINT}, "Failed to retrieve OIDC token"),
    ],
)
def test_a_client_that_gets_no_token_shows_no_secret(log: io.StringIO, properties: dict[str, str], logged: str) -> None:
    heard: list[KafkaError] = []
    client = Consumer(
        {**properties, "group.id": "g", "error_cb": heard.append}, logger=logging.getLogger("lancewal.kafka")
    )
    ends = time.monotonic() + DEADLINE_S
    while not any("OAUTHBEARER token" in error.str() for error in heard) or logged not in log.getvalue():
        assert time.monotonic() < ends
        client.poll(0.1)
    client.close()
    assert all(CANARY not in text_of(error) for error in heard)
    assert CANARY not in log.getvalue()
