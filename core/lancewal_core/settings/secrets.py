"""Choice of the settings that are shown; the others appear as ``***``.

Passwords, and options passed through to others, hold secrets.  An option is shown if its name is known to hold none.  An
option that is misspelt, or that a library gains later, is masked.
"""

from __future__ import annotations

from typing import Any

from lancewal_core.process.library_errors import without_secrets
from lancewal_core.store.schemes import shown_options

OPTION_MAPPINGS = frozenset({("kafka", "options"), ("storage", "options"), ("registry", "options")})
"""Keys whose mappings are passed through to librdkafka, the object store and the client of the schema registry."""
_CLIENT = """
    allow_http allow_invalid_certificates client_max_retries client_retry_timeout connect_timeout download_retry_count
    http1_only http2_only pool_idle_timeout pool_max_idle_per_host proxy_url timeout user_agent
"""
_KAFKA = """
    acks allow.auto.create.topics api.version.fallback.ms api.version.request api.version.request.timeout.ms batch.num.messages
    batch.size broker.address.family broker.address.ttl broker.version.fallback client.dns.lookup client.id client.rack
    compression.codec compression.level compression.type connections.max.idle.ms coordinator.query.interval.ms debug
    delivery.timeout.ms enable.idempotence enable.metrics.push enable.random.seed enable.sasl.oauthbearer.unsecure.jwt
    enable.ssl.certificate.verification enabled_events fetch.error.backoff.ms fetch.max.bytes fetch.message.max.bytes
    fetch.min.bytes fetch.queue.backoff.ms fetch.wait.max.ms group.instance.id group.protocol group.remote.assignor
    heartbeat.interval.ms https.ca.location linger.ms log.connection.close log.queue log.thread.name log_level max.in.flight
    max.in.flight.requests.per.connection max.partition.fetch.bytes max.poll.interval.ms message.copy.max.bytes
    message.max.bytes message.send.max.retries message.timeout.ms metadata.max.age.ms metadata.recovery.rebootstrap.trigger.ms
    metadata.recovery.strategy partition.assignment.strategy queue.buffering.max.kbytes queue.buffering.max.messages
    queue.buffering.max.ms queued.max.messages.kbytes queued.min.messages receive.message.max.bytes reconnect.backoff.max.ms
    reconnect.backoff.ms request.required.acks request.timeout.ms retries retry.backoff.max.ms retry.backoff.ms
    sasl.kerberos.keytab sasl.kerberos.min.time.before.relogin sasl.kerberos.principal sasl.kerberos.service.name
    sasl.mechanism sasl.mechanisms sasl.oauthbearer.client.id sasl.oauthbearer.method sasl.oauthbearer.scope
    sasl.oauthbearer.token.endpoint.url sasl.username security.protocol session.timeout.ms socket.connection.setup.timeout.ms
    socket.keepalive.enable socket.max.fails socket.nagle.disable socket.receive.buffer.bytes socket.send.buffer.bytes
    socket.timeout.ms ssl.ca.certificate.stores ssl.ca.location ssl.certificate.location ssl.cipher.suites ssl.crl.location
    ssl.curves.list ssl.endpoint.identification.algorithm ssl.engine.id ssl.engine.location ssl.key.location
    ssl.keystore.location ssl.providers ssl.sigalgs.list statistics.interval.ms sticky.partitioning.linger.ms topic.blacklist
    topic.metadata.propagation.max.ms topic.metadata.refresh.fast.interval.ms topic.metadata.refresh.interval.ms
    topic.metadata.refresh.sparse
"""
_REGISTRY = """
    bearer.auth.client.id bearer.auth.credentials.source bearer.auth.identity.pool.id bearer.auth.issuer.endpoint.url
    bearer.auth.logical.cluster bearer.auth.scope
"""
SHOWN = frozenset([*shown_options(), *_CLIENT.split(), *_KAFKA.split(), *_REGISTRY.split()])
"""Names of options whose values are shown: they hold no secret, except in the user information or query of an
address."""
_ADDRESSES = frozenset(
    {
        ("table", "uri"),
        ("catalog", "root"),
        ("catalog", "url"),
        ("kafka", "bootstrap_servers"),
        ("registry", "url"),
        ("http", "host"),
    }
)
"""Paths of settings that are addresses.  An address with a secret in it is refused."""
_SECRETS = frozenset({("catalog", "password")})
_MASK = "***"


def is_secret(path: tuple[str, ...]) -> bool:
    """Return whether the value at ``path`` is masked: a password, or an option that is not in ``SHOWN``."""
    return path in _SECRETS or (path[:2] in OPTION_MAPPINGS and len(path) >= 3 and path[2] not in SHOWN)


def may_hold_secrets(path: tuple[str, ...]) -> bool:
    """Return whether a value given at ``path`` is a secret, or may contain one.

    A text that could not be parsed, or that was refused, may contain a secret.
    """
    return path in _ADDRESSES or is_secret(path) or any(mapping[: len(path)] == path for mapping in OPTION_MAPPINGS)


def masked(value: Any, path: tuple[str, ...]) -> Any:
    """Return JSON values with every secret text replaced; ``path`` is the place of ``value`` in the settings."""
    match value:
        case dict():
            return {name: masked(inner, (*path, name)) for name, inner in value.items()}
        case str() if value and is_secret(path):
            return _MASK
        case str():
            return without_secrets(value)
        case _:
            return value
