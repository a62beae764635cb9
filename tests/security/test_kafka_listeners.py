"""SCRAM passwords and client certificates, out of a secrets folder, on listeners of a real broker; wrong ones are refused."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.certificates import Certificates, KeyPair
from tests.support.guarded_broker import SCRAM_PASSWORD, USER, Guarded
from tests.support.whole_path import until
from tests.whole_path.world import World, make_world

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(600)]

SETTINGS: Mapping[str, Mapping[str, object]] = {
    "SCRAM": {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": USER},
    "MUTUAL": {"security.protocol": "SSL"},
}
REFUSALS = {
    "SCRAM": re.compile("[Aa]uthentication failed"),
    # Java releases differ in how they say that there is none.
    "MUTUAL": re.compile("alert (bad certificate|certificate required)"),
}
_PREFIX = "LANCEWAL_KAFKA__OPTIONS__"


def proofs(listener: str, password: str, pair: KeyPair) -> dict[str, str]:
    """What proves who one is, as files of a secrets folder."""
    if listener == "SCRAM":
        return {f"{_PREFIX}SASL_PASSWORD": password}
    return {
        f"{_PREFIX}SSL_KEY_PEM": pair.key.read_text(),
        f"{_PREFIX}SSL_CERTIFICATE_PEM": pair.certificate.read_text(),
    }


def world_behind(guarded: Guarded, listener: str, tls: Certificates, topic: str, folder: Path) -> World:
    """The table is made by the open listener; what a test starts uses the guarded one."""
    world = make_world(guarded.broker, topic, folder, 1, in_process=True)
    tree = world.lancewal.tree
    tree["kafka"] |= {
        "bootstrap_servers": guarded.address[listener],
        "options": {
            **tree["kafka"]["options"], **SETTINGS[listener], "ssl.ca.location": str(tls.ca), "debug": "security",
        },
    }  # fmt: skip
    world.lancewal.settings(tree)
    return world


def secrets_folder(folder: Path, files: Mapping[str, str]) -> dict[str, str]:
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(f"{text}\n")
    return {"LANCEWAL_SECRETS_DIR": str(folder)}


@pytest.mark.parametrize("listener", SETTINGS)
def test_who_proves_who_he_is_reads_and_tells_no_secret(
    guarded: Guarded, tls: Certificates, listener: str, topic_name: str, tmp_path: Path
) -> None:
    world = world_behind(guarded, listener, tls, topic_name, tmp_path)
    files = proofs(listener, SCRAM_PASSWORD, tls.client)
    variables = secrets_folder(tmp_path / "secrets", files)
    ingest = world.lancewal.start("--log-level", "debug", "ingest", "run", environment=variables)
    world.feed.produce(100)
    world.wait_caught_up()
    world.check_strong()
    status = world.lancewal.run("status", environment=variables)
    shown = world.lancewal.run("config", "show", environment=variables)
    ingest.stop()
    assert (status.code, shown.code) == (0, 0), status.err + shown.err
    said = "".join([ingest.log, status.out, status.err, shown.out, shown.err])
    secret = files.get(f"{_PREFIX}SASL_PASSWORD") or files[f"{_PREFIX}SSL_KEY_PEM"].splitlines()[3]
    assert secret not in said


@pytest.mark.parametrize("listener", SETTINGS)
def test_a_wrong_proof_is_refused_by_name(
    guarded: Guarded, tls: Certificates, listener: str, topic_name: str, tmp_path: Path
) -> None:
    world = world_behind(guarded, listener, tls, topic_name, tmp_path)
    files = proofs(listener, "canary-wrong", tls.client) if listener == "SCRAM" else {}
    ingest = world.lancewal.start("ingest", "run", environment=secrets_folder(tmp_path / "secrets", files))
    until(lambda: REFUSALS[listener].search(ingest.log) is not None, lambda: ingest.tail)
    assert "canary-wrong" not in ingest.log
    ingest.kill()
