"""The C++ compiler of PyPI's ziglang, which compiles for any machine and any glibc from 2.28 on.

Below 2.28 glibc has no memfd_create and no getrandom.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

GLIBC = "2.28"

# pthread_exit(), by which Python ends threads, unwinds with libgcc_s, so what it unwinds must read
# its context with libgcc_s too, and not with the libunwind that zig would link. This library stands
# in for libgcc_s while linking: its names with their versions, the same on all machines.
UNWINDER = {
    "GCC_3.0": """DeleteException Find_FDE ForcedUnwind GetDataRelBase GetGR GetIP
        GetLanguageSpecificData GetRegionStart GetTextRelBase RaiseException Resume SetGR
        SetIP""".split(),
    "GCC_3.3": "Backtrace FindEnclosingFunction GetCFA Resume_or_Rethrow".split(),
    "GCC_4.2.0": ["GetIPInfo"],
}

# clang's name of a processor, in ops/collops/CMakeLists.txt, and zig's.
PROCESSORS = {
    f"armv8.2-a+{feature}": f"generic+v8_2a+{feature}" for feature in ("bf16", "dotprod", "i8mm")
}


class ZigCompiler:
    """zig for `machine`, as uname names it; its programs and its cache lie in `folder`."""

    def __init__(self, zig: Path, machine: str, folder: Path) -> None:
        self._zig = zig
        self._folder = folder / f"zig-{machine}"
        self._machine = machine
        self._folder.mkdir(parents=True, exist_ok=True)

    def cmake_arguments(self) -> str:
        """CMake's arguments, as the variable CMAKE_ARGS has them."""
        compiler = self._program("c++", "-target", f"{self._machine}-linux-gnu.{GLIBC}")
        linked = f"{self._unwinder(compiler)} -Wl,-s"
        arguments = [
            f"-DCMAKE_CXX_COMPILER={compiler}",
            f"-DCMAKE_AR={self._program('ar')}",
            f"-DCMAKE_RANLIB={self._program('ranlib')}",
            *(f"-DCMAKE_{kind}_LINKER_FLAGS={linked}" for kind in ("MODULE", "SHARED")),
            # Not by the host's strip, which knows one machine.
            "-DCMAKE_STRIP=",
            # zig has a cache of its own.
            "-DCMAKE_CXX_COMPILER_LAUNCHER=",
            # pybind11's tests of flags that are not used: for each, zig compiles its libc++ anew.
            "-DHAS_FLTO=OFF",
            "-DHAS_FLTO_THIN=OFF",
        ]
        if self._machine != os.uname().machine:
            arguments += ["-DCMAKE_SYSTEM_NAME=Linux", f"-DCMAKE_SYSTEM_PROCESSOR={self._machine}"]
        return shlex.join(arguments)

    def _program(self, *words: str) -> Path:
        """A program that runs zig with the words."""
        path = self._folder / f"zig-{words[0]}"
        cache = shlex.quote(str(self._folder.parent / "zig-cache"))
        lines = [
            "#!/bin/sh",
            f"export ZIG_GLOBAL_CACHE_DIR={cache} ZIG_LOCAL_CACHE_DIR={cache}",
            "for word; do",
            "    shift",
            '    case "$word" in',
            *(f"    -march={clang}) word=-march={own} ;;" for clang, own in PROCESSORS.items()),
            "    esac",
            '    set -- "$@" "$word"',
            "done",
            f'exec {shlex.join([str(self._zig), *words])} "$@"',
        ]
        write_changed(path, "\n".join(lines) + "\n")
        path.chmod(0o755)
        return path

    def _unwinder(self, compiler: Path) -> Path:
        """The library that stands in for libgcc_s."""
        source, versions = self._folder / "unwinder.cpp", self._folder / "unwinder.txt"
        names = [f"_Unwind_{name}" for version in UNWINDER.values() for name in version]
        source.write_text("".join(f'extern "C" void {name}() {{}}\n' for name in names))
        versions.write_text(
            "".join(
                f"{version} {{ global: {' '.join(f'_Unwind_{name};' for name in UNWINDER[version])}"
                f" }}{base};\n"
                for version, base in zip(UNWINDER, ["", " GCC_3.0", " GCC_3.3"], strict=True)
            )
        )
        library = self._folder / "libgcc_s.so.1"
        linker = f"-Wl,-soname,{library.name},--version-script={versions}"
        flags = ["-shared", "-nostdlib", linker, "-o", str(library)]
        subprocess.run([str(compiler), *flags, str(source)], check=True)
        return library


def write_changed(path: Path, text: str) -> None:
    """Writes a file whose text differs: CMake configures anew after a newer compiler."""
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
