// Collectives of a simulated libhccl but for the two V calls, from the published signatures.
#include <cstdint>
#include <utility>
#include <vector>

#include "arithmetic.h"
#include "request.h"

using collops_sim::Block;
using collops_sim::BlocksOf;
using collops_sim::Call;
using collops_sim::ExtentOf;
using collops_sim::Request;

namespace {

char* Bytes(const void* data) {
  return const_cast<char*>(static_cast<const char*>(data));
}

std::vector<Block> Same(const Request& request, const void* data, uint64_t count) {
  return std::vector<Block>(request.size(), {Bytes(data), count});
}

// One behind the other.
std::vector<Block> Rows(const Request& request, const Call& call, const void* data,
                        uint64_t count) {
  std::vector<Block> rows;
  for (size_t r = 0; r < request.size(); ++r) {
    rows.push_back({Bytes(data) + r * count * call.element(), count});
  }
  return rows;
}

std::vector<Block> Nothing(const Request& request) {
  return std::vector<Block>(request.size());
}

// A call whose ranks all give one count; the communicator is one of ours.
bool Prepare(Request& request, Call& call, uint64_t count, uint32_t root = 0) {
  if (!request.NeedCount(count) || !request.NeedRank(root)) return false;
  call.counts = {count};
  call.root = root;
  return true;
}

bool PrepareSum(Request& request, Call& call, uint64_t count, int reduction, uint32_t root = 0) {
  if (!request.NeedReduced(static_cast<int>(call.type), reduction)) return false;
  call.reduction = static_cast<uint32_t>(reduction);
  return Prepare(request, call, count, root);
}

}  // namespace

extern "C" {

int HcclAllGather(void* send, void* receive, uint64_t count, int type, void* comm, void* stream) {
  Request request("HcclAllGather", comm, stream);
  Call call(Call::kAllGather, type);
  if (!request.NeedCopied(type) || !Prepare(request, call, count)) return request.code();
  call.sent = Same(request, send, count);
  call.received = Rows(request, call, receive, count);
  return request.Start(std::move(call), {send, count}, {receive, count * request.size()});
}

int HcclReduceScatter(void* send, void* receive, uint64_t count, int type, int reduction,
                      void* comm, void* stream) {
  Request request("HcclReduceScatter", comm, stream);
  Call call(Call::kReduceScatter, type);
  if (!PrepareSum(request, call, count, reduction)) return request.code();
  call.sent = Rows(request, call, send, count);
  call.received = Same(request, nullptr, count);
  call.sum = Bytes(receive);
  return request.Start(std::move(call), {send, count * request.size()}, {receive, count});
}

int HcclAllReduce(void* send, void* receive, uint64_t count, int type, int reduction, void* comm,
                  void* stream) {
  Request request("HcclAllReduce", comm, stream);
  Call call(Call::kAllReduce, type);
  if (!PrepareSum(request, call, count, reduction)) return request.code();
  call.sent = Same(request, send, count);
  call.received = Same(request, nullptr, count);
  call.sum = Bytes(receive);
  return request.Start(std::move(call), {send, count}, {receive, count});
}

int HcclReduce(void* send, void* receive, uint64_t count, int type, int reduction, uint32_t root,
               void* comm, void* stream) {
  Request request("HcclReduce", comm, stream);
  Call call(Call::kReduce, type);
  if (!PrepareSum(request, call, count, reduction, root)) return request.code();
  const bool is_root = request.rank() == root;
  call.sent = Nothing(request);
  call.sent[root] = {Bytes(send), count};
  call.received = is_root ? Same(request, nullptr, count) : Nothing(request);
  call.sum = Bytes(receive);
  return request.Start(std::move(call), {send, count}, {receive, is_root ? count : 0});
}

int HcclBroadcast(void* buffer, uint64_t count, int type, uint32_t root, void* comm, void* stream) {
  Request request("HcclBroadcast", comm, stream);
  Call call(Call::kBroadcast, type);
  if (!request.NeedCopied(type) || !Prepare(request, call, count, root)) return request.code();
  const bool is_root = request.rank() == root;
  call.sent = is_root ? Same(request, buffer, count) : Nothing(request);
  call.received = Nothing(request);
  call.received[root] = {Bytes(buffer), count};
  return request.Start(std::move(call), {buffer, count}, {buffer, 0});
}

int HcclAlltoAllV(const void* send, const void* send_counts, const void* send_displs, int send_type,
                  const void* receive, const void* receive_counts, const void* receive_displs,
                  int receive_type, void* comm, void* stream) {
  Request request("HcclAlltoAllV", comm, stream);
  Call call(Call::kAllToAllV, send_type);
  if (!request.NeedCopied(send_type) || !request.NeedCopied(receive_type)) return request.code();
  if (send_type != receive_type) {
    request.Refuse(collops_sim::kBadParameter, "sendType and recvType differ");
  }
  // Before any count is read: also where one side has no elements. Null is taken there.
  if (send != nullptr && send == receive) {
    request.Refuse(collops_sim::kBadParameter, "recvBuf is sendBuf");
  }
  std::vector<std::vector<uint64_t>> lists;  // what is sent, and what is received
  for (const void* list : {send_counts, send_displs, receive_counts, receive_displs}) {
    if (!request.NeedList(list)) return request.code();
    lists.push_back(call.Read(list, request.size()));
    if (!request.NeedCounts(lists.back())) return request.code();
  }
  if (lists[0][request.rank()] != lists[2][request.rank()]) {
    request.Refuse(collops_sim::kBadParameter, "the counts of the own block differ");
    return request.code();
  }
  call.sent = BlocksOf(Bytes(send), call.element(), lists[0], lists[1]);
  call.received = BlocksOf(Bytes(receive), call.element(), lists[2], lists[3]);
  return request.Start(std::move(call), {send, ExtentOf(lists[0], lists[1])},
                       {receive, ExtentOf(lists[2], lists[3])});
}

int HcclBarrier(void* comm, void* stream) {
  Request request("HcclBarrier", comm, stream);
  Call call(Call::kBarrier, collops_sim::kInt8);
  if (!Prepare(request, call, 0)) return request.code();
  call.sent = Nothing(request);
  call.received = Nothing(request);
  return request.Start(std::move(call), {nullptr, 0}, {nullptr, 0});
}

}  // extern "C"
