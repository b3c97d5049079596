"""The ranks of collops.jax: those of jax.distributed, of `collops run`, and of communicators that
the caller passes."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collops.testing import run_ranks
from patience import patience
from tests.multihost.hosts import Unavailable, network

PROGRAM = """
import sys
import jax
rank, address = int(sys.argv[1]), sys.argv[2]
jax.distributed.initialize(address, num_processes=2, process_id=rank)
from collops import jax as cjax
for turn in range(2):
    comm = cjax.init()
    assert (comm.rank, comm.size) == (rank, 2) and comm is cjax.init()
    x = jax.numpy.arange(rank + 1.0) + 10 * rank
    print(jax.jit(lambda x: cjax.all_gatherv(x, [1, 2], comm=comm))(x).tolist(), comm.backend)
    comm.close()
jax.distributed.shutdown()
"""
# JAX's own collectives look for the host by its name, which the hosts of a test have nowhere.
WITHOUT_GLOO = """
import jax
jax.config.update("jax_cpu_collectives_implementation", None)
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def outputs_of(commands: list[list[str]], envs: list[dict[str, str]]) -> list[str]:
    """What the programs print, which run at once."""
    started = [
        subprocess.Popen(command, env={**os.environ, **env}, text=True, stdout=-1, stderr=-1)
        for command, env in zip(commands, envs, strict=True)
    ]
    printed = []
    for program in started:
        out, errors = program.communicate(timeout=patience(60))
        assert program.returncode == 0, errors
        printed.append(out)
    return printed


@pytest.mark.parametrize(("servers", "backend"), [(("", ""), "shm"), (("a", "b"), "ucx")])
def test_the_processes_of_jax_distributed(servers: tuple[str, str], backend: str) -> None:
    from tests.unit.package.test_ucx_declarations import wheel_headers

    address = f"127.0.0.1:{free_port()}"
    if backend == "ucx":
        wheel_headers()  # skips
        address = f"{own_address()}:{free_port()}"
    commands = [[sys.executable, "-c", PROGRAM, str(rank), address] for rank in range(2)]
    envs = [{"COLLOPS_SERVER_ID": server} if server else {} for server in servers]
    for printed in outputs_of(commands, envs):
        assert printed == f"[0.0, 10.0, 11.0] {backend}\n" * 2


def test_two_hosts() -> None:
    from tests.unit.package.test_ucx_declarations import wheel_headers

    wheel_headers()  # skips
    try:
        with network(2) as hosts:
            command = [sys.executable, "-c", WITHOUT_GLOO + PROGRAM]
            place = f"{hosts[0].address}:{free_port()}"
            commands = [host.enter(*command, str(r), place) for r, host in enumerate(hosts)]
            assert outputs_of(commands, [{}, {}]) == ["[0.0, 10.0, 11.0] ucx\n" * 2] * 2
    except Unavailable as error:
        pytest.skip(str(error))


def own_address() -> str:
    """An address of this host that is not the loopback's."""
    with socket.socket(type=socket.SOCK_DGRAM) as way:
        try:
            way.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this host has no address but the loopback's")
        return str(way.getsockname()[0])


def test_collops_run(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import jax, numpy as np\n"
        "from collops import jax as cjax\n"
        "print(float(jax.jit(cjax.all_reduce)(np.float32(cjax.init().rank + 1))))\n"
    )
    command = [sys.executable, "-m", "collops", "run", "-n", "3", str(program)]
    (printed,) = outputs_of([command], [{}])
    assert sorted(printed.splitlines()) == [f"[{rank}] 6.0" for rank in range(3)]


def parts(rank: int) -> list[Any]:
    """Two communicators in one program: a part of the ranks, and all."""
    import jax

    import collops
    from collops import jax as cjax

    comm = collops.init(timeout_s=patience(30))
    part = comm.split(color=rank % 2)
    assert part is not None
    work = jax.jit(lambda x: (cjax.all_reduce(x, comm=part), cjax.all_reduce(x)))
    return [float(one) for one in work(np.float32(10**rank))]


def test_a_communicator_of_some_ranks() -> None:
    assert run_ranks(parts, 3) == [[101, 111], [10, 111], [101, 111]]
