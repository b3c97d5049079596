"""The plug-in for vLLM, on modules with the names and signatures of vLLM 0.32."""

from __future__ import annotations

import enum
import logging
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from collops import vllm_plugin  # noqa: E402
from collops.torch.serving import vllm_cpu  # noqa: E402
from collops.torch.serving.rows import gather_list, scatter_rows  # noqa: E402
from tests.torch.groups import default_group, run_group  # noqa: E402

EXPERTS, RANKS = 6, 2


class CpuPlatform:
    dist_backend = "gloo"

    @classmethod
    def get_device_communicator_cls(cls) -> str:
        return "vllm.distributed.device_communicators.cpu_communicator.CpuCommunicator"

    @classmethod
    def use_custom_op_collectives(cls) -> bool:
        return False

    def is_cpu(self) -> bool:
        return True


class CudaPlatform(CpuPlatform):
    dist_backend = "nccl"

    def is_cpu(self) -> bool:
        return False


class CompilationMode(enum.IntEnum):
    NONE = 0
    DYNAMO_TRACE_ONCE = 2


class Config:
    """vLLM's, of which one choice is read."""

    compilation_config: Any


CONFIG = Config()


@pytest.fixture
def platform(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that makes an object vLLM's platform."""

    def use(current: Any) -> Any:
        for name, attributes in {
            "vllm": {},
            "vllm.config": {
                "CompilationMode": CompilationMode,
                "get_current_vllm_config_or_none": lambda: CONFIG,
            },
            "vllm.logger": {"init_logger": logging.getLogger},
            "vllm.platforms": {"current_platform": current},
        }.items():
            module = ModuleType(name)
            module.__dict__.update(attributes)
            monkeypatch.setitem(sys.modules, name, module)
        return current

    return use


def test_cpu_ranks_use_collops(platform: Any) -> None:
    current = platform(type("Own", (CpuPlatform,), {})())
    vllm_plugin.register()
    vllm_plugin.register()
    assert current.dist_backend == "collops"
    for mode in CompilationMode:
        CONFIG.compilation_config = SimpleNamespace(mode=mode)
        assert current.use_custom_op_collectives() == (mode != CompilationMode.NONE)
    module, _, name = current.get_device_communicator_cls().rpartition(".")
    assert (module, name) == ("collops.torch.serving.vllm_cpu", "CpuCommunicator")


def test_it_can_be_turned_off(platform: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLLOPS_VLLM", "0")
    current = platform(type("Own", (CpuPlatform,), {})())
    vllm_plugin.register()
    assert current.dist_backend == "gloo"


def test_other_devices_are_left_alone(platform: Any) -> None:
    current = platform(type("Own", (CudaPlatform,), {})())
    vllm_plugin.register()
    assert current.dist_backend == "nccl"
    assert not current.use_custom_op_collectives()


def test_a_vllm_that_has_changed_runs_without(
    platform: Any, caplog: pytest.LogCaptureFixture
) -> None:
    class Changed:
        dist_backend = "gloo"

        def is_cpu(self) -> bool:
            return True

    current = platform(Changed())
    vllm_plugin.register()
    assert current.dist_backend == "gloo"
    assert "get_device_communicator_cls" in caplog.text


def routed(ids: list[list[int]], rank: int) -> tuple[Any, Any, Any]:
    """A rank's map of experts, which every second of is, and what a router gives it."""
    mine = torch.arange(EXPERTS) % RANKS == rank
    expert_map = torch.where(mine, torch.arange(EXPERTS) // RANKS, -1).to(torch.int32)
    topk = torch.tensor(ids, dtype=torch.int32)
    return expert_map, topk, torch.arange(1.0, topk.numel() + 1).view(topk.shape)


def test_own_experts() -> None:
    rows, ids, weights = vllm_cpu.own_experts(*routed([[0, 1, 2], [1, 3, 5], [4, 5, 1]], 0))
    assert rows is not None
    assert rows.tolist() == [0, 2]
    assert ids.tolist() == [[0, 1], [2, 2]]
    assert ids.dtype == torch.int32
    assert weights.tolist() == [[1, 3], [7, 0]]


@pytest.mark.parametrize(
    ("ids", "rank", "rows", "own"),
    [
        ([[0, 2], [4, 0]], 0, None, [[0, 1], [2, 0]]),  # all here
        ([[0, 2], [4, 0]], 1, [], []),  # none here
        ([[0, 1], [3, 2]], 1, None, [[0], [1]]),  # one of each token
    ],
)
def test_own_experts_of_all_tokens_or_none(ids: Any, rank: int, rows: Any, own: Any) -> None:
    got, here, weights = vllm_cpu.own_experts(*routed(ids, rank))
    assert (got if got is None else got.tolist()) == rows
    assert here.tolist() == own
    assert weights.shape == here.shape


class Experts:
    """Experts that multiply, as vLLM's CPU experts do: expert_map is an argument, and not read."""

    def apply(
        self,
        output: Any,
        hidden_states: Any,
        w1: Any,
        topk_weights: Any,
        topk_ids: Any,
        expert_map: Any,
    ) -> None:
        output.zero_()
        for column in range(topk_ids.shape[1]):
            part = w1[topk_ids[:, column].long()] * hidden_states
            output += part * topk_weights[:, column : column + 1]


class Reads(Experts):
    def apply(self, output: Any, expert_map: Any) -> None:  # type: ignore[override]
        output.fill_(expert_map)


def test_who_ignores_the_map() -> None:
    assert vllm_cpu._ignores(Experts.apply, "expert_map")
    assert not vllm_cpu._ignores(Reads.apply, "expert_map")
    assert not vllm_cpu._ignores(vllm_cpu._with_expert_map(Experts.apply), "expert_map")


@pytest.mark.parametrize("tokens", [0, 1, 7])
def test_the_ranks_parts_add_up(tokens: int) -> None:
    """The sum over the ranks, each with its own experts' weights, is what one rank computes."""
    generator = torch.Generator().manual_seed(36)
    x = torch.randint(-3, 4, (tokens, 4), generator=generator).float()
    w1 = torch.randint(-3, 4, (EXPERTS, 4), generator=generator).float()
    ids = torch.rand(tokens, EXPERTS, generator=generator).argsort(1)[:, :3]
    weights = torch.randint(1, 4, ids.shape, generator=generator).float()
    expected, total = torch.empty_like(x), torch.zeros_like(x)
    Experts().apply(expected, x, w1, weights, ids.int(), None)
    apply = vllm_cpu._with_expert_map(Experts.apply)
    for rank in range(RANKS):
        expert_map, _, _ = routed([[0]], rank)
        part = torch.full_like(x, float("nan"))
        own = w1[rank::RANKS]
        apply(
            Experts(),
            part,
            hidden_states=x,
            w1=own,
            topk_weights=weights,
            topk_ids=ids.int(),
            expert_map=expert_map,
        )
        total += part
    assert torch.equal(total, expected)
    again = torch.empty_like(x)
    apply(Experts(), again, x, w1, weights, ids.int(), None)
    assert torch.equal(again, expected)


class GatheringManager:
    """vLLM's manager of experts, which gathers all tokens on all ranks."""

    sizes: list[int]

    def _get_comm_group(self, is_sequence_parallel: bool) -> Any:
        return SimpleNamespace(device_communicator=SimpleNamespace(collops_group=default_group()))

    def _get_sizes(self, num_local_tokens: int, ranks: Any) -> list[int]:
        return self.sizes

    def dispatch(self, x: Any, weights: Any, ids: Any, _: bool = False, extra: Any = None) -> Any:
        gathered = gather_list(default_group(), [x, weights, ids, *(extra or [])], self.sizes)
        return tuple(gathered) if extra is None else (*gathered[:3], gathered[3:])

    def combine(self, x: Any, is_sequence_parallel: bool = False) -> Any:
        return scatter_rows(default_group(), x, self.sizes)


class Layer:
    """vLLM's preparation of a layer of experts; a layer of 0.32 makes its manager's calls."""

    manager: Any

    def prepare(self, x: Any, weights: Any, ids: Any, expert_map: Any) -> Any:
        flags = [ids[:, 0] % 2 == 0]
        return self.manager.dispatch(x, weights, ids, extra_tensors=flags)


def put_modules(monkeypatch: pytest.MonkeyPatch, layer: type) -> None:
    """The modules that the manager is made from."""
    ep_group = SimpleNamespace(device_communicator=SimpleNamespace(all2all_manager=None))
    fused_moe = "vllm.model_executor.layers.fused_moe.prepare_finalize"
    for name, attributes in {
        "vllm.distributed": {"get_ep_group": lambda: ep_group},
        "vllm.distributed.device_communicators.all2all": {"AgRsAll2AllManager": GatheringManager},
        "vllm.logger": {"init_logger": logging.getLogger},
        f"{fused_moe}": {},
        f"{fused_moe}.naive_dp_ep": {"MoEPrepareAndFinalizeNaiveDPEPModular": layer},
    }.items():
        parent = ""
        for part in name.split("."):
            parent = f"{parent}.{part}" if parent else part
            if parent not in sys.modules:
                monkeypatch.setitem(sys.modules, parent, ModuleType(parent))
        sys.modules[name].__dict__.update(attributes)
    naive = sys.modules[f"{fused_moe}.naive_dp_ep"]
    monkeypatch.setattr(sys.modules[fused_moe], "naive_dp_ep", naive, raising=False)
    Layer.manager = vllm_cpu._expert_manager.__wrapped__()()
    ep_group.device_communicator.all2all_manager = Layer.manager


@pytest.mark.parametrize("least_bytes", [0, 512 << 10], ids=["sent", "gathered"])
def test_tokens_go_to_the_ranks_of_their_experts(
    monkeypatch: pytest.MonkeyPatch, least_bytes: int
) -> None:
    sizes, dtype = [3, 0, 2], torch.bfloat16
    ids = torch.tensor([[0, 3], [1, 4], [5, 4], [2, 2], [1, 0]], dtype=torch.int32)
    x = torch.arange(1.0, 21).view(5, 4).to(dtype)
    weights = torch.arange(1.0, 11).view(5, 2)

    def work(rank: int) -> Any:
        put_modules(monkeypatch, Layer)
        monkeypatch.setattr(vllm_cpu, "LEAST_BYTES", least_bytes)
        mine = [part.split(sizes)[rank] for part in (x, weights, ids)]
        Layer.manager.sizes = sizes
        expert_map = torch.full((EXPERTS,), -1, dtype=torch.int32)
        expert_map[rank * 2 : rank * 2 + 2] = torch.arange(2, dtype=torch.int32)
        expert_map[5] = -1  # a rank of another group has it
        layer = Layer()
        for _ in range(2):
            rows, by, to, [flags] = layer.prepare(*mine, expert_map)
            numbers = [row.item() // 4 for row in rows[:, 0]]
            assert torch.equal(rows, x[numbers])
            assert torch.equal(by, weights[numbers])
            assert torch.equal(to, ids[numbers])
            assert torch.equal(flags, ids[numbers, 0] % 2 == 0)
            y = Layer.manager.combine(rows * (rank + 1) if rows.numel() else rows)
        every = layer.prepare(*mine, None)[0]  # no map: each rank has a part of each expert
        assert torch.equal(every, x)
        return numbers, y.tolist(), Layer.manager.combine(every).tolist()

    numbers, ys, sums = zip(*run_group(work, 3), strict=True)
    sent = least_bytes == 0
    assert list(numbers) == ([[0, 1, 4], [0, 3], [1, 2]] if sent else [[0, 1, 2, 3, 4]] * 3)
    times = torch.tensor([1 + 2, 1 + 3, 3, 2, 1] if sent else [1 + 2 + 3] * 5)
    assert [row for y in ys for row in y] == (x * times.to(dtype)[:, None]).tolist()
    assert [row for y in sums for row in y] == (x * 3).tolist()


def test_a_vllm_without_maps_gathers(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Changed:
        def prepare(self, x: Any) -> None:
            pass

    put_modules(monkeypatch, Changed)
    assert type(Layer.manager) is GatheringManager
    assert "gathers all tokens on all ranks: vLLM has changed" in caplog.text
