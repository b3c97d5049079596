#include "collops/comm/backends/ucx/collectives.h"
#include "collops/comm/backends/ucx/streams.h"
#include "collops/comm/user_calls.h"
#include "collops/kernels/copy/copy.h"

namespace collops::ucx {
namespace {

// The slices for the ranks of this host, over shared memory.
Status ExchangeHost(Link* link, const ExchangeVCall& call) {
  const HostMap& hosts = link->hosts;
  const int rank = link->control->spec().rank;
  const int64_t item = SizeOf(call.dtype);
  const auto* const x = static_cast<const std::byte*>(call.x);
  auto* const output = static_cast<std::byte*>(call.output);
  if (link->host == nullptr) {
    if (call.recv_counts[rank] > 0) {
      kernels::Copy(output + call.rdispls[rank] * item, x + call.sdispls[rank] * item,
                    call.recv_counts[rank] * item);
    }
    return Ok();
  }
  std::vector<int64_t> lists[4];
  for (const int r : hosts.own_ranks()) {
    lists[0].push_back(call.send_counts[r]);
    lists[1].push_back(call.sdispls[r]);
    lists[2].push_back(call.recv_counts[r]);
    lists[3].push_back(call.rdispls[r]);
  }
  // The ranks have agreed on all of the call.
  const Agreement agreement = call.agreement->WithoutTerms();
  ExchangeVCall inner = call;
  inner.agreement = &agreement;
  inner.send_counts = lists[0].data();
  inner.sdispls = lists[1].data();
  inner.recv_counts = lists[2].data();
  inner.rdispls = lists[3].data();
  inner.gaps = nullptr;
  inner.num_gaps = 0;
  // The group of this host counts steps of its own.
  const UserCall number(CallNumber(link->control->step_number()));
  return link->host->ExchangeV(inner);
}

}  // namespace

Status ExchangeV(Link* link, const ExchangeVCall& call) {
  const HostMap& hosts = link->hosts;
  const int64_t item = SizeOf(call.dtype);
  const auto* const x = static_cast<const std::byte*>(call.x);
  auto* const output = static_cast<std::byte*>(call.output);
  Streams streams(call.agreement->called(), link->worker.get(), &link->control->step(),
                  link->control->spec().rank, link->control->timeout_s());
  for (int64_t i = 0; i < call.num_gaps; ++i) {
    const Range& gap = call.gaps[i];
    kernels::Zero(output + gap.begin * item, (gap.end - gap.begin) * item);
  }
  for (const int host : hosts.OtherHosts()) {
    for (const int r : hosts.RanksOf(host)) {
      streams.Receive(r, 0, output + call.rdispls[r] * item, call.recv_counts[r] * item);
      streams.Send(r, 0, x + call.sdispls[r] * item, call.send_counts[r] * item);
    }
  }
  COLLOPS_RETURN_IF_ERROR(ExchangeHost(link, call));
  return streams.Finish();
}

}  // namespace collops::ucx
