"""The Python files of a pipeline, imported, so that its functions and classes can be used.

`assembly` calls it. What these files define travels to Spark's workers by value: they need not be
installed there.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

from millstream.errors import InvalidPipeline

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import ModuleType

_PREFIX = "millstream_pipeline_"


def import_libraries(paths: Iterable[Path]) -> dict[str, Any]:
    """Everything public that the files define, by name."""
    names: dict[str, Any] = {}
    files = [each for each in paths if each.suffix == ".py"]
    directories = [str(each) for each in dict.fromkeys(path.parent for path in files)]
    _forget(directories)
    # Libraries may import their neighbours.
    sys.path[:0] = directories
    try:
        for path in files:
            module = _import(path)
            names |= {name: each for name, each in vars(module).items() if name[:1] != "_"}
    finally:
        for each in directories:
            sys.path.remove(each)
    _send_by_value(directories)
    return names


def _import(path: Path) -> ModuleType:
    # By its path: files of the same name in two directories are two modules.
    name = f"{_PREFIX}{path.stem}_{crc32(bytes(path)):08x}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise InvalidPipeline(
            f"{path} cannot be imported: {type(error).__name__}: {error}"
        ) from error
    return module


def _own_modules(directories: list[str]) -> dict[str, ModuleType]:
    """Modules that come from the pipeline's directories, neighbours included."""
    found = {}
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        # The program that runs the pipeline may lie beside them, and is running.
        if name != "__main__" and file and str(Path(file).parent) in directories:
            found[name] = module
    return found


def _forget(directories: list[str]) -> None:
    """Files may have changed since they were imported, or be those of another pipeline."""
    for name in _own_modules(directories):
        del sys.modules[name]


def _send_by_value(directories: list[str]) -> None:
    from pyspark import cloudpickle

    register: Any = cloudpickle.register_pickle_by_value
    for module in _own_modules(directories).values():
        register(module)
