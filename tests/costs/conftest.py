"""The costs of hosts are measured with the tests of hosts."""

import os

# `make test-multihost` sets it.
collect_ignore = [] if os.environ.get("COLLOPS_TEST_PROGRAMS") else ["test_costs_of_hosts.py"]
