"""The extension modules of the compiled kernel; everything else is in pyproject.toml.

Each extension is optional: without a C compiler the install succeeds and Millstream runs on its
plain-Python codec, which `millstream._accel.COMPILED` tells.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

KERNEL = Path("src/millstream/_accel")
# They stand on epoll; elsewhere their plain twins run.
LINUX_ONLY = {
    "broker.file_sender",
    "broker.preallocation",
    "client.client_selector",
    "client.delivery",
    "client.partition_queues",
    "client.record_accumulator",
}
# Cython's output stays apart from the C that is written by hand.
GENERATED = "build/kernel"


class BuildKernel(build_ext):
    """As setuptools builds extensions, and one line for the reader when they cannot be built."""

    def run(self) -> None:
        self.parallel = self.parallel or os.cpu_count()
        super().run()
        missing = [
            extension.name
            for extension in self.extensions
            if not Path(self.get_ext_fullpath(extension.name)).exists()
        ]
        if missing:
            self.warn(
                "Millstream's compiled kernel was not built (is there a C compiler?). "
                "Everything works, on the slower plain-Python codec. "
                f"Not built: {', '.join(missing)}"
            )


def kernel_extensions() -> list[Extension]:
    """Every .pyx of the kernel, or none when MILLSTREAM_BUILD=python asks for plain Python."""
    if os.environ.get("MILLSTREAM_BUILD") == "python":
        return []
    from Cython.Build import cythonize

    shared = sorted(str(path) for path in (*KERNEL.rglob("*.h"), *KERNEL.rglob("*.pxd")))
    extensions = [
        Extension(
            f"millstream._accel.{name}",
            [str(source)],
            depends=shared,
            include_dirs=[str(KERNEL)],
            extra_compile_args=["-O3", "-g0"],
        )
        for source in sorted(KERNEL.glob("*/*.pyx"))
        if (name := f"{source.parent.name}.{source.stem}")
        and (sys.platform == "linux" or name not in LINUX_ONLY)
    ]
    directives = {"language_level": 3, "freethreading_compatible": True}
    built: list[Extension] = cythonize(  # type: ignore[no-untyped-call]  # Cython has no types
        extensions,
        build_dir=GENERATED,
        compiler_directives=directives,
        nthreads=os.cpu_count() or 1,
    )
    for extension in built:
        extension.optional = True  # Here, because cythonize() does not hand it on.
    return built


setup(ext_modules=kernel_extensions(), cmdclass={"build_ext": BuildKernel})
