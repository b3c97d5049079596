"""What operators are compared with: MPI, torch with gloo, numpy, and programs that load a link."""

# The names of --peers.
PEERS = ("mpi", "gloo", "torch", "numpy")
# Programs that measure the link between two hosts.
LINK_PEERS = ("ucx_perftest", "iperf3")
