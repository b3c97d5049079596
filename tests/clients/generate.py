"""One rank of data-parallel vLLM, or all of vLLM: prompts in, tokens out.

    python -m tests.clients.generate '{"model": "...", "prompts": [[5, 7]], "out": "tokens.json"}'

`out` gets the tokens of each prompt; with `times`, also the time of a step, so often, and of calls.
What else is asked for goes to vllm.LLM as it is.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

TOKENS = 12
ENGINE: dict[str, Any] = {
    "dtype": "float32",
    "skip_tokenizer_init": True,
    "max_model_len": 128,
    "max_num_seqs": 8,
    "kv_cache_memory_bytes": 32 << 20,
    "disable_log_stats": True,
    "seed": 0,
}


def time_all_reduce(worker: Any) -> dict[str, float]:
    """The microseconds of an all_reduce between the tensor-parallel ranks, by its bytes.

    vLLM's engine, a process of its own, looks for an answer all the time for a second, which takes
    a core from the ranks where there are no more than these.
    """
    import torch
    from vllm.distributed import get_tp_group

    found = {}
    time.sleep(2)
    for num_bytes in (512, 16 << 10, 1 << 20):
        x = torch.zeros(num_bytes // 4)
        rounds = []
        for _ in range(50):
            repeats = 100 if num_bytes < 1 << 20 else 20
            begin = time.perf_counter()
            for _ in range(repeats):
                get_tp_group().all_reduce(x)
            rounds.append((time.perf_counter() - begin) / repeats * 1e6)
        found[str(num_bytes)] = statistics.median(rounds)
    return found


def main() -> None:
    """Generates greedily, and writes the tokens."""
    from vllm import LLM, SamplingParams

    asked = json.loads(sys.argv[1])
    prompts, out, times = asked.pop("prompts"), Path(asked.pop("out")), asked.pop("times", 0)
    llm = LLM(**ENGINE | asked)
    # A data-parallel rank without prompts has one token to make, and then nothing.
    greedy = SamplingParams(
        temperature=0.0, max_tokens=TOKENS if prompts else 1, ignore_eos=True, detokenize=False
    )
    given = [{"prompt_token_ids": prompt} for prompt in prompts or [[2]]]
    done = llm.generate(given, greedy, use_tqdm=False)
    tokens = [list(one.outputs[0].token_ids) for one in done] if prompts else []
    steps_ms = []
    for _ in range(times):
        begin = time.perf_counter()
        llm.generate(given, greedy, use_tqdm=False)
        steps_ms.append((time.perf_counter() - begin) / TOKENS * 1e3)
    calls_us = llm.collective_rpc(time_all_reduce)[0] if times else {}
    out.write_text(json.dumps({"tokens": tokens, "steps_ms": steps_ms, "calls_us": calls_us}))


if __name__ == "__main__":
    main()
