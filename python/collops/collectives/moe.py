"""Mixture of experts: rows go to the ranks of their experts, and back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, overload

from collops.collectives.calls import PlainCalls, of_communicator

if TYPE_CHECKING:
    from typing import Literal

    from collops.tensor_types import Array, SupportsDLPack, TensorT


@dataclass(frozen=True, eq=False)
class MoeHandle:
    """Where the rows of a moe_dispatch() went, which moe_combine() needs.

    Its tensors are of the dispatched x's kind.

    Attributes:
        send_sizes: int64 [P, experts of a rank]: this rank's rows for each expert of each rank.
        recv_sizes: int64 [P, experts of a rank]: rows of each rank for each of this rank's
            experts.
        positions: int64 [T, K]: where the row of (token, k) stands among this rank's rows sorted by
            expert; -1: it has none.
        scales: float32 [R]: the scale of each received row; None: they have none.
        group: the communicator's `handle`.
        digest: of the counts of all ranks, by which they find that they pass different handles.

    Example:
        >>> import collops, numpy as np
        >>> from collops.testing import run_ranks
        >>> def send(rank):
        ...     with collops.init() as comm:
        ...         x, ids = np.ones((2, 1)), np.array([[0, 1], [1, -1]])
        ...         handle = comm.moe_dispatch(x, ids, num_experts=2)[2]
        ...         return handle.send_sizes.tolist(), handle.positions.tolist()
        >>> run_ranks(send, 2)[0]
        ([[1], [2]], [[0, 1], [2, -1]])
    """

    send_sizes: Any
    recv_sizes: Any
    positions: Any
    scales: Any = None
    group: int = 0
    digest: int = 0


@of_communicator
class Experts(PlainCalls):
    """Dispatch to experts and combine."""

    @overload
    def moe_dispatch(
        self,
        x: TensorT,
        topk_ids: TensorT | None = None,
        num_experts: int | None = None,
        *,
        quantize: Literal["int8"] | None = None,
        scales: TensorT | None = None,
        handle: MoeHandle | None = None,
        out: TensorT | None = None,
    ) -> tuple[TensorT, TensorT, MoeHandle]: ...

    @overload
    def moe_dispatch(
        self,
        x: SupportsDLPack,
        topk_ids: SupportsDLPack | None = None,
        num_experts: int | None = None,
        *,
        quantize: Literal["int8"] | None = None,
        scales: SupportsDLPack | None = None,
        handle: MoeHandle | None = None,
        out: Array | None = None,
    ) -> tuple[Array, Array, MoeHandle]: ...

    def moe_dispatch(
        self,
        x: Any,
        topk_ids: Any = None,
        num_experts: int | None = None,
        *,
        quantize: Any = None,
        scales: Any = None,
        handle: MoeHandle | None = None,
        out: Any = None,
    ) -> Any:
        """Sends every token to the ranks of its experts.

        ``rows_d = concatenate([x_s[t] for e in experts of d for s in ranks for (t, k) of s with
        topk_ids_s[t, k] == e])``

        Rank d has the experts ``d * E .. d * E + E - 1``, where ``E = num_experts / P``. Rows come
        expert by expert, of each expert those of rank 0 first, of each rank by token and k. No row
        is dropped. On the CPU, backends shm and ucx.

        Args:
            x: [T, hidden] this rank's tokens, of any element type; T may be 0. Moved bit for bit.
            topk_ids: int32 or int64 [T, K]: the experts of each token, -1 for none. An expert that
                a token names twice gets its row twice.
            num_experts: of all ranks, a multiple of P.
            quantize: ``"int8"``: rows of float32, float16 or bfloat16 travel as int8, each with a
                scale: in float32 ``s = max(abs(row)) / 127`` and ``q = rint(row / s)``, half to
                even; q is 0 where s is 0. None: as they are.
            scales: float32 [T] that travel with the rows of an x that is quantised already.
            handle: of an earlier call: the same routing again, in place of topk_ids and
                num_experts. The ranks then exchange no counts.
            out: [R, hidden] the rows' memory; None: new memory of x's kind.

        Returns:
            ``(rows, counts, handle)``: rows [R, hidden] of x's type or int8; counts int64 [E], the
            rows of each of this rank's experts, of sum R; and the MoeHandle, whose `scales` are
            float32 [R] with `quantize` or `scales`.

        Raises:
            ArgumentError: this rank's arguments are wrong; the other ranks get its message.
            RankMismatchError: the ranks disagree on dtype, hidden, K, num_experts, quantize, scales
                or the handle, or one refused.
            RankTimeoutError, PeerLostError, AbortedError: a rank timed out, died or aborted.

        Source of the semantics: CANN's MoeDistributeDispatch and DeepEP's dispatch, with a row for
        each expert; the order of rows of ATB's LinearParallel, ALLTOALLVC_ALL_GATHER_GMM.

        Example:
            >>> import collops, numpy as np
            >>> from collops.testing import run_ranks
            >>> def send(rank):
            ...     x, ids = np.array([[10 * rank], [10 * rank + 1]]), np.array([[0, 1], [1, -1]])
            ...     with collops.init() as comm:
            ...         rows, counts, _ = comm.moe_dispatch(x, ids, num_experts=2)
            ...         return rows[:, 0].tolist(), counts.tolist()
            >>> run_ranks(send, 2)
            [([0, 10], [2]), ([0, 1, 10, 11], [4])]
        """
        return self._plain.moe_dispatch(x, topk_ids, num_experts, quantize, scales, handle, out)

    def moe_combine(
        self,
        rows: TensorT,
        topk_weights: TensorT | None,
        handle: MoeHandle,
        *,
        out: TensorT | None = None,
    ) -> TensorT:
        """Brings the experts' rows back to their tokens and adds them up.

        ``y[t] = sum over k ascending of float32(topk_weights[t, k]) * row of (t, k)``

        The sum is in float32, from 0 on, each product and each sum rounded, and rounded once to the
        rows' type. A token without experts is 0.

        Args:
            rows: [R, hidden] in the order of moe_dispatch(), on the CPU: float32, float16 or
                bfloat16; hidden may differ from the dispatch's.
            topk_weights: [T, K] float32, float16 or bfloat16; entries of a -1 are not read. None:
                all are 1.
            handle: what the dispatch returned.
            out: [T, hidden] the result's memory; None: new memory of the kind of rows.

        Returns:
            `out`.

        Raises:
            ArgumentError: this rank's arguments are wrong; the other ranks get its message.
            RankMismatchError: the ranks disagree on dtype, hidden or the handle, or one refused.
            RankTimeoutError, PeerLostError, AbortedError: a rank timed out, died or aborted.

        Source of the semantics: CANN's MoeDistributeCombine; DeepEP's combine without weights.

        Example:
            >>> import collops, numpy as np
            >>> from collops.testing import run_ranks
            >>> def there_and_back(rank):
            ...     x, ids = np.ones((1, 2), np.float32), np.array([[0, 1]])
            ...     with collops.init() as comm:
            ...         rows, _, handle = comm.moe_dispatch(x, ids, num_experts=2)
            ...         weights = np.array([[0.25, 0.5]], np.float32)
            ...         return comm.moe_combine(rows * (rank + 1), weights, handle).tolist()
            >>> run_ranks(there_and_back, 2)
            [[[1.25, 1.25]], [[1.25, 1.25]]]
        """
        result: TensorT = self._plain.moe_combine(rows, topk_weights, handle, out)
        return result
