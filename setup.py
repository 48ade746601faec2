"""The extension modules of the compiled kernel; everything else is in pyproject.toml.

Each extension is optional: without a C compiler the install succeeds and Millstream runs on its
plain-Python codec, which `millstream._accel.COMPILED` tells.
"""

from __future__ import annotations

import os
from pathlib import Path

from setuptools import Extension, setup

KERNEL = Path("src/millstream/_accel")


def kernel_extensions() -> list[Extension]:
    """Every .pyx of the kernel, or none when MILLSTREAM_BUILD=python asks for plain Python."""
    if os.environ.get("MILLSTREAM_BUILD") == "python":
        return []
    from Cython.Build import cythonize

    extensions = [
        Extension(
            f"millstream._accel.{source.stem}",
            [str(source)],
            extra_compile_args=["-O3", "-g0"],
            optional=True,
        )
        for source in sorted(KERNEL.glob("*.pyx"))
    ]
    directives = {"language_level": 3, "freethreading_compatible": True}
    built: list[Extension] = cythonize(extensions, compiler_directives=directives)
    return built


setup(ext_modules=kernel_extensions())
