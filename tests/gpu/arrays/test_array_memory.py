"""CudaArray: memory is given on once the streams that used it are past, and is kept by graphs."""

from __future__ import annotations

import itertools
import threading
import time
from typing import Any

import numpy as np
import pytest

import collops
from patience import patience
from tests.gpu.arrays.dlpack_consumer import Consumer
from tests.gpu.arrays.one_process import alone
from tests.gpu.simulated.simulated_driver import GLOBAL, PER_THREAD, P
from tests.gpu.simulated.waiting_kernel import release, waiting

BYTES = 4096


def new() -> Any:
    return collops.cuda_empty(BYTES, np.uint8, device=0)


_calls = itertools.count(1)


def handed_out(gpu: Any, waits: bool = True) -> set[int]:
    """The addresses of the next arrays, of more than were free after the last such call."""
    if waits:  # who has asked an array for its address may use it on the default stream
        gpu.cuda.sync()
    return {one.ptr for one in [new() for _ in range(8 * next(_calls))]}


def test_memory_is_given_on_at_once_if_nothing_uses_it(gpu: Any) -> None:
    def work() -> None:
        x = new()
        x.write(np.full(BYTES, 7, np.uint8))
        first = x.ptr
        del x
        assert first in handed_out(gpu)

    alone(work)


@pytest.mark.parametrize("versioned", [True, False])
def test_memory_waits_for_a_consumers_stream(gpu: Any, versioned: bool) -> None:
    def work() -> None:
        stream = gpu.stream()
        x = new()
        seen = Consumer(x, stream.ptr, versioned)
        with gpu.held(stream):
            assert gpu.cuda.fill(seen.address, 5, BYTES, stream.ptr) == 0
            del x
            assert seen.address not in handed_out(gpu)  # the consumer has it
            seen.release()
            assert seen.address not in handed_out(gpu)  # the stream has yet to come there
        stream.synchronize()
        assert seen.address in handed_out(gpu)

    alone(work)


def test_a_capsule_that_no_one_took(gpu: Any) -> None:
    def work() -> None:
        stream, x = gpu.stream(), new()
        address = x.ptr
        capsule = x.__dlpack__(stream=stream.ptr)
        del x
        assert address not in handed_out(gpu)
        del capsule
        stream.synchronize()
        assert address in handed_out(gpu)

    alone(work)


def test_a_stream_that_a_thread_has_by_default(gpu: Any) -> None:
    """A consumer may let go in another thread, whose default stream is another one."""

    def work() -> None:
        x, stream = new(), gpu.stream(0)  # the legacy stream follows it
        seen = Consumer(x, PER_THREAD)
        del x

        def release_there() -> None:
            seen.release()
            gpu.cuda.sync(PER_THREAD)

        with gpu.held(stream):
            assert gpu.cuda.fill(seen.address, 5, BYTES, stream.ptr) == 0
            let_go = threading.Thread(target=release_there)
            let_go.start()
            let_go.join()
            assert seen.address not in handed_out(gpu, waits=False)
        stream.synchronize()
        assert seen.address in handed_out(gpu)

    alone(work)


def test_a_consumer_that_orders_itself(gpu: Any) -> None:
    def work() -> None:
        seen = Consumer(new(), -1)
        seen.release()
        assert seen.address in handed_out(gpu)

    alone(work)


def test_copies_follow_what_other_streams_do(gpu: Any) -> None:
    def work() -> None:
        x, stream, other = new(), gpu.stream(), gpu.stream()
        x.write(np.zeros(BYTES, np.uint8))
        seen = Consumer(x, stream.ptr)

        def hold() -> None:
            with gpu.held(stream):
                held.set()
                time.sleep(0.5)

        held = threading.Event()
        holder = threading.Thread(target=hold)
        holder.start()
        held.wait(patience(60))
        assert gpu.cuda.fill(seen.address, 5, BYTES, stream.ptr) == 0
        seen.release()
        np.testing.assert_array_equal(x.read(stream=other), 5)
        holder.join()

    alone(work)


def test_a_graph_keeps_the_memory(gpu: Any) -> None:
    def work() -> None:
        stream, x = gpu.stream(), new()
        with gpu.captured(stream) as graph:
            seen = Consumer(x, stream.ptr)
            assert gpu.cuda.fill(seen.address, 5, BYTES, stream.ptr) == 0
            seen.release()
        del x
        assert seen.address not in handed_out(gpu)
        graph.replay(stream)
        stream.synchronize()
        graph.destroy()
        deadline = time.monotonic() + patience(60)
        while seen.address not in handed_out(gpu):  # the driver tells when it has let go
            assert time.monotonic() < deadline
            time.sleep(0.01)

    alone(work)


@pytest.mark.parametrize("blocking", [True, False])
def test_arrays_come_and_go_while_a_stream_is_captured(gpu: Any, blocking: bool) -> None:
    """Nothing of it ends the capture, though the mode is the strictest."""

    def work() -> None:
        captured, stream = gpu.stream(0 if blocking else None), gpu.stream()
        seen = Consumer(new(), stream.ptr)
        default = Consumer(new(), 1)
        address = default.address
        assert gpu.cuda.begin_capture(captured.ptr, GLOBAL) == 0
        seen.release()
        default.release()
        for _ in range(3):
            assert new().ptr != 0
        large = collops.cuda_empty(100 << 20, np.uint8, device=0)
        code, graph = gpu.cuda.end_capture(captured.ptr)
        assert code == 0, gpu.cuda.text()
        gpu.cuda.call("cuGraphDestroy", P(graph))
        assert large.nbytes == 100 << 20
        handed_out(gpu)  # puts an event where none could be put before
        assert address in handed_out(gpu)

    alone(work)


def test_nothing_is_taken_or_freed_while_a_kernel_waits(gpu: Any) -> None:
    """Ranks may be threads of one process: one that makes an array must not stop the others."""

    def work() -> None:
        first = new()
        stream, signal = waiting(gpu.cuda)
        for size in (1, 5000, BYTES, 3 << 20):
            x = collops.cuda_empty(size, np.uint8, device=0)
            x.write(np.full(size, 3, np.uint8), stream=gpu.stream())
            del x
        del first
        assert gpu.mistakes() == 0
        release(gpu.cuda, stream, signal)

    alone(work)


def test_the_cache_is_emptied(gpu: Any) -> None:
    def work() -> None:
        stream, kept = gpu.stream(), new()
        large = collops.cuda_empty(40 << 20, np.uint8, device=0)
        seen = Consumer(large, stream.ptr)
        del large
        with gpu.held(stream):
            assert gpu.cuda.fill(seen.address, 5, 8, stream.ptr) == 0
            seen.release()
            assert collops.cuda_empty_cache() == 0
        stream.synchronize()
        assert collops.cuda_empty_cache() == 40 << 20
        kept.write(np.full(BYTES, 9, np.uint8))
        del kept
        gpu.cuda.sync()
        assert collops.cuda_empty_cache() == 64 << 20
        assert collops.cuda_empty_cache() == 0
        assert new().ptr != 0

    alone(work)


def test_a_child_of_fork_is_told(gpu: Any) -> None:
    from collops.testing import run_ranks

    def work() -> None:
        x = new()

        def child(_: int) -> str:
            with pytest.raises(collops.Error) as error:
                x.read()
            return str(error.value)

        [text] = run_ranks(child, 1)
        assert "before fork()" in text or "cuInit" in text

    alone(work)
