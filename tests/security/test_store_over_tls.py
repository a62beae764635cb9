"""A store behind TLS whose certificate a private authority has signed: every part works, and another authority is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lancewal_core.errors import StoreUnavailable
from lancewal_demo.stack import KafkaBroker, S3Server
from lancewal_reader.table import open_table
from tests.support.certificates import Certificates
from tests.support.whole_path import until
from tests.whole_path.world import make_world

pytestmark = [pytest.mark.kafka, pytest.mark.s3, pytest.mark.slow, pytest.mark.timeout(600)]

REFUSED = "not accepted (UnknownIssuer)"


@pytest.fixture
def s3_tls(tls: Certificates, tmp_path: Path) -> Iterator[S3Server]:
    with S3Server(tmp_path / "s3", certificate=tls.server.certificate, key=tls.server.key) as server:
        yield server


def test_every_part_works_and_a_foreign_authority_is_refused(
    kafka: KafkaBroker, s3_tls: S3Server, tls: Certificates, topic_name: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, seed: int,
) -> None:  # fmt: skip
    options = {name.lower(): value for name, value in s3_tls.environment.items()}
    assert options["aws_endpoint"].startswith("https://")
    assert options["aws_allow_http"] == "false"
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)
    monkeypatch.setenv("SSL_CERT_FILE", str(tls.ca))
    world = make_world(
        kafka, topic_name, tmp_path, seed, uri=f"s3://{s3_tls.bucket('tls')}/one", options=options
    )  # fmt: skip
    ingest = world.lancewal.start("ingest", "run")
    flusher = world.lancewal.start("flusher", "run")
    world.feed.produce(200)
    world.wait_caught_up()
    world.check_strong()
    world.wait_caught_up("eventual")
    world.check_merged()
    assert world.lancewal.succeed("read", "-t", world.uri, "--limit", "3")
    ingest.stop()
    flusher.stop()

    monkeypatch.setenv("SSL_CERT_FILE", str(tls.other_ca))
    with pytest.raises(StoreUnavailable, match="SSL_CERT_FILE"):
        open_table(world.uri, storage_options=options)
    once = world.lancewal.run("merge")
    assert once.code != 0
    assert REFUSED in once.err
    refused = world.lancewal.start("ingest", "run")
    until(lambda: REFUSED in refused.log, lambda: refused.tail)
    refused.kill()
