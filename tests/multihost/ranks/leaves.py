"""Ranks of which LEAVER ends before its first call; the others print the error of theirs, as JSON.

The leaver waits for the file READY, which rank 0 makes when its operation holds the job's port.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import numpy as np

import collops

rank = int(os.environ["COLLOPS_RANK"])
size = int(os.environ["COLLOPS_RANK_SIZE"])
param = collops.AllGatherVParam(rank=rank, rank_size=size, backend="ucx")
operation = collops.Operation(param)
ready = Path(os.environ["READY"])
if rank == 0:
    ready.touch()
if rank == int(os.environ["LEAVER"]):
    deadline = time.monotonic() + float(os.environ["COLLOPS_TIMEOUT_S"])
    while not ready.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    sys.exit(0 if ready.exists() else 1)
found: dict[str, object] = {"rank": rank}
begin = time.monotonic()
counts = np.full(size, 1, np.int64)
x = np.full((1, 2), rank, np.float32)
try:
    operation.forward([x, counts[:1], counts, np.arange(size), np.empty(size, np.float16)])
except collops.Error as error:
    found |= {"name": error.name, "message": error.message}
found["seconds"] = time.monotonic() - begin
print(json.dumps(found), flush=True)
