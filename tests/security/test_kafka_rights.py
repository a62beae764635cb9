"""Rights that ingest lacks on a real broker with ACLs: it is not ready, names each, and begins once all are given."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # exported without being listed
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from lancewal_core.store.obstore import open_store
from lancewal_core.table.contract import read_contract
from lancewal_demo.stack.ports import free_ports
from tests.ingest.service import test_service as http
from tests.security.test_kafka_listeners import proofs, secrets_folder, world_behind
from tests.support.certificates import Certificates
from tests.support.guarded_broker import SCRAM_PASSWORD, USER, Guarded
from tests.support.whole_path import until

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(600)]


def allow(guarded: Guarded, kind: ResourceType, name: str, *operations: AclOperation, user: str = USER) -> None:
    """From the first such call on, what nobody was allowed on the resource is forbidden."""
    admin = AdminClient({"bootstrap.servers": guarded.broker.bootstrap_servers})
    place = ResourcePatternType.LITERAL
    rights = [AclBinding(kind, name, place, f"User:{user}", "*", o, AclPermissionType.ALLOW) for o in operations]
    for made in admin.create_acls(rights).values():
        made.result(30)


def test_a_right_that_is_missing_is_named_and_waited_for(
    guarded: Guarded, tls: Certificates, topic_name: str, tmp_path: Path
) -> None:
    world = world_behind(guarded, "SCRAM", tls, topic_name, tmp_path)
    (port,) = free_ports(1)
    tree = world.lancewal.tree
    world.lancewal.settings({**tree, "http": {**tree["http"], "ingest_port": port}})
    group = f"lancewal-{read_contract(open_store(world.uri), world.uri).table_uuid}"
    letters = f"{topic_name}.dead-letters"
    topic, of_group = ResourceType.TOPIC, ResourceType.GROUP
    for kind, name in ((topic, topic_name), (of_group, group), (topic, letters)):
        allow(guarded, kind, name, AclOperation.DESCRIBE, user="somebody else")
    variables = secrets_folder(tmp_path / "secrets", proofs("SCRAM", SCRAM_PASSWORD, tls.client))
    ingest = world.lancewal.start("ingest", "run", environment=variables)

    def asked() -> tuple[int, str]:
        try:
            return http.get(port, "/readyz")
        except OSError as error:  # it does not listen yet
            return 0, str(error)

    def waits_for(right: str) -> None:
        until(lambda: right in asked()[1], lambda: f"{asked()}\n{ingest.tail}")
        code, text = asked()
        assert code == 503
        assert text.startswith("kafka_forbidden: not started yet: "), text
        assert "docs/reference/trust.md" in text

    waits_for(f"describing topic {topic_name}: the brokers do not allow it")
    allow(guarded, topic, topic_name, AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS)
    waits_for(f"the right Read on topic {topic_name} ")
    allow(guarded, topic, topic_name, AclOperation.READ)
    waits_for(f"asking what is allowed on consumer group {group}")
    allow(guarded, of_group, group, AclOperation.READ)
    allow(guarded, topic, letters, AclOperation.DESCRIBE)
    waits_for(f"the right Write on topic {letters} ")
    allow(guarded, topic, letters, AclOperation.WRITE)
    until(lambda: asked()[0] == 200, lambda: f"{asked()}\n{ingest.tail}")
    world.feed.produce(20)
    world.wait_caught_up()
    ingest.stop()
