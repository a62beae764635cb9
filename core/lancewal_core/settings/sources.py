"""Sources of settings: a YAML file, a folder of secret files, the environment.

Each source gives nested values and the place of each value (file and line, variable or secret file).  It also gives
what was wrong with the source itself.  Nothing here raises for a person's mistake, so that all mistakes can be shown at
once.
"""

from __future__ import annotations

import difflib
import errno
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, EnvSettingsSource

PREFIX = "LANCEWAL_"
_FILE_MAX = 1 << 20
"""Largest number of characters of a file that are read.  The file may be a pipe or a device without an end."""
_SERVICE_LINK = re.compile(r"_SERVICE_HOST$|_SERVICE_PORT(_[A-Z0-9_]+)?$|_PORT(_\d+_(TCP|UDP|SCTP)(_[A-Z]+)?)?$")
"""Pattern of the variables that Kubernetes puts into every container for each Service of the namespace."""


@dataclass(frozen=True, slots=True)
class SettingProblem:
    """A problem with a setting: the file and line or the variable, the key (both may be empty), and what was expected."""

    where: str
    key: str
    text: str


@dataclass(frozen=True, slots=True)
class Source:
    """Values of one source.  ``places`` maps key paths to the places where they were set."""

    values: Mapping[str, Any]
    places: Mapping[tuple[str, ...], str] = field(default_factory=dict)
    problems: tuple[SettingProblem, ...] = ()

    def place(self, path: tuple[str, ...]) -> str | None:
        """Return the place where this source sets ``path``, or the nearest mapping around it; None if it does not set it."""
        at: Any = self.values
        for part in path:
            # Options may be spelt differently: compare without case, dots and underscores.
            names = {_plain(str(name)): name for name in at} if isinstance(at, Mapping) else {}
            if _plain(part) not in names:
                return None
            at = at[names[_plain(part)]]
        if path in self.places:
            return self.places[path]
        places = {tuple(_plain(p) for p in known): place for known, place in self.places.items()}
        plain = tuple(_plain(part) for part in path)
        return next((places[plain[:n]] for n in range(len(plain), -1, -1) if plain[:n] in places), None)


ELSEWHERE = {
    "kafka.topic": "table.topic",
    "kafka.brokers": "kafka.bootstrap_servers",
    "kafka.servers": "kafka.bootstrap_servers",
    "kafka.consumer_group": "kafka.group_id",
    "table.path": "table.uri",
    "table.location": "table.uri",
    "table.schema": "table.columns",
    "storage_options": "storage.options",
}
"""Names that other programs have for a setting, each with the setting's name here."""


def key_paths(model: type[BaseModel], at: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the path of each setting below ``at``, in the tree's order."""
    for name, info in model.model_fields.items():
        if isinstance(info.annotation, type) and issubclass(info.annotation, BaseModel):
            yield from key_paths(info.annotation, (*at, name))
        else:
            yield (*at, name)


def closest(name: str, known: Collection[str]) -> str:
    """Return ``; did you mean ...?``, or nothing if no known name is similar."""
    found = [ELSEWHERE[name]] if name in ELSEWHERE else difflib.get_close_matches(name, known, 3, 0.6)
    if name not in ELSEWHERE:  # a section that both have makes no two names similar
        found = [one for one in found if _last_parts_alike(name, one)]
    return f"; did you mean {found[0]}?" if found else ""


def _last_parts_alike(one: str, other: str) -> bool:
    return bool(difflib.get_close_matches(one.rpartition(".")[2], [other.rpartition(".")[2]], 1, 0.6))


# -- the file --------------------------------------------------------------------------------------------------


class _Loader(yaml.SafeLoader):
    """YAML loader that keeps times as texts: each setting decides what a time means."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _without_values(where: str, text: str) -> Source:
    """Return a source that cannot be read, with the problem as its only content."""
    return Source({}, problems=(SettingProblem(where, "", text),))


def _text(path: Path) -> str:
    with path.open(encoding="utf-8") as file:
        text = file.read(_FILE_MAX + 1)
    if len(text) > _FILE_MAX:
        raise OSError(errno.EFBIG, f"it has more than {_FILE_MAX} characters", str(path))
    return text


def yaml_problem(error: yaml.YAMLError) -> str:
    """Return what is wrong with a text that is not YAML."""
    problem = getattr(error, "problem", None) or str(error)
    if "mapping values are not allowed" in problem or "but got ':'" in problem:
        return f'{problem}. A text with a colon has quotes, such as the type "struct<dep: int32, arr: int32>"'
    return str(problem)


def read_yaml(path: Path) -> Source:
    """Return the file's values.  A key that is given twice is a problem: YAML would silently take the last."""
    try:
        text = _text(path)
    except (OSError, UnicodeDecodeError) as error:
        return _without_values(str(path), f"the settings file cannot be read: {error}")
    loader: _Loader | None = None
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        values = {} if node is None else loader.construct_document(node)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = str(path) if mark is None else f"{path}:{mark.line + 1}"
        return _without_values(where, f"not YAML: {yaml_problem(error)}")
    except RecursionError:  # PyYAML lets this through, and the next: a number of thousands of digits
        return _without_values(str(path), "not YAML: it is nested too deeply")
    except ValueError as error:
        return _without_values(str(path), f"not YAML: {error}")
    finally:
        if loader is not None:
            loader.dispose()
    if not isinstance(values, dict):
        return _without_values(str(path), "expected sections: table, kafka, storage, ...")
    places: dict[tuple[str, ...], str] = {(): str(path)}
    problems: list[SettingProblem] = []
    if node is not None:
        _walk(node, (), path, places, problems)
    # A section's head without content is the section with nothing set.
    sections = {str(name): {} if value is None else value for name, value in values.items()}
    return Source(sections, places, tuple(problems))


def _walk(
    node: yaml.Node,
    path: tuple[str, ...],
    file: Path,
    places: dict[tuple[str, ...], str],
    problems: list[SettingProblem],
) -> None:
    if not isinstance(node, yaml.MappingNode) or len(path) > 3:
        return
    for key, value in node.value:
        where = f"{file}:{key.start_mark.line + 1}"
        inner = (*path, str(key.value))
        if key.tag not in ("tag:yaml.org,2002:str", "tag:yaml.org,2002:merge"):
            problems.append(SettingProblem(where, ".".join(inner), "a key must be a text: write it in quotes"))
        if inner in places:
            problems.append(SettingProblem(where, ".".join(inner), f"is given twice, before at {places[inner]}"))
        places[inner] = where
        _walk(value, inner, file, places, problems)


# -- variables and secret files --------------------------------------------------------------------------------


class _Variables(EnvSettingsSource):
    """pydantic's reader of nested variables, over a given mapping."""

    def __init__(self, settings: type[BaseSettings], variables: Mapping[str, str | None]) -> None:
        self._given = variables
        super().__init__(settings)

    def _load_env_vars(self) -> Mapping[str, str | None]:
        return self._given

    def decode_complex_value(self, field_name: str, field: FieldInfo, value: Any) -> Any:
        try:
            return super().decode_complex_value(field_name, field, value)
        except ValueError:
            return value  # the setting's own check says what it expects


def read_environment(settings: type[BaseSettings], beside: Collection[str], environ: Mapping[str, str]) -> Source:
    """Return the values of the ``LANCEWAL_*`` variables.  Variables in ``beside`` (without prefix) are not settings."""
    named = {name: value for name, value in environ.items() if name.upper().startswith(PREFIX)}
    return _variables(settings, beside, named, {name: f"variable {name}" for name in named})


def read_secrets(settings: type[BaseSettings], beside: Collection[str], folder: Path) -> Source:
    """Return the values of files in ``folder`` that are named like variables, in either case, each without its last
    line end."""
    try:
        files = sorted(f for f in folder.iterdir() if not f.name.startswith(".") and f.is_file())
    except OSError as error:
        return _without_values("variable LANCEWAL_SECRETS_DIR", f"cannot be read: {error}")
    named: dict[str, str] = {}
    problems = []
    sections = tuple(f"{name}__" for name in settings.model_fields)
    for file in files:
        if not file.name.upper().startswith(PREFIX):
            if file.name.lower().startswith(sections):
                expected = f"{PREFIX}{file.name.upper()}"
                problems.append(
                    SettingProblem(f"secret file {file}", "", f"is not a setting; did you mean {expected}?")
                )
            continue
        try:
            named[file.name] = _text(file).rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            problems.append(SettingProblem(f"secret file {file}", "", f"cannot be read: {reason}"))
    read = _variables(settings, beside, named, {name: f"secret file {folder / name}" for name in named})
    return Source(read.values, read.places, (*problems, *read.problems))


def _variables(
    settings: type[BaseSettings], beside: Collection[str], named: Mapping[str, str], where: Mapping[str, str]
) -> Source:
    sections = {name.upper() for name in settings.model_fields}
    taken: dict[str, str | None] = {}
    places: dict[tuple[str, ...], str] = {}
    problems = []
    for name, value in named.items():
        parts = name.upper().removeprefix(PREFIX).split("__")
        if parts[0] in beside and len(parts) == 1:
            continue
        if parts[0] not in sections:
            problems.append(SettingProblem(where[name], "", _unknown(name.upper(), settings)))
        elif name.lower() in taken:
            problems.append(SettingProblem(where[name], "", "is given twice, in upper and lower case"))
        else:
            taken[name.lower()] = value
            places[tuple(part.lower() for part in parts)] = where[name]
    return Source(_Variables(settings, taken)(), places, tuple(problems))


def _unknown(name: str, settings: type[BaseSettings]) -> str:
    keys = [PREFIX + "__".join(path).upper() for path in key_paths(settings)]
    if _SERVICE_LINK.search(name) and "__" not in name:
        return (
            "is not a setting; Kubernetes sets variables of this form for a Service whose name begins with lancewal: "
            "set `enableServiceLinks: false` in the pod"
        )
    return "is not a setting" + closest(name, keys)


def _plain(name: str) -> str:
    return name.lower().replace("_", ".")
