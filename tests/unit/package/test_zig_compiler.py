"""tools/zig_compiler.py, with a program in place of zig that notes how it is called."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest

import environment
import wheels
from zig_compiler import ZigCompiler

OTHER = {"x86_64": "aarch64", "aarch64": "x86_64"}
MACHINE = os.uname().machine
ROOT = environment.ROOT


@pytest.fixture
def zig(tmp_path: Path) -> Path:
    program = tmp_path / "zig"
    program.write_text(f'#!/bin/sh\necho "$@" >> {shlex.quote(str(tmp_path))}/calls\n')
    program.chmod(0o755)
    return program


def values(compiler: ZigCompiler) -> dict[str, str]:
    """CMake's variables by name."""
    arguments = shlex.split(compiler.cmake_arguments())
    assert all(argument.startswith("-D") for argument in arguments)
    return dict(argument[2:].partition("=")[::2] for argument in arguments)


def test_the_compiler_is_zig_for_the_machine_and_the_glibc(zig: Path, tmp_path: Path) -> None:
    variables = values(ZigCompiler(zig, MACHINE, tmp_path / "build"))
    (tmp_path / "calls").unlink()
    subprocess.run([variables["CMAKE_CXX_COMPILER"], "-c", "a b.cpp"], check=True)
    subprocess.run([variables["CMAKE_AR"], "qc", "a.a"], check=True)
    target = f"c++ -target {MACHINE}-linux-gnu.2.28"
    assert (tmp_path / "calls").read_text() == f"{target} -c a b.cpp\nar qc a.a\n"
    assert "CMAKE_SYSTEM_NAME" not in variables


def test_another_machine_is_cross_compiled_for(zig: Path, tmp_path: Path) -> None:
    variables = values(ZigCompiler(zig, OTHER[MACHINE], tmp_path))
    assert variables["CMAKE_SYSTEM_NAME"] == "Linux"
    assert variables["CMAKE_SYSTEM_PROCESSOR"] == OTHER[MACHINE]


def test_a_processor_gets_zigs_name(zig: Path, tmp_path: Path) -> None:
    compiler = values(ZigCompiler(zig, "aarch64", tmp_path))["CMAKE_CXX_COMPILER"]
    (tmp_path / "calls").unlink()
    subprocess.run([compiler, "-O3", "-march=armv8.2-a+bf16", "-c", "a.cpp"], check=True)
    end = "-O3 -march=generic+v8_2a+bf16 -c a.cpp\n"
    assert (tmp_path / "calls").read_text().endswith(end)
    assert "armv8.2-a+bf16" in (ROOT / "ops" / "collops" / "CMakeLists.txt").read_text()


def test_the_extension_is_linked_with_libgcc_s(zig: Path, tmp_path: Path) -> None:
    library = values(ZigCompiler(zig, MACHINE, tmp_path))["CMAKE_MODULE_LINKER_FLAGS"].split()[0]
    call = (tmp_path / "calls").read_text()
    assert "-Wl,-soname,libgcc_s.so.1," in call and f" -o {library} " in call
    versions = (Path(library).parent / "unwinder.txt").read_text().splitlines()
    assert [line.partition(" ")[0] for line in versions] == ["GCC_3.0", "GCC_3.3", "GCC_4.2.0"]
    assert "_Unwind_RaiseException;" in versions[0] and versions[1].endswith("} GCC_3.0;")


def test_a_compiler_that_has_not_changed_is_not_written_anew(zig: Path, tmp_path: Path) -> None:
    times = []
    for _ in range(2):
        path = Path(values(ZigCompiler(zig, MACHINE, tmp_path))["CMAKE_CXX_COMPILER"])
        times.append(path.stat().st_mtime_ns)
    assert times[0] == times[1]


def test_without_zig_the_systems_compiler_is_used(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(environment.Venv, "try_pip", lambda *_, limit_s: "not installed: no index")
    assert wheels.find_zig("if it can be installed") is None
    assert capsys.readouterr().out.endswith(": not installed: no index\n")
    with pytest.raises(SystemExit) as ended:
        wheels.find_zig("zig")
    assert ended.value.code == 77


def test_the_systems_compiler_can_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(environment.Venv, "try_pip")
    assert wheels.find_zig("system") is None
