"""`collops bench` across hosts: both ways to start it, and the programs that load the link."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from patience import patience
from tests.multihost.hosts import Host
from tests.multihost.jobs import Job, table_of

LIMIT_S = patience(300.0)
CLI = [sys.executable, "-m", "collops"]
QUICK = ["--quick", "--iterations", "1", "--sizes", "64k"]


def test_each_host_starts_the_ranks_of_a_table(two_hosts: list[Host], tmp_path: Path) -> None:
    pytest.importorskip("libucx")
    table, rows_file = tmp_path / "ranks.json", tmp_path / "rows.jsonl"
    table.write_text(table_of(two_hosts, [0, 1]))
    words = [*CLI, "bench", "all_gather_v", "--rank-table", str(table), *QUICK]
    words += ["--peers", "ucx_perftest"]
    env = {"UCX_TLS": "tcp", "COLLOPS_TIMEOUT_S": f"{patience(60):g}"}
    first = two_hosts[0].start([*words, "--json", str(rows_file)], env=env)
    second = two_hosts[1].start(words, env=env)
    outs = [process.communicate(timeout=LIMIT_S) for process in (first, second)]
    assert (first.returncode, second.returncode) == (0, 0), outs
    assert "### AllGatherV, 2 ranks on 2 hosts (1 + 1)\n" in outs[0][0]
    assert outs[1][0] == "The results are printed where rank 0 runs.\n"
    rows = [json.loads(line) for line in rows_file.read_text().splitlines()]
    assert {row["backend"] for row in rows} == {"ucx"}
    assert {row["column"] for row in rows} == {"plain", "exchange", "ucx_tag_bw", "ucx_tag_lat"}
    assert [row["wrong_ranks"] for row in rows if row["column"] == "plain"] == [0, 0]
    assert {row["skew"] for row in rows} == {"even", "3:5"}
    assert all(row["algbw_gb_s"] > 0 for row in rows if row["column"] != "ucx_tag_lat")


def test_the_ranks_of_collops_run_measure_together(two_hosts: list[Host]) -> None:
    words = ["-m", "collops", "bench", "reduce_scatter_v", *QUICK, "--peers", "none"]
    with Job(two_hosts, [0, 1, 0], *words) as job:
        (status, out, err), (other, nothing, _) = job.results(LIMIT_S)
    assert (status, other) == (0, 0), out + err
    assert "[0] ### ReduceScatterV, 3 ranks on 2 hosts (2 + 1)\n" in out
    lines = [line for line in out.splitlines() if "exchange with the other host" in line]
    assert len(lines) == 2, out
    assert nothing == ""


def test_gloo_meets_across_hosts(two_hosts: list[Host]) -> None:
    pytest.importorskip("torch")
    words = ["-m", "collops", "bench", "all_gather_v", *QUICK, "--peers", "gloo"]
    with Job(two_hosts, [0, 1], *words) as job:
        (status, out, err), _ = job.results(LIMIT_S)
    assert status == 0, out + err
    lines = [line for line in out.splitlines() if "| gloo " in line]
    assert len(lines) == 6, out
    assert all("|    ok |" in line for line in lines)


def test_hosts_with_other_arguments_are_told_so(two_hosts: list[Host], tmp_path: Path) -> None:
    table = tmp_path / "ranks.json"
    table.write_text(table_of(two_hosts, [0, 1]))
    words = [*CLI, "bench", "all_gather_v", "--quick", "--peers", "none"]
    words += ["--rank-table", str(table)]
    env = {"UCX_TLS": "tcp", "COLLOPS_TIMEOUT_S": f"{patience(60):g}"}
    processes = [
        host.start([*words, "--sizes", sizes], env=env)
        for host, sizes in zip(two_hosts, ("1k", "2k"), strict=True)
    ]
    for process in processes:
        out, err = process.communicate(timeout=LIMIT_S)
        assert process.returncode == 1, out + err
        assert "rank 1 was given other arguments than rank 0" in err
