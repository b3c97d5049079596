"""Random calls of all kinds under delays, each judged: `make soak`; --help lists the options.

Processes are ranks of several domains at once, a thread for each; one more process has all ranks of
a domain as its threads. Every call is drawn from the seed, so --seed repeats it; --first goes on
from one call of it. Status 1: a result was wrong, a call failed, or a process grew.
"""

from __future__ import annotations

import argparse
import secrets
import signal
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any, NoReturn

from tests.soak.many_ranks import start_run_close
from tests.soak.soak_rank import Place, Plan
from tests.soak.soak_resources import in_words, leaks
from tests.soak.soak_turn import MOST_BYTES, Settings, make_source
from tests.soak.soak_watch import Report, Watch

PHASES = 6
CALL_TIMEOUT_S = 60.0
END_S = 30.0  # for first contact and the end of the last phase
MANY_RANKS_S = 120.0
MIB = 1 << 20


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("soak", description=__doc__)
    add = parser.add_argument
    add("--seconds", type=float, default=600.0, help="how long (%(default)g)")
    add("--seed", type=int, help="of the draw; without one it is new, and printed")
    add("--processes", type=int, default=3, help="that are ranks of each domain (%(default)d)")
    add("--domains", type=int, default=2, help="of those processes (%(default)d)")
    add("--threads", type=int, default=3, help="ranks of a domain of threads (%(default)d)")
    add("--most-mib", type=float, default=MOST_BYTES / MIB, help="of a tensor (%(default)g)")
    add("--stops", type=float, default=0.5, help="SIGSTOPs a second (%(default)g)")
    add("--first", type=int, default=0, help="number of the first call (%(default)d)")
    add("--calls", type=int, default=0, help="about how many per domain; 0: for all the time")
    add("--many", type=int, default=128, help="ranks that start, run and close before; 0: none")
    return parser.parse_args(arguments)


def rooms_of(options: argparse.Namespace) -> list[list[Place]]:
    """What each process is. The first domain keeps its communicator, the others open new ones."""
    processes, domains = options.processes, options.domains
    rooms = [
        [Place(f"d{d}", rank, processes, reopens=d > 0) for d in range(domains)]
        for rank in range(processes)
    ]
    if options.threads:
        rooms.append(
            [
                Place("threads", rank, options.threads, threads=True)
                for rank in range(options.threads)
            ]
        )
    return rooms


def print_table(reports: Sequence[Report]) -> None:
    calls: Counter[str] = Counter()
    moved: Counter[str] = Counter()
    for report in reports:
        if report.drawn is not None:
            calls += report.drawn.calls
            moved += report.drawn.moved
    print(f"  {'kind':<34}{'calls of ranks':>15}{'MiB':>12}")
    for kind in sorted(calls):
        print(f"  {kind:<34}{calls[kind]:>15}{moved[kind] / MIB:>12.1f}")
    print(f"  {'all':<34}{calls.total():>15}{moved.total() / MIB:>12.1f}")


def problems_of(reports: Sequence[Report]) -> list[str]:
    found = []
    for number, report in enumerate(reports):
        if report.errors:
            found.append(f"process {number}: {report.errors}")
        for leak in leaks(report.measured) if report.measured else []:
            found.append(f"process {number}: {leak}")
    return found


def soak(options: argparse.Namespace) -> int:
    """Runs it, and prints what was drawn and what was wrong."""
    settings = Settings(options.seed, int(options.most_mib * MIB))
    ends = tuple(options.seconds * (number + 1) / PHASES for number in range(PHASES))
    job = f"soak-{secrets.token_hex(8)}"
    source = make_source(settings)
    plan = Plan(settings, job, ends, CALL_TIMEOUT_S, options.first, options.calls)
    watch = Watch(plan, rooms_of(options), source)
    try:
        watch.start()
        limit_s = options.seconds + CALL_TIMEOUT_S + END_S
        reports = watch.run(options.stops, limit_s, max(10.0, options.seconds / 10))
        where = watch.where()
    finally:
        watch.close()
    print_table(reports)
    delays = sum(report.drawn.delays for report in reports if report.drawn)
    print(f"  {delays} sleeps of a rank, {watch.stops} SIGSTOPs")
    for number, report in enumerate(reports):
        if report.measured:
            print(f"  process {number}: {in_words(report.measured)}")
    problems = problems_of(reports)
    for problem in problems:
        print(f"soak: seed {options.seed}: {problem}")
    if problems:
        print(f"soak: FAILED at calls {where}; again: --seed {options.seed} --first NUMBER")
    else:
        print(f"soak: seed {options.seed}: 0 errors, nothing grew")
    sys.stdout.flush()
    return 1 if problems else 0


def end(*_: Any) -> NoReturn:
    raise KeyboardInterrupt


def main(arguments: Sequence[str]) -> int:
    """Status 0, 1 if something was wrong, 130 after Ctrl-C or SIGTERM."""
    options = parse(arguments)
    if options.seed is None:
        options.seed = secrets.randbelow(10**6)
    try:
        if options.many:
            took_s = start_run_close(options.many, MANY_RANKS_S)
            print(f"soak: {options.many} ranks started, called and closed in {took_s:.1f} s")
        print(f"soak: seed {options.seed}, {options.seconds:g} s", flush=True)
        return soak(options)
    except KeyboardInterrupt:
        print("soak: interrupted; all its processes have ended")
        return 130


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, end)
    raise SystemExit(main(sys.argv[1:]))
