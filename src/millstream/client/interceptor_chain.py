"""From a setting to interceptors: the one way for producers and consumers.

The setting is one or several objects, classes or dotted names (a text may have several, with
commas between). It calls none of their hooks; the chains of the clients do.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from millstream.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Iterator


def make_interceptors(given: object, *hooks: str) -> list[Any]:
    """Interceptors in the order in which they were given; each has one of the hooks or more."""
    return [_made(each, hooks) for each in _listed(given)]


def _listed(given: object) -> Iterator[object]:
    if given is None:
        return
    if isinstance(given, list | tuple):
        for each in given:
            yield from _listed(each)
    elif isinstance(given, str):
        yield from filter(None, map(str.strip, given.split(",")))
    else:
        yield given


def _made(given: object, hooks: tuple[str, ...]) -> Any:
    found = _named(given) if isinstance(given, str) else given
    made = found() if isinstance(found, type) else found
    if not any(hasattr(made, each) for each in hooks):
        raise InvalidArgument(f"{given!r} is no interceptor: it has neither {' nor '.join(hooks)}")
    return made


def _named(name: str) -> Any:
    module, _, attribute = name.replace(":", ".").rpartition(".")
    try:
        return getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidArgument(
            f"interceptor {name!r} cannot be imported: {error}; give module.Class, or an object"
        ) from error
