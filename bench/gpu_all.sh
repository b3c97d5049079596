#!/bin/sh
# Builds, checks and times collops on a machine with one GPU, and writes all of it into one JSON:
#
#     bench/gpu_all.sh [--output FILE] [--short]
#
# Under 10 minutes: every step has a time limit, and what no time is left for is in the file with its
# reason, as is all else that did not run. Needs a driver of CUDA; what else is missing
# (compute-sanitizer, NCCL, torch) is named. The exit status is 1 if a step failed.
#
# THIS HAS NEVER RUN ON A GPU. A test runs its short form on simulated GPUs, and the file says so then.
exec python3 "$(dirname "$0")/gpu_steps.py" "$@"
