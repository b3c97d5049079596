"""What operators are compared with: MPI, torch with gloo, numpy, and programs that load a link."""

# The names of --peers.
PEERS = ("mpi", "gloo", "torch", "numpy")
# Beside a backend of GPUs: collops' own backend nccl, and torch.distributed's collectives.
NCCL, TORCH_NCCL, TORCH_SYMM = GPU_PEERS = ("nccl", "torch_nccl", "torch_symm")
# Programs that measure the link between two hosts.
LINK_PEERS = ("ucx_perftest", "iperf3")
