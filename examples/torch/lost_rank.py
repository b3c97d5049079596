"""Trains a model on ranks of which one is lost and comes back: the loss is that of a calm run.

The global batch of a step is cut in microbatches of different sizes, and the ranks have different
numbers of them. In step LOST rank 1 is killed. The others shrink the communicator, cut the
same global batch anew and repeat the step. In step BACK they take in the process that `collops run`
has started in its place, and share the weights and the optimizer's state with it.

Gradients and losses are added by a tree whose leaves are the microbatches, so that no bit depends
on who has which: at the end the loss has the bits of a run on one rank that has lost none. With
`--leaves 0` they are added in the order of the ranks, and the losses agree within 1e-5.

    collops run -n 3 --restart 1 examples/torch/lost_rank.py
"""

from __future__ import annotations

import argparse
import io
import os
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

import numpy as np
import torch
from torch import nn

import collops

DOMAIN = "training"
STEPS, LOST, BACK = 12, 4, 8
MICROBATCHES = 12
ROWS = [1 + (5 * number) % 8 for number in range(MICROBATCHES)]  # of each microbatch
INPUTS, WIDTH = 8, 32
BOUND = 1e-5  # of the losses without leaves


def microbatch(step: int, number: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs and what the model shall say of them, the same wherever they are asked for."""
    source = torch.Generator().manual_seed(1000 * step + number)
    x = torch.randn(ROWS[number], INPUTS, generator=source)
    return x, x.sin().sum(1, keepdim=True)


class Training:
    """What a rank knows: the weights, the optimizer's state, and the losses of the steps so far."""

    def __init__(self, leaves: int) -> None:
        torch.manual_seed(2026)
        self.leaves = leaves
        self.model = nn.Sequential(nn.Linear(INPUTS, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 1))
        self.weights = list(self.model.parameters())
        self.optimizer = torch.optim.AdamW(self.weights, lr=1e-2)
        self.losses: list[float] = []

    @property
    def step(self) -> int:
        """The number of the step that comes next."""
        return len(self.losses)

    def leaf(self, number: int) -> torch.Tensor:
        """Of a microbatch: the gradients of its summed loss, one after the other, and that loss."""
        x, y = microbatch(self.step, number)
        loss = (self.model(x) - y).square().sum()
        gradients = torch.autograd.grad(loss, self.weights)
        return torch.cat([*(gradient.flatten() for gradient in gradients), loss.detach().view(1)])

    def run_step(self, comm: collops.Communicator, loses: bool) -> None:
        """One step of all ranks. If it fails here, this rank has done nothing of it."""
        # A rank has as many microbatches as it is fast: here rank r is r + 1 times as fast as 0.
        speeds = range(comm.size + 1)
        begin, end = (
            MICROBATCHES * sum(speeds[: rank + 1]) // sum(speeds)
            for rank in (comm.rank, comm.rank + 1)
        )
        own = [self.leaf(number) for number in range(begin, end)]
        if loses and self.step == LOST and comm.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.leaves:
            total = comm.all_reduce(partials=own, leaves=MICROBATCHES, leaf_begin=begin)
        else:
            total = comm.all_reduce(torch.stack(own).sum(0))
        mean = total / sum(ROWS)
        *gradients, loss = mean.split([*(weight.numel() for weight in self.weights), 1])
        for weight, gradient in zip(self.weights, gradients, strict=True):
            weight.grad = gradient.view_as(weight)
        self.optimizer.step()
        self.losses.append(loss.item())

    def share(self, comm: collops.Communicator) -> None:
        """Gives all ranks the state of the one that is furthest; a new one has done no step.

        In a step that fails on some ranks others may have got their sum, and have gone on.
        """
        steps = comm.all_gatherv(np.array([self.step])).tolist()
        furthest = steps.index(max(steps))
        file = io.BytesIO()
        if comm.rank == furthest:
            torch.save([self.model.state_dict(), self.optimizer.state_dict(), self.losses], file)
        state = comm.all_gatherv(np.frombuffer(file.getvalue(), np.uint8))  # the others have none
        weights, optimizer, self.losses = torch.load(io.BytesIO(state.tobytes()))
        self.model.load_state_dict(weights)
        self.optimizer.load_state_dict(optimizer)


def train(
    comm: collops.Communicator, leaves: int, is_new: bool
) -> tuple[Training, collops.Communicator]:
    """Runs all steps, whatever ranks end: with what is left of `comm`, and with those that join."""
    training, size = Training(leaves), comm.size
    is_shared = not is_new
    while training.step < STEPS:
        try:
            if training.step == BACK and comm.size < size:
                comm = comm.grow(1)
                is_shared = False
            if not is_shared:
                training.share(comm)
                is_shared = True
                say(comm, f"step {training.step}: {comm.size} ranks")
            training.run_step(comm, loses=comm.size == size > 1)
        except collops.Error as error:
            say(comm, f"step {training.step}: {error.message}")
            comm = comm.shrink()
            is_shared = False
    return training, comm


def say(comm: collops.Communicator, text: str) -> None:
    """Prints a line on one rank."""
    if comm.rank == 0:
        print(text, flush=True)


def agree(found: Training, calm: Training) -> bool:
    """Whether a training has the losses and the weights of one that has lost no rank."""
    if found.leaves == 0:
        return bool(np.allclose(found.losses, calm.losses, rtol=BOUND, atol=0))
    return found.losses == calm.losses and all(map(torch.equal, found.weights, calm.weights))


class Parser(argparse.ArgumentParser):
    """The command line; an error in it is one line."""

    def __init__(self) -> None:
        super().__init__(description=(__doc__ or "").split("\n\n")[0], allow_abbrev=False)
        words = "0: sums in the order of the ranks"
        choices = (0, MICROBATCHES)
        self.add_argument("--leaves", type=int, choices=choices, default=MICROBATCHES, help=words)

    def error(self, message: str) -> NoReturn:
        """Ends the program with status 2."""
        self.exit(2, f"{self.prog}: {message}; see --help\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Trains, and compares with one rank that trains alone: 0 if they agree, 1 if not."""
    parser = Parser()
    leaves = parser.parse_args(arguments).leaves
    torch.set_num_threads(1)
    is_new = int(os.environ.get("COLLOPS_RESTARTS", "0")) > 0
    comm = collops.init(join=DOMAIN) if is_new else collops.init(comm_domain=DOMAIN)
    if comm.size < 2:
        parser.error("it needs two ranks: collops run -n 3 --restart 1 " + sys.argv[0])
    found, comm = train(comm, leaves, is_new)
    alone = comm.split(comm.rank)
    assert alone is not None
    calm, _ = train(alone, leaves, is_new=False)
    same = agree(found, calm)
    verdict = "as" if same else "NOT as"
    say(comm, f"loss {found.losses[-1]:.9f}, {verdict} without a loss: {calm.losses[-1]:.9f}")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
