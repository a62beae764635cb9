"""``Registry`` over Confluent's API, which Apicurio, Karapace and Redpanda speak too, by the client in confluent-kafka.

A schema of a value is asked for by its id or GUID, never by a subject.  References are asked for by subject and
version, which a registry never changes.  Protobuf comes as the text of its ``.proto`` file, or as the descriptor that
its serializer has registered.

The client retries nothing here: ``lookups`` does, and other partitions go on meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from lancewal_core.errors import InvalidSettings, RegistryRefused, RegistryUnavailable
from lancewal_core.names.ids import SchemaKey
from lancewal_core.process.library_errors import first_line
from lancewal_core.settings.sections import RegistrySettings
from lancewal_core.wal.writer_schemas import REFERENCES_MAX, SchemaKind, WriterSchema

T = TypeVar("T")

TIMEOUT_S = 10.0
_NOT_FOUND = (40401, 40402, 40403, 40400)
"""Codes of the API for a subject, a version or a schema that does not exist.  A response 404 without one of these codes
is not from a registry: a proxy sent it, or the URL has a wrong path."""
_REFUSED = (401, 403)
_KINDS: dict[str, SchemaKind] = {"AVRO": "avro", "PROTOBUF": "protobuf", "JSON": "json-schema"}
_REFERENCES_DEEP = 100


class ConfluentRegistry:
    """``Registry`` over Confluent's API.  Raises ``InvalidSettings`` for options that the client does not accept."""

    def __init__(self, settings: RegistrySettings) -> None:
        try:
            from confluent_kafka.schema_registry import SchemaRegistryClient
        except ImportError as error:
            raise InvalidSettings(
                f"registry.url is set, and the client of schema registries is not installed ({first_line(error)}): "
                "`pip install lancewal[registry]`"
            ) from None
        context = f"/contexts/:{settings.context}:" if settings.context else ""
        urls = [f"{url.strip().rstrip('/')}{context}" for url in settings.url.split(",")]
        self._shown = ", ".join(urls)
        own = {"url": ",".join(urls), "max.retries": 0, "timeout": TIMEOUT_S}
        try:
            self._client: Any = SchemaRegistryClient({**settings.options, **own})
        except (ValueError, TypeError, OSError) as error:
            raise InvalidSettings(f"registry.options: {first_line(error)}") from None

    def schema(self, key: SchemaKey) -> WriterSchema | None:
        kind, _, name = key.partition("-")
        self._client.clear_caches()
        ask = self._client.get_schema_by_guid if kind == "guid" else self._client.get_schema
        found = self._answer(lambda: ask(name if kind == "guid" else int(name)))
        return None if found is None else self._with_references(found)

    def _with_references(self, schema: Any) -> WriterSchema:
        references: dict[str, str] = {}
        self._refer(schema, references, 0)
        return WriterSchema(self._kind(schema), self._checked(schema.schema_str), tuple(references.items()))

    def newest(self, subject: str) -> WriterSchema | None:
        """Return the newest schema of a subject; None if there is no such subject.  Values are never decoded with this
        schema.
        """
        self._client.clear_caches()
        found = self._answer(lambda: self._client.get_latest_version(subject))
        return None if found is None else self._with_references(found.schema)

    def _refer(self, schema: Any, references: dict[str, str], depth: int) -> None:
        """Add the schemas to which ``schema`` refers, those without references of their own first."""
        for reference in schema.references or ():
            if self._checked(reference.name) in references:
                continue
            if depth >= _REFERENCES_DEEP or len(references) >= REFERENCES_MAX:
                raise RegistryUnavailable(
                    f"the registry at {self._shown} has a schema with more than {REFERENCES_MAX} references, or with "
                    f"references more than {_REFERENCES_DEEP} deep"
                )
            found = self._answer(partial(self._client.get_version, reference.subject, reference.version, deleted=True))
            if found is None:
                raise RegistryUnavailable(
                    f"the registry at {self._shown} has a schema that refers to {reference.name!a}, version "
                    f"{reference.version} of subject {reference.subject!a}, and does not have that one"
                )
            self._refer(found.schema, references, depth + 1)
            references[reference.name] = self._checked(found.schema.schema_str)

    def _kind(self, schema: Any) -> SchemaKind:
        kind = _KINDS.get(str(schema.schema_type or "AVRO").upper())
        if kind is None:
            raise RegistryUnavailable(
                f"the registry at {self._shown} has a schema of type {str(schema.schema_type)[:40]!a}: expected one of "
                f"{', '.join(_KINDS)}"
            )
        return kind

    def _checked(self, text: object) -> str:
        """Return a text of a schema.  JSON may have halves of characters, which no object can hold."""
        if not isinstance(text, str):
            raise RegistryUnavailable(f"the registry at {self._shown} has answered without the text of a schema")
        try:
            text.encode()
        except UnicodeEncodeError:
            raise RegistryUnavailable(
                f"the registry at {self._shown} has a schema whose text is not valid Unicode: half of a surrogate pair"
            ) from None
        return text

    def _answer(self, ask: Callable[[], T]) -> T | None:
        """Return the answer of the client; None if the registry says that there is none."""
        from confluent_kafka.schema_registry.common._httpx_compat import httpx
        from confluent_kafka.schema_registry.error import OAuthTokenError, SchemaRegistryError

        try:
            return ask()
        except SchemaRegistryError as error:
            if error.http_status_code == 404 and error.error_code in _NOT_FOUND:
                return None
            refused = error.http_status_code in _REFUSED
            text = "an answer that is not a registry's" if error.error_code == -1 else first_line(error)
            cause = f"HTTP status {error.http_status_code}: {text}"
        except httpx.TransportError as error:
            refused, cause = "CERTIFICATE_VERIFY_FAILED" in str(error), first_line(error)
        except OAuthTokenError as error:
            refused, cause = False, f"no token: {first_line(error)}"
        except (ValueError, TypeError, KeyError, AttributeError, httpx.HTTPError) as error:
            refused, cause = False, f"an answer that is not a registry's ({type(error).__name__})"
        if refused:
            raise RegistryRefused(
                f"the registry at {self._shown} refuses access: {cause}. Look at registry.options: user, password, token, "
                "authority of the certificate, and the right to read schemas"
            )
        raise RegistryUnavailable(f"the registry at {self._shown} has not answered: {cause}")
