"""`collops golden run` with one rank or two of every case on each host."""

from __future__ import annotations

from pathlib import Path

import pytest

from patience import patience
from tests.multihost.hosts import Host
from tests.multihost.jobs import Job

SAMPLES = Path(__file__).parents[2] / "examples" / "golden"
FILES = [
    str(SAMPLES / f"{name}.csv")
    for name in ("all_gather_v", "reduce_scatter_v", "all_gather", "all_reduce", "all_to_all_v")
]
LIMIT_S = patience(300.0)


@pytest.mark.parametrize(
    ("placement", "backend"), [([0, 1], ["--backend", "ucx"]), ([0, 0, 1, 1], [])]
)
def test_sample_case_files_pass_across_hosts(
    two_hosts: list[Host], placement: list[int], backend: list[str]
) -> None:
    words = ["-m", "collops", "golden", "run", *FILES, *backend]
    with Job(two_hosts, placement, *words) as job:
        (status, out, err), (other, nothing, _) = job.results(LIMIT_S)
    assert (status, other, nothing) == (0, 0, ""), out + err
    closing = out.splitlines()[-1]
    assert " 0 failed" in closing
    assert int(closing.split()[1]) >= 5, closing
