"""The extension modules of the compiled kernel; everything else is in pyproject.toml.

Each extension is optional: without a C compiler the install succeeds and Millstream runs in plain
Python, which `millstream._accel.COMPILED` tells.

C that is written by hand stands in `x.c` beside `x.h`. All of it is compiled once, into a static
library, and an extension is linked with the functions that it calls. MILLSTREAM_CFLAGS replaces the
flags of an ordinary build, as `make warnings` and `make sanitize` do.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError, LibError
from setuptools.modified import newer_group

KERNEL = Path("src/millstream/_accel")
LIBRARY = "millstream_kernel"
# They stand on epoll; elsewhere their plain-Python versions run.
LINUX_ONLY = {"broker", "client"}
# Cython's output stays apart from the C that is written by hand.
GENERATED = "build/kernel"
FLAGS = [
    "-fvisibility=hidden",
    "-D_GNU_SOURCE",
    *os.environ.get("MILLSTREAM_CFLAGS", "-O3 -g0").split(),
]

_HEADER = re.compile(r'^\s*(?:#include|cdef extern from) "([\w/]+\.h)"', re.MULTILINE)
_CIMPORT = re.compile(r"^from millstream\._accel\.([\w.]+) cimport", re.MULTILINE)
_BESIDE = {".pyx": ".pxd", ".h": ".c"}


def dependencies(source: Path) -> list[str]:
    """The files of the kernel that a `.pyx` is made from: declarations, headers and their `.c`."""
    found: set[Path] = set()
    waiting = [source]
    while waiting:
        path = waiting.pop()
        if path in found or not path.exists():
            continue
        found.add(path)
        text = path.read_text(encoding="utf-8")
        waiting += [KERNEL / header for header in _HEADER.findall(text)]
        waiting += [KERNEL / f"{name.replace('.', '/')}.pxd" for name in _CIMPORT.findall(text)]
        waiting.append(path.with_suffix(_BESIDE.get(path.suffix, path.suffix)))
    return sorted(str(path) for path in found - {source})


class BuildKernel(build_ext):
    """As setuptools builds extensions, with our own C, and one line when they cannot be built."""

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

    def build_extensions(self) -> None:
        """Compile the C that is written by hand, then the extensions that are linked with it."""
        depends = {path for extension in self.extensions for path in extension.depends}
        sources = sorted(path for path in depends if path.endswith(".c"))
        library = Path(self.build_temp, self.compiler.library_filename(LIBRARY))
        if sources and newer_group(sorted(depends), str(library)):
            try:
                self._build_library(sources)
            except (CompileError, LibError) as error:
                self.warn(f"the kernel's C cannot be compiled: {error}")
        super().build_extensions()

    def _build_library(self, sources: list[str]) -> None:
        objects = self.compiler.compile(
            sources,
            output_dir=self.build_temp,
            include_dirs=[str(KERNEL), *self.include_dirs],
            extra_postargs=FLAGS,
        )
        # An archive keeps what an older build put into it.
        Path(self.build_temp, self.compiler.library_filename(LIBRARY)).unlink(missing_ok=True)
        self.compiler.create_static_lib(objects, LIBRARY, output_dir=self.build_temp)

    def build_extension(self, ext: Extension) -> None:
        ext.library_dirs = [self.build_temp]
        super().build_extension(ext)


def kernel_extensions() -> list[Extension]:
    """Every .pyx of the kernel, or none when MILLSTREAM_BUILD=python asks for plain Python."""
    if os.environ.get("MILLSTREAM_BUILD") == "python":
        return []
    from Cython.Build import cythonize

    extensions = [
        Extension(
            f"millstream._accel.{name}",
            [str(source)],
            include_dirs=[str(KERNEL)],
            libraries=[LIBRARY],
            extra_compile_args=FLAGS,
        )
        for source in sorted(KERNEL.glob("*/*.pyx"))
        if (name := f"{source.parent.name}.{source.stem}")
        and (sys.platform == "linux" or source.parent.name not in LINUX_ONLY)
    ]
    directives = {"language_level": 3, "freethreading_compatible": True}
    built: list[Extension] = cythonize(  # type: ignore[no-untyped-call]  # Cython has no types
        extensions,
        build_dir=GENERATED,
        compiler_directives=directives,
        nthreads=os.cpu_count() or 1,
    )
    for extension in built:
        # Here, because cythonize() does not hand the one on and copies the others.
        extension.optional = True
        name = extension.name.removeprefix("millstream._accel.")
        extension.depends = dependencies(KERNEL / f"{name.replace('.', '/')}.pyx")
    return built


setup(ext_modules=kernel_extensions(), cmdclass={"build_ext": BuildKernel})
