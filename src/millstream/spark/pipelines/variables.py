"""`${NAME}` and `${NAME:-default}` in a definition's text. `$${` is a plain `${`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_VARIABLE: Final = re.compile(
    r"\$\$\{|\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}|(?P<broken>\$\{)"
)


def substitute(text: str, environment: Mapping[str, str]) -> tuple[str, list[str]]:
    """The text with its variables replaced, and what is wrong with them."""
    faults = []

    def replace(match: re.Match[str]) -> str:
        if match["broken"]:
            faults.append("'${' begins no variable; write ${NAME}, ${NAME:-default}, or $${")
            return match[0]
        name = match["name"]
        if name is None:
            return "${"
        value = environment.get(name)
        # As in a shell: the default stands in for what is unset or empty.
        if not value and match["default"] is not None:
            return match["default"]
        if value is None:
            faults.append(f"the variable {name} is not set; set it, or write ${{{name}:-default}}")
            return match[0]
        return value

    return _VARIABLE.sub(replace, text), faults
