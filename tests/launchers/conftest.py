"""Two jobs at once, started by one shell script: how they are started, and their output."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from patience import patience

HERE = Path(__file__).resolve().parent
LIMIT_S = patience(90.0)
# What this process may itself have got from a launcher.
LAUNCHER_VARIABLES = ("COLLOPS_", "PMI", "OMPI_", "SLURM_", "TORCHELASTIC_", "MASTER_")
PLACE_VARIABLES = ("RANK", "WORLD_SIZE")


@dataclass(frozen=True)
class Place:
    """An environment that pip filled."""

    python: Path

    @property
    def programs(self) -> Path:
        """The folder of its launchers."""
        return self.python.parent


@dataclass(frozen=True)
class Job:
    """How one of the two jobs ended."""

    lines: list[str]  # sorted
    status: int
    group: str
    said: str  # for messages


TwoJobs = Callable[..., dict[str, Job]]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without the launchers' environments: what needs none. `make test-launchers` runs it all."""
    if "COLLOPS_LAUNCHERS" in os.environ:
        return
    others = [item for item in items if needs_a_launcher(item)]
    config.hook.pytest_deselected(items=others)
    items[:] = [item for item in items if item not in others]


def needs_a_launcher(item: pytest.Item) -> bool:
    """Whether a test here is one of a launcher that pip installs; Slurm's is simulated."""
    if not (isinstance(item, pytest.Function) and item.path.parent == HERE):
        return False
    way = getattr(item, "callspec", None) and item.callspec.params.get("way")
    return way is not None and "simulated" not in way


@pytest.fixture
def place() -> Callable[[str], Place]:
    """Finds a launcher's environment; skips the test with pip's reason if there is none."""

    def find(name: str) -> Place:
        folder = os.environ.get("COLLOPS_LAUNCHERS")
        if folder is None:
            return Place(Path(sys.executable))
        result = (Path(folder) / name / "stamps" / "launcher").read_text().splitlines()[1]
        if not result.startswith("installed"):
            pytest.skip(result)
        return Place(Path(folder) / name / "bin" / "python")

    return find


@pytest.fixture
def sessions() -> Iterator[Path]:
    """Where launchers keep their sessions: sockets, whose paths must be short."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@pytest.fixture
def two_jobs(tmp_path: Path, sessions: Path) -> TwoJobs:
    """Runs a command for job A and job B at once, perhaps in a shell that `outer` starts."""

    def run(
        place: Place, *command: str | Path, outer: str = "", env: dict[str, str] | None = None
    ) -> dict[str, Job]:
        shell_words = (*outer.split(), "sh", HERE / "two_jobs.sh", tmp_path)
        words = [str(word) for word in (*shell_words, *command)]
        shell = subprocess.Popen(
            words,
            cwd=tmp_path,
            env={**clean_environment(place, sessions), **(env or {})},
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
        )
        try:
            printed = shell.communicate(timeout=LIMIT_S)[0]
        except subprocess.TimeoutExpired:
            shell.kill()  # what it started is ended by the rule of tests/conftest.py
            shell.communicate()
            pytest.fail(f"not over after {LIMIT_S} s\n{said(tmp_path, 'A')}{said(tmp_path, 'B')}")
        return {words[0]: job(tmp_path, words) for words in map(str.split, printed.splitlines())}

    return run


def clean_environment(place: Place, sessions: Path) -> dict[str, str]:
    """This process's variables without any launcher's, and the place's programs first."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(LAUNCHER_VARIABLES) and name not in PLACE_VARIABLES
    }
    return {
        **kept,
        "PATH": f"{place.programs}{os.pathsep}{kept.get('PATH', os.defpath)}",
        "TMPDIR": str(sessions),
        "COLLOPS_TIMEOUT_S": f"{patience(30):g}",
    }


def said(folder: Path, token: str) -> str:
    """The end of what a job wrote."""
    texts = [(folder / f"{token}.{kind}").read_text()[-3000:] for kind in ("out", "err")]
    return f"--- job {token} ---\n{''.join(texts)}\n"


def job(folder: Path, words: list[str]) -> Job:
    """The outcome behind a line of two_jobs.sh."""
    token, group, status = words
    lines = sorted((folder / f"{token}.out").read_text().splitlines())
    return Job(lines, int(status), group, said(folder, token))
