"""Optional packages, imported by the class that needs one; if absent, the error says what to do."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from millstream.errors import InvalidArgument


def require(package: str, needed_by: str, *, distribution: str = "") -> Any:
    """The package's module; InvalidArgument with the command to install it if it is absent."""
    try:
        return import_module(package)
    except ImportError as error:
        raise InvalidArgument(
            f"{needed_by} needs the package {package}: pip install {distribution or package}"
        ) from error
