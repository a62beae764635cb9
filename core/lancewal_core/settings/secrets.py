"""Which settings are secrets, and how they are shown: as ``***``."""

from __future__ import annotations

import re
from typing import Any

OPTION_MAPPINGS = frozenset({("kafka", "options"), ("storage", "options")})
"""Keys whose mappings are passed through to librdkafka and to the object store."""
_SECRET = re.compile(r"secret|passw|token|key|credential|oauthbearer\.config|jaas", re.IGNORECASE)
_NO_SECRET = re.compile(r"key_id$|\.location$|_path$|file$|endpoint\.url$", re.IGNORECASE)
"""Names of keys and of files are no secrets."""
_URL_USER = re.compile(r"(\w+://)[^/@\s]+@")
_URL_QUERY = re.compile(r"([?&][^=&\s]*(?:sig|secret|token|key|password|credential)[^=&\s]*=)[^&\s]+", re.IGNORECASE)
_MASK = "***"


def is_secret(path: tuple[str, ...]) -> bool:
    """Only the options passed through to others hold secrets; ``table.primary_key`` is none."""
    if path[:2] not in OPTION_MAPPINGS or len(path) < 3:
        return False
    return bool(_SECRET.search(path[2])) and not _NO_SECRET.search(path[2])


def may_hold_secrets(path: tuple[str, ...]) -> bool:
    """Whether a value given at ``path`` is a secret, or, as a text that could not be taken apart or was refused, may have one
    in it."""
    return (
        path == ("table", "uri") or is_secret(path) or any(mapping[: len(path)] == path for mapping in OPTION_MAPPINGS)
    )


def mask_url(text: str) -> str:
    """``text`` without the user, the password and the secret parameters of URLs in it."""
    return _URL_QUERY.sub(rf"\g<1>{_MASK}", _URL_USER.sub(rf"\g<1>{_MASK}@", text))


def masked(value: Any, path: tuple[str, ...]) -> Any:
    """JSON values with every secret text replaced; ``path`` is where ``value`` stands in the settings."""
    match value:
        case dict():
            return {name: masked(inner, (*path, name)) for name, inner in value.items()}
        case str() if value and is_secret(path):
            return _MASK
        case str():
            return mask_url(value)
        case _:
            return value
