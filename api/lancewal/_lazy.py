"""Public names that are loaded when they are first used: a part that is not installed is missed only by who uses it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def names_of(module: str, places: Mapping[str, str]) -> Callable[[str], Any]:
    """The ``__getattr__`` of a module; ``places``: by name the module, or ``module:name`` of what it stands for."""

    def load(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        home, _, member = places[name].partition(":")
        found = import_module(home)
        value = getattr(found, member) if member else found
        setattr(sys.modules[module], name, value)  # the next use does not come here
        return value

    return load
