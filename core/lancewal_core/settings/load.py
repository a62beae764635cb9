"""Settings: one YAML file, secret files and the environment, read once in ``main`` into one frozen tree.

Guarantees of ``load_settings``
 1. A variable overrides a secret file, and a secret file overrides the YAML file, key by key.
    ``LANCEWAL_INGEST__LINGER_MS`` is ``ingest: {linger_ms: ...}``; lists and mappings are written as JSON in a
    variable.
 2. An unknown, misspelt, malformed or contradictory value is an error: in the file, in a variable, in a secret file.
 3. All errors are reported at once, each with its file and line or its variable, its key and what was expected.  If no
    file was named, the report says so too.  No message, ``repr`` or ``masked()`` shows a secret.

A key that is not set has its default; the empty text, list or mapping means "not set".  A command names the keys that
it needs by ``Settings.need``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, cast

from pydantic import PrivateAttr, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from lancewal_core.errors import InvalidSettings
from lancewal_core.process.library_errors import without_secrets
from lancewal_core.settings.secrets import OPTION_MAPPINGS, masked, may_hold_secrets
from lancewal_core.settings.sections import (
    CatalogSettings,
    FlusherSettings,
    HttpSettings,
    IngestSettings,
    KafkaSettings,
    MetricsSettings,
    MovingCutSettings,
    RegistrySettings,
    Section,
    StorageSettings,
    TableSettings,
)
from lancewal_core.settings.sources import (
    SettingProblem,
    Source,
    closest,
    key_paths,
    read_environment,
    read_secrets,
    read_yaml,
)
from lancewal_core.store.address import whole_address

_NOTHING: Mapping[str, str] = MappingProxyType({})
_NO_FILE = (
    "No settings file was named (--config FILE, or LANCEWAL_CONFIG): settings were looked for in variables LANCEWAL_* and in "
    "the folder of LANCEWAL_SECRETS_DIR alone"
)


class Settings(BaseSettings):
    """All settings.  ``load_settings`` makes it; the class itself reads neither files nor the environment."""

    model_config = SettingsConfigDict(frozen=True, extra="forbid", env_prefix="LANCEWAL_", env_nested_delimiter="__")

    table: TableSettings = TableSettings()
    kafka: KafkaSettings = KafkaSettings()
    registry: RegistrySettings = RegistrySettings()
    storage: StorageSettings = StorageSettings()
    catalog: CatalogSettings = CatalogSettings()
    ingest: IngestSettings = IngestSettings()
    flusher: FlusherSettings = FlusherSettings()
    http: HttpSettings = HttpSettings()
    metrics: MetricsSettings = MetricsSettings()

    @property
    def looked_for(self) -> str:
        """Sentence for messages about missing settings: the file is empty, or no file was named."""
        return "The settings file is empty" if self._file_named else _NO_FILE

    _file_named: bool = PrivateAttr(False)
    """Whether a settings file was named."""

    BESIDE: ClassVar[frozenset[str]] = frozenset({"CONFIG", "SECRETS_DIR", "FAILPOINT", "TESTING", "EVENT_LOG"})
    """``LANCEWAL_*`` variables that are not settings."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings,)

    def need(self, *keys: str) -> None:
        """Raise ``InvalidSettings`` naming those of ``keys`` (``section.key``, ``table.format.key``) that are not set."""
        missing = [key for key in keys if not _at(self, key)]
        if missing:
            text = "is needed here and not set: set it in the file or as {}"
            table = ", or name the table by --table ADDRESS"
            problems = [
                SettingProblem("", key, text.format(variable(key)) + (table if key == "table.uri" else ""))
                for key in missing
            ]
            raise _error(problems, file_named=self._file_named)

    def masked(self) -> dict[str, Any]:
        """Return the tree as JSON values, with ``***`` for secrets and for credentials in URLs."""
        return cast("dict[str, Any]", masked(self.model_dump(mode="json"), ()))


def load_settings(path: Path | str | None, environ: Mapping[str, str] = _NOTHING) -> Settings:
    """Read the settings (module docstring).  ``path`` wins over ``LANCEWAL_CONFIG``; without both there is no file.

    ``environ`` has the environment variables that are read.  By default there are none; commands pass ``os.environ``.
    ``LANCEWAL_SECRETS_DIR`` names a folder of files called like the variables, each holding one value.
    """
    sources: list[Source] = []
    file = Path(path) if path is not None else _path(environ.get("LANCEWAL_CONFIG"))
    if file is not None:
        sources.append(read_yaml(file))
    folder = _path(environ.get("LANCEWAL_SECRETS_DIR"))
    if folder is not None:
        sources.append(read_secrets(Settings, Settings.BESIDE, folder))
    sources.append(read_environment(Settings, Settings.BESIDE, environ))
    problems = [problem for source in sources for problem in source.problems]
    merged: dict[str, Any] = {}
    for source in sources:
        merged = _merge(merged, _canonical(source.values))
    try:
        settings = Settings(**merged)
    except ValidationError as error:
        problems += [_problem(line, sources) for line in error.errors(include_url=False)]
    else:
        if not problems:
            settings._file_named = file is not None
            return with_accounts(settings)
    raise _error(problems, file_named=file is not None)


def with_accounts(settings: Settings) -> Settings:
    """Return the settings with whole addresses of the table and of the catalog's root (``whole_address``)."""

    def whole(address: str) -> str:
        return whole_address(address, settings.storage.options)

    changed: dict[str, Section] = {}
    if whole(settings.table.uri) != settings.table.uri:
        changed["table"] = settings.table.model_copy(update={"uri": whole(settings.table.uri)})
    if whole(settings.catalog.root) != settings.catalog.root:
        changed["catalog"] = settings.catalog.model_copy(update={"root": whole(settings.catalog.root)})
    return settings.model_copy(update=changed)


def variable(key: str) -> str:
    """Return the name of the environment variable for the setting ``section.key``."""
    return "LANCEWAL_" + "__".join(part.upper() for part in key.split("."))


def setting_keys() -> list[str]:
    """Return all keys, as ``section.key`` or ``section.group.key``, in the tree's order."""
    return [".".join(path) for path in key_paths(Settings)]


_GROUPS = frozenset(path[:2] for path in key_paths(Settings) if len(path) > 2)
"""Paths of groups of settings inside a section, such as ``("table", "format")``."""


def _path(text: str | None) -> Path | None:
    return Path(text) if text else None


def _at(settings: Settings, key: str) -> object:
    return functools.reduce(getattr, key.split("."), settings)


def _merge(under: dict[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(under)
    for key, value in over.items():
        below = merged.get(key)
        # Columns are one value, in one order; everything else merges key by key.
        both = isinstance(below, dict) and isinstance(value, dict) and key not in ("columns", "metadata_columns")
        merged[key] = _merge(below, value) if both and isinstance(below, dict) else value
    return merged


def _canonical(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values with one spelling of option names, so that a variable overrides the file's option."""
    spell: dict[tuple[str, str], Callable[[str], str]] = {
        ("storage", "options"): lambda name: name.lower(),
        ("kafka", "options"): lambda name: name.lower().replace("_", "."),
        ("registry", "options"): lambda name: name.lower().replace("_", "."),
    }
    result = dict(values)
    for (section, key), spelled in spell.items():
        options = result[section].get(key) if isinstance(result.get(section), dict) else None
        if isinstance(options, dict):
            result[section] = {**result[section], key: {spelled(str(name)): v for name, v in options.items()}}
    return result


# -- errors ----------------------------------------------------------------------------------------------------


def _problem(line: Any, sources: list[Source]) -> SettingProblem:
    """Return pydantic's error ``line`` as a problem, with the place at which its value was set."""
    path = tuple(str(part).encode("utf-8", "backslashreplace").decode() for part in line["loc"])
    # Behind the key come names of union members and the like, which mean nothing to a reader.
    column = path[:2] in (("table", "columns"), ("table", "metadata_columns")) and line["type"] == "value_error"
    listed = path[:2] == ("flusher", "cuts")
    path = path[: 4 if listed else 3 if path[:2] in OPTION_MAPPINGS or path[:2] in _GROUPS or column else 2]
    where = next((place for source in reversed(sources) if (place := source.place(path[:2] if listed else path))), "")
    key = ".".join(path)
    if line["type"] == "extra_forbidden":
        known = setting_keys() if len(path) > 1 else list(Settings.model_fields)
        if listed:
            known = [".".join((*path[:3], name)) for name in MovingCutSettings.model_fields]
        return SettingProblem(where, key, "is not a setting" + closest(key, known))
    text = str(line["msg"]).removeprefix("Value error, ")
    if line["type"] in ("model_type", "model_attributes_type", "dict_type"):
        text = "takes `name: value` pairs, each on a line of its own below it"
    if path == ("table", "columns") and len(line["loc"]) > 2:
        text = f"{line['loc'][2]!r} needs a type as text: put a type with a comma or brackets in quotes"
    given = line["input"]
    if not column and isinstance(given, str | int | float) and not may_hold_secrets(path):
        text += f"; got {without_secrets(str(given)) if isinstance(given, str) else given!r}"
    return SettingProblem(where, key, text)


def _error(problems: list[SettingProblem], *, file_named: bool) -> InvalidSettings:
    lines = [": ".join(filter(None, (p.where, p.key, p.text))) for p in problems]
    message = lines[0] if len(lines) == 1 else f"{len(lines)} problems:" + "".join(f"\n  {line}" for line in lines)
    if not file_named:
        end = "" if message.endswith("?") else "."
        message += (f"{end} " if len(lines) == 1 else "\n") + _NO_FILE
    return InvalidSettings(message, problems=tuple(lines))
