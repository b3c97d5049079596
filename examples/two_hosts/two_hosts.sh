#!/bin/sh
# Runs gather_and_reduce.py on two hosts, which are network namespaces of this machine:
#   sudo env "PATH=$PATH" sh examples/two_hosts/two_hosts.sh
# PYTHON names the Python that has collops and its extra, collops[multihost] (default: python3).
set -eu

folder=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-python3}
first=collops-first-$$
second=collops-second-$$

if [ "$(id -u)" != 0 ]; then
  echo "two_hosts.sh: needs root: it makes two network namespaces and a cable between them" >&2
  exit 2
fi
if ! command -v ip >/dev/null; then
  echo "two_hosts.sh: needs the program ip (Debian: apt install iproute2)" >&2
  exit 2
fi

pids=
clean() {
  trap - EXIT INT TERM
  for pid in $pids; do kill "$pid" 2>/dev/null || true; done
  wait
  for host in "$first" "$second"; do ip netns delete "$host" 2>/dev/null || true; done
}
trap clean EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Two hosts with the addresses of ranks.json, and a cable.
for host in "$first" "$second"; do
  if ! ip netns add "$host"; then
    echo "two_hosts.sh: this machine or container does not allow network namespaces" >&2
    exit 2
  fi
done
ip link add wire0 netns "$first" type veth peer name wire0 netns "$second"
ip -n "$first" address add 10.77.1.1/24 dev wire0
ip -n "$second" address add 10.77.1.2/24 dev wire0
for host in "$first" "$second"; do
  ip -n "$host" link set lo up
  ip -n "$host" link set wire0 up
done
# A cable that has just been plugged in: an address of IPv6 can be used only after a while.
for host in "$first" "$second"; do
  tries=0
  while ip -n "$host" address show dev wire0 | grep -q -e tentative -e "state DOWN"; do
    tries=$((tries + 1))
    if [ "$tries" -gt 100 ]; then
      echo "two_hosts.sh: the cable between the namespaces does not come up" >&2
      exit 1
    fi
    sleep 0.1
  done
done

# On real hosts this is the command that each of them runs.
on() {
  host=$1
  shift
  exec ip netns exec "$host" "$@"
}
for host in "$first" "$second"; do
  (on "$host" "$python" -m collops run --rank-table "$folder/ranks.json" \
    "$folder/gather_and_reduce.py") &
  pids="$pids $!"
done
status=0
for pid in $pids; do
  wait "$pid" || status=$?
done
pids=
exit "$status"
