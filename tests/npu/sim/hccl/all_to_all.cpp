// The three AlltoAll calls of a simulated libhccl, from the published signatures.
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
  // One block behind the other.
  Side(const void* a_data, std::vector<uint64_t> a_counts) : Side(a_data, std::move(a_counts), {}) {
    uint64_t next = 0;
    for (const uint64_t count : counts) {
      displs.push_back(next);
      next += count;
    }
  }

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

int HcclAlltoAll(const void* send, uint64_t send_count, int send_type, const void* receive,
                 uint64_t receive_count, int receive_type, void* comm, void* stream) {
  Request request("HcclAlltoAll", comm, stream);
  Call call(Call::kAllToAll, send_type);
  if (!NeedTypes(request, send_type, receive_type)) return request.code();
  const std::vector<uint64_t> sent(request.size(), send_count);
  const std::vector<uint64_t> received(request.size(), receive_count);
  call.counts = {send_count, receive_count};
  return Start(request, std::move(call), Side(send, sent), Side(receive, received));
}

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

// Number [i][j] of the matrix goes from rank i to rank j.
int HcclAlltoAllVC(const void* send, const void* matrix, int send_type, const void* receive,
                   int receive_type, void* comm, void* stream) {
  Request request("HcclAlltoAllVC", comm, stream);
  Call call(Call::kAllToAllVC, send_type);
  if (!NeedTypes(request, send_type, receive_type) || !request.NeedList(matrix)) {
    return request.code();
  }
  const size_t size = request.size();
  const std::vector<uint64_t> all = call.Read(matrix, size * size);
  std::vector<uint64_t> sent;
  std::vector<uint64_t> received;
  uint64_t digest = 1469598103934665603U;  // the ranks compare it in place of the matrix
  for (const uint64_t count : all) digest = (digest ^ count) * 1099511628211U;
  for (size_t r = 0; r < size; ++r) {
    sent.push_back(all[request.rank() * size + r]);
    received.push_back(all[r * size + request.rank()]);
  }
  call.counts = {digest};
  return Start(request, std::move(call), Side(send, sent), Side(receive, received));
}

}  // extern "C"
