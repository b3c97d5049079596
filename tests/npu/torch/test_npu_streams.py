"""The order of a group's calls on streams of NPUs: who waits, and that the host does not."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from device_streams import PROGRAMS, Place
from npu_groups import run_npu_group


@pytest.mark.parametrize("name", PROGRAMS)
def test_streams(name: str, npu: Any) -> None:
    program = PROGRAMS[name]

    def work(rank: int) -> Any:
        return program.run(Place(torch.device("npu", rank), torch.npu, npu.held))


def test_an_asynchronous_call_is_waited_for_on_the_stream(npu: Any) -> None:
    def work(rank: int) -> tuple[bool, bool, list[float]]:
        stream, x = own_stream(), torch.full((1000,), 3.0).npu()
        with npu.held(stream):
            begun = time.monotonic()
            call = dist.all_reduce(x, async_op=True)
            early = call.is_completed()
            call.wait()
            doubled = x * 2
            host_went_on = time.monotonic() - begun < 40
            time.sleep(0.05)  # the multiplication would run now, if nothing kept it
        return early, host_went_on, doubled[:2].tolist()

    assert run_npu_group(work, 2) == [(False, True, [12.0, 12.0])] * 2


def test_an_asynchronous_call_comes_after_the_work_before_it(npu: Any) -> None:
    def work(rank: int) -> list[float]:
        own_stream()
        x = torch.zeros(2).npu()
        with npu.held(torch.npu.current_stream()):
            x.add_(rank + 1)
            call = dist.all_reduce(x, async_op=True)
            time.sleep(0.05)
        call.wait()
        return x.tolist()

    assert run_npu_group(work, 2) == [[3.0, 3.0]] * 2


def test_calls_on_several_streams_keep_their_order(npu: Any) -> None:
    """An asynchronous call, one on the current stream, and one on a third stream."""

    def work(rank: int) -> tuple[list[bool], list[float]]:
        own, here, other = own_stream(), torch.npu.current_stream(), torch.npu.Stream()
        x, y, z = (torch.full((2,), i + 1.0).npu() for i in range(3))
        torch.npu.synchronize()
        with npu.held(own):
            call = dist.all_reduce(x, async_op=True)
            dist.all_reduce(y)
            with torch.npu.stream(other):
                dist.all_reduce(z)
            time.sleep(0.3)
            ended = [bool(stream.query()) for stream in (here, other)]
        call.wait()
        torch.npu.synchronize()
        return ended, [t[0].item() for t in (x, y, z)]

    assert run_npu_group(work, 2) == [([False, False], [2.0, 4.0, 6.0])] * 2


def test_a_stream_waits_for_that_of_the_call_before(npu: Any) -> None:
    """Without a call of HCCL's, which the simulation keeps in order by itself."""

    def work(rank: int) -> tuple[bool, list[float]]:
        torch.npu.set_device(0)
        streams, x = NpuStreams(torch.device("npu", 0)), torch.ones(2).npu()
        with streams.apart([x]):
            x.add_(1)
        torch.npu.synchronize()
        with npu.held(streams.own), torch.npu.stream(torch.npu.Stream()):
            with streams.apart([]):
                x.add_(1)
            streams.join()
            x.mul_(2)
            time.sleep(0.1)
            ended = bool(torch.npu.current_stream().query())
        torch.npu.synchronize()
        return ended, x.tolist()

    assert run_ranks(work, 1) == [(False, [6, 6])]


def test_memory_of_an_asynchronous_call_is_not_given_out_again(npu: Any) -> None:
    """The copy of a view that a call reads, and that nobody else holds."""

    def work(rank: int) -> list[float]:
        stream, x = own_stream(), torch.arange(1024.0).view(2, 512).npu()
        out = torch.empty(2 * 1024, device="npu")
        torch.npu.synchronize()
        with npu.held(stream):
            call = dist.all_gather_into_tensor(out, x.t(), async_op=True)
            others = [torch.full((1024,), -1.0, device="npu") for _ in range(8)]
            torch.npu.current_stream().synchronize()
        call.wait()
        del others
        return out[:4].tolist()

    assert run_npu_group(work, 2) == [[0.0, 512.0, 1.0, 513.0]] * 2


def test_memory_of_a_call_that_fails_half_way_is_not_given_out_again(npu: Any) -> None:
    """The part that is on the stream still reads it."""

    def work(rank: int) -> list[float]:
        torch.npu.set_device(0)
        streams, out = NpuStreams(torch.device("npu", 0)), torch.zeros(1024).npu()
        with streams.apart([out]):
            out.add_(0)
        torch.npu.synchronize()
        with npu.held(streams.own):
            x = torch.full((1024,), 7.0).npu()
            try:
                with streams.apart([x, out]):
                    out.copy_(x)
                    raise RuntimeError("the next part of the call")
            except RuntimeError:
                del x
            others = [torch.full((1024,), -1.0, device="npu") for _ in range(8)]
            torch.npu.current_stream().synchronize()
        torch.npu.synchronize()
        del others
        return out[:2].tolist()

    assert run_ranks(work, 1) == [[7.0, 7.0]]


def test_a_callback_of_a_future_waits_for_the_call(npu: Any) -> None:
    def work(rank: int) -> list[float]:
        stream, x = own_stream(), torch.full((2,), 5.0).npu()
        with npu.held(stream):
            future = dist.all_reduce(x, async_op=True).get_future()
            doubled = future.then(lambda done: done.value()[0] * 2)
            time.sleep(0.05)
        result = doubled.wait()
        return result.tolist()

    assert run_npu_group(work, 2) == [[20.0, 20.0]] * 2


def test_a_future_of_a_batch_waits_for_its_calls(npu: Any) -> None:
    def work(rank: int) -> list[float]:
        stream, x, y = own_stream(), torch.full((2,), 5.0).npu(), torch.full((2,), 7.0).npu()
        with npu.held(stream):
            with dist._coalescing_manager(async_ops=True) as several:
                dist.all_reduce(x)
                dist.all_reduce(y)
            side = torch.npu.Stream()
            with torch.npu.stream(side):
                several.works[0].get_future().wait()
                doubled = x * 2
            time.sleep(0.05)
        side.synchronize()
        several.wait()
        return [*doubled.tolist(), *y.tolist()]

    assert run_npu_group(work, 2) == [[20.0, 20.0, 14.0, 14.0]] * 2


def test_a_barrier_waits_for_the_work_so_far(npu: Any) -> None:
    def work(rank: int) -> bool:
        stream, x, release = own_stream(), torch.ones(2).npu(), threading.Event()

        def hold() -> None:
            torch.npu.set_device(rank)
            with npu.held(stream):
                held.set()
                release.wait()

        held, holder = threading.Event(), threading.Thread(target=hold)
        holder.start()
        held.wait()
        call = dist.all_reduce(x, async_op=True)
        threading.Timer(0.3, release.set).start()
        dist.barrier()
        ended = call.is_completed()
        holder.join()
        return ended

    assert run_npu_group(work, 3) == [True] * 3
    assert run_npu_group(work, program.ranks) == [program.result] * program.ranks
