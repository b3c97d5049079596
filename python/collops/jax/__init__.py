"""Uneven collectives inside programs of JAX, on CPUs: ``collops.jax.all_gatherv(x, sizes)``.

The functions work on arrays of JAX inside and outside of ``jax.jit``, in loops and branches, and
have gradients. All ranks make the same calls in the order of the program; docs/jax.md explains it.
Ranks are processes: those of jax.distributed where it is initialized, else those of collops.init().

Shapes are fixed when a function is traced, so sizes are numbers of Python, except those of
ragged_all_to_all. Gradients are those of the sum of all ranks' losses.

Example, in a file that ``collops run -n 2`` starts:
    import collops, jax
    import collops.jax as cjax
    comm = collops.init()

    @jax.jit
    def gathered(x):
        return 2 * cjax.all_gatherv(x, [1, 3])
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

try:
    import jax
except ImportError as error:
    raise ImportError("collops.jax needs jax: pip install 'collops[jax]'") from error
import jax.numpy as jnp
import numpy as np

from collops.collectives.calls import bad_argument, whole_number
from collops.collectives.reductions import refuse_reduction
from collops.errors import ErrorCode, raise_status
from collops.jax.primitive import call
from collops.jax.ranks import init
from collops.launch.init import thread_rank

if TYPE_CHECKING:
    from collections.abc import Sequence

    from collops.collectives.communicator import Communicator

__all__ = [
    "all_gatherv",
    "all_reduce",
    "all_to_allv",
    "init",
    "ragged_all_to_all",
    "reduce_scatterv",
]

_TYPES = frozenset(
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 float64 "
    "complex64 complex128".split()
)
# The core's numbers.
_REDUCTIONS = {
    "sum": 0, "prod": 1, "max": 2, "min": 3, "avg": 4, "band": 5, "bor": 6, "bxor": 7
}  # fmt: skip


def all_gatherv(
    x: Any, sizes: Sequence[int], dim: int = 0, comm: Communicator | None = None
) -> jax.Array:
    """Gathers every rank's rows on every rank, in rank order.

    ``out = concatenate([x_0, x_1, ..., x_{P-1}], axis=dim)``

    The gradient of x is this rank's block of the sum of all ranks' gradients of the result:
    reduce_scatterv.

    Args:
        x: [..., rows, ...] this rank's rows along `dim`; rows may be 0.
        sizes: rows of each rank, the same list on every rank.
        dim: the dimension that is gathered; negative ones count from the end.
        comm: the communicator; None: that of collops.jax.init().

    Returns:
        [..., sum of sizes, ...]

    Raises:
        jax.errors.JaxRuntimeError: with the message of the communicator's all_gatherv.

    Source of the semantics: MPI_Allgatherv.
    """
    comm = _group(comm)
    x, dim = _rows_first("all_gatherv", x, dim)
    return jnp.moveaxis(_gather(_numbers("all_gatherv", "sizes", sizes), comm, x), 0, dim)


def reduce_scatterv(
    x: Any,
    sizes: Sequence[int] | None = None,
    dim: int = 0,
    op: str = "sum",
    comm: Communicator | None = None,
) -> jax.Array:
    """Reduces over the ranks and leaves each rank its rows of the result.

    ``out_r = (x_0 op x_1 op ... op x_{P-1})[rows of rank r along dim]``, in rank order

    The gradient of x, for ``"sum"`` and ``"avg"``, is all ranks' gradients of their results, in
    rank order: all_gatherv.

    Args:
        x: [..., rows, ...] of the same shape on every rank.
        sizes: rows that each rank receives, the same list on every rank; None: as
            numpy.array_split divides the rows.
        dim: the dimension that is scattered; negative ones count from the end.
        op: ``"sum"``, ``"max"``, ``"min"``, ``"prod"``, ``"avg"``; of integers also ``"band"``,
            ``"bor"``, ``"bxor"``.
        comm: the communicator; None: that of collops.jax.init().

    Returns:
        [..., sizes[rank], ...]

    Raises:
        jax.errors.JaxRuntimeError: with the message of the communicator's reduce_scatterv.

    Source of the semantics: MPI_Reduce_scatter.
    """
    comm = _group(comm)
    x, dim = _rows_first("reduce_scatterv", x, dim)
    if sizes is None:
        least, more = divmod(x.shape[0], comm.size)
        sizes = [least + (rank < more) for rank in range(comm.size)]
    numbers = _numbers("reduce_scatterv", "sizes", sizes)
    return jnp.moveaxis(_scatter(numbers, _op("reduce_scatterv", op), comm, x), 0, dim)


def all_reduce(x: Any, op: str = "sum", comm: Communicator | None = None) -> jax.Array:
    """Reduces over the ranks and gives every rank the whole result.

    ``out = x_0 op x_1 op ... op x_{P-1}``, in rank order

    The gradient of x, for ``"sum"`` and ``"avg"``, is all_reduce of all ranks' gradients of the
    result, with the same `op`. Where every rank computes the same loss from the result, it is
    therefore the number of ranks times that of one loss.

    Args:
        x: [...] of one shape on every rank.
        op: ``"sum"``, ``"max"``, ``"min"``, ``"prod"``, ``"avg"``; of integers also ``"band"``,
            ``"bor"``, ``"bxor"``.
        comm: the communicator; None: that of collops.jax.init().

    Returns:
        [...] as x.

    Raises:
        jax.errors.JaxRuntimeError: with the message of the communicator's all_reduce.

    Source of the semantics: MPI_Allreduce; for gradients torch.distributed.nn.functional.
    """
    return _reduce(_op("all_reduce", op), _group(comm), _array("all_reduce", x))


def all_to_allv(
    x: Any,
    send_sizes: Sequence[int],
    recv_sizes: Sequence[int],
    comm: Communicator | None = None,
) -> jax.Array:
    """Sends different rows of x to every rank.

    ``out_r = concatenate([rows of x_0 for r, rows of x_1 for r, ..., rows of x_{P-1} for r])``

    The gradient of x is the gradients of its rows, sent back: all_to_allv with the two lists
    exchanged.

    Args:
        x: [rows, ...] ``send_sizes[0]`` rows for rank 0, then ``send_sizes[1]`` for rank 1, and so
            on; a row has the same shape on every rank.
        send_sizes: rows for each rank, 0 included.
        recv_sizes: rows from each rank; ``recv_sizes[q]`` is rank q's send_sizes for this rank.
        comm: the communicator; None: that of collops.jax.init().

    Returns:
        [sum of recv_sizes, ...]

    Raises:
        jax.errors.JaxRuntimeError: with the message of the communicator's all_to_allv.

    Source of the semantics: MPI_Alltoallv.
    """
    comm = _group(comm)
    x, _ = _rows_first("all_to_allv", x, 0)
    sends = _numbers("all_to_allv", "send_sizes", send_sizes)
    return _exchange(sends, _numbers("all_to_allv", "recv_sizes", recv_sizes), comm, x)


def ragged_all_to_all(
    operand: Any,
    output: Any,
    input_offsets: Any,
    send_sizes: Any,
    output_offsets: Any,
    recv_sizes: Any,
    comm: Communicator | None = None,
) -> jax.Array:
    """Sends slices of rows to other ranks, and writes those that arrive into `output`.

    As jax.lax.ragged_all_to_all, which JAX does not have on CPUs; the ranks are those of the
    communicator, in place of a mapped axis. Offsets and sizes are data: they may be computed, and
    differ from call to call. The ranks first tell each other these numbers, so that all of them
    find the same error before a row moves.

    Differs from JAX's in errors: a slice that is not within its array, sizes that differ between
    sender and receiver, and slices that overlap in an output are refused on every rank.

    Gradients go back to `operand` and `output`; for them slices must not overlap in operand.

    Args:
        operand: [N, ...] the rows of which slices are sent.
        output: [M, ...] what the result has where no slice arrives; rows as operand's.
        input_offsets: [K] where each slice begins in operand. K is the same multiple of the number
            of ranks on every rank: the first slices are for rank 0, the next for rank 1, and so on.
        send_sizes: [K] rows of each slice, 0 included.
        output_offsets: [K] where each slice begins in the output of the rank that gets it.
        recv_sizes: [K] rows of each slice that arrives, those of rank 0 first.
        comm: the communicator; None: that of collops.jax.init().

    Returns:
        [M, ...]

    Raises:
        jax.errors.JaxRuntimeError: with our message.

    Source of the semantics: jax.lax.ragged_all_to_all.
    """
    name = "ragged_all_to_all"
    comm = _group(comm)
    operand, output = _array(name, operand), _array(name, output)
    if operand.ndim < 1 or operand.shape[1:] != output.shape[1:] or operand.dtype != output.dtype:
        bad_argument(
            f"{name}: output must be {operand.dtype} rows of shape {operand.shape[1:]} as operand, "
            f"got {output.dtype} of shape {output.shape}"
        )
    lists = []
    for label, numbers in (
        ("input_offsets", input_offsets),
        ("send_sizes", send_sizes),
        ("output_offsets", output_offsets),
        ("recv_sizes", recv_sizes),
    ):
        numbers = jnp.asarray(numbers)
        if numbers.ndim != 1 or not jnp.issubdtype(numbers.dtype, jnp.integer):
            bad_argument(
                f"{name}: {label} must be a list of whole numbers, got {numbers.dtype} of shape "
                f"{numbers.shape}"
            )
        lists.append(numbers if numbers.dtype == jnp.int64 else numbers.astype(jnp.int32))
    return _ragged(comm, operand, output, *lists)


def _group(comm: Communicator | None) -> Communicator:
    if thread_rank.size:
        raise_status(
            ErrorCode.ERROR_UNSUPPORTED,
            "the ranks of collops.jax are processes: JAX has one order of calls for all threads "
            "of a process",
        )
    return init() if comm is None else comm


def _array(name: str, x: Any) -> jax.Array:
    """x as an array whose elements the core moves."""
    x = jnp.asarray(x)
    if x.dtype.name not in _TYPES:
        bad_argument(
            f"{name}: x has elements of type {x.dtype}: move them as "
            "jax.lax.bitcast_convert_type(x, jax.numpy.uint8)"
        )
    return x


def _rows_first(name: str, x: Any, dim: int) -> tuple[jax.Array, int]:
    """x with `dim` in front, and `dim` counted from 0."""
    x, dim = _array(name, x), whole_number(name, "dim", dim)
    if x.ndim == 0:
        bad_argument(f"{name}: x has 0 dims, it needs at least 1: pass x.reshape(1)")
    if not -x.ndim <= dim < x.ndim:
        bad_argument(f"{name}: dim must be from {-x.ndim} to {x.ndim - 1}, got {dim}")
    return jnp.moveaxis(x, dim, 0), dim % x.ndim


def _numbers(name: str, label: str, sizes: Any) -> tuple[int, ...]:
    """A list of rows per rank, known when the function is traced."""
    if isinstance(sizes, jax.core.Tracer):
        bad_argument(
            f"{name}: {label} is computed inside the traced function, and shapes depend on it: "
            "pass numbers of Python, or use ragged_all_to_all"
        )
    return tuple(whole_number(name, f"{label}[{rank}]", size) for rank, size in enumerate(sizes))


def _op(name: str, op: str) -> str:
    if op not in _REDUCTIONS:
        refuse_reduction(name, op, _REDUCTIONS)
    return op


def _rows(count: int, x: jax.Array) -> tuple[tuple[int, ...], Any]:
    """Shape and dtype of so many rows of x; what is wrong with the number the core says."""
    return (max(count, 0), *x.shape[1:]), x.dtype


def _of(numbers: tuple[int, ...], rank: int) -> int:
    return numbers[rank] if rank < len(numbers) else 0


def _refuse_gradient(name: str, op: str) -> None:
    if op not in ("sum", "avg"):
        raise NotImplementedError(f'{name}: op "{op}" has no gradient; "sum" and "avg" have')


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _gather(sizes: tuple[int, ...], comm: Communicator, x: jax.Array) -> jax.Array:
    (out,) = call("all_gatherv", comm, [x], [_rows(sum(sizes), x)], {"sizes": sizes})
    return out


@partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
def _scatter(sizes: tuple[int, ...], op: str, comm: Communicator, x: jax.Array) -> jax.Array:
    numbers = {"sizes": sizes, "op": _REDUCTIONS[op]}
    (out,) = call("reduce_scatterv", comm, [x], [_rows(_of(sizes, comm.rank), x)], numbers)
    return out


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _reduce(op: str, comm: Communicator, x: jax.Array) -> jax.Array:
    (out,) = call("all_reduce", comm, [x], [(x.shape, x.dtype)], {"op": _REDUCTIONS[op]})
    return out


@partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
def _exchange(
    sends: tuple[int, ...], receives: tuple[int, ...], comm: Communicator, x: jax.Array
) -> jax.Array:
    numbers = {"sizes": sends, "recv_sizes": receives}
    (out,) = call("all_to_allv", comm, [x], [_rows(sum(receives), x)], numbers)
    return out


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _ragged(comm: Communicator, operand: Any, output: Any, *lists: Any) -> jax.Array:
    arrays = [operand, output, *lists]
    results = [(output.shape, output.dtype)]
    (out,) = call("ragged_all_to_all", comm, arrays, results, {}, aliases={1: 0})
    return out


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _ragged_gradient(comm: Communicator, rows: int, gradient: Any, *lists: Any) -> Any:
    """The gradients of operand, which has `rows` rows, and of output."""
    results = [_rows(rows, gradient), (gradient.shape, gradient.dtype)]
    name = "ragged_all_to_all_gradient"
    return tuple(call(name, comm, [gradient, *lists], results, {}, aliases={0: 1}))


def _scatter_forward(sizes: Any, op: str, comm: Any, x: jax.Array) -> Any:
    _refuse_gradient("reduce_scatterv", op)
    return _scatter(sizes, op, comm, x), None


def _scatter_back(sizes: Any, op: str, comm: Communicator, _: None, gradient: jax.Array) -> Any:
    whole = _gather(sizes, comm, gradient)
    return (whole / comm.size if op == "avg" else whole,)


def _reduce_forward(op: str, comm: Any, x: jax.Array) -> Any:
    _refuse_gradient("all_reduce", op)
    return _reduce(op, comm, x), None


def _no_gradients(lists: Any) -> tuple[Any, ...]:
    """Those of whole numbers."""
    return tuple(np.zeros(numbers.shape, jax.dtypes.float0) for numbers in lists)


def _ragged_forward(comm: Any, operand: Any, output: Any, *lists: Any) -> Any:
    rows = jnp.zeros((operand.shape[0], 0))  # whose shape alone is used
    return _ragged(comm, operand, output, *lists), (rows, lists)


def _ragged_back(comm: Any, kept: Any, gradient: Any) -> Any:
    rows, lists = kept
    return (*_ragged_gradient(comm, len(rows), gradient, *lists), *_no_gradients(lists))


def _ragged_gradient_forward(comm: Any, rows: int, gradient: Any, *lists: Any) -> Any:
    return _ragged_gradient(comm, rows, gradient, *lists), lists


def _ragged_gradient_back(comm: Any, rows: int, lists: Any, of_results: Any) -> Any:
    of_operand, of_output = of_results
    return (_ragged(comm, of_operand, of_output, *lists), *_no_gradients(lists))


_gather.defvjp(
    lambda sizes, comm, x: (_gather(sizes, comm, x), None),
    lambda sizes, comm, _, gradient: (_scatter(sizes, "sum", comm, gradient),),
)
_scatter.defvjp(_scatter_forward, _scatter_back)
_reduce.defvjp(_reduce_forward, lambda op, comm, _, gradient: (_reduce(op, comm, gradient),))
_exchange.defvjp(
    lambda sends, receives, comm, x: (_exchange(sends, receives, comm, x), None),
    lambda sends, receives, comm, _, gradient: (_exchange(receives, sends, comm, gradient),),
)
_ragged.defvjp(_ragged_forward, _ragged_back)
_ragged_gradient.defvjp(_ragged_gradient_forward, _ragged_gradient_back)
