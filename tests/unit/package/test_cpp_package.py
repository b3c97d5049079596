"""What C++ programs find: pkg-config, a shared library, and the JSON headers that a build needs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = ROOT / "examples" / "cpp"
# Where the core was built for the package; its objects are not compiled again.
BUILD = ROOT / "build" / f"cmake-{sys.implementation.cache_tag}"


def run(*command: str | Path, **variables: str) -> str:
    """Runs a command that must succeed, with these variables besides the environment's."""
    done = attempt(*command, **variables)
    assert done.returncode == 0, done.stdout
    return done.stdout


def attempt(*command: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs a command."""
    return subprocess.run(
        [str(part) for part in command],
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def pkg_config(prefix: Path, *options: str) -> list[str]:
    """What pkg-config says of the collops in `prefix`."""
    if shutil.which("pkg-config") is None:
        pytest.skip("pkg-config is not installed")
    [folder] = prefix.glob("lib*/**/pkgconfig")
    return run("pkg-config", *options, "collops", PKG_CONFIG_PATH=str(folder)).split()


def build_example(prefix: Path, folder: Path) -> Path:
    """The program of examples/cpp, compiled with what pkg-config says."""
    program = folder / "uneven_gather"
    flags = pkg_config(prefix, "--cflags", "--libs")
    run("g++", "-std=c++17", EXAMPLE / "uneven_gather.cpp", "-o", program, *flags)
    return program


def test_pkg_config_finds_the_package_wherever_it_is(core_prefix: Path, tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    shutil.copytree(core_prefix, moved)
    program = build_example(moved, tmp_path)
    assert "gathered on each of them" in run(program)
    assert pkg_config(moved, "--modversion") == pkg_config(core_prefix, "--modversion")


def test_a_program_may_have_the_same_names(core_prefix: Path, tmp_path: Path) -> None:
    (tmp_path / "core").mkdir()
    (tmp_path / "core" / "status.h").write_text(
        "#pragma once\n#define CHECK_ARG 1\n#define RETURN_IF_ERROR 2\n"
    )
    (tmp_path / "own.cpp").write_text(
        '#include "core/status.h"\n#include <collops/atb.h>\n#include <collops/collops.h>\n'
        "static_assert(CHECK_ARG + RETURN_IF_ERROR == 3);\n"
    )
    flags = pkg_config(core_prefix, "--cflags")
    run("g++", "-std=c++17", "-fsyntax-only", f"-I{tmp_path}", tmp_path / "own.cpp", *flags)
    macros = run("g++", "-std=c++17", "-dM", "-E", tmp_path / "own.cpp", f"-I{tmp_path}", *flags)
    own = re.findall(r"#define (\w+)[^\n]*__VA_ARGS__", macros)
    assert [name for name in own if not name.startswith(("COLLOPS_", "_"))] == []


def test_what_is_installed_has_no_debug_information(tmp_path: Path) -> None:
    """It would be 20 times as large; who wants it asks for it. A stand-in for the core will do."""
    (tmp_path / "core.cpp").write_text("int core() { return 0; }\n")
    cmake = (
        "cmake_minimum_required(VERSION 3.22)\nproject(collops VERSION 1.0 LANGUAGES CXX)\n"
        "set(CMAKE_BUILD_TYPE RelWithDebInfo)\nadd_library(collops STATIC core.cpp)\n"
        f"set(PROJECT_SOURCE_DIR {ROOT})\ninclude({ROOT}/cmake/install.cmake)\n"
    )
    (tmp_path / "CMakeLists.txt").write_text(cmake)
    (tmp_path / "cmake").symlink_to(ROOT / "cmake")
    (tmp_path / "ops").symlink_to(ROOT / "ops")
    sizes = {}
    for kept in ("OFF", "ON"):
        build, prefix = tmp_path / f"build-{kept}", tmp_path / kept
        run("cmake", "-S", tmp_path, "-B", build, f"-DCOLLOPS_INSTALL_DEBUG={kept}")
        run("cmake", "--build", build)
        run("cmake", "--install", build, "--prefix", prefix)
        [library] = prefix.glob("lib*/**/libcollops.a")
        sizes[kept] = b".debug_info" in library.read_bytes()
    assert sizes == {"OFF": False, "ON": True}


@pytest.mark.parametrize(
    ("arguments", "setting"),
    [
        ((), "CMAKE_BUILD_TYPE:STRING=Release"),
        (("--preset", "default"), "CMAKE_BUILD_TYPE:STRING=Release"),
        (("-GNinja Multi-Config",), "CMAKE_DEFAULT_BUILD_TYPE:STRING=Release"),
        (("-DCMAKE_BUILD_TYPE=Debug",), "CMAKE_BUILD_TYPE:STRING=Debug"),
    ],
    ids=["nothing", "preset", "several configurations", "asked for"],
)
def test_a_build_that_names_no_type_is_a_release(
    arguments: tuple[str, ...], setting: str, tmp_path: Path
) -> None:
    """And one that names a type has it. Nothing is compiled here."""
    said = run("cmake", "-S", ROOT, "-B", tmp_path, "-DBUILD_TESTING=OFF", *arguments)
    assert setting in (tmp_path / "CMakeCache.txt").read_text().splitlines(), said


@pytest.mark.parametrize("header", ["atb.h", "collops.h"])
def test_an_older_standard_is_refused(header: str, core_prefix: Path) -> None:
    source = core_prefix / "include" / "collops" / header
    done = attempt("g++", "-std=c++14", "-fsyntax-only", "-x", "c++", source)
    assert done.returncode != 0
    assert "collops needs C++17: -std=c++17" in done.stdout


def test_another_struct_is_refused_in_one_line(core_prefix: Path, tmp_path: Path) -> None:
    (tmp_path / "other.cpp").write_text(
        "#include <collops/atb.h>\n"
        "struct Other {};\n"
        "int Use(atb::Operation** made) { return atb::CreateOperation(Other(), made); }\n"
    )
    flags = pkg_config(core_prefix, "--cflags")
    done = attempt("g++", "-std=c++17", "-fsyntax-only", tmp_path / "other.cpp", *flags)
    assert "atb::CreateOperation needs a struct of atb::infer" in done.stdout
    assert done.stdout.count("error:") == 1


@pytest.fixture(scope="module")
def shared_prefix(core_prefix: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a shared collops, linked from the objects of the package's build."""
    folder = tmp_path_factory.mktemp("shared")
    launcher = Path(__file__).with_name("compiled_here.sh")
    options = ["-DBUILD_SHARED_LIBS=ON", "-DCMAKE_BUILD_TYPE=Release", "-DCOLLOPS_GPU_KERNELS=OFF"]
    options += ["-DCOLLOPS_UNITY=ON", f"-DPython_EXECUTABLE={sys.executable}"]
    options += [f"-DCMAKE_CXX_COMPILER_LAUNCHER=sh;{launcher};{BUILD}"]
    options += ["-GNinja"] if shutil.which("ninja") else []
    said = run("cmake", "-S", ROOT, "-B", folder / "build", *options)
    assert "no C++ tests" in said
    run("cmake", "--build", folder / "build", "-j", "2")
    run("cmake", "--install", folder / "build", "--prefix", folder / "prefix")
    return folder / "prefix"


def test_the_shared_library_has_what_programs_need(shared_prefix: Path, tmp_path: Path) -> None:
    [library] = shared_prefix.glob("lib*/**/libcollops.so")
    [name] = shared_prefix.glob("lib*/**/libcollops.so.*.*.*")
    assert library.resolve() == name
    assert not list(shared_prefix.rglob("*.a"))
    run("cmake", "-S", EXAMPLE, "-B", tmp_path, f"-DCMAKE_PREFIX_PATH={shared_prefix}")
    run("cmake", "--build", tmp_path)
    program = tmp_path / "uneven_gather"
    assert "gathered on each of them" in run(program)
    assert "libcollops.so" in run("readelf", "-d", program)


def test_the_shared_library_hides_what_is_not_public(shared_prefix: Path) -> None:
    [library] = shared_prefix.glob("lib*/**/libcollops.so")
    lines = run("nm", "-DC", "--defined-only", library).splitlines()
    symbols = [line.split(maxsplit=2)[2] for line in lines]
    assert "collops::Registry::Instance()" in symbols
    hidden = ("nlohmann::", "collops::kernels::", "collops::shm::", "collops::ParseJson")
    assert [symbol for symbol in symbols if symbol.startswith(hidden)] == []


def test_the_shared_library_has_the_functions_of_every_struct(
    shared_prefix: Path, tmp_path: Path
) -> None:
    header = shared_prefix / "include" / "collops" / "operators" / "params.h"
    names = re.findall(r"^struct (\w+Param) : GroupParam {$", header.read_text(), re.M)
    assert len(names) == 12
    uses = "".join(f"  Use<collops::{name}>();\n" for name in names)
    (tmp_path / "structs.cpp").write_text(
        "#include <collops/collops.h>\n"
        "template <typename Param>\n"
        "void Use() {\n"
        "  Param param;\n"
        "  std::unique_ptr<collops::Operation> operation;\n"
        "  std::vector<collops::TensorDesc> outputs;\n"
        "  collops::Status status = collops::FromJson(collops::ToJson(param), &param);\n"
        "  if (param == Param()) status = collops::InferShape(param, 2, {}, &outputs);\n"
        "  if (status.ok()) status = collops::CreateOperation(param, &operation);\n"
        "}\n"
        f"int main() {{\n{uses}}}\n"
    )
    flags = pkg_config(shared_prefix, "--cflags", "--libs")
    run("g++", "-std=c++17", tmp_path / "structs.cpp", "-o", tmp_path / "structs", *flags)


def test_every_public_header_is_visible_in_the_shared_library(core_prefix: Path) -> None:
    headers = (core_prefix / "include" / "collops").rglob("*.h")
    texts = {header.name: header.read_text() for header in headers}
    own = {name: text for name, text in texts.items() if re.search("^namespace .*{$", text, re.M)}
    assert len(own) > 20
    assert [
        name for name, text in own.items() if '[[gnu::visibility("default")]]' not in text
    ] == []


def test_the_extension_holds_the_core_itself(tmp_path: Path) -> None:
    options = ["-DCOLLOPS_PYTHON=ON", "-DCOLLOPS_SHARED=ON"]
    done = attempt("cmake", "-S", ROOT, "-B", tmp_path, *options)
    assert done.returncode != 0
    assert "COLLOPS_SHARED is for C++ programs" in done.stdout


def find_json(folder: Path, *options: str, path: str = os.defpath) -> str:
    """What cmake/find_json.cmake finds, or says."""
    (folder / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.22)\nproject(find LANGUAGES NONE)\n"
        f"include({ROOT}/cmake/find_json.cmake)\n"
        'message(STATUS "found ${NLOHMANN_JSON_INCLUDE_DIR}.")\n'
    )
    cmake = shutil.which("cmake") or pytest.skip("cmake is not installed")
    done = attempt(cmake, "-S", folder, "-B", folder / "build", *options, PATH=path)
    return " ".join(done.stdout.split())


def headers_in(folder: Path) -> Path:
    """A folder with what only looks like the JSON headers."""
    (folder / "nlohmann").mkdir(parents=True)
    (folder / "nlohmann" / "json.hpp").touch()
    (folder / "nlohmann" / "json_fwd.hpp").touch()
    return folder


NO_SYSTEM = "-DCMAKE_FIND_USE_CMAKE_SYSTEM_PATH=OFF"


def python_with_headers(folder: Path) -> tuple[Path, Path]:
    """A Python that seems to have pip's nlohmann-json, and the folder of its headers."""
    package = folder / "site" / "nlohmann_json"
    headers = headers_in(package / "include")
    (package / "__init__.py").touch()
    python = folder / "python3"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{package.parent}" exec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    return python, headers


def test_the_json_headers_of_pip_are_found(tmp_path: Path) -> None:
    python, headers = python_with_headers(tmp_path)
    assert f"found {headers}." in find_json(tmp_path, f"-DPython_EXECUTABLE={python}", NO_SYSTEM)


def test_the_json_headers_of_a_prefix_and_of_a_folder_are_found(tmp_path: Path) -> None:
    headers = headers_in(tmp_path / "prefix" / "include")
    no_pip = "-DPython_EXECUTABLE=false"
    said = find_json(tmp_path, no_pip, f"-DCMAKE_PREFIX_PATH={headers.parent}", NO_SYSTEM)
    assert f"found {headers}." in said
    shutil.rmtree(tmp_path / "build")
    said = find_json(tmp_path, f"-DNLOHMANN_JSON_INCLUDE_DIR={headers}")
    assert f"found {headers}." in said


def test_missing_json_headers_are_said_to_be_had_in_three_ways(tmp_path: Path) -> None:
    said = find_json(tmp_path, "-DPython_EXECUTABLE=false", NO_SYSTEM)
    for way in ("pip install nlohmann-json", "apt install nlohmann-json3-dev", "=DIR"):
        assert way in said
    shutil.rmtree(tmp_path / "build")
    said = find_json(tmp_path, f"-DNLOHMANN_JSON_INCLUDE_DIR={tmp_path}")
    assert f"is {tmp_path}, where there is no nlohmann/json_fwd.hpp" in said
