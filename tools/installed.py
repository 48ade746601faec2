"""Says, once after an install, which of the two codecs Millstream will run on."""

from __future__ import annotations

from millstream import __version__, _accel


def main() -> None:
    """Print one line on a compiled kernel, and what to do on a missing one."""
    if _accel.COMPILED:
        print(f"Millstream {__version__} is installed, with its kernel compiled.")
    else:
        print(
            f"Millstream {__version__} is installed on its plain-Python codec: the kernel was not "
            "compiled.\nEverything works, but writing and reading records takes much longer.\n"
            "To compile it, install a C compiler (gcc or clang), then run: make clean setup"
        )


if __name__ == "__main__":
    main()
