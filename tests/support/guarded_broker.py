"""A real broker with one listener for each way of proving who one is, all of them over TLS.

* ``GUARDED``: a password in the clear within TLS (SASL PLAIN);
* ``SCRAM``: a password that never travels (SASL SCRAM-SHA-512);
* ``MUTUAL``: a client certificate that the private authority has signed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from confluent_kafka.admin import (  # type: ignore[attr-defined]  # exported without being listed
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from lancewal_demo.stack import KafkaBroker
from lancewal_demo.stack.ports import free_ports
from tests.support.certificates import Certificates

USER = "lancewal"
PASSWORD = "canary-sasl-4b1d"
SCRAM_PASSWORD = "canary-scram-51f7"
_PROTOCOLS = {"GUARDED": "SASL_SSL", "SCRAM": "SASL_SSL", "MUTUAL": "SSL"}
_MODULES = "org.apache.kafka.common.security"


class Guarded(NamedTuple):
    broker: KafkaBroker
    """Its plain listener asks for nothing."""
    address: Mapping[str, str]
    """Of each guarded listener."""


@contextmanager
def guarded_broker(folder: Path, certificates: Certificates) -> Iterator[Guarded]:
    ports = dict(zip(_PROTOCOLS, free_ports(len(_PROTOCOLS)), strict=True))
    protocols = ",".join(f"{name}:{protocol}" for name, protocol in _PROTOCOLS.items())
    config = {
        "listener.security.protocol.map": f"CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,{protocols}",
        # Where nobody has set rights, all may do everything; who comes by the plain listener sets them.
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
        "super.users": "User:ANONYMOUS",
        "listener.name.guarded.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.guarded.plain.sasl.jaas.config": (
            f'{_MODULES}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
        ),
        "listener.name.scram.sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.scram.scram-sha-512.sasl.jaas.config": f"{_MODULES}.scram.ScramLoginModule required;",
        "listener.name.mutual.ssl.client.auth": "required",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificates.server.joined()),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates.ca),
    }
    with KafkaBroker(folder, config, listeners=ports) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 2})
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        new = UserScramCredentialUpsertion(USER, info, SCRAM_PASSWORD.encode())
        for done in admin.alter_user_scram_credentials([new]).values():
            done.result(30)
        yield Guarded(broker, {name: f"127.0.0.1:{port}" for name, port in ports.items()})
