#!/bin/sh
# Usage: simulated_srun.sh RANKS COMMAND...: no Slurm is here. This starts the ranks of one job step
# with the variables that srun gives them. Every use is a step of its own in the same allocation.
ranks=$1
shift
export SLURM_JOB_ID=4711 SLURM_STEP_ID=$$ SLURM_NTASKS="$ranks"
rank=0
pids=
while [ $rank -lt "$ranks" ]; do
    SLURM_PROCID=$rank "$@" &
    pids="$pids $!"
    rank=$((rank + 1))
done
status=0
for pid in $pids; do
    wait "$pid" || status=1
done
exit $status
