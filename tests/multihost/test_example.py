"""examples/two_hosts, as a new user runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from patience import patience
from tests.multihost.hosts import Host

FOLDER = Path(__file__).parents[2] / "examples" / "two_hosts"
LIMIT_S = patience(120.0)


def namespaces() -> set[str]:
    done = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True)
    return {line.split()[0] for line in done.stdout.splitlines() if line}


def two_hosts_sh(*before: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Runs the example; afterwards none of its namespaces, named by its pid, is left."""
    process = subprocess.Popen(
        [*before, "sh", str(FOLDER / "two_hosts.sh")],
        env={**os.environ, "PYTHON": sys.executable, **env},
        cwd="/",
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        out, err = process.communicate(timeout=LIMIT_S)
    finally:
        process.kill()
    left = {name for name in namespaces() if name.endswith(f"-{process.pid}")}
    assert left == set(), left
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def test_it_runs_on_two_hosts_and_leaves_nothing(two_hosts: list[Host]) -> None:
    done = two_hosts_sh()  # the fixture says whether namespaces are allowed here
    assert done.returncode == 0, done.stdout + done.stderr
    lines = sorted(line for line in done.stdout.splitlines() if "equal to numpy" in line)
    assert [line.split(":")[0] for line in lines] == [
        f"[{rank}] rank {rank} of 3" for rank in range(3)
    ]
    assert "gathered (12, 8), reduced (7, 8)" in lines[2]


def test_a_failure_is_its_status(two_hosts: list[Host]) -> None:
    done = two_hosts_sh(COLLOPS_SERVER_ID="10.77.1.9")
    assert done.returncode == 2, done.stdout + done.stderr
    assert "10.77.1.9" in done.stderr


def test_without_root_it_says_so(two_hosts: list[Host]) -> None:
    done = two_hosts_sh("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("two_hosts.sh: needs root")
