"""A second build compiles what has changed, also where pip isolates it; setup.py, on two sources.

pip's isolated builds have their requirements and tools in a new folder each time.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
CMAKE = """cmake_minimum_required(VERSION 3.22...4.0)
project(small LANGUAGES CXX)
find_package(Python 3.10 REQUIRED COMPONENTS Interpreter Development.Module)
find_package(pybind11 CONFIG REQUIRED)
add_library(core STATIC ops/first.cpp ops/second.cpp)
target_include_directories(core SYSTEM PUBLIC ${NLOHMANN_JSON_INCLUDE_DIR})
set_target_properties(core PROPERTIES POSITION_INDEPENDENT_CODE ON)
pybind11_add_module(_core MODULE NO_EXTRAS bindings/module.cpp)
target_link_libraries(_core PRIVATE core)
install(TARGETS _core DESTINATION . COMPONENT python)
"""
SOURCES = {
    "CMakeLists.txt": CMAKE,
    "ops/first.cpp": "#include <nlohmann/json.hpp>\nint First() { return 1; }\n",
    "ops/second.cpp": "int Second() { return 2; }\n",
    "bindings/module.cpp": "#include <nlohmann/json.hpp>\n#include <Python.h>\n"
    "PyMODINIT_FUNC PyInit__core() { return nullptr; }\n",
    "python/collops/__init__.py": "",
}
FAILED = "\ncollops: CMake ended with status 1; the reason stands above\n"
PROGRAMS = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A project of two sources and a module, which is built by this checkout's setup.py."""
    folder = tmp_path / "checkout"
    for name, text in SOURCES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    shutil.copy(ROOT / "setup.py", folder)
    (folder / "golden").mkdir()
    return folder


def isolated(folder: Path, json: str = "3.11.3") -> dict[str, str]:
    """An environment as pip's build isolation makes one: all requirements in a new folder."""
    pybind11 = pytest.importorskip("pybind11")
    programs = {name: shutil.which(name, path=PROGRAMS) for name in ("cmake", "ninja")}
    if None in programs.values():
        pytest.skip("cmake or ninja is not installed: pip install cmake ninja")
    (folder / "bin").mkdir(parents=True)
    for name, program in programs.items():
        (folder / "bin" / name).symlink_to(str(program))
    home = Path(pybind11.__file__).parent
    shutil.copytree(home, folder / "pybind11", copy_function=shutil.copyfile)
    header = folder / "nlohmann_json" / "include" / "nlohmann" / "json.hpp"
    header.parent.mkdir(parents=True)
    header.write_text("inline int Json() { return 3; }\n")
    for name, version in (("pybind11", pybind11.__version__), ("nlohmann_json", json)):
        info = folder / f"{name}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    path = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CMAKE_")}
    return {**kept, "PATH": path, "PYTHONPATH": str(folder), "CCACHE_DISABLE": "1"}


def build(
    checkout: Path, environment: dict[str, str], fails: bool = False
) -> tuple[list[str], str]:
    """Builds the module; returns the names of the sources that were compiled, and the output."""
    done = subprocess.run(
        [sys.executable, "setup.py", "build_ext", "--inplace"],
        cwd=checkout,
        env=environment,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert (done.returncode != 0) == fails, done.stdout
    return sorted(re.findall(r"Building CXX object .*/(\w+)\.cpp\.o", done.stdout)), done.stdout


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_second_build_compiles_only_what_has_changed(checkout: Path, tmp_path: Path) -> None:
    compiled, output = build(checkout, isolated(tmp_path / "first"))
    assert compiled == ["first", "module", "second"]
    assert build(checkout, isolated(tmp_path / "second"))[0] == []
    (checkout / "ops" / "second.cpp").write_text("int Second() { return 4; }\n")
    assert build(checkout, isolated(tmp_path / "third"))[0] == ["second"]
    # Another release of a requirement has other headers.
    compiled, _ = build(checkout, isolated(tmp_path / "fourth", json="3.12.0"))
    assert compiled == ["first", "module", "second"]
    assert re.search(r"^collops: compiling, \d+ at once: \d+ to \d+ ", output, re.MULTILINE)
    # What the compiler said is not followed by a traceback of setuptools.
    (checkout / "ops" / "second.cpp").write_text("int Second() { return wrong; }\n")
    _, output = build(checkout, isolated(tmp_path / "fifth"), fails=True)
    assert "wrong" in output and "Traceback" not in output
    assert output.endswith(FAILED)
    (checkout / "ops" / "second.cpp").write_text("int Second() { return 2; }\n")
    with (checkout / "CMakeLists.txt").open("a") as rules:
        rules.write('install(CODE [[message(FATAL_ERROR "no room")]] COMPONENT python)\n')
    _, output = build(checkout, isolated(tmp_path / "sixth"), fails=True)
    assert "no room" in output and "Traceback" not in output
    assert output.endswith(FAILED)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_compiler_cache_on_path_is_used(checkout: Path, tmp_path: Path) -> None:
    environment = isolated(tmp_path / "first")
    record = tmp_path / "record"
    cache = tmp_path / "first" / "bin" / "ccache"
    cache.write_text(f'#!/bin/sh\necho "$*" >> "{record}"\nexec "$@"\n')
    cache.chmod(0o755)
    build(checkout, environment)
    assert len(re.findall(r"-c \S+/(\w+)\.cpp$", record.read_text(), re.MULTILINE)) == 3
    record.unlink()
    build(checkout, {**environment, "CMAKE_CXX_COMPILER_LAUNCHER": ""})
    assert not record.exists()
