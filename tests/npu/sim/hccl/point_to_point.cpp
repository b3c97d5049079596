// HcclSend, HcclRecv and HcclBatchSendRecv of a simulated libhccl, from the published signatures.
#include <cstdint>
#include <set>
#include <utility>

#include "request.h"

using collops_sim::Call;
using collops_sim::Pair;
using collops_sim::Request;

namespace {

enum SendRecvType { kItemSends = 0, kItemReceives = 1 };

struct SendRecvItem {
  int direction;
  void* data;
  uint64_t count;
  int type;
  uint32_t peer;
};

// Adds one transfer to the call; false if something is wrong with it.
bool Add(Request& request, Call& call, const SendRecvItem& item) {
  if (item.direction != kItemSends && item.direction != kItemReceives) {
    return request.Refuse(collops_sim::kBadParameter, "an item neither sends nor receives");
  }
  const bool sends = item.direction == kItemSends;
  const char* const name = sends ? "sendBuf" : "recvBuf";
  if (!request.NeedCopied(item.type) || !request.NeedCount(item.count) ||
      !request.NeedRank(item.peer) ||
      !request.NeedMemory(name, {item.data, item.count}, item.type)) {
    return false;
  }
  if (item.peer == request.rank()) {
    return request.Refuse(collops_sim::kBadParameter, "the other rank is the own one");
  }
  const int peer = static_cast<int>(item.peer);
  for (const Pair& other : call.pairs) {
    if (other.peer != peer || other.sends != sends) continue;
    return request.Refuse(collops_sim::kBadParameter,
                          sends ? "two items send to one rank" : "two items receive from one rank");
  }
  call.pairs.push_back(
      {peer, sends, static_cast<uint32_t>(item.type), {static_cast<char*>(item.data), item.count}});
  if (item.count > 0) call.memory.push_back(item.data);
  return true;
}

int StartOne(const char* function, const SendRecvItem& item, void* comm, void* stream) {
  Request request(function, comm, stream);
  Call call(Call::kSend, item.type);
  if (!Add(request, call, item)) return request.code();
  return request.Start(std::move(call), {nullptr, 0}, {nullptr, 0});
}

}  // namespace

extern "C" {

int HcclSend(void* data, uint64_t count, int type, uint32_t peer, void* comm, void* stream) {
  return StartOne("HcclSend", {kItemSends, data, count, type, peer}, comm, stream);
}

int HcclRecv(void* data, uint64_t count, int type, uint32_t peer, void* comm, void* stream) {
  return StartOne("HcclRecv", {kItemReceives, data, count, type, peer}, comm, stream);
}

int HcclBatchSendRecv(const SendRecvItem* items, uint32_t num, void* comm, void* stream) {
  Request request("HcclBatchSendRecv", comm, stream);
  Call call(Call::kBatch, 0);
  if (!request.NeedList(items)) return request.code();
  if (num == 0) {
    request.Refuse(collops_sim::kBadParameter, "there are no items");
    return request.code();
  }
  for (uint32_t i = 0; i < num; ++i) {
    if (!Add(request, call, items[i])) return request.code();
  }
  return request.Start(std::move(call), {nullptr, 0}, {nullptr, 0});
}

}  // extern "C"
