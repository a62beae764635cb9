"""Public names that are loaded when they are first used.  If an optional part is not installed, only code that uses its
names fails."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def names_of(module: str, places: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the ``__getattr__`` and the ``__dir__`` of ``module``.

    ``places`` maps each public name to ``module``, or to ``module:member``.  ``__getattr__`` raises ``AttributeError`` for
    any other name."""

    def load(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        home, _, member = places[name].partition(":")
        found = import_module(home)
        value = getattr(found, member) if member else found
        setattr(sys.modules[module], name, value)  # the next use does not come here
        return value

    return load, lambda: [*places]
