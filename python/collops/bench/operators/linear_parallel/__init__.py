"""LinearParallel beside its parts, its pipeline, and torch with MPI or gloo."""

from __future__ import annotations

from collops.bench.operator import Operator, Sweep
from collops.bench.operators.linear_parallel import points, report
from collops.bench.operators.linear_parallel.variants import OWN, LinearVariants

OPERATOR = Operator(
    name="linear_parallel",
    description="Times LinearParallel fused, as a pipeline and unfused, torch.matmul with MPI "
    "and with gloo, the product alone, and the arithmetic peak.",
    epilog="Without arguments: types 1 and 2 on 2 ranks and type 4 on 2x2, rows shared out 3:5, "
    "in float32,\nbfloat16 and float16, for the products 512,4096,4096, 2048,4096,1024 and "
    "64,4096,11008.",
    quick="tiny products",
    add_options=points.add_options,
    points=points.make_points,
    variants=LinearVariants,
    own=tuple(OWN),
    on_gpu=("fused", "unfused", "gemm"),
    reference="fused_window",
    torch_peers=("mpi", "gloo", "torch"),
    torch_columns="torch.matmul, MPI and gloo",
    compare=report.compare,
    title=report.title,
    headline=report.headline,
    ratios={
        "of peak": "peak_fraction",
        "/ limit": "to_limit",
        "/ GEMM alone": "to_gemm",
        "/ fused": "to_fused",
    },
    summary=report.summary,
    parts={
        "gather": "gather",
        "gemm": "GEMM",
        "scatter": "scatter",
        "reduce": "reduce",
        "exposed": "communication that shows",
    },
    unplotted=("read", "peak"),
    sweep=Sweep(
        help="M = 1, 2, 4 ... 2048: fused against unfused",
        own=("fused_window", "fused", "unfused", "gemm", "peak"),
        lines=report.sweep,
    ),
)
