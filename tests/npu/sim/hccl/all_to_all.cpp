// HcclAlltoAllV of a simulated libhccl, from its published signature.
#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "request.h"

using collops_sim::Block;
using collops_sim::Call;
using collops_sim::Request;

namespace {

// What goes to the ranks, or comes from them.
struct Side {
  char* data;
  std::vector<uint64_t> counts;
  std::vector<uint64_t> displs;

  Side(const void* a_data, std::vector<uint64_t> a_counts, std::vector<uint64_t> a_displs)
      : data(const_cast<char*>(static_cast<const char*>(a_data))),
        counts(std::move(a_counts)),
        displs(std::move(a_displs)) {}

  std::vector<Block> Blocks(size_t element) const {
    std::vector<Block> blocks;
    for (size_t r = 0; r < counts.size(); ++r) {
      blocks.push_back({data + displs[r] * element, counts[r]});
    }
    return blocks;
  }
  uint64_t Extent() const {
    uint64_t extent = 0;
    for (size_t r = 0; r < counts.size(); ++r) {
      if (counts[r] > 0) extent = std::max(extent, displs[r] + counts[r]);
    }
    return extent;
  }
};

bool NeedTypes(Request& request, int send_type, int receive_type) {
  if (!request.NeedCopied(send_type) || !request.NeedCopied(receive_type)) return false;
  return send_type == receive_type ||
         request.Refuse(collops_sim::kBadParameter, "sendType and recvType differ");
}

int Start(Request& request, Call call, const Side& sent, const Side& received) {
  for (const Side* side : {&sent, &received}) {
    if (!request.NeedCounts(side->counts) || !request.NeedCounts(side->displs)) {
      return request.code();
    }
  }
  const uint64_t to_self = sent.counts[request.rank()];
  if (to_self != received.counts[request.rank()]) {
    request.Refuse(collops_sim::kBadParameter, "the counts of the own block differ");
    return request.code();
  }
  call.sent = sent.Blocks(call.element());
  call.received = received.Blocks(call.element());
  return request.Start(std::move(call), {sent.data, sent.Extent()},
                       {received.data, received.Extent()});
}

}  // namespace

extern "C" {

int HcclAlltoAllV(const void* send, const void* send_counts, const void* send_displs, int send_type,
                  const void* receive, const void* receive_counts, const void* receive_displs,
                  int receive_type, void* comm, void* stream) {
  Request request("HcclAlltoAllV", comm, stream);
  Call call(Call::kAllToAllV, send_type);
  if (!NeedTypes(request, send_type, receive_type)) return request.code();
  for (const void* list : {send_counts, send_displs, receive_counts, receive_displs}) {
    if (!request.NeedList(list)) return request.code();
  }
  const size_t size = request.size();
  const Side sent(send, call.Read(send_counts, size), call.Read(send_displs, size));
  const Side received(receive, call.Read(receive_counts, size), call.Read(receive_displs, size));
  return Start(request, std::move(call), sent, received);
}

}  // extern "C"
