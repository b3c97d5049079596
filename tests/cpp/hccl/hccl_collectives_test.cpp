// Which of HCCL's calls the collectives and messages of the hccl backend become, and what it takes
// from the caller. What comes out: tests/conformance on simulated NPUs, and tests/npu.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "check.h"
#include "collops/comm/backends/hccl/backend.h"
#include "collops/comm/backends/hccl/library.h"
#include "collops/comm/control/control.h"
#include "hccl/slow_cann.h"
#include "ranks.h"

namespace {

using namespace collops;        // the calls
using namespace collops::hccl;  // the declarations of CANN

constexpr int kRank = 1;
constexpr int kRankSize = 3;

// One line per call that HCCL got.
std::vector<std::string> lines;

template <typename... Parts>
Result Note(const Parts&... parts) {
  lines.push_back(Concat(parts...));
  return Result::kSuccess;
}

int Number(DataType type) {
  return static_cast<int>(type);
}

Api FakeApi() {
  Api api = slow_cann::GetApi();
  api.all_gather = [](void*, void*, uint64_t count, DataType type, Comm, Stream) {
    return Note("AllGather ", count, " of ", Number(type));
  };
  api.reduce_scatter = [](void*, void*, uint64_t count, DataType type, Reduction, Comm, Stream) {
    return Note("ReduceScatter ", count, " of ", Number(type));
  };
  api.reduce = [](void*, void*, uint64_t count, DataType, Reduction, uint32_t root, Comm, Stream) {
    return Note("Reduce ", count, " to ", root);
  };
  api.barrier = [](Comm, Stream) { return Note("Barrier"); };
  api.send = [](void*, uint64_t count, DataType, uint32_t peer, Comm, Stream) {
    return Note("Send ", count, " to ", peer);
  };
  api.recv = [](void*, uint64_t count, DataType, uint32_t peer, Comm, Stream) {
    return Note("Recv ", count, " from ", peer);
  };
  api.batch_send_recv = [](SendRecvItem* items, uint32_t num_items, Comm, Stream) {
    std::string line = "Batch";
    for (uint32_t i = 0; i < num_items; ++i) {
      line += Concat(items[i].way == SendRecvType::kSend ? " to " : " from ", items[i].peer);
    }
    return Note(line);
  };
  api.memcpy_async = [](void*, size_t, const void*, size_t bytes, CopyKind, Stream) {
    static_cast<void>(Note("copy ", bytes));
    return AclError{0};
  };
  return api;
}

Api api = FakeApi();

std::shared_ptr<Communicator> Make() {
  lines.clear();
  slow_cann::rank_size = kRankSize;
  CommunicatorSpec spec;
  spec.backend = "hccl";
  spec.rank = kRank;
  spec.rank_size = kRankSize;
  static int comm = 0;
  return hccl::Make(std::make_shared<control::Control>(spec), api, &comm, false);
}

const Agreement agreement("Call");
slow_cann::SlowStream stream;
int32_t memory[64] = {};
int32_t other[64] = {};

template <typename Call>
Call Of(DType dtype) {
  Call call;
  call.agreement = &agreement;
  call.dtype = dtype;
  call.stream = &stream;
  return call;
}

using Lines = std::vector<std::string>;
using Numbers = std::vector<int64_t>;

Lines Gather(Communicator* communicator, const Numbers& counts, const Numbers& displs,
             const void* x = memory) {
  lines.clear();
  auto call = Of<AllGatherVCall>(DType::kInt64);
  call.x = x;
  call.output = other;
  call.recv_counts = counts.data();
  call.rdispls = displs.data();
  const Status status = communicator->AllGatherV(call);
  if (!status.ok()) lines.push_back(status.message());
  return lines;
}

Lines Scatter(Communicator* communicator, const Numbers& counts, const Numbers& displs,
              ReduceOp op = ReduceOp::kSum, void* output = other) {
  lines.clear();
  auto call = Of<ReduceScatterVCall>(DType::kInt32);
  call.op = op;
  call.x = memory;
  call.output = output;
  call.output_count = counts[kRank];
  call.send_counts = counts.data();
  call.sdispls = displs.data();
  const Status status = communicator->ReduceScatterV(call);
  if (!status.ok()) lines.push_back(status.message());
  return lines;
}

Transfer Message(Transfer::Way way, int peer, int64_t count) {
  Transfer transfer;
  transfer.way = way;
  transfer.peer = peer;
  transfer.dtype = DType::kInt32;
  transfer.elements = count;
  transfer.bytes = count * SizeOf(DType::kInt32);
  transfer.data = way == Transfer::kSend ? memory : other;
  return transfer;
}

}  // namespace

TEST(BlocksOfOneSizeAreGatheredEvenly) {
  const auto communicator = Make();
  EXPECT_EQ(Gather(communicator.get(), {2, 2, 2}, {0, 2, 4}), (Lines{"AllGather 2 of 5"}));
  EXPECT_EQ(Gather(communicator.get(), {0, 0, 0}, {0, 0, 0}), Lines{});
  // In place: x is this rank's block.
  const void* own = reinterpret_cast<const std::byte*>(other) + 16;
  EXPECT_EQ(Gather(communicator.get(), {2, 2, 2}, {0, 2, 4}, own), (Lines{"AllGather 2 of 5"}));
}

TEST(SlicesOfOneSizeAreScatteredEvenly) {
  const auto communicator = Make();
  EXPECT_EQ(Scatter(communicator.get(), {2, 2, 2}, {0, 2, 4}), (Lines{"ReduceScatter 2 of 2"}));
  EXPECT_EQ(Scatter(communicator.get(), {2, 2, 2}, {0, 2, 4}, ReduceOp::kProd),
            (Lines{"ReduceScatter 2 of 2"}));
  EXPECT_EQ(Scatter(communicator.get(), {0, 0, 3}, {0, 0, 5}), (Lines{"Reduce 3 to 2"}));
  const Lines said = Scatter(communicator.get(), {2, 2, 2}, {0, 2, 4}, ReduceOp::kSum, memory + 2);
  EXPECT_CONTAINS(said[0], "HCCL does not scatter in place");
}

// Both lists are read when the stream comes to the call, so both are copied.
TEST(AnExchangeKeepsBothLists) {
  const auto communicator = Make();
  auto call = Of<ExchangeVCall>(DType::kInt32);
  Numbers sends = {1, 0, 2};
  Numbers receives = {3, 0, 4};
  const Numbers displs = {0, 1, 3};
  call.x = memory;
  call.output = other;
  call.send_counts = sends.data();
  call.recv_counts = receives.data();
  call.sdispls = call.rdispls = displs.data();
  static const void* given[2] = {};
  api.all_to_all_v = [](const void*, const void* counts, const void*, DataType, const void*,
                        const void* received, const void*, DataType, Comm, Stream) {
    given[0] = counts;
    given[1] = received;
    return Result::kSuccess;
  };
  EXPECT_TRUE(communicator->ExchangeV(call).ok());
  sends = receives = {9, 9, 9};
  EXPECT_EQ(static_cast<const uint64_t*>(given[0])[2], uint64_t{2});
  EXPECT_EQ(static_cast<const uint64_t*>(given[1])[0], uint64_t{3});
  api = FakeApi();
}

TEST(OneMessageIsASendAndManyAreBatches) {
  const auto communicator = Make();
  Transfer one = Message(Transfer::kSend, 2, 3);
  EXPECT_TRUE(communicator->Messages("Send", &one, 1, &stream).ok());
  one = Message(Transfer::kRecv, 0, 3);
  EXPECT_TRUE(communicator->Messages("Recv", &one, 1, &stream).ok());
  EXPECT_EQ(one.source, 0);
  std::vector<Transfer> list = {Message(Transfer::kSend, 2, 1), Message(Transfer::kSend, 2, 2),
                                Message(Transfer::kRecv, 0, 1), Message(Transfer::kSend, 1, 2),
                                Message(Transfer::kRecv, 1, 2), Message(Transfer::kSend, 0, 0)};
  EXPECT_TRUE(communicator->Messages("Exchange", list.data(), 6, &stream).ok());
  one = Message(Transfer::kSend, 2, 3);
  EXPECT_TRUE(communicator->Messages("Exchange", &one, 1, &stream).ok());
  EXPECT_EQ(lines, (Lines{"Send 3 to 2", "Recv 3 from 0", "copy 8", "Batch to 2 from 0",
                          "Batch to 2", "Batch to 2"}));
}

TEST(WithoutAHostConnectionABarrierNeedsAStream) {
  const auto communicator = Make();
  EXPECT_EQ(communicator->Barrier(&stream).message(), "");
  EXPECT_EQ(lines, (Lines{"Barrier"}));
  const Status status = communicator->Barrier();
  EXPECT_EQ(status.code(), ERROR_UNSUPPORTED);
  EXPECT_CONTAINS(status.message(), "set COLLOPS_CHECK=1, or leave hcclComm out");
}

TEST(AForkedChildLeavesTheEngineToItsParent) {
  const auto communicator = Make();
  slow_cann::num_destroyed = 0;
  const ranks::Ended ended = ranks::Wait(ranks::Start([&] {
    const Lines said = Gather(communicator.get(), {2, 2, 2}, {0, 2, 4});
    ASSERT_EQ(said.size(), size_t{1});
    EXPECT_CONTAINS(said[0], "belongs to the parent");
    communicator->Close("the child is done");
    EXPECT_EQ(slow_cann::num_destroyed.load(), 0);
  }));
  EXPECT_EQ(ended.code, 0);
  EXPECT_EQ(Gather(communicator.get(), {2, 2, 2}, {0, 2, 4}), (Lines{"AllGather 2 of 5"}));
}
