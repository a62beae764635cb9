"""A real run over TLS with SASL: no secret in anything that is said or written, no door open but the one configured.

A canary is a secret that occurs nowhere else.  Each place that takes a secret has its own.
"""

from __future__ import annotations

import urllib.request
from pathlib import Path

import pytest

from lancewal_demo.stack.ports import free_ports
from tests.support.certificates import Certificates
from tests.support.guarded_broker import PASSWORD, Guarded
from tests.support.whole_path import Lancewal, Service, until
from tests.whole_path.test_bad_records import GOOD, headers_of, read_letters
from tests.whole_path.world import World, make_world

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(600)]

FILE_KEY = "canary-file-93ae"
VARIABLE = "canary-variable-77c0"
FOLDER = "canary-folder-e215"
OTHERS = {
    "ssl.keystore.password": "canary-keystore-41d7",
    "sasl.oauthbearer.client.secret": "canary-client-9c12",
    "sasl.oauthbearer.config": "canary-config-55f0",
}
"""Of clients that go another way in: librdkafka takes them and has no use for them here."""
CANARIES = (
    PASSWORD,
    FILE_KEY,
    VARIABLE,
    FOLDER,
    "canary-broken-1",
    "canary-broken-2",
    "canary-key-6a3d",
    *OTHERS.values(),
)
DEBUG = ("--log-level", "debug")


def client(tls: Certificates) -> dict[str, object]:
    """Properties of a client of the guarded listener; one of them a secret that the listener does not ask for."""
    return {
        "session.timeout.ms": 2_500,
        "heartbeat.interval.ms": 400,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(tls.ca),
        "ssl.key.password": FILE_KEY,
        "sasl.mechanism": "PLAIN",
        "sasl.username": "lancewal",
        "debug": "all",
        **OTHERS,
    }


@pytest.fixture
def variables(tmp_path: Path) -> dict[str, str]:
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    (secrets / "LANCEWAL_KAFKA__OPTIONS__SASL_PASSWORD").write_text(f"{PASSWORD}\n")
    (secrets / "LANCEWAL_STORAGE__OPTIONS__AWS_SESSION_TOKEN").write_text(FOLDER)
    return {"LANCEWAL_SECRETS_DIR": str(secrets), "LANCEWAL_STORAGE__OPTIONS__AWS_SECRET_ACCESS_KEY": VARIABLE}


@pytest.fixture
def world(guarded: Guarded, tls: Certificates, topic_name: str, tmp_path: Path) -> World:
    """The table is made by the open listener; what a test starts uses the guarded one."""
    world = make_world(guarded.broker, topic_name, tmp_path, 1, table={"record_bytes_max": 4096})
    tree = world.lancewal.tree
    tree["kafka"] |= {"bootstrap_servers": guarded.address["GUARDED"], "options": client(tls)}
    tree["http"] |= {"host": "127.0.0.1", "ingest_port": free_ports(1)[0]}
    world.lancewal.settings(tree)
    return world


def test_no_secret_is_told_and_no_other_door_is_open(world: World, variables: dict[str, str], tmp_path: Path) -> None:
    lancewal, said = world.lancewal, list[str]()
    port = int(world.lancewal.tree["http"]["ingest_port"])

    def run(*command: str, more: dict[str, str] | None = None) -> int:
        answer = lancewal.run(*DEBUG, *command, environment={**variables, **(more or {})})
        said.extend((answer.out, answer.err))
        return answer.code

    assert run("config", "show") == 0
    assert "***" in said[-2]
    assert run("config", "show", "--output", "json") == 0
    assert run("config", "check") == 0

    world.feed.produce(100)
    partition, offset = world.feed.send_raw(b"canary", world.feed.kafka_key(GOOD), [("trace", b"x" * 5000)])
    ingest = lancewal.start(*DEBUG, "ingest", "run", environment=variables)
    world.wait_caught_up()
    assert listening(ingest) == {("127.0.0.1", port)}
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        said.append(answer.read().decode())
    letters = read_letters(world, f"{world.feed.topic}.dead-letters", {f"{world.feed.topic}-{partition}-{offset}"})
    said.extend(str(headers_of(letter)) for letter in letters)
    ingest.stop()
    said.append(ingest.log)
    assert "sasl" in ingest.log.lower(), "librdkafka's own debug lines are not there to be searched"
    assert run("merge") == 0
    for command in (("status",), ("read", "--limit", "3"), ("table", "show")):
        run(*command)

    # Errors on purpose: settings that are wrong beside a secret, a password that is wrong, a folder that is not there.
    broken = {
        "LANCEWAL_KAFKA__OPTIONS": '{"sasl.password": "canary-broken-1"',
        "LANCEWAL_STORAGE__OPTIONS": "canary-broken-2",
        "LANCEWAL_KAFKA": '{"options": {"sasl.password": "canary-broken-2"',
        "LANCEWAL_SECRETS_DIR": str(tmp_path / "nowhere"),
        "LANCEWAL_INGEST__LINGER_MS": "soon",
    }
    for name, value in broken.items():
        assert run("config", "check", more={name: value}) != 0
    assert run("ingest", "run", more={"LANCEWAL_KAFKA__OPTIONS__SSL_KEY_PEM": "canary-key-6a3d"}) == 2
    assert "ssl.key.pem failed" in said[-1]
    refused = lancewal.start(
        *DEBUG,
        "ingest",
        "run",
        environment={**variables, "LANCEWAL_KAFKA__OPTIONS__SASL_PASSWORD": "canary-broken-1"},
    )
    until(lambda: "uthentication" in refused.log or not refused.running, lambda: refused.tail)
    refused.kill()
    said.append(refused.log)

    written = {str(path): path.read_text(errors="replace") for path in tmp_path.rglob("*") if searched(path, lancewal)}
    for place, text in (*enumerate(said), *written.items()):
        for canary in CANARIES:
            at = text.find(canary)
            assert at < 0, f"{canary} stands in {place}: ...{text[max(0, at - 200) : at + 40]}"


def searched(path: Path, lancewal: Lancewal) -> bool:
    """All files but the ones that the secrets were put into."""
    return path.is_file() and path != lancewal.config and path.parent.name != "secrets"


def listening(service: Service) -> set[tuple[str, int]]:
    """Addresses on which the process accepts connections, by the word of the operating system."""
    inodes = set()
    for handle in Path(f"/proc/{service.pid}/fd").iterdir():
        try:
            target = str(handle.readlink())
        except OSError:  # closed meanwhile
            continue
        if target.startswith("socket:["):
            inodes.add(target[8:-1])
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{service.pid}/net/{table}").read_text().splitlines()[1:]:
            parts = line.split()
            if parts[3] == "0A" and parts[9] in inodes:
                address, _, port = parts[1].partition(":")
                plain = ".".join(str(byte) for byte in reversed(bytes.fromhex(address))) if table == "tcp" else address
                found.add((plain, int(port, 16)))
    return found


def test_a_broker_of_another_authority_is_refused_by_name(
    world: World, tls: Certificates, variables: dict[str, str]
) -> None:
    tree = world.lancewal.tree
    tree["kafka"]["options"] = {**client(tls), "ssl.ca.location": str(tls.other_ca)}
    del tree["kafka"]["options"]["debug"]
    world.lancewal.settings(tree)
    ingest = world.lancewal.start("ingest", "run", environment=variables)
    until(lambda: "certificate verify failed" in ingest.log, lambda: ingest.tail)
    ingest.kill()
