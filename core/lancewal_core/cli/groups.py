"""Commands and groups of commands: the behaviour that all of them share.

Guarantees
 1. The last paragraph of a command's docstring is ``Example: lancewal ...``; ``--help`` ends with it.
 2. An option with an empty value is an error.
 3. An unknown command or option is an error that names the likely one.  A command may also be found in a group of
    the group.  ``--json`` is an error that names ``-o json``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from difflib import get_close_matches
from enum import StrEnum
from functools import wraps
from itertools import pairwise
from typing import Any, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

_EXAMPLE = "\n\nExample: "


class OneCommand(TyperCommand):
    """A command with guarantees 1 to 3: its help has an example, and its errors name the likely option."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        told, found, example = (named.get("help") or "").rpartition(_EXAMPLE)
        if found:
            named |= {"help": told, "epilog": f"Example: {' '.join(example.split())}"}
        super().__init__(*arguments, **named)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        spellings = {spelling for parameter in self.params for spelling in parameter.opts}
        form = next((parameter.default for parameter in self.params if parameter.name == "output"), None)
        forms = {f"--{other}" for other in type(form)} if isinstance(form, StrEnum) else ()
        valued = {
            spelling
            for parameter in self.params
            if not getattr(parameter, "is_flag", True)
            for spelling in parameter.opts
        }
        given = args[: args.index("--")] if "--" in args else args
        for text, following in pairwise([*given, None]):
            assert text is not None
            option, has_value, value = text.partition("=")
            if option in valued and (not value if has_value else following == ""):
                # Without this, `--at "$RECEIPT"` of a variable that is not set would read the newest rows.
                ctx.fail(f"Option {option} has an empty value. Is a variable not set?")
            if option in forms and option not in spellings:
                ctx.fail(f"No such option: {option}. The form of the output is -o {option.removeprefix('--')}.")
        with _plain_errors():
            return super().parse_args(ctx, args)  # which names the likely one of an option that there is not


class CommandGroup(TyperGroup):
    """A group of commands, which names the likely command for an unknown one (guarantee 3)."""

    def names(self, ctx: Any) -> Sequence[str]:
        """Return the names among which a likely command for an unknown one is looked for."""
        return self.list_commands(ctx)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        with _plain_errors():
            return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name = args[0]
        if not ctx.resilient_parsing and not name.startswith("-") and self.get_command(ctx, name) is None:
            ctx.fail(self._unknown(ctx, name))
        return super().resolve_command(ctx, args)

    def _unknown(self, ctx: Any, name: str) -> str:
        words = f"{_words(ctx)} {name}".lstrip()
        groups = {group: self.get_command(ctx, group) for group in self.list_commands(ctx)}
        inside = [f"{at} {name}" for at, group in groups.items() if name in getattr(group, "commands", ())]
        likely = inside or get_close_matches(name, self.names(ctx))
        return f"No such command {words!r}." + (f" Did you mean {' or '.join(map(repr, likely))}?" if likely else "")


class CommandApp(typer.Typer):
    """A group of commands that a package brings."""

    def __init__(self, help: str) -> None:
        super().__init__(cls=CommandGroup, no_args_is_help=True, add_completion=False, help=help)
        self.callback()(_nothing)  # or it would not be a group while it has one command

    def command(self, name: str | None = None, **options: Any) -> Callable[[Any], Any]:
        add = super().command(name, cls=OneCommand, **options)

        def added(function: Callable[..., Any]) -> Callable[..., Any]:
            add(with_options(function))
            return function

        return added


@dataclass(frozen=True, slots=True)
class Options:
    """Base class for options that several commands take: the fields of a dataclass that extends it (``with_options``)."""


def with_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``function`` in the form that typer takes.  The fields of its ``Options`` parameter become options, after
    all others."""
    signature = inspect.signature(function, eval_str=True)
    parameters = signature.parameters.values()
    taken = [one for one in parameters if isinstance(one.annotation, type) and issubclass(one.annotation, Options)]
    if not taken:
        return function
    ((name, group),) = ((one.name, one.annotation) for one in taken)
    types, by_name = get_type_hints(group, include_extras=True), inspect.Parameter.KEYWORD_ONLY

    @wraps(function)
    def command(**given: Any) -> Any:
        return function(**{name: group(**{option: given.pop(option) for option in types}), **given})

    options = [
        inspect.Parameter(field.name, by_name, default=field.default, annotation=types[field.name])
        for field in fields(group)
    ]
    seen = [*(one.replace(kind=by_name) for one in parameters if one.name != name), *options]
    command.__signature__ = signature.replace(parameters=seen)  # type: ignore[attr-defined] # read by inspect
    command.__annotations__ = {one.name: one.annotation for one in seen}
    return command


def command_of(name: str, function: Callable[..., Any]) -> Any:
    """Return a plain function as a command of this name."""
    alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    alone.command(name, cls=OneCommand)(with_options(function))
    return typer.main.get_command(alone)


def _nothing() -> None: ...


@contextmanager
def _plain_errors() -> Iterator[None]:
    """Remove pydantic's prefix ``Value error,`` from errors of option values."""
    try:
        yield
    except typer.BadParameter as error:
        error.message = error.message.removeprefix("Value error, ")
        raise


def _words(ctx: Any) -> str:
    """Return the words of the command line that name the command, without the program's name."""
    return str(ctx.command_path).partition(" ")[2]
