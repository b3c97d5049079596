"""Programs that name gloo themselves, unmodified: COLLOPS_AS=gloo gives them groups of collops.

There are no tests for packages that are not installed here: pip install transformers lightning.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from collops.terminal.installation import is_installed  # noqa: E402
from patience import patience  # noqa: E402
from tests.torch.groups import free_port  # noqa: E402

LIMIT_S = patience(150)
OF_COLLOPS = "collops.torch.group"

ACCELERATE = """
    import os
    import sys

    import torch
    import torch.distributed as dist
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    torch.manual_seed(1)
    model = torch.nn.Linear(4, 2)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for step in range(3):
        accelerator.backward(model(torch.full((2, 4), accelerator.process_index + 1.0)).sum())
        optimizer.step()
        optimizer.zero_grad()
    whole = accelerator.gather(torch.tensor([float(accelerator.process_index)]))
    said = [*whole.tolist(), *model.module.weight.flatten().tolist()]
    said = [dist.get_backend(), type(dist.group.WORLD).__module__, *said]
    with open(f"{sys.argv[1]}/found{dist.get_rank()}", "w") as file:
        file.write(" ".join(map(str, said)))
    if "collops" not in said[1]:
        os._exit(0)  # gloo's threads may abort an interpreter that ends beside them
"""

TRAINER = """
    import os
    import sys

    import torch
    import torch.distributed as dist
    from transformers import Trainer, TrainingArguments

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(1)
            self.layer = torch.nn.Linear(4, 2)

        def forward(self, x, labels):
            return {"loss": (self.layer(x) - labels).square().mean()}

    data = [{"x": torch.full((4,), i / 8), "labels": torch.ones(2) * i} for i in range(8)]
    arguments = TrainingArguments(
        sys.argv[1], use_cpu=True, max_steps=3, report_to=[], save_strategy="no", disable_tqdm=True,
        per_device_train_batch_size=2, learning_rate=0.1,
    )
    trainer = Trainer(Model(), arguments, train_dataset=data)
    trainer.train()
    said = [*trainer.model.layer.weight.flatten().tolist()]
    said = [dist.get_backend(), type(dist.group.WORLD).__module__, *said]
    with open(f"{sys.argv[1]}/found{dist.get_rank()}", "w") as file:
        file.write(" ".join(map(str, said)))
    if "collops" not in said[1]:
        os._exit(0)  # as above
"""

LIGHTNING = """
    import sys

    import lightning
    import torch
    import torch.distributed as dist

    class Model(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            torch.manual_seed(1)
            self.layer = torch.nn.Linear(4, 2)

        def training_step(self, batch, number):
            loss = self.layer(batch).square().mean()
            self.log("loss", loss, sync_dist=True)
            return loss

        def on_train_end(self):
            said = [*self.layer.weight.flatten().tolist()]
            said = [dist.get_backend(), type(dist.group.WORLD).__module__, *said]
            with open(f"{sys.argv[1]}/found{dist.get_rank()}", "w") as file:
                file.write(" ".join(map(str, said)))

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    trainer = lightning.Trainer(
        accelerator="cpu", devices=2, strategy="ddp", max_steps=3, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )
    data = torch.utils.data.DataLoader([torch.full((4,), i / 8) for i in range(16)], batch_size=2)
    trainer.fit(Model(), data)
"""

TORCHRUN = ["-m", "torch.distributed.run", "--nproc-per-node=2", "--master-port={port}"]
CASES = {
    "torchrun with Accelerate": ("accelerate", TORCHRUN, ACCELERATE),
    "torchrun with Trainer": ("transformers", TORCHRUN, TRAINER),
    "Lightning": ("lightning", [], LIGHTNING),
}


def found_by(launcher: list[str], program: Path, folder: Path, **env: str) -> list[list[str]]:
    """What each rank has written: torch's backend, the group's module, and values."""
    port = str(free_port())
    command = [sys.executable, *(word.format(port=port) for word in launcher), str(program)]
    done = subprocess.run(
        [*command, str(folder)],
        env=os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", **env},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        cwd=folder,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    files = [folder / f"found{rank}" for rank in range(2)]
    found = [file.read_text().split() for file in files]
    for file in files:
        file.unlink()
    return found


@pytest.mark.timeout(2 * LIMIT_S)
@pytest.mark.parametrize("case", [name for name, case in CASES.items() if is_installed(case[0])])
def test_it_trains_as_with_gloo(case: str, tmp_path: Any) -> None:
    _, launcher, text = CASES[case]
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(text))
    want = found_by(launcher, program, tmp_path, COLLOPS_AS="")
    found = found_by(launcher, program, tmp_path, COLLOPS_AS="gloo")
    assert [words[:2] for words in want] == [["gloo", "torch.distributed.distributed_c10d"]] * 2
    assert [words[:2] for words in found] == [["gloo", OF_COLLOPS]] * 2
    assert [words[2:] for words in found] == [words[2:] for words in want]


if is_installed("transformers"):

    @pytest.mark.timeout(LIMIT_S)
    def test_the_trainers_argument_for_the_backend(tmp_path: Any) -> None:
        """ddp_backend="collops", after one import."""
        text = textwrap.dedent(TRAINER).replace(
            "use_cpu=True", 'use_cpu=True, ddp_backend="collops"'
        )
        program = tmp_path / "program.py"
        program.write_text("import collops.torch.accelerate\n" + text)
        found = found_by(TORCHRUN, program, tmp_path)
        assert [words[:2] for words in found] == [["collops", OF_COLLOPS]] * 2
