"""`collops doctor` checks the name and the value of every COLLOPS_ variable."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from collops.cli import main
from collops.core import core
from collops.launch.rank_table import make_rank_table
from collops.terminal import installation
from tests import programs


def report(**environment: str) -> tuple[int, dict[str, dict[str, str]]]:
    """The status, and the rows of every part by its title."""
    done = programs.run_forked(main, ["doctor"], env=environment)
    assert done.stderr == ""
    parts: dict[str, dict[str, str]] = {}
    rows: dict[str, str] = {}
    for line in done.stdout.splitlines():
        if line.startswith(" "):
            name, _, said = line.strip().partition("  ")
            rows[name] = said.strip()
        else:
            rows = parts[line] = {}
    return done.returncode, parts


def doctor(**environment: str) -> tuple[int, dict[str, str], dict[str, str]]:
    """The status, and the rows of the parts on the environment and of the summary."""
    status, parts = report(**environment)
    return status, parts["Environment"], parts["Summary, for the text of an issue"]


def test_ascends_software_outside_of_the_environment_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installation, "ASCEND", tmp_path)
    for name in ("nnal", "cann-8.5.0", "ascend-toolkit"):
        (tmp_path / name).mkdir()
    said, lacks = [], "has no CANN with a set_env.sh: install the toolkit and its kernels"
    for name in ("", "nnal", "cann-8.5.0", "ascend-toolkit"):
        if name:
            (tmp_path / name / "set_env.sh").touch()
        status, parts = report()
        problem = parts["Summary, for the text of an issue"]["problems"]
        assert problem.startswith("the default of structs: backend hccl: libhccl.so: cannot open")
        assert status == 1
        said.append(parts["HCCL"]["CANN"].partition(f"{tmp_path}")[2])
    scripts = [f"/{name}/set_env.sh" for name in ("cann-8.5.0", "ascend-toolkit")]
    assert said == [f" {lacks}", f" {lacks}", *scripts]
    assert report(COLLOPS_BACKEND="shm")[0] == 0  # somebody means another


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("COLLOPS_TYPO", "1", "unknown variable"),
        ("COLLOPS_TIMEOUT", "3", "unknown variable; did you mean COLLOPS_TIMEOUT_S?"),
        ("COLLOPS_TIMEOUT_S", "soon", 'must be a number of seconds of 0.001 or more, got "soon"'),
        ("COLLOPS_NUM_THREADS", "0", 'must be a whole number of 1 or more, got "0"'),
        ("COLLOPS_AS", "nccl", 'must be gloo, got "nccl"'),
        ("COLLOPS_PORT", "http", 'must be a port from 1 to 65535, got "http"'),
        ("COLLOPS_CHECK", "yes", 'must be 0 or 1, got "yes"'),
        ("COLLOPS_FUSED", "no", 'must be 0 or 1, got "no"'),
        ("COLLOPS_HCCL_SUMS", "ring", 'must be rank_order, got "ring"'),
        ("COLLOPS_SGLANG", "on", 'must be 0 or 1, got "on"'),
        ("COLLOPS_VLLM", "off", 'must be 0 or 1, got "off"'),
        ("COLLOPS_TRACE", "9", "must be 0, 1 or 2"),
        ("COLLOPS_TRACE", "/nowhere/x.json", "no file can be made in /nowhere/: No such file"),
        ("COLLOPS_TUNING", "x=1", '"x" is unknown; the sizes are'),
        ("COLLOPS_BACKEND", "smh", "backend 'smh' is unknown; use one of hccl, nccl"),
        ("COLLOPS_BACKEND", "hccl=smh", "backend 'smh' is unknown"),
        ("COLLOPS_BACKEND", "hccl=", '"hccl=" is not a pair such as hccl=shm'),
        ("COLLOPS_ISA", "sse", "must be amx, avx512, avx2, neon or portable"),
        ("COLLOPS_KERNELS", "/nowhere/k", "there is no file /nowhere/k"),
        ("COLLOPS_UCX_LIBRARY", "/nowhere/u", "there is no file /nowhere/u"),
        ("COLLOPS_RANK", "1", "COLLOPS_RANK and COLLOPS_RANK_SIZE must both be set, or none"),
        ("COLLOPS_RANK_SIZE", "two", "must be a whole number of 1 or more, got 'two'"),
        ("COLLOPS_RESTARTS", "one", "must be a whole number of 0 or more, got 'one'"),
        ("COLLOPS_LOCAL_RANK", "-1", "must be a whole number of 0 or more, got '-1'"),
    ],
)
def test_a_wrong_variable_is_named_and_the_status_is_1(name: str, value: str, said: str) -> None:
    status, environment, summary = doctor(**{name: value})
    assert status == 1
    assert f"{value}  WRONG: " in environment[name]
    problem = environment[name].partition("WRONG: ")[2]
    assert not problem.startswith((f"{name}=", f"{name} must"))
    assert not problem.endswith("]")
    assert said in environment[name]
    assert summary["problems"].startswith(f"{name}: ")
    assert f"{name}={value}" in summary["variables"]


def test_every_variable_with_a_value_that_can_be_meant_is_right(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    table = tmp_path / "ranks.json"
    table.write_text(make_rank_table(["node-a", "node-b"], 2))
    given = {
        "COLLOPS_AS": "gloo",
        "COLLOPS_BACKEND": "hccl=shm,lcoc=shm",
        "COLLOPS_CHECK": "1",
        "COLLOPS_FUSED": "0",
        "COLLOPS_HCCL_BUFFER_MB": "64",
        "COLLOPS_HCCL_MEET": "1",
        "COLLOPS_HCCL_SUMS": "rank_order",
        "COLLOPS_ISA": "portable",
        "COLLOPS_JOB_ID": "job",
        "COLLOPS_JOB_KEY": "key",
        "COLLOPS_KERNELS": str(file),
        "COLLOPS_LOCAL_RANK": "0",
        "COLLOPS_NUM_THREADS": "2",
        "COLLOPS_PORT": "1234",
        "COLLOPS_PORT_RANGE": "30000-30099",
        "COLLOPS_RANK": "0",
        "COLLOPS_RANK_SIZE": "4",
        "COLLOPS_RESTARTS": "0",
        "COLLOPS_SERVER_ID": "node-b",
        "COLLOPS_SGLANG": "0",
        "COLLOPS_TIMEOUT_S": "2.5",
        "COLLOPS_TRACE": "0",
        "COLLOPS_TUNING": "streamed_output=1m",
        "COLLOPS_UCX_LIBRARY": str(file),
        "COLLOPS_VLLM": "1",
    }
    assert set(given) == {name for name, _, _ in core().env_variables()}
    status, environment, summary = doctor(**given, RANK_TABLE_FILE=str(table))
    assert [said for said in environment.values() if "WRONG" in said] == []
    assert (status, summary["problems"]) == (0, "none")
    assert "key" not in summary["variables"].replace("COLLOPS_JOB_KEY", "")
    _, environment, _ = doctor(COLLOPS_SERVER_ID="node-c", RANK_TABLE_FILE=str(table))
    assert "WRONG" in environment["COLLOPS_SERVER_ID"]


def test_a_value_with_a_line_break_stays_in_its_row() -> None:
    _, environment, summary = doctor(COLLOPS_JOB_ID="two\nlines")
    assert environment["COLLOPS_JOB_ID"].startswith(repr("two\nlines"))
    assert repr("two\nlines") in summary["variables"]


BY_HAND = "COLLOPS_RANK (collops run, run_ranks or by hand)"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"COLLOPS_RANK": "1", "COLLOPS_RANK_SIZE": "2"}, f"{BY_HAND}, rank 1 of 2"),
        (
            {"COLLOPS_RANK": "3"},
            f"{BY_HAND}, rank 3; COLLOPS_RANK_SIZE is not set: set it, or pass rank_size",
        ),
        (
            {"COLLOPS_RANK": "first", "COLLOPS_RANK_SIZE": "2"},
            f"{BY_HAND}, one of 2 ranks; COLLOPS_RANK must be a whole number, got 'first': set it, "
            "or pass rank",
        ),
        (
            {"OMPI_COMM_WORLD_RANK": "3"},
            "Open MPI, rank 3; it does not say the number of ranks",
        ),
    ],
)
def test_a_place_that_is_half_known_says_what_is_missing(given: dict[str, str], said: str) -> None:
    _, parts = report(**given)
    assert parts["Job"]["launcher"] == said


def test_the_summary_has_what_a_helper_asks_for() -> None:
    _, _, summary = doctor()
    assert summary["installed"].startswith("collops ")
    assert "numpy" in summary["installed"] and "kernels " in summary["installed"]
    assert "shm" in summary["backends"].partition(";")[0]


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("COLLOPS_") and not name.startswith("COLLOPS_TEST_"):
            monkeypatch.delenv(name)
