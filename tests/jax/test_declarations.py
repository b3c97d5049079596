"""What the handlers declare of XLA against the header of jaxlib, by a compiler."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = Path(__file__).with_name("declarations.cpp")


def compile_with(folder: Path) -> subprocess.CompletedProcess[str]:
    """Compiles the comparison with our header of a folder."""
    spec = importlib.util.find_spec("jaxlib")
    assert spec is not None and spec.origin is not None
    headers = Path(spec.origin).parent / "include"
    compiler = os.environ.get("CXX") or shutil.which("c++") or "c++"
    command = [compiler, "-std=c++17", "-fsyntax-only", "-Wall", "-Wextra", "-Werror"]
    command += ["-Wno-invalid-offsetof", f"-I{folder}", f"-isystem{headers}", str(SOURCE)]
    return subprocess.run(command, capture_output=True, text=True)


def test_our_declarations_are_those_of_xla() -> None:
    done = compile_with(ROOT / "bindings")
    assert done.returncode == 0, done.stderr


def test_the_compiler_finds_a_field_at_another_place(tmp_path: Path) -> None:
    header = (ROOT / "bindings" / "xla" / "ffi.h").read_text()
    moved = header.replace(
        "  void* context;\n  Stage stage;\n", "  Stage stage;\n  void* context;\n"
    )
    assert moved != header
    (tmp_path / "xla").mkdir()
    (tmp_path / "xla" / "ffi.h").write_text(moved)
    done = compile_with(tmp_path)
    assert done.returncode != 0 and "xla::CallFrame" in done.stderr
