"""Makes the Operator of a collective: its help, options, points, variants and table."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from collops.bench.collectives import plot, points, report
from collops.bench.collectives.points import Kind
from collops.bench.collectives.variants import UCX, CollectiveVariants
from collops.bench.operator import Listing, Operator
from collops.bench.peers import LINK_PEERS

_HELP = """
Each line of the table is a point: a size, an element type, a distribution over the ranks, and the
memory of x. algbw is bytes / time, busbw the bytes through the busiest rank / time; "limit" is the
time of the same copies alone, on all ranks at once.
"""


def collective(
    name: str,
    title: str,
    kind: Kind,
    variants: Callable[..., CollectiveVariants],
    *,
    on_gpu: bool = False,
) -> Operator:
    """The operator of a module in ``operators/``.

    Args:
        name: the module's name.
        title: the operator's name in the table.
        kind: what the options must know.
        variants: its class of variants.
        on_gpu: whether its call takes a stream, so that it can be measured on a GPU.
    """
    return Operator(
        name=name,
        description=f"Times {title} by the size of the vector, as nccl-tests does.",
        epilog=_HELP,
        quick="1 KiB and 64 KiB",
        add_options=partial(points.add_options, kind),
        points=partial(points.make_points, kind),
        variants=variants,
        own=(points.PLAIN, points.WINDOW) if kind.bytes_are else (points.PLAIN,),
        on_gpu=(points.PLAIN,) if on_gpu else (),
        reference=points.PLAIN,
        torch_peers=("gloo",),
        torch_columns="gloo",
        compare=report.compare,
        listing=Listing(
            head=partial(report.head, title),
            lines=report.lines,
            foot=report.foot,
            save_plot=plot.save_plot,
        ),
        peers=("mpi", "gloo", UCX, *LINK_PEERS),
        default_peers=(),
        dtypes=("f32",),
        several_hosts=True,
    )
