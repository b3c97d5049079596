"""A rank that has made an operation, and with it holds the job's port, until it is ended."""

from __future__ import annotations

import signal

import collops

operation = collops.Operation(collops.AllGatherVParam(rank=-1, rank_size=2, backend="ucx"))
print("ready", flush=True)
signal.pause()
