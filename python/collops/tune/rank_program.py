"""One rank of a measurement: ``python -m collops.tune.rank_program REQUEST STORE RECORDS``.

REQUEST is a file with the pickled request of the bench, and RECORDS the file to which rank 0
appends lines of JSON, one for each size. STORE is not used.
"""

from __future__ import annotations

import json
import pickle
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import collops
from collops.bench.measure import interleave, together
from collops.bench.operator import Row
from collops.bench.operators import load
from collops.bench.peers.installed import Peers
from collops.bench.rank_program import pin
from collops.bench.request import Request
from collops.bench.variant import Variants

# Rounds between two looks at the clock, even so that each way goes first as often as the other;
# and the time after which a size has enough of them.
_ROUNDS = 4
_MOST_S = 1.0


def main() -> None:
    """Measures every size of the request."""
    request: Request = pickle.loads(Path(sys.argv[1]).read_bytes())
    with Path(sys.argv[3]).open("a", buffering=1) as records:
        for line in measure(request):
            records.write(json.dumps(line) + "\n")


def measure(request: Request) -> Iterator[Row]:
    """Measures every size as the rank that this process is; yields the lines on rank 0."""
    operator = load(request.operator)
    with (
        collops.init(comm_domain="tune") as work,
        collops.init(comm_domain="tune meeting") as meeting,
    ):
        peers = Peers(request, operator, "", work.rank, work.size)
        pin(work.rank, request.threads)
        for point in request.points:
            variants = operator.variants(point, work, peers, request.seed)
            record = measure_size(variants, request, meeting.barrier)
            variants.kept.close()
            if work.rank == 0:
                yield record
        meeting.barrier()


def measure_size(variants: Variants, request: Request, meet: Any) -> Row:
    """The medians of the variants of one size, measured in turn, and whether results differ."""
    point, flip = variants.point, variants.element.flip
    ways = [variants.own(key) for key in request.own]
    for way in ways:
        way.run()
    parts = []
    begin = time.monotonic()
    for _ in range(0, request.iterations, _ROUNDS):
        parts.append(interleave(ways, _ROUNDS, flip, meet, point.burst))
        # Every rank must stop at the same part.
        if variants.most(time.monotonic() - begin) > _MOST_S:
            break
    # All x were rewritten equally often, so the last results are those of the same data.
    first, *others = [way.result for way in ways if way.result is not None]
    differ = any(variants.element.num_different(first, other) for other in others)
    times = np.concatenate(parts, axis=1)
    every = variants.work.all_gatherv(times[None], [1] * variants.work.size)
    wholes = [together(every[:, i]) * 1e6 for i in range(len(ways))]
    return {
        "ranks": point.ranks,
        "bytes": point.size,
        "us": {key: float(np.median(us)) for key, us in zip(request.own, wholes, strict=True)},
        "spreads": [float(np.percentile(us, 95) / us.min()) for us in wholes],
        "differ": bool(variants.most(float(differ))),
    }


if __name__ == "__main__":
    main()
