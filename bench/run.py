"""Compares collops with MPIs, from C++, in one interleaved run; docs/bench.md has the commands.

Builds a program for collops and one for each MPI, runs all of them in turn in each round, writes
one file with the machine, the peers' settings and all points, and prints the table of ratios.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import machine
import programs
import ratios
from peers import ROOT, Peer, find_mpis
from rounds import Measured, launch, turns

OPERATORS = "all_gather_v:f32,reduce_scatter_v:f32,reduce_scatter_v:bf16,all_reduce:f32"
OPERATORS += ",broadcast:f32,all_to_all_v:f32,send_recv:f32"
SIZES = "64,1k,16k,256k,4m,64m"
SHARES = "3:5,1:2:3:4"
ROUNDS = 3
QUICK = {"operators": "all_gather_v:f32,reduce_scatter_v:bf16", "sizes": "1k", "shares": "3:5"}


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = made.add_argument
    add(
        "--mpi",
        action="append",
        type=Path,
        default=[],
        metavar="PREFIX",
        help="an MPI installed with bin/mpiexec in PREFIX; repeatable (those on PATH)",
    )
    add("--settings", metavar="LIST", default="", help="settings of MPIs, as heap,tuned (all)")
    add("--collops", type=Path, metavar="PREFIX", help="use the collops installed in PREFIX")
    add("--operators", metavar="LIST", default=OPERATORS, help=f"OPERATOR:TYPE ({OPERATORS})")
    add("--sizes", metavar="LIST", default=SIZES, help=f"bytes of the whole vector ({SIZES})")
    add("--shares", metavar="LIST", default=SHARES, help=f"shares of the ranks ({SHARES})")
    add(
        "--iterations",
        metavar="N",
        type=int,
        default=0,
        help="iterations of a point (0: by its size)",
    )
    add("--rounds", metavar="N", type=int, default=ROUNDS, help=f"rounds of the run ({ROUNDS})")
    add("--quick", action="store_true", help="one round of two calls of 1 KiB")
    add(
        "--folder",
        metavar="DIR",
        type=Path,
        default=ROOT / "build" / "bench",
        help="folder of the builds (build/bench)",
    )
    add("--output", metavar="FILE", type=Path, help="the file of the results (DIR/run.json)")
    return made


def build(options: argparse.Namespace) -> list[Peer]:
    """The programs that can be built; says which cannot, and why."""
    peers = [programs.build_collops(options.folder, options.collops)]
    mpis = find_mpis(options.mpi)
    if not mpis:
        say("missing: an MPI: none on PATH; pass --mpi with the folder that contains bin/mpiexec")
    for mpi in mpis:
        try:
            folder = options.folder / f"mpi-{len(peers)}"
            peers += programs.build_mpi(mpi, folder, [*filter(None, options.settings.split(","))])
        except programs.NotBuiltError as problem:
            say(f"missing: {problem}")
    return peers


def cases_of(options: argparse.Namespace) -> list[Measured]:
    """What is measured, in the order of a round."""
    return [
        Measured(operator, shares, options.sizes, options.iterations)
        for shares in options.shares.split(",")
        for operator in options.operators.split(",")
    ]


def run(
    options: argparse.Namespace, peers: list[Peer], stopped: Callable[[], bool]
) -> dict[str, Any]:
    """All rounds; the file is written after each launch, so a run cut short leaves its part."""
    cases = cases_of(options)
    begun = time.time()
    result: dict[str, Any] = {
        "begun": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(begun)),
        "minutes": 0.0,
        "revision": machine.revision(ROOT),
        "machine": machine.facts(),
        "load_before": machine.load(),
        "compiler": programs.compiler_version(),
        "mpi_flags": programs.MPI_FLAGS,
        "rounds": options.rounds,
        "peers": [peer.record(sorted({case.ranks for case in cases})) for peer in peers],
        "failed": [],
        "launches": [],
    }
    planned = list(turns(options.rounds, cases, peers))
    for position, (number, case, peer) in enumerate(planned, 1):
        points, problem = launch(peer, case, stopped=stopped)
        ends = stopped()
        if ends:
            problem = {"status": "interrupted", "output": problem.get("output", [])}
        result["launches"].append(ratios.launch_record(number, peer.name, points))
        if problem:
            one = {"round": number, "peer": peer.name, "case": case.name, **problem}
            result["failed"].append(one)
            say("\n  ".join([f"failed: {peer.name}, {case.name}", *problem["output"]]))
        result["minutes"] = round((time.time() - begun) / 60, 1)
        result["load_after"] = machine.load()
        write(options.output, result)
        say(f"{position} of {len(planned)}: round {number}, {case.name}, {peer.name}")
        if ends:
            break
    return result


def stop_signals() -> Callable[[], bool]:
    """From now on SIGINT and SIGTERM end the launch and the run; tells whether one has come."""
    came: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda got, _: came.append(got))
    return lambda: bool(came)


def write(path: Path, result: dict[str, Any]) -> None:
    """The run's file, with a line for each launch."""
    lists = {name: result[name] for name in ("peers", "failed", "launches")}
    head = {name: value for name, value in result.items() if name not in lists}
    text = json.dumps(head, indent=1).removesuffix("\n}")
    for name, records in lists.items():
        lines = ",\n".join(f"  {json.dumps(record)}" for record in records)
        text += f',\n "{name}": [\n{lines}\n ]'
    path.parent.mkdir(parents=True, exist_ok=True)
    half = path.with_name(f"{path.name}.half")
    half.write_text(f"{text}\n}}\n")
    half.replace(path)


def say(text: str) -> None:
    """A note beside the tables."""
    print(text, file=sys.stderr, flush=True)


def main(words: list[str]) -> int:
    """0 on success, 1 if a launch failed or a result was wrong, 2 if nothing could be measured."""
    options = parser().parse_args(words)
    if options.quick:
        vars(options).update(QUICK, rounds=1)
    options.output = options.output or options.folder / "run.json"
    try:
        peers = build(options)
    except (programs.NotBuiltError, ValueError) as problem:
        say(f"bench: {problem}")
        return 2
    result = run(options, peers, stop_signals())
    print(ratios.report(result))
    return 0 if ratios.is_good(result) else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
