"""ray.util.collective on collops: its calls between the actors of a real Ray."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from patience import patience
from tests.clients.figures import note
from tests.multihost.hosts import Host, Unavailable, network

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = patience(240)
ENV = {"OMP_NUM_THREADS": "1", "RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
# One actor on each node of a Ray that runs.
ON_TWO_NODES = """
import socket, sys
import numpy as np
import ray
from ray.util import collective

@ray.remote(num_cpus=0)
class Rank:
    def total(self, rank):
        collective.init_collective_group(2, rank, "collops")
        x = np.arange(3.0) + 10**rank
        collective.allreduce(x)
        return x.tolist(), socket.gethostname()

ray.init(sys.argv[1], runtime_env={"worker_process_setup_hook": "collops.ray.register"})
ranks = [Rank.options(resources={name: 1}).remote() for name in ("node0", "node1")]
found = ray.get([one.total.remote(rank) for rank, one in enumerate(ranks)], timeout=%d)
print("found", *found)
"""
SUM = [[110, 112, 114], [116, 118, 120]]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What the actors got; a Ray of its own takes 10 s to start."""
    out = tmp_path_factory.mktemp("ray") / "found.json"
    names = [name for name in os.environ if name.startswith(("COLLOPS_JOB", "COLLOPS_TIMEOUT"))]
    env = {name: value for name, value in os.environ.items() if name not in names}
    done = subprocess.run(
        [sys.executable, "-m", "tests.clients.ray_actors", str(out), str(patience(60))],
        cwd=ROOT,
        env=env | ENV,
        timeout=LIMIT_S,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(out.read_text())


pytestmark = pytest.mark.timeout(LIMIT_S + 30)


@pytest.mark.parametrize("kind", ["numpy", "torch", "after the refusals"])
def test_every_call(found: Any, kind: str) -> None:
    own = [[[10, 11, 12], [13, 14, 15]], [[100, 101, 102], [103, 104, 105]]]
    product = [[1000, 1111, 1224], [1339, 1456, 1575]]
    assert found["joined"] == [None, None]
    for rank, values in enumerate(found[kind]):
        # On the root a maximum, elsewhere what was there; parts of a sum for the two ranks.
        want = [SUM, product, own[0], own[1], own[1] if rank else own[0], own[1], *own]
        want.append([[x + 2000 * rank for x in row] for row in SUM])
        assert values == [*want, [0, 7, 14, 21, 28]]


def test_small_calls_beside_gloo(found: Any) -> None:
    note("Ray", "allreduce of 512 B", *found["small calls"])


def test_several_tensors_are_refused(found: Any) -> None:
    for text in found["several tensors"]:
        assert text.startswith(
            "ERROR_UNSUPPORTED: all_reduce: takes one tensor of each rank, got 2"
        )


@pytest.mark.parametrize("call", ["allreduce", "allgather", "reducescatter"])
def test_uneven_shapes_are_refused_on_both_ranks(found: Any, call: str) -> None:
    for text in found[f"uneven {call}"]:
        assert text.startswith("ERROR_"), text
        assert "[2, 3]" in text and "[2, 4]" in text, text


def test_groups_of_actors_that_the_driver_declares(found: Any) -> None:
    assert found["declared"] == found["handled"] == [[SUM]] * 2


def test_two_groups_of_the_same_actors(found: Any) -> None:
    assert found["joined twice"] == [None, None]
    assert found["in another order"] == [1, 0]


def test_a_later_group_may_have_the_name_and_another_size(found: Any) -> None:
    assert found["a later group of three"] == [None] * 3
    assert found["keys that are left"] == 0


def test_a_missing_rank_is_named(found: Any) -> None:
    for text in found["rank 1 is missing"]:
        assert text.startswith("ERROR_TIMEOUT: group 'missing': rank 1 of 3 did not connect"), text
    for text in found["rank 0 is missing"]:
        assert text.startswith("ERROR_TIMEOUT: group 'missing': rank 0 of 3 did not connect"), text
    assert found["another size"] == [None, None]


def test_ranks_that_disagree_are_told(found: Any) -> None:
    for text in found["sizes that differ"]:
        assert text.endswith("group 'sizes': world_size is 2 on rank 0 and 3 on rank 1"), text
    texts = [text for text in found["a rank that comes twice"] if "claimed twice" in text]
    assert len(texts) == 1 and "rank 1 is claimed twice, by pid" in texts[0]


def test_an_actor_that_is_killed_is_named(found: Any) -> None:
    pid, *texts = found["killed"]
    assert len(texts) == 2
    for text in texts:
        assert f"rank 2 (pid {pid}" in text, text


def start_ray(host: Host, first: Host, folder: Path) -> subprocess.Popen[bytes]:
    """The processes of Ray on a host, which end with the first."""
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--num-cpus=1"]
    command += [f"--node-ip-address={host.address}", f'--resources={{"{host.name}": 1}}']
    command += ["--object-store-memory=80000000"]
    if host is first:
        command += ["--head", "--port=6379", "--include-dashboard=false", f"--temp-dir={folder}"]
    else:
        command += [f"--address={first.address}:6379"]
    with (folder / f"{host.name}.txt").open("wb") as log:
        return subprocess.Popen(host.enter(*command), env=os.environ | ENV, stdout=log, stderr=log)


def wait_for_ray(host: Host, node: subprocess.Popen[bytes]) -> None:
    """Returns once others can join the Ray of a host."""
    connect = f"import socket; socket.create_connection(({host.address!r}, 6379))"
    end = time.monotonic() + patience(60)
    while subprocess.run(host.enter(sys.executable, "-c", connect), stderr=-3).returncode != 0:
        assert node.poll() is None and time.monotonic() < end
        time.sleep(0.5)


def test_two_hosts() -> None:
    try:
        # Not tmp_path, which is too long for the names of sockets.
        with tempfile.TemporaryDirectory() as folder, network(2) as hosts:
            nodes = [start_ray(hosts[0], hosts[0], Path(folder))]
            try:
                wait_for_ray(hosts[0], nodes[0])
                nodes.append(start_ray(hosts[1], hosts[0], Path(folder)))
                command = [sys.executable, "-c", ON_TWO_NODES % patience(120)]
                done = subprocess.run(
                    hosts[0].enter(*command, f"{hosts[0].address}:6379"),
                    env=os.environ | ENV,
                    timeout=LIMIT_S,
                    capture_output=True,
                    text=True,
                )
            finally:
                for node in nodes[::-1]:
                    node.send_signal(signal.SIGTERM)
                    node.wait(patience(60))
    except Unavailable as error:
        pytest.skip(str(error))
    total = [11.0, 13.0, 15.0]
    assert f"found {(total, 'node0')} {(total, 'node1')}" in done.stdout, done.stdout + done.stderr
