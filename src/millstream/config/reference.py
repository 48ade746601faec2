"""The reference page of a settings class, as Markdown, from its declarations.

The documentation build calls it; a test keeps the committed page current.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.config.keys import REQUIRED, ConfigType, Key, keys_of
from millstream.types import INT64_MAX

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_SCALES: Final[Mapping[str, Sequence[tuple[int, str]]]] = {
    "ms": ((86_400_000, "day"), (3_600_000, "hour"), (60_000, "minute"), (1000, "second")),
    "bytes": ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")),
}


def render_reference(settings_class: type, *, with_update_mode: bool = False) -> str:
    """A Markdown section per setting, sorted by key; internal settings are left out."""
    shown = [declared for declared in keys_of(settings_class).values() if not declared.is_internal]
    shown.sort(key=lambda declared: declared.name)
    return "\n".join(_section(declared, with_update_mode=with_update_mode) for declared in shown)


def _section(declared: Key, *, with_update_mode: bool) -> str:
    lines = [
        f"### {declared.name}",
        "",
        declared.doc,
        "",
        f"- Type: {declared.type.name.lower()}" + (f", {declared.unit}" if declared.unit else ""),
        f"- Default: {_default(declared)}",
        f"- Allowed: {declared.allowed}",
    ]
    if declared.synonyms:
        names = ", ".join(f"`{synonym.name}`" for synonym in declared.synonyms)
        lines.append(f"- Broker default from: {names}")
    if with_update_mode:
        lines.append(f"- Changes: {declared.update_mode.value}")
    return "\n".join([*lines, ""])


def _default(declared: Key) -> str:
    value = declared.default
    if value is REQUIRED:
        return "none, it must be given"
    if value is None or value in ("", ()):
        return "none"
    if declared.type is ConfigType.LONG and value == INT64_MAX:
        return f"`{value}` (no limit)"
    note = _in_words(value, declared.unit)
    return f"`{declared.format(value)}`" + (f" ({note})" if note else "")


def _in_words(value: object, unit: str) -> str:
    """604800000 ms is 7 days; nothing when the number is not a round one."""
    if not isinstance(value, int) or value <= 0:
        return ""
    for size, name in _SCALES.get(unit, ()):
        if value % size == 0:
            count = value // size
            plural = "s" if unit == "ms" and count != 1 else ""
            return f"{count} {name}{plural}"
    return ""
