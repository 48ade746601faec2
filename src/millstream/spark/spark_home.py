"""A SPARK_HOME whose Python processes start in a third of the time: Spark's own, less two archives.

Spark puts `pyspark.zip` first on the path of every Python process that it starts, and what is
imported from an archive is compiled anew each time: 0.8 s of CPU for each of the half dozen
processes of a query. Without the archives the same modules come from the installed package, which
Python keeps compiled. `sessions` uses it on local masters; a cluster needs the archives.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
from hashlib import sha256
from pathlib import Path

from millstream.spark.java import cache_directory

_logger = logging.getLogger(__name__)
_PYTHON = "python"
_ARCHIVES = "lib"


def home_without_archives(package: Path) -> Path | None:
    """The directory to use, made if it is not there; `package` is PySpark's.

    None if PySpark is not installed with pip, or nothing can be kept: it is only a matter of speed.
    """
    if not (package / "jars").is_dir():
        return None
    name = sha256(str(package).encode()).hexdigest()[:12]
    home = cache_directory() / f"spark-{name}"
    try:
        if not (home / "jars").exists():
            _make(home, package)
    except OSError as error:
        _logger.info("Spark starts from its archives: %s", error)
        return None
    return home


def _make(home: Path, package: Path) -> None:
    """Links to everything but the archives. Two sessions may do so at once: one of them wins."""
    home.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(dir=home.parent))
    _link_all(package, made, without=_PYTHON)
    (made / _PYTHON).mkdir()
    if (package / _PYTHON).is_dir():
        _link_all(package / _PYTHON, made / _PYTHON, without=_ARCHIVES)
    try:
        made.rename(home)
    except OSError:
        if not (home / "jars").exists():  # Left behind by a package that is gone.
            shutil.rmtree(home)
            made.rename(home)
        else:
            shutil.rmtree(made)


def _link_all(source: Path, target: Path, *, without: str) -> None:
    for each in source.iterdir():
        if each.name != without:
            (target / each.name).symlink_to(each)
