"""Names and words that a user meets follow one set of rules (``rules``): settings, commands and their options, Spark's
options, headers, and what pages and ``--help`` say.

Metrics and log events are held by ``tests/deploy/test_metrics_page.py`` and ``tests/layering/test_log_events.py``, errors by
``tests/deploy/test_errors_page.py``, Python names by ``test_public_names.py`` beside this.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
import typer
from pydantic import BaseModel, ByteSize

from lancewal_core.cli import program
from lancewal_core.settings.load import Settings
from lancewal_ingest.decode.operations import LETTER_HEADERS, OP_HEADER
from lancewal_reader.spark.options import OPTIONS
from tests.public.rules import POLICIES, avoided_in, prose_of, wrong_with_choice, wrong_with_name

ROOT = Path(__file__).resolve().parents[2]
READ_BY_PEOPLE = (
    *(ROOT / name for name in ("README.md", "docs/README.md", "docs/glossary.md")),
    *sorted((ROOT / "docs" / "how-to").glob("*.md")),
    *sorted((ROOT / "docs" / "reference").glob("*.md")),
)


# -- settings ------------------------------------------------------------------------------------------------------


def leaves(section: type[BaseModel], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every key of the settings and its type."""
    for name, field in section.model_fields.items():
        inner = next((kind for kind in parts(field.annotation) if is_section(kind)), None)
        if inner is None:
            yield (*path, name), field.annotation
        else:
            yield from leaves(inner, (*path, name))


def parts(kind: Any) -> Iterator[Any]:
    """A type and the types that it is made of."""
    yield kind
    for inner in get_args(kind):
        if get_origin(kind) is not Literal:
            yield from parts(inner)


def is_section(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def choices(kind: Any) -> list[str]:
    of_enums = [str(member.value) for k in parts(kind) if isinstance(k, type) and issubclass(k, Enum) for member in k]
    return of_enums + [str(value) for k in parts(kind) if get_origin(k) is Literal for value in get_args(k)]


def wrong_with_setting(name: str, kind: Any) -> Iterator[str]:
    yield from wrong_with_name(name)
    for choice in choices(kind):
        yield from (f"{choice} {wrong}" for wrong in wrong_with_choice(choice))
    if name.startswith("on_") and not set(choices(kind)) <= POLICIES | {"reject", "add"}:
        yield f"is one of {sorted(POLICIES)}"
    if POLICIES & set(choices(kind)) and not name.startswith("on_"):
        yield "is named on_<what>"
    if ByteSize in parts(kind) and "bytes" not in name.split("_")[-2:]:
        yield "has its unit, bytes"


def test_every_setting_follows_the_rules() -> None:
    found = dict(leaves(Settings))
    assert len(found) > 40
    assert [f"{'.'.join(path)} {w}" for path, kind in found.items() for w in wrong_with_setting(path[-1], kind)] == []


@pytest.mark.parametrize(
    ("name", "kind", "wrong"),
    [
        ("Linger", int, "is not snake case"),
        ("linger_seconds", float, "has its unit last, and one of the list"),
        ("s_linger", float, "has its unit last, and one of the list"),
        ("max_bytes", int, "has max last, and no min"),
        ("region_grace_s", float, "says ['region']"),
        ("memory", ByteSize | None, "has its unit, bytes"),
        ("mode", Literal["key_bytes"], "key_bytes is not lower case with hyphens"),
        ("mode", Literal["off"], "off is read as something else by YAML"),
        ("mode", Literal["to-dlq"], "to-dlq says ['dlq']"),
        ("on_bad_record", Literal["stop", "refuse"], "is one of ['dead-letter', 'ignore', 'stop']"),
        ("bad_records", Literal["stop", "ignore"], "is named on_<what>"),
    ],
)
def test_a_setting_that_does_not_is_named(name: str, kind: Any, wrong: str) -> None:
    assert list(wrong_with_setting(name, kind)) == [wrong]


# -- commands ------------------------------------------------------------------------------------------------------


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command and group with its path.  Typer's own kinds are not public: what is asked of them is."""
    yield path, command
    if hasattr(command, "list_commands"):
        for name in command.list_commands(None):
            yield from commands(command.get_command(None, name), (*path, name))


def all_commands() -> dict[tuple[str, ...], Any]:
    return dict(commands(typer.main.get_command(program.app)))


def own_options(command: Any) -> list[Any]:
    typers = ("install_completion", "show_completion")
    return [p for p in command.params if p.param_type_name == "option" and p.name not in typers]


def helps(command: Any) -> Iterator[str]:
    yield command.help or ""
    for parameter in command.params:
        yield parameter.help or ""
        yield parameter.metavar or ""


def wrong_with_option(words: list[str]) -> Iterator[str]:
    """``words``: the spellings of an option."""
    long = [word for word in words if word.startswith("--")]
    if not long:
        yield "has a long name"
    for word in long:
        if not re.fullmatch(r"--[a-z][a-z0-9]*(-[a-z0-9]+)*", word):
            yield f"{word} is not lower case with hyphens"
        yield from (f"{word} {wrong}" for wrong in wrong_with_name(word.lstrip("-").replace("-", "_")))
        if word.rpartition("-")[2] in {"s", "ms", "bytes", "ratio"}:
            yield f"{word} takes its unit in its value"


def test_every_command_and_option_follows_the_rules() -> None:
    found = all_commands()
    assert len(found) > 30
    wrong = [
        f"{' '.join(path)}: {w}"
        for path, command in found.items()
        for option in own_options(command)
        for w in wrong_with_option([*option.opts, *option.secondary_opts])
    ]
    names = {name for path in found for name in path}
    wrong += [f"{name} {w}" for name in sorted(names) for w in wrong_with_choice(name)]
    assert set(wrong) == KNOWN_COMMANDS


KNOWN_COMMANDS = {"region says ['region']", "estimate: --rows-per-s takes its unit in its value"}
"""``lancewal repair region`` mends what is kept of a partition: a person comes to it from the message that names it.  Rows a
second are a number of them."""


def test_an_option_has_one_meaning_wherever_it_is() -> None:
    """Options that several commands have, by the names of the parameters and the text of their short names."""
    short: dict[str, set[str]] = {}
    for command in all_commands().values():
        for option in own_options(command):
            for word in (word for word in option.opts if not word.startswith("--")):
                short.setdefault(word, set()).add(option.opts[0] if option.opts[0] != word else option.opts[1])
    assert short == {"-t": {"--table"}, "-c": {"--config"}, "-o": {"--output"}}


def test_help_says_none_of_the_words_to_avoid() -> None:
    said = {path: [w for text in helps(command) for w in avoided_in(text)] for path, command in all_commands().items()}
    assert {" ".join(path): words for path, words in said.items() if words} == {}


def test_every_command_and_option_has_a_help() -> None:
    found = all_commands()
    assert [path for path, command in found.items() if not (command.help or "").strip()] == []
    bare = [(path, p.name) for path, command in found.items() for p in own_options(command) if not p.help]
    assert bare == []


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (["-x"], "has a long name"),
        (["--dry_run"], "--dry_run is not lower case with hyphens"),
        (["--ttl-s"], "--ttl-s takes its unit in its value"),
        (["--to-dlq"], "--to-dlq says ['dlq']"),
    ],
)
def test_an_option_that_does_not_is_named(words: list[str], wrong: str) -> None:
    assert list(wrong_with_option(words)) == [wrong]


# -- Spark, headers ------------------------------------------------------------------------------------------------


def test_spark_options_follow_the_rules_and_are_not_hidden_by_spark() -> None:
    assert [f"{name} {w}" for name in OPTIONS for w in wrong_with_name(name)] == []
    assert [name for name in OPTIONS if re.search("token|secret|password|credential|url", name)] == []
    assert [avoided for meaning in OPTIONS.values() for avoided in avoided_in(meaning)] == []


def test_each_header_is_declared_once() -> None:
    """As a text in the code.  The demo's producer is a user: it names its header by itself."""
    texts: dict[str, list[str]] = {name: [] for name in (OP_HEADER, *LETTER_HEADERS)}
    for path in ROOT.glob("*/lancewal_*/**/*.py"):
        if path.is_relative_to(ROOT / "demo"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and node.value in texts:
                texts[str(node.value)].append(path.name)
    assert texts == {name: ["operations.py"] for name in texts}
    assert [name for name in texts if not re.fullmatch(r"lancewal(\.[a-z]+|_[a-z]+)+", name)] == []


# -- pages ---------------------------------------------------------------------------------------------------------

ALLOWED: Mapping[str, frozenset[str]] = {
    "docs/glossary.md": frozenset({"snapshot", "watermark", "dlq", "delta", "region", "cut", "incarnation"}),
    "docs/reference/commands.md": frozenset({"region"}),  # the command's name; what it says is held by its help
    "docs/reference/settings.md": frozenset({"region"}),  # of a cloud: "the machine's own credentials and region"
}
"""Where a word to avoid is meant: the glossary says what not to say, and has the words of the protocol."""


@pytest.mark.parametrize("page", READ_BY_PEOPLE, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_say_none_of_the_words_to_avoid(page: Path) -> None:
    allowed = ALLOWED.get(str(page.relative_to(ROOT)), frozenset())
    found = [
        said for said in avoided_in(prose_of(page.read_text())) if not any(word in said.lower() for word in allowed)
    ]
    assert found == []


def test_what_a_page_must_not_say_is_found() -> None:
    page = "`snapshot` of [a region](#a-region), incarnations,\n\n```\nwatermark\n```\n\n    dlq\n\nThe region key."
    assert avoided_in(prose_of(page)) == [
        "'region': say partition",
        "'incarnations': say member, process",
    ]
