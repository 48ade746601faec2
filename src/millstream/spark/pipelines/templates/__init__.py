"""Ready-made pipelines for import and export: definitions to copy, and to change where they say so.

`millstream pipeline init --template NAME` writes one. A template is a file of this directory; its
first line, a comment, says what it does. Nothing here knows Spark.
"""

from __future__ import annotations

from importlib import resources

from millstream.errors import InvalidArgument
from millstream.spark.pipelines.schema import nearest

_SUFFIX = ".yaml"


def templates() -> dict[str, str]:
    """What each template does, by its name."""
    return {name: read_template(name).partition("\n")[0].lstrip("# ") for name in _names()}


def read_template(name: str) -> str:
    """A template's text, the definition of a pipeline."""
    if name not in _names():
        hint = nearest(name, _names()) or f"; there are {', '.join(_names())}"
        raise InvalidArgument(f"there is no template {name!r}{hint}")
    return (resources.files(__name__) / f"{name}{_SUFFIX}").read_text(encoding="utf-8")


def _names() -> list[str]:
    found = (each.name for each in resources.files(__name__).iterdir())
    return sorted(each.removesuffix(_SUFFIX) for each in found if each.endswith(_SUFFIX))
