"""Jobs across hosts without a rank table: torchrun and plain variables say where the ranks meet."""

from __future__ import annotations

import importlib.util
import json
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from collops.trace.merge import merge
from patience import patience
from tests.multihost.hosts import DEVICE, Host
from tests.multihost.jobs import RANKS, Job, table_of

PROGRAM = str(RANKS / "sum.py")
LIMIT_S = patience(120.0)
# A test does the same on a machine with RDMA.
COMMON = {"UCX_TLS": "tcp", "COLLOPS_TIMEOUT_S": f"{patience(60):g}"}
# The names of the hosts have no address, so gloo needs its device.
GLOO = {"GLOO_SOCKET_IFNAME": DEVICE}
TORCH_GROUPS = str(RANKS / "torch_groups.py")
SUMS_OF_GROUPS = {
    "rank 0: ucx 80; from 3",
    "rank 1: ucx 80, ucx 28; from 2",
    "rank 2: ucx 80, shm 36; from 1",
    "rank 3: ucx 80, ucx 28, shm 36; from 0",
}
TORCH_LIMIT_S = patience(50.0)  # torch_groups.py waits longer for a rank


def results(
    hosts: Sequence[Host], words: Sequence[Sequence[str]], envs: Sequence[dict[str, str]]
) -> list[tuple[int, str, str]]:
    """Of a program on each host: its status, output and errors."""
    started = [
        host.start(command, env=COMMON | env)
        for host, command, env in zip(hosts, words, envs, strict=True)
    ]
    found = []
    for process in started:
        out, err = process.communicate(timeout=LIMIT_S)
        found.append((process.returncode, out, err))
    return found


def by_hand(hosts: Sequence[Host], *arguments: str, **env: str) -> list[tuple[int, str, str]]:
    """One rank on each host, which plain variables number."""
    envs = [
        {"COLLOPS_RANK": str(rank), "COLLOPS_RANK_SIZE": str(len(hosts)), **env}
        for rank in range(len(hosts))
    ]
    return results(hosts, [[sys.executable, PROGRAM, *arguments]] * len(hosts), envs)


needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torch is not installed"
)


def by_torchrun(hosts: Sequence[Host], *program: str, ranks: int = 2) -> set[str]:
    """The lines of a program, as that many ranks on each of two hosts."""
    words = [
        [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--nnodes=2",
            f"--nproc-per-node={ranks}",
            f"--node-rank={node}",
            f"--master-addr={hosts[0].address}",
            "--master-port=29400",
            *program,
        ]
        for node in range(2)
    ]
    lines = set()
    for status, out, err in results(hosts, words, [GLOO, GLOO]):
        assert status == 0, out + err
        lines |= set(out.split("\n")) - {""}
    return lines


@needs_torch
@pytest.mark.parametrize("backend", ["collops", "gloo"])
def test_groups_of_torch_distributed(two_hosts: list[Host], backend: str) -> None:
    """`backend`: of the default group. The others are of collops."""
    lines = by_torchrun(two_hosts, TORCH_GROUPS, backend)
    assert not lines ^ SUMS_OF_GROUPS


@needs_torch
@pytest.mark.parametrize("backend", ["collops", "gloo"])
def test_groups_of_torch_distributed_without_a_launcher(
    two_hosts: list[Host], backend: str
) -> None:
    """The store's address is all that the ranks know."""
    place = f"tcp://{two_hosts[0].address}:29401"
    hosts = [two_hosts[0]] * 2 + [two_hosts[1]] * 2
    words = [[sys.executable, TORCH_GROUPS, backend, place, str(rank), "4"] for rank in range(4)]
    found = results(hosts, words, [GLOO] * 4)
    assert [status for status, _, _ in found] == [0] * 4, found
    assert {line for _, out, _ in found for line in out.splitlines()} == SUMS_OF_GROUPS


@needs_torch
def test_a_torch_group_goes_on_without_rank_0_and_its_store(two_hosts: list[Host]) -> None:
    place = f"tcp://{two_hosts[0].address}:29402"
    hosts = [two_hosts[0]] * 2 + [two_hosts[1]] * 2
    program = str(RANKS / "torch_shrink.py")
    words = [[sys.executable, program, place, str(rank), "4"] for rank in range(4)]
    killed, *left = results(hosts, words, [{}] * 4)
    assert killed[0] == -signal.SIGKILL
    for rank, (status, out, err) in enumerate(left, start=1):
        assert (status, out) == (0, f"rank {rank}: {rank - 1} of 3, ucx 6 3\n"), err


@needs_torch
def test_a_store_that_says_no_address(two_hosts: list[Host], tmp_path: Path) -> None:
    """Every rank says at once what is missing, and the ranks meet with it."""
    place = f"file://{tmp_path}/store"
    words = [[sys.executable, TORCH_GROUPS, "collops", place, str(rank), "2"] for rank in range(2)]
    began = time.monotonic()
    for status, out, err in results(two_hosts, words, [{}, {}]):
        assert status == 1, out
        assert "its ranks are on 2 hosts, and no address of rank 0's host is known: " in err
        assert "set MASTER_ADDR to an address of rank 0's host, the same in all ranks" in err
    assert time.monotonic() - began < TORCH_LIMIT_S
    words = [[*word[:3], place + "2", *word[4:]] for word in words]
    envs = [{"MASTER_ADDR": two_hosts[0].address}] * 2
    for status, out, err in results(two_hosts, words, envs):
        assert status == 0, out + err


@needs_torch
def test_fully_sharded_modules_across_hosts(two_hosts: list[Host]) -> None:
    lines = by_torchrun(two_hosts, str(RANKS / "torch_fsdp.py"), ranks=1)
    assert lines == {"windows False: equal", "windows True: equal"}


def test_torchrun_after_a_restart(two_hosts: list[Host]) -> None:
    """Only the torchrun of the host whose rank had failed has counted it."""
    envs = [
        {
            "RANK": str(rank),
            "WORLD_SIZE": "2",
            "LOCAL_RANK": "0",
            "LOCAL_WORLD_SIZE": "1",
            "MASTER_ADDR": two_hosts[0].address,
            "MASTER_PORT": "29400",
            "TORCHELASTIC_RUN_ID": "run",
            "TORCHELASTIC_RESTART_COUNT": str(rank),
        }
        for rank in range(2)
    ]
    for status, out, err in results(two_hosts, [[sys.executable, PROGRAM]] * 2, envs):
        assert status == 0, out + err
        assert "of 2: sum 3" in out


def test_plain_variables(two_hosts: list[Host]) -> None:
    address = two_hosts[0].address
    for status, out, err in by_hand(
        two_hosts, "ucx", MASTER_ADDR=address, COLLOPS_JOB_ID="by hand"
    ):
        assert status == 0, out + err
        assert "of 2: sum 3" in out


def test_a_job_that_each_host_names_differently(two_hosts: list[Host]) -> None:
    for status, _, err in by_hand(two_hosts, "ucx", MASTER_ADDR=two_hosts[0].address):
        assert status == 1
        assert "multiprocessing names the job on each host differently: set COLLOPS_JOB_ID" in err


def test_several_hosts_without_an_address(two_hosts: list[Host]) -> None:
    envs = [
        {
            "OMPI_COMM_WORLD_RANK": str(rank),
            "OMPI_COMM_WORLD_SIZE": "2",
            "OMPI_COMM_WORLD_LOCAL_SIZE": "1",
            "PMIX_NAMESPACE": "job-1",
        }
        for rank in range(2)
    ]
    words = [[sys.executable, PROGRAM]] * 2
    for status, _, err in results(two_hosts, words, envs):
        assert status == 1
        assert "the ranks run on several hosts (from Open MPI), but nothing says where" in err
    envs = [env | {"MASTER_ADDR": two_hosts[0].address} for env in envs]
    for status, out, err in results(two_hosts, words, envs):
        assert status == 0, out + err
        assert "of 2: sum 3" in out


def test_init_chooses_the_backend_of_a_table_that_is_completed_later(
    two_hosts: list[Host], tmp_path: Path
) -> None:
    table = tmp_path / "ranks.json"
    table.write_text('{"version": "1.0", "status": "initializing"}', encoding="utf-8")
    ranks = []
    for rank, host in enumerate(two_hosts):
        env = {"RANK_TABLE_FILE": str(table), "RANK_ID": str(rank), "RANK_SIZE": "2"}
        ranks.append(host.start([sys.executable, PROGRAM], env=COMMON | env))
    # Whoever reads it after this finds it complete, and passes as well.
    time.sleep(1.0)
    complete = tmp_path / "complete.json"
    complete.write_text(table_of(two_hosts, [0, 1]), encoding="utf-8")
    complete.replace(table)
    for process in ranks:
        out, err = process.communicate(timeout=LIMIT_S)
        assert process.returncode == 0, out + err
        assert "of 2: sum 3" in out


@pytest.mark.parametrize("placement", [[0, 0, 1, 1], [0, 0, 0, 0]], ids=["two hosts", "one host"])
def test_a_part_of_the_job_meets_and_splits(two_hosts: list[Host], placement: list[int]) -> None:
    """On two hosts the part's first rank is on the second one."""
    hosts = two_hosts[: placement[-1] + 1]
    with Job(hosts, placement, str(RANKS / "part.py")) as job:
        found = job.results(LIMIT_S)
    lines = {line for _, out, _ in found for line in out.splitlines()}
    wanted = {f"[{rank}] rank {rank} is {3 - rank} of 3: sum 111" for rank in (1, 2, 3)}
    assert wanted <= lines, found
    assert {status for status, _, _ in found} == {0}


def put_on_another_clock(path: Path, ahead_us: float, wrong_us: float) -> None:
    """Rewrites a rank's trace, as if its host's clock was ahead and its real time wrong."""
    events = json.loads(path.read_text())
    for event in events:
        if "ts" in event:
            event["ts"] += ahead_us
        elif event["name"] == "collops_clocks":
            clocks = event["args"]["clocks"]
            clocks["boot"] = "another boot"
            clocks["monotonic_ns"] += int(ahead_us * 1000)
            clocks["realtime_ns"] += int(wrong_us * 1000)
    path.write_text("[\n" + ",\n".join(map(json.dumps, events)) + "\n]\n")


def test_traces_of_two_hosts_are_joined_by_their_calls(
    two_hosts: list[Host], tmp_path: Path
) -> None:
    """The hosts of this test have one clock, so the true shift is known."""
    path = {"COLLOPS_TRACE": str(tmp_path / "t.json")}
    with Job(two_hosts, [0, 0, 1, 1], str(RANKS / "gather.py"), "5000", "20", **path) as job:
        for status, out, err in job.results(LIMIT_S):
            assert status == 0, out + err
    files = sorted(tmp_path.glob("t.rank*.json"))
    assert len(files) == 4
    kinds = {(event["cat"], event["name"]) for event in merge(files).events}
    assert {("part", "all_gatherv"), ("wait", "wait for hosts"), ("call", "all_gatherv")} <= kinds
    for file in files[2:]:
        put_on_another_clock(file, 7e6, 3e6)
    [_, second] = merge(files).clocks
    assert second.within_us is not None
    assert second.within_us < 1e6, "far less than the real time is wrong"
    assert abs(second.shift_us + 7e6) <= 2 * second.within_us
