"""vLLM makes the tokens of one process with collops between its ranks, of models of three kinds."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from patience import patience
from tests.clients.figures import note
from tests.clients.sends_tokens import SENT
from tests.multihost.hosts import DEVICE, Host, Unavailable, network
from tests.torch.groups import free_port

ROOT = Path(__file__).resolve().parents[2]
PROMPTS = [[5, 7, 11, 13, 17], [200, 3], [91] * 9, [44, 45, 46, 47], [250, 1, 9]]
EXPERTS = ["mixtral", "qwen2_moe"]
ENV = {
    "COLLOPS_TIMEOUT_S": str(patience(60)),
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "VLLM_CPU_CI_ENV": "1",  # torch.compile traces, and does not call the compiler
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_HOST_IP": "127.0.0.1",
    "VLLM_NO_USAGE_STATS": "1",
}
ON = "moves the data between CPU ranks"
# vLLM's own communicator as between hosts.
GLOO = {"worker_extension_cls": "tests.clients.without_shared_memory.Extension"}
MENDED = "which vLLM ignores on CPUs"
# Few tokens as many ones: each goes to the ranks of its experts alone.
SENDS = {"worker_extension_cls": "tests.clients.sends_tokens.Extension"}


class Run:
    """Processes of vLLM, one for each data-parallel rank, here or each on a host of its own."""

    def __init__(
        self,
        folder: Path,
        prompts: list[Any],
        asked: dict[str, Any],
        hosts: list[Host] | None = None,
        **env: str,
    ) -> None:
        self.outs = [folder / f"tokens-{rank}.json" for rank in range(len(prompts))]
        self.logs = [folder / f"log-{rank}.txt" for rank in range(len(prompts))]
        self.processes = []
        port = free_port()
        for rank, own in enumerate(prompts):
            parallel = {
                "VLLM_DP_MASTER_IP": hosts[0].address if hosts else "127.0.0.1",
                "VLLM_DP_MASTER_PORT": str(port),
                "VLLM_DP_RANK": str(rank),
                "VLLM_DP_RANK_LOCAL": "0" if hosts else str(rank),
                "VLLM_DP_SIZE": str(len(prompts)),
            }
            if hosts:
                parallel |= {"VLLM_HOST_IP": hosts[rank].address, "GLOO_SOCKET_IFNAME": DEVICE}
                parallel["PYTHONPATH"] = str(ROOT)  # nsenter's program begins in another folder
            text = json.dumps(asked | {"prompts": own, "out": str(self.outs[rank])})
            command = [sys.executable, "-m", "tests.clients.generate", text]
            with self.logs[rank].open("wb") as log:
                self.processes.append(
                    subprocess.Popen(
                        hosts[rank].enter(*command) if hosts else command,
                        cwd=ROOT,
                        env=os.environ | ENV | (parallel if len(prompts) > 1 else {}) | env,
                        stdout=log,
                        stderr=subprocess.STDOUT,
                        start_new_session=True,  # with the ranks that it starts
                    )
                )

    def tokens(self) -> list[Any]:
        """The tokens of each process's prompts."""
        try:
            for process in self.processes:
                assert process.wait(patience(240)) == 0, self.log()[-6000:]
        finally:
            for process in self.processes:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
        return [json.loads(out.read_text())["tokens"] for out in self.outs]

    def log(self) -> str:
        """What all processes have printed."""
        return "\n".join(log.read_text(errors="replace") for log in self.logs)


@pytest.fixture(scope="session")
def alone(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The tokens of one process with one rank, by the model."""

    @cache
    def tokens_of(model: str) -> list[list[int]]:
        asked = {"model": str(models / model), "enforce_eager": True}
        [tokens] = Run(tmp_path_factory.mktemp(model), [PROMPTS], asked, COLLOPS_VLLM="0").tokens()
        assert len({tuple(one) for one in tokens}) == len(PROMPTS)
        return list(tokens)

    return tokens_of


pytestmark = pytest.mark.timeout(600)


@pytest.mark.parametrize("model", ["llama", *EXPERTS])
@pytest.mark.parametrize("eager", [True, False], ids=["eager", "traced"])
def test_tensor_parallel(models: Path, alone: Any, tmp_path: Path, model: str, eager: bool) -> None:
    run = Run(
        tmp_path,
        [PROMPTS],
        {"model": str(models / model), "tensor_parallel_size": 2, "enforce_eager": eager},
    )
    assert run.tokens() == [alone(model)], run.log()[-6000:]
    assert run.log().count(ON) == 1
    assert MENDED not in run.log() or model in EXPERTS


def test_inductor_compiles_the_calls(models: Path, alone: Any, tmp_path: Path) -> None:
    """As vLLM has it by itself: the other traced runs end before the compiler."""
    run = Run(
        tmp_path,
        [PROMPTS],
        {"model": str(models / "llama"), "tensor_parallel_size": 2, "enforce_eager": False},
        VLLM_CPU_CI_ENV="0",
        VLLM_CACHE_ROOT=str(tmp_path / "cache"),
    )
    assert run.tokens() == [alone("llama")], run.log()[-6000:]


def test_serve(models: Path, alone: Any, tmp_path: Path) -> None:
    """The server with two tensor-parallel ranks; `vllm serve` of this wheel ends with an error."""
    url, log = f"http://127.0.0.1:{free_port()}", tmp_path / "log.txt"
    words = "--tensor-parallel-size 2 --dtype float32 --enforce-eager --max-model-len 128 "
    words += "--kv-cache-memory-bytes 32M --tokens-only --host 127.0.0.1 --port"
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server"]
    command += ["--model", str(models / "llama")]
    with log.open("wb") as out:
        server = subprocess.Popen(
            [*command, *words.split(), url.rpartition(":")[2]],
            cwd=ROOT,
            env=os.environ | ENV,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        end = time.monotonic() + patience(240)
        while not answers(f"{url}/health"):
            assert server.poll() is None and time.monotonic() < end, log.read_text()[-6000:]
            time.sleep(0.5)
        greedy = {"temperature": 0.0, "max_tokens": len(alone("llama")[0]), "ignore_eos": True}
        found = []
        for prompt in PROMPTS:
            body = json.dumps({"token_ids": prompt, "sampling_params": greedy}).encode()
            asked = urllib.request.Request(
                f"{url}/inference/v1/generate", body, {"Content-Type": "application/json"}
            )
            with urllib.request.urlopen(asked, timeout=patience(60)) as answer:
                found.append(json.load(answer)["choices"][0]["token_ids"])
        assert found == alone("llama")
        server.terminate()
        server.wait(patience(60))
    finally:
        if server.poll() is None:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()
    assert log.read_text(errors="replace").count(ON) == 1


def answers(url: str) -> bool:
    """Whether a server is there, and well."""
    try:
        with urllib.request.urlopen(url, timeout=patience(10)) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def test_it_can_be_turned_off(models: Path, alone: Any, tmp_path: Path, shared_memory: Any) -> None:
    """vLLM's own communicator gives the same tokens, and leaves its shared memory."""
    before = set(shared_memory.names())
    asked = {"model": str(models / "llama"), "tensor_parallel_size": 2, "enforce_eager": True}
    run = Run(tmp_path, [PROMPTS], asked, COLLOPS_VLLM="0")
    assert run.tokens() == [alone("llama")], run.log()[-6000:]
    assert ON not in run.log()
    for name in shared_memory.made_since(before):
        if name.startswith("vllm_dist_"):
            Path("/dev/shm", name).unlink()


def test_times_beside_gloo(models: Path, alone: Any, tmp_path: Path) -> None:
    asked = {"model": str(models / "llama"), "tensor_parallel_size": 2, "enforce_eager": True}
    steps_us, calls_us = [], []
    for collops, more in (("1", {}), ("0", GLOO)):
        env = {"COLLOPS_VLLM": collops, "VLLM_ALLOW_INSECURE_SERIALIZATION": "1"}
        run = Run(tmp_path, [PROMPTS], asked | more | {"times": 10}, **env)
        assert run.tokens() == [alone("llama")], run.log()[-6000:]
        found = json.loads(run.outs[0].read_text())
        steps_us.append(min(found["steps_ms"]) * 1e3)
        calls_us.append(found["calls_us"]["512"])
    note("vLLM", "step of a tiny model", *steps_us)
    note("vLLM", "all_reduce of 512 B", *calls_us)


@pytest.mark.parametrize("eager", [True, False], ids=["eager", "traced"])
@pytest.mark.parametrize("model", EXPERTS)
def test_expert_parallel(models: Path, alone: Any, tmp_path: Path, model: str, eager: bool) -> None:
    asked = {"model": str(models / model), "tensor_parallel_size": 2, "enforce_eager": eager}
    run = Run(tmp_path, [PROMPTS], asked | {"enable_expert_parallel": True})
    assert run.tokens() == [alone(model)], run.log()[-6000:]
    assert MENDED in run.log()


@pytest.mark.parametrize(
    ("first", "experts", "more"),
    [(3, True, {}), (3, False, SENDS), (3, True, SENDS), (5, True, SENDS)],
    ids=["uneven-experts", "uneven-all", "uneven-sent", "empty-sent"],
)
@pytest.mark.parametrize("model", EXPERTS)
def test_data_parallel(
    models: Path, alone: Any, tmp_path: Path, model: str, experts: bool, first: int, more: Any
) -> None:
    """Each rank has prompts of its own, or none: it still takes part in the layers of experts."""
    asked = {"model": str(models / model), "enforce_eager": False, **more}
    asked["enable_expert_parallel"] = experts
    run = Run(tmp_path, [PROMPTS[:first], PROMPTS[first:]], asked)
    whole = alone(model)
    assert run.tokens() == [whole[:first], whole[first:]], run.log()[-6000:]
    assert (SENT in run.log()) == (experts and more == SENDS)


def test_two_hosts(models: Path, alone: Any, tmp_path: Path) -> None:
    """Two data-parallel ranks of two tensor-parallel ranks each, with experts on all four."""
    asked = {"model": str(models / "mixtral"), "tensor_parallel_size": 2, "enforce_eager": True}
    asked |= SENDS | {"enable_expert_parallel": True}
    whole = alone("mixtral")
    try:
        with network(2) as hosts:
            run = Run(tmp_path, [PROMPTS[:3], PROMPTS[3:]], asked, hosts)
            assert run.tokens() == [whole[:3], whole[3:]], run.log()[-6000:]
            assert SENT in run.log()
    except Unavailable as error:
        pytest.skip(str(error))
