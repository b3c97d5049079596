"""What a rank costs as hosts and their ranks become more, and that it costs no more than that."""

from __future__ import annotations

import json

import pytest

from patience import patience
from tests.costs.growth import Law, Place, breaches, table, worst
from tests.multihost.hosts import Unavailable, network
from tests.multihost.jobs import RANKS, Job

LIMIT_S = patience(120.0)
PLACES = [Place(2, 2), Place(2, 4), Place(4, 2), Place(2, 1), Place(4, 1), Place(8, 1)]
LAWS = (
    Law("private_kib", rank=64, host=96, noise=1024),
    Law("shared_kib", rank=2304, host=64, noise=1024),
    Law("descriptors", rank=4, host=2, noise=2),
    # A host is joined to each other one, and a rank to one rank of each.
    Law("connections", host=2),
    Law("contact_cpu_ms", rank=1, host=1, noise=60),
    Law("first_call_cpu_ms", rank=1, host=1, noise=60),
)


def measure(place: Place) -> dict[str, float]:
    """The costs of the ranks of a job there."""
    placement = [host for host in range(place.hosts) for _ in range(place.per_host)]
    with network(place.hosts) as hosts, Job(hosts, placement, str(RANKS / "costs.py")) as job:
        lines = []
        for status, out, err in job.results(LIMIT_S):
            assert status == 0, out + err
            lines += [line[line.index("{") :] for line in out.splitlines() if "{" in line]
    assert len(lines) == len(placement)
    return worst([json.loads(line) for line in lines])


def test_costs_of_hosts() -> None:
    try:
        costs = {place: measure(place) for place in PLACES}
    except Unavailable as error:
        pytest.skip(str(error))
    print(table(LAWS, costs))
    assert breaches(LAWS, costs) == []
