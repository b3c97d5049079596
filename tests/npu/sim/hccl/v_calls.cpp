// The two V collectives of a simulated libhccl, apart: a library without them exists, too.
#include <cstdint>
#include <string>

#include "acl.h"
#include "arithmetic.h"
#include "request.h"
#include "sim/combine.h"

using collops_sim::BlocksOf;
using collops_sim::Call;
using collops_sim::ExtentOf;
using collops_sim::Request;

namespace {

// HCCL documents fewer types than for the calls of one count.
bool NeedType(Request& request, int type, bool reduces) {
  using namespace collops_sim;
  switch (type) {
    case kInt8:
    case kInt32:
    case kFloat16:
    case kFloat32:
    case kBFloat16:
      return true;
    case kInt16:
      if (reduces) return true;
      [[fallthrough]];
    default:
      return request.Refuse(kNotSupported, "this data type is not taken by this call");
  }
}

bool NeedOwnCount(Request& request, const Call& call, uint64_t own_count) {
  const uint64_t listed = call.counts[request.rank()];
  if (own_count == listed) return true;
  return request.Refuse(collops_sim::kBadParameter,
                        "the own count is " + std::to_string(own_count) + " but the list says " +
                            std::to_string(listed));
}

bool NeedSoc(Request& request, bool is_sum) {
  constexpr size_t kMostOn310P = 4;
  if (std::string(collops_sim::SocName()).rfind("Ascend310P", 0) != 0) return true;
  if (request.size() > kMostOn310P) {
    return request.Refuse(collops_sim::kNotSupported, "not of more than 4 ranks on this device");
  }
  return is_sum || request.Refuse(collops_sim::kNotSupported, "only sums on this device");
}

// What both have in common; false if something is wrong.
bool Prepare(Request& request, Call& call, const void* counts, const void* displs,
             uint64_t own_count, int reduction = collops_sim::kSum) {
  const bool reduces = call.kind == Call::kReduceScatterV;
  if (!request.NeedList(counts) || !request.NeedList(displs)) return false;
  if (!NeedType(request, static_cast<int>(call.type), reduces)) return false;
  if (!NeedSoc(request, reduction == collops_sim::kSum)) return false;
  call.counts = call.Read(counts, request.size());
  call.displs = call.Read(displs, request.size());
  return request.NeedCounts(call.counts) && request.NeedCounts(call.displs) &&
         NeedOwnCount(request, call, own_count);
}

}  // namespace

extern "C" {

int HcclAllGatherV(void* send, uint64_t send_count, void* receive, const void* counts,
                   const void* displs, int type, void* comm, void* stream) {
  Request request("HcclAllGatherV", comm, stream);
  Call call(Call::kAllGatherV, type);
  if (!Prepare(request, call, counts, displs, send_count)) return request.code();
  call.sent.assign(request.size(), {static_cast<char*>(send), send_count});
  call.received = BlocksOf(receive, call.element(), call.counts, call.displs);
  const uint64_t extent = ExtentOf(call.counts, call.displs);
  return request.Start(std::move(call), {send, send_count}, {receive, extent});
}

int HcclReduceScatterV(void* send, const void* counts, const void* displs, void* receive,
                       uint64_t receive_count, int type, int reduction, void* comm, void* stream) {
  Request request("HcclReduceScatterV", comm, stream);
  Call call(Call::kReduceScatterV, type);
  if (!Prepare(request, call, counts, displs, receive_count, reduction)) return request.code();
  if (reduction < 0 || reduction > collops_sim::kMin) {
    request.Refuse(collops_sim::kBadParameter, "there is no such reduction");
  } else if (reduction == collops_sim::kProduct) {
    request.Refuse(collops_sim::kNotSupported, "no product on this device");
  }
  if (request.code() != 0) return request.code();
  call.reduction = static_cast<uint32_t>(reduction);
  call.sent = BlocksOf(send, call.element(), call.counts, call.displs);
  call.received.assign(request.size(), {nullptr, receive_count});
  call.sum = static_cast<char*>(receive);
  const uint64_t extent = ExtentOf(call.counts, call.displs);
  return request.Start(std::move(call), {send, extent}, {receive, receive_count});
}

}  // extern "C"
