"""The ways to a package: sdist, isolated wheel, offline build, empty environment."""

from __future__ import annotations

import ast
import importlib.metadata
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import collops
import environment
from tests import programs

ROOT = Path(__file__).resolve().parents[3]
MADE_HERE = [".git", ".venv", "build", "dist", "out", "__pycache__", ".*_cache", "*.egg-info"]
MADE_HERE += [".hypothesis"]
# Whether it builds is the question here, so the compiler need not take time to optimise.
FAST = "-DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG=-O0"
# Files of the checkout that a user of the sdist has no use for.
NOT_IN_SDIST = {".gitignore"}


def run(*command: str | Path, cwd: Path, **variables: str) -> str:
    """Runs a command with nothing of this checkout on its path; its output, or a failed test."""
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": "", "PIP_USER": "0", **variables},
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout[-6000:]}"
    return programs.own(done.stdout)


def new_venv(folder: Path) -> Path:
    """An empty virtual environment; returns its interpreter, which pip_of installs for."""
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder.parent)
    return folder / "bin" / "python"


def pip_of(python: Path) -> list[str | Path]:
    """This environment's pip, for another one: a new environment's own takes seconds to unpack."""
    return [sys.executable, "-m", "pip", "--python", python]


def cmake_args() -> str:
    """CMake's arguments for the wheel: what is compiled here already is not compiled again."""
    build = ROOT / "build" / f"cmake-{sys.implementation.cache_tag}"
    here = environment.Venv(Path(sys.prefix))
    if not (build.is_dir() and here.is_made("package", environment.fingerprint())):
        return FAST
    launcher = Path(__file__).with_name("compiled_here.sh")
    return shlex.quote(f"-DCMAKE_CXX_COMPILER_LAUNCHER=sh;{launcher};{build}")


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the checkout without anything that was built in it."""
    folder = tmp_path_factory.mktemp("sources") / "collops"
    shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(*MADE_HERE, "*.so"))
    return folder


@pytest.fixture(scope="module")
def offline(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Arguments that let pip see one folder only, which holds the build requirements and numpy."""
    folder = tmp_path_factory.mktemp("wheels")
    wanted = [*environment.requirements("requires"), *environment.requirements("dependencies")]
    done = subprocess.run(
        [sys.executable, "-m", "pip", "download", "-q", "-d", str(folder), *wanted],
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    if done.returncode != 0:
        pytest.skip(f"no build requirements to be had: {environment.last_error(done.stdout)}")
    return ["--no-index", "--find-links", str(folder)]


@pytest.fixture(scope="module")
def sdist(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sdist of the copy."""
    pytest.importorskip("setuptools")
    folder = tmp_path_factory.mktemp("sdist")
    program = "import sys; from setuptools.build_meta import build_sdist; build_sdist(sys.argv[1])"
    run(sys.executable, "-c", program, folder, cwd=sources)
    [path] = folder.glob("*.tar.gz")
    return path


@pytest.fixture(scope="module")
def wheel(sdist: Path, offline: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the sdist in isolation and offline."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", *offline]
    run(*pip, "-w", folder, sdist, cwd=folder, CMAKE_ARGS=cmake_args())
    [path] = folder.glob("*.whl")
    return path


def test_the_version_has_one_source() -> None:
    assert collops.__version__ == importlib.metadata.version("collops")


def test_an_isolated_build_finds_the_nvcc_of_the_environment(tmp_path: Path) -> None:
    """Though pip takes its packages off the path of such a build, as is done here."""
    python = new_venv(tmp_path / "env")
    packages = run(
        python, "-c", "import sysconfig as s; print(s.get_path('purelib'))", cwd=tmp_path
    )
    nvcc = Path(packages.strip()) / "nvidia" / "cu13" / "bin" / "nvcc"
    nvcc.parent.mkdir(parents=True)
    nvcc.touch()
    setuptools = pytest.importorskip("setuptools")
    program = (
        f"import sys; sys.path.remove({packages.strip()!r}); "
        "import runpy, setuptools; setuptools.setup = lambda **_: None; "
        "print(runpy.run_path('setup.py')['nvcc_folders']())"
    )
    path = {"PYTHONPATH": str(Path(setuptools.__file__).parents[1])}
    found = run(python, "-c", program, cwd=ROOT, **path)
    assert f"-DCOLLOPS_NVCC_HINTS={nvcc.parent}" in found


def test_extras_are_spelt_as_in_the_metadata() -> None:
    """Which writes hyphens; pip 23.2 finds an extra by no other spelling."""
    extras = importlib.metadata.metadata("collops").get_all("Provides-Extra") or []
    text = (ROOT / "pyproject.toml").read_text()
    table = text.partition("[project.optional-dependencies]\n")[2].partition("\n[")[0]
    assert re.findall(r"^([\w-]+) = ", table, re.MULTILINE) == extras
    assert "ml-dtypes" in (ROOT / "README.md").read_text()


def test_the_sdist_holds_every_file(sources: Path, sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        packed = {
            name.partition("/")[2] for name in archive.getnames() if not name.endswith(".egg-info")
        }
    files = {str(path.relative_to(sources)) for path in sources.rglob("*") if path.is_file()}
    expected = {name for name in files if ".egg-info/" not in name} - NOT_IN_SDIST
    assert expected - packed == set()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_wheel_holds_the_package(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    of_c = ("libcollops_c.so", "include/collops_c.h")
    for part in ("_core.", "py.typed", "golden/__init__.py", "examples/uneven_batch.py", *of_c):
        assert [name for name in names if name.startswith(f"collops/{part}")], part
    foreign = [name for name in names if not name.startswith(("collops/", "collops-"))]
    assert foreign == []


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_wheel_runs_in_an_empty_venv(wheel: Path, offline: list[str], tmp_path: Path) -> None:
    python = new_venv(tmp_path / "venv")
    run(*pip_of(python), "install", "-q", *offline, wheel, cwd=tmp_path)
    packages = environment.Venv(tmp_path / "venv").versions().keys()
    assert packages - {"pip", "setuptools"} == {"collops", "numpy"}
    run(python, "-m", "collops.demo", cwd=tmp_path)
    run(python.with_name("collops"), "--help", cwd=tmp_path)


def test_an_editable_installation_has_what_cmake_installs(sources: Path, tmp_path: Path) -> None:
    """Beside the extension, which setuptools alone would copy."""
    pytest.importorskip("setuptools")
    built = tmp_path / "built" / "collops"
    (built / "include").mkdir(parents=True)
    names = ["_core.so", "libcollops_c.so", "include/collops_c.h", "collops_kernels.fatbin"]
    for name in names:
        (built / name).touch()
    program = (
        "import sys, setuptools\n"
        "from distutils.core import run_setup\n"
        "build = run_setup('setup.py', stop_after='init').get_command_obj('build_ext')\n"
        "build.inplace, build.build_lib = 1, sys.argv[1]\n"
        "build.ensure_finalized()\n"
        "build.get_ext_filename = lambda name: 'collops/_core.so'\n"
        "build.copy_extensions_to_source()\n"
    )
    run(sys.executable, "-c", program, built.parent, cwd=sources)
    made = [sources / "python" / "collops" / name for name in names]
    assert [path.name for path in made if not path.exists()] == []
    for path in made:
        path.unlink()
    made[2].parent.rmdir()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_build_finds_what_it_needs_offline_without_isolation(
    sources: Path, offline: list[str], tmp_path: Path
) -> None:
    """In an environment of the build requirements alone; that it builds there, `make` shows."""
    python = new_venv(tmp_path / "venv")
    pip = [*pip_of(python), "install", "-q", *offline]
    path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
    run(*pip, *environment.requirements("requires"), "numpy", cwd=tmp_path)
    program = (
        "import setuptools\n"
        "from distutils.core import run_setup\n"
        "run_setup('setup.py', stop_after='init').get_command_obj('build_ext').configure()\n"
    )
    output = run(python, "-c", program, cwd=sources, PATH=path)
    assert "Build files have been written to" in output


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"CXX": "no-such-g++"}, ["C++ compiler no-such-g++ not found: Debian: apt install g++"]),
        ({"CMAKE_ARGS": "-DCMAKE_CXX_COMPILER=zig"}, []),
    ],
)
def test_a_missing_compiler_is_one_line(variables: dict[str, str], said: list[str]) -> None:
    setuptools = pytest.importorskip("setuptools")
    program = (
        "import runpy, setuptools; setuptools.setup = lambda **_: None; "
        "print(runpy.run_path('setup.py')['missing_tools']())"
    )
    path = {"PYTHONPATH": str(Path(setuptools.__file__).parents[1])}
    assert (
        ast.literal_eval(run(sys.executable, "-c", program, cwd=ROOT, **path, **variables)) == said
    )


def test_without_linux_the_core_is_not_built(sources: Path) -> None:
    pytest.importorskip("setuptools")
    program = (
        "import sys, setuptools.command.build_ext\n"
        "from distutils.core import run_setup\n"
        "for sys.platform in ('darwin', 'linux'):\n"
        "    print(len(run_setup('setup.py', stop_after='init').ext_modules))\n"
    )
    output = run(sys.executable, "-W", "ignore", "-c", program, cwd=sources)
    assert output.split() == ["0", "1"]


def preflight(tools: Path, python: str | Path = "python3") -> subprocess.CompletedProcess[str]:
    """Runs the preflight check with a PATH that has nothing but `tools`."""
    return programs.run(
        ["/bin/sh", str(ROOT / "tools" / "preflight.sh"), str(python)],
        env={"PATH": str(tools)},
        capture_output=True,
    )


def fake_tool(folder: Path, name: str, script: str = "exit 0") -> Path:
    """A tool that only looks like one."""
    tool = folder / name
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    return tool


def test_preflight_names_every_missing_package(tmp_path: Path) -> None:
    done = preflight(tmp_path)
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert [line.split()[-1] for line in lines] == ["python3", "g++", "make"]
    assert all("install the Debian package" in line for line in lines)


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        ("import venv", "python3-venv"),
        ("Python.h", "python3-dev"),
        ("version_info <", "3.10 or newer"),
    ],
)
def test_preflight_names_what_python_lacks(tmp_path: Path, broken: str, words: str) -> None:
    for name in ("g++", "make"):
        fake_tool(tmp_path, name)
    # This Python fails in the one program that holds `broken`, and runs all others.
    script = f'case "$2" in *"{broken}"*) exit 1;; esac\nexec {shlex.quote(sys.executable)} "$@"'
    done = preflight(tmp_path, fake_tool(tmp_path, "python3", script))
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert words in line
