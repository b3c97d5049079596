"""The set-up reads answers, not chatter: it holds where programs say more than they are asked."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import environment
from patience import patience

ROOT = Path(__file__).resolve().parents[3]
NOTICE = "[notice] A new release of pip is available: 23.0 -> 26.0"
NOISE = f"echo 'UserWarning: version 1.0' >&2; echo '{NOTICE}'\n"


def tool(folder: Path, name: str, script: str) -> Path:
    """A program in a folder, made by need."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}")
    path.chmod(0o755)
    return path


@pytest.fixture
def venv(tmp_path: Path) -> environment.Venv:
    """An environment in a folder with spaces; its Python is this one, and says more than asked."""
    python = shlex.quote(sys.executable)
    tool(tmp_path / "a b's" / "venv" / "bin", "python", f'{NOISE}exec {python} "$@"\n')
    return environment.Venv(tmp_path / "a b's" / "venv")


def record_pip(venv: environment.Venv, ending: str) -> Path:
    """Puts a stand-in for Python there, which writes down its arguments, a line for each call."""
    record = venv.folder / "record"
    script = f'echo "$*" >> {shlex.quote(str(record))}\n{NOISE}{ending}\n'
    tool(venv.python.parent, "python", script)
    return record


def test_an_environment_is_kept_however_much_its_python_says(venv: environment.Venv) -> None:
    kept = venv.folder / "kept"
    kept.touch()
    venv.create()
    assert kept.exists()


def test_an_environment_of_another_python_is_made_anew(
    venv: environment.Venv, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool(venv.python.parent, "python", "exit 1\n")
    record = tmp_path / "record"
    maker = tool(tmp_path, "maker", f'printf "%s\\n" "$@" > {shlex.quote(str(record))}\n')
    monkeypatch.setattr(sys, "executable", str(maker))
    venv.create()
    assert record.read_text().splitlines() == ["-m", "venv", "--clear", str(venv.folder)]


def test_an_install_succeeds_whatever_pip_prints(venv: environment.Venv) -> None:
    record_pip(venv, "exit 0")
    assert venv.try_pip("thing", limit_s=patience(20)) == "installed"


def test_the_reason_is_pips_last_error(venv: environment.Venv) -> None:
    record_pip(venv, f"echo 'ERROR: first'; echo 'ERROR: No match' >&2; {NOISE}exit 1")
    assert venv.try_pip("thing", limit_s=patience(20)) == "not installed: ERROR: No match"
    record_pip(venv, "exit 1")
    assert venv.try_pip("thing", limit_s=patience(20)) == "not installed: pip failed"


def test_torch_is_first_sought_where_this_machine_looks(
    venv: environment.Venv, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its pip may be told of an index, time-outs and retries that suit it: none is overridden."""
    monkeypatch.delenv("CI_REQUIRE", raising=False)
    record = record_pip(venv, "exit 1")
    environment.make_torch(venv)
    first, second = (line.split() for line in record.read_text().splitlines())
    assert first == ["-m", "pip", "install", "-q", environment.TORCH]
    assert second[second.index("--extra-index-url") + 1] == environment.TORCH_INDEX
    assert "--index-url" not in second
    assert second[-1] == environment.TORCH
    assert venv.stamp("torch").read_text() == f"{environment.TORCH}\nnot installed: pip failed"
    environment.make_torch(venv)
    assert len(record.read_text().splitlines()) == 2


def test_torch_may_be_required(venv: environment.Venv, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it was looked for just now, or is remembered."""
    record_pip(venv, "exit 1")
    monkeypatch.setenv("CI_REQUIRE", "npu,torch")
    for _ in range(2):
        with pytest.raises(SystemExit, match="CI_REQUIRE asks for torch==.* pip failed"):
            environment.make_torch(venv)
    record_pip(venv, "exit 0")
    environment.make_torch(venv)
    assert environment.torch_of(venv) == "installed"


def test_training_is_looked_for_only_beside_torch(
    venv: environment.Venv, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pip would install torch for GPUs with it."""
    monkeypatch.delenv("CI_REQUIRE", raising=False)
    record = record_pip(venv, "exit 1")
    environment.make_training(venv)
    assert "deepspeed" not in record.read_text()
    assert not venv.stamp("training").exists()
    venv.mark("torch", environment.TORCH, "installed")
    record = record_pip(venv, "exit 0")
    for _ in range(2):
        environment.make_training(venv)
    packages = environment.requirements("torch-training")
    assert record.read_text().splitlines()[-1].split()[-len(packages) :] == packages
    assert venv.stamp("training").read_text().splitlines()[1] == "installed"


def test_only_torchs_cpu_build_is_ever_asked_for() -> None:
    assert environment.TORCH.endswith("+cpu")
    assert environment.TORCH_INDEX.endswith("/cpu")
    for path in [ROOT / "Makefile", ROOT / ".ci" / "run", *(ROOT / "tools").iterdir()]:
        if path.is_file() and path.name != "torch_versions.py":  # whose job the others are
            asked = re.findall(r'torch==[^"]*', path.read_text())
            assert all(torch.endswith("+cpu") for torch in asked), path


@pytest.mark.skipif(shutil.which("make") is None, reason="no make here")
@pytest.mark.parametrize("target", ["demo", "test", "docs", "test-npu", "fuzz", "check", "clean"])
def test_names_with_spaces_stay_whole(target: str) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    command = ["make", "-n", target, "VENV=/a b/venv", "PYTHON=/c d/python3"]
    printed = subprocess.check_output(command, cwd=ROOT, env=kept, text=True)
    words = [word for line in printed.splitlines() for word in shlex.split(line)]
    named = {word for word in words if word.startswith(("/a", "b/", "/c", "d/"))}
    expected = {"/a b/venv"}
    if target != "clean":
        expected |= {"/c d/python3", "/a b/venv/bin/python"}
    assert named == expected


def test_the_preflight_check_takes_a_python_with_spaces_that_says_more(tmp_path: Path) -> None:
    script = f'{NOISE}exec {shlex.quote(sys.executable)} "$@"\n'
    python = tool(tmp_path / "a b's", "python3", script)
    for name in ("g++", "make"):
        tool(tmp_path / "tools", name, "exit 0\n")
    done = subprocess.run(
        ["/bin/sh", ROOT / "tools" / "preflight.sh", python],
        env={"PATH": str(tmp_path / "tools")},
    )
    assert done.returncode == 0
