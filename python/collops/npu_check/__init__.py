"""``collops npu-check``: what the backend hccl does on this machine, as a report to send in."""
