"""The options of a benchmark on GPUs, and the request that they make."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable

from collops.bench.gpu import machine
from collops.bench.operator import Operator
from collops.bench.peers import GPU_PEERS
from collops.bench.request import OnGpu
from collops.bench.start import Start

BACKENDS = ("cuda", "nccl")
_CALLS, _QUICK_CALLS = 20, 2


def add_options(parser: argparse.ArgumentParser, count: Callable[[str], int]) -> None:
    """Adds the options; `count` reads a whole number."""
    part = parser.add_argument_group(
        "on GPUs",
        "Ranks are threads of one process, each with a stream; a time is the mean of --calls\n"
        "calls between two events on the slowest rank's stream. For comparison, copies of as many\n"
        "bytes (limit) or the product alone are measured, and --peers nccl (the backend nccl),\n"
        "torch_nccl and torch_symm.",
    )
    add = part.add_argument
    add("--backend", choices=BACKENDS, help="measure the calls of this backend, on GPUs")
    add(
        "--devices",
        type=_devices,
        metavar="0,1",
        help="indices of the GPUs; rank r uses entry r modulo their number (0, for all ranks)",
    )
    add("--calls", type=count, metavar="N", help=f"calls between two events ({_CALLS})")
    add("--graph", action="store_true", help="capture the calls in a graph once, time its replay")


def on_gpu(operator: Operator, options: argparse.Namespace, start: Start) -> OnGpu | None:
    """The part of the request for GPUs; None: the benchmark runs on the host.

    Raises:
        ValueError: the options do not fit together, or the backend cannot run here.
    """
    backend = options.backend
    if backend is None:
        _refuse_without_backend(options)
        return None
    if not operator.on_gpu:
        raise ValueError(f"--backend {backend}: {operator.name} has no benchmark on GPUs")
    refused = {
        "a rank table": options.rank_table or start.size,
        "--mpi": options.mpi,
        "--sweep": options.sweep,
        "--algorithms": options.algorithms,
    }
    for name, given in refused.items():
        if given:
            raise ValueError(
                f"--backend {backend} cannot be combined with {name}: "
                "its ranks are threads of one process"
            )
    foreign = [peer for peer in options.peers if peer not in GPU_PEERS]
    if foreign:
        raise ValueError(f"--peers {foreign[0]} cannot be combined with --backend {backend}")
    devices = options.devices or (0,)
    machine.check(backend, devices)
    calls = options.calls or (_QUICK_CALLS if options.quick else _CALLS)
    return OnGpu(backend=backend, devices=devices, calls=calls, graph=options.graph)


def _refuse_without_backend(options: argparse.Namespace) -> None:
    given = {"--devices": options.devices, "--calls": options.calls, "--graph": options.graph}
    named = {f"--peers {peer}": peer in GPU_PEERS for peer in options.peers}
    for name, is_given in {**given, **named}.items():
        if is_given:
            raise ValueError(f"{name} needs --backend {' or '.join(BACKENDS)}")


def _devices(text: str) -> tuple[int, ...]:
    if not re.fullmatch(r"\d+(,\d+)*", text):
        raise argparse.ArgumentTypeError(f"numbers of GPUs such as 0,1 are needed, got {text!r}")
    return tuple(map(int, text.split(",")))
