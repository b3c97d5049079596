#include <algorithm>
#include <vector>

#include "collops/comm/backends/hccl/calls/collectives.h"
#include "collops/comm/backends/hccl/calls/device_memory.h"
#include "collops/comm/backends/hccl/library/error.h"
#include "collops/comm/backends/hccl/library/types.h"

namespace collops::hccl {
namespace {

// A message as HCCL takes it. `turn`: how many messages of the list to (or from) the same rank come
// before it.
struct Item {
  SendRecvItem item;
  int turn = 0;
};

SendRecvItem ItemOf(const Transfer& transfer) {
  // Elements of a type that the core has no name for travel as bytes, which are `bytes` long.
  const int64_t size = std::max<int64_t>(SizeOf(transfer.dtype), 1);
  const Carriage carriage = CarriageOf(transfer.dtype);
  SendRecvItem item = {};
  item.way = transfer.way == Transfer::kSend ? Way::kSend : Way::kRecv;
  item.data = transfer.data;
  item.count = static_cast<uint64_t>(transfer.bytes / size * std::max<int64_t>(carriage.scale, 1));
  item.type = carriage.type;
  item.peer = static_cast<uint32_t>(transfer.peer);
  return item;
}

int CountBefore(const std::vector<Item>& items, const SendRecvItem& item) {
  return static_cast<int>(std::count_if(items.begin(), items.end(), [&](const Item& other) {
    return other.item.way == item.way && other.item.peer == item.peer;
  }));
}

// What this rank sends to itself is copied: HCCL connects no rank with itself.
Status CopyOwn(const Engine& engine, const Transfer* list, int count, Stream stream) {
  std::vector<const Transfer*> sends;
  std::vector<const Transfer*> receives;
  for (int i = 0; i < count; ++i) {
    if (list[i].peer != engine.rank()) continue;
    (list[i].way == Transfer::kSend ? sends : receives).push_back(&list[i]);
  }
  for (size_t i = 0; i < sends.size(); ++i) {
    COLLOPS_RETURN_IF_ERROR(
        Copy(engine.api(), receives[i]->data, sends[i]->data, sends[i]->bytes, stream));
  }
  return Ok();
}

Status One(const Engine& engine, const SendRecvItem& item, Stream stream) {
  const Api& api = engine.api();
  if (item.way == Way::kSend) {
    return ToStatus(api,
                    api.send(item.data, item.count, item.type, item.peer, engine.comm(), stream),
                    "HcclSend");
  }
  return ToStatus(api, api.recv(item.data, item.count, item.type, item.peer, engine.comm(), stream),
                  "HcclRecv");
}

}  // namespace

// HCCL takes one message per rank and direction in a batch, so the second ones are a second batch.
// Both ranks count alike: the n-th message between them is in the n-th batch of both.
Status Messages(const Engine& engine, const Transfer* list, int count, bool batched,
                Stream stream) {
  COLLOPS_RETURN_IF_ERROR(CopyOwn(engine, list, count, stream));
  std::vector<Item> items;
  int turns = 0;
  for (int i = 0; i < count; ++i) {
    if (list[i].peer == engine.rank() || list[i].bytes == 0) continue;
    const SendRecvItem item = ItemOf(list[i]);
    items.push_back({item, CountBefore(items, item)});
    turns = std::max(turns, items.back().turn + 1);
  }
  if (!batched && items.size() == 1) return One(engine, items[0].item, stream);
  for (int turn = 0; turn < turns; ++turn) {
    std::vector<SendRecvItem> batch;
    for (const Item& item : items) {
      if (item.turn == turn) batch.push_back(item.item);
    }
    COLLOPS_RETURN_IF_ERROR(
        ToStatus(engine.api(),
                 engine.api().batch_send_recv(batch.data(), static_cast<uint32_t>(batch.size()),
                                              engine.comm(), stream),
                 "HcclBatchSendRecv"));
  }
  return Ok();
}

}  // namespace collops::hccl
