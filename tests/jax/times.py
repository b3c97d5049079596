"""How long a call between two ranks takes inside a program of JAX: on collops, on JAX's own
collectives over gloo, and by pure_callback. Its ways take turns.

    build/jax/venv/bin/python -m tests.jax.times
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

ROUNDS = 5
CALLS = 200  # of one program, in a loop
PROGRAMS = 50  # of one call
COUNT = 1024  # elements of four bytes, of each rank


def ways(comm: Any) -> dict[str, Callable[[Any], Any]]:
    """By name: one call, whose result has the shape of its argument."""
    import jax
    import numpy as np
    from jax.sharding import Mesh, PartitionSpec

    from collops import jax as cjax

    sizes = [COUNT] * comm.size
    mesh = Mesh(np.array(jax.devices()), ("ranks",))
    whole = jax.ShapeDtypeStruct((COUNT * comm.size,), np.float32)

    def on_gloo(call: Callable[[Any], Any]) -> Callable[[Any], Any]:
        spec = PartitionSpec("ranks")
        return jax.shard_map(call, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)

    def called_back(x: Any) -> Any:
        return jax.pure_callback(lambda x: comm.all_gatherv(np.asarray(x), sizes), whole, x)

    return {
        "collops all_gatherv": lambda x: cjax.all_gatherv(x, sizes, comm=comm)[:COUNT],
        "collops all_reduce": lambda x: cjax.all_reduce(x, "avg", comm=comm),
        "gloo all_gather": on_gloo(lambda x: jax.lax.all_gather(x, "ranks", tiled=True)[:COUNT]),
        "gloo psum": on_gloo(lambda x: jax.lax.psum(x, "ranks") * 0.5),
        "pure_callback of comm.all_gatherv": lambda x: called_back(x)[:COUNT],
    }


def measure(rank: int, address: str) -> None:
    """One rank; rank 0 prints the medians of the rounds."""
    import jax
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(address, num_processes=2, process_id=rank)
    from collops import jax as cjax

    comm = cjax.init()
    mine = np.full(COUNT, rank + 1, np.float32)
    sharding = NamedSharding(Mesh(np.array(jax.devices()), ("ranks",)), PartitionSpec("ranks"))
    spread = jax.make_array_from_process_local_data(sharding, mine)
    programs = {}
    for name, call in ways(comm).items():
        x = spread if name.startswith("gloo") else jax.device_put(mine, jax.local_devices()[0])
        step = lambda _, x, call=call: call(x)  # noqa: E731
        loop = jax.jit(lambda x, step=step: jax.lax.fori_loop(0, CALLS, step, x))
        programs[name] = (x, loop, jax.jit(call))
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in programs}
    for _ in range(ROUNDS + 1):
        for name, (x, loop, one) in programs.items():
            comm.barrier()
            begin = time.perf_counter()
            loop(x).block_until_ready()
            middle = time.perf_counter()
            for _ in range(PROGRAMS):
                one(x).block_until_ready()
            end = time.perf_counter()
            times[name].append(((middle - begin) / CALLS, (end - middle) / PROGRAMS))
            jax.effects_barrier()
    for name, rounds in times.items() if rank == 0 else ():
        inside, alone = (sorted(kind)[ROUNDS // 2] for kind in zip(*rounds[1:], strict=True))
        print(f"{name:34} {1e6 * inside:8.1f} us in a loop, {1e6 * alone:8.1f} us a program")


def main() -> None:
    """Starts both ranks."""
    from tests.jax.test_ranks import free_port

    address = f"127.0.0.1:{free_port()}"
    ranks = [
        subprocess.Popen([sys.executable, "-m", "tests.jax.times", str(rank), address])
        for rank in range(2)
    ]
    raise SystemExit(max(rank.wait() for rank in ranks))


if __name__ == "__main__":
    if sys.argv[1:]:
        measure(int(sys.argv[1]), sys.argv[2])
    else:
        main()
