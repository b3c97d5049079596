"""`collops completion` prints scripts that complete commands, options and files."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from collops.cli import main
from collops.cli.main import COMMANDS, every_parser
from collops.terminal.arguments import subparsers
from patience import patience
from tests import programs


def test_every_command_has_its_options() -> None:
    words = subparsers(every_parser())
    assert list(words) == list(COMMANDS)
    assert "--html" in words["golden"].format_help() or "run" in subparsers(words["golden"])
    assert "--html" in subparsers(words["golden"])["run"].format_help()
    assert "--quick" in subparsers(words["bench"])["all_gather_v"].format_help()
    assert "--ways" in subparsers(words["bench"])["torch"].format_help()
    assert "--rank-table" in words["run"].format_help()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_one_of_the_shell(shell: str, tmp_path: Path) -> None:
    pytest.importorskip("shtab")
    done = programs.run_forked(main, ["completion", shell])
    assert (done.returncode, done.stderr) == (0, "")
    assert "max-skipped" in done.stdout
    if shutil.which(shell) is not None:
        script = tmp_path / "script"
        script.write_text(done.stdout)
        subprocess.run([shell, "-n", str(script)], check=True, timeout=patience(30))


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("collops do", "doctor"),
        ("collops golden run --ht", "--html"),
        ("collops golden run --tolerance a", "atb"),
        ("collops golden run ca", "cases.csv"),
        ("collops bench all_to_all_", "all_to_all_v"),
        ("collops bench torch --wa", "--ways"),
        ("collops golden list --op all_red", "all_reduce"),
        ("collops golden compare --dtype bf", "bfloat16"),
        ("collops golden wr", ""),
        ("collops bench all_gather --dtype b", "bf16"),
        ("collops plan --op red", "reduce_scatterv"),
        ("collops plan --dtype bf", "bfloat16"),
    ],
)
def test_bash_completes(words: str, completed: str, tmp_path: Path) -> None:
    pytest.importorskip("shtab")
    (tmp_path / "cases.csv").touch()
    (tmp_path / "script").write_text(programs.run_forked(main, ["completion", "bash"]).stdout)
    asked = (
        f"source ./script; COMP_WORDS=({words}); COMP_CWORD={len(words.split()) - 1}; "
        f'COMP_LINE="{words}"; COMP_POINT={len(words)}; _shtab_collops; echo "${{COMPREPLY[*]}}"'
    )
    done = subprocess.run(
        ["bash", "-c", asked], cwd=tmp_path, capture_output=True, text=True, timeout=patience(30)
    )
    assert done.stdout.strip() == completed, done.stderr


def test_without_shtab_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    done = programs.run_forked(main, ["completion", "bash"])
    assert (done.returncode, done.stdout) == (2, "")
    assert "pip install 'collops[completion]'" in done.stderr
