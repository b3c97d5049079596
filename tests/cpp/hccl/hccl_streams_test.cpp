// Calls of hccl on slow streams: what they need outlives the call, and its plan outlives the cache.
#include <memory>
#include <vector>

#include "collops/comm/backends/hccl/backend.h"
#include "collops/comm/backends/hccl/library.h"
#include "collops/comm/control/control.h"
#include "hccl/slow_cann.h"
#include "operators/framework/operator_call.h"

using namespace collops;

namespace {

using slow_cann::reads;
using slow_cann::SlowGraph;
using slow_cann::SlowStream;

constexpr int kRankSize = 2;
constexpr int kShapes = 9;  // one more than an operation stores plans
constexpr Device kNpu = {DeviceKind::kNpu, 0};
const DType kTypes[] = {DType::kFloat32, DType::kFloat64};

// Rank 0 of 2 on a communicator of the caller's, with empty streams.
std::shared_ptr<Communicator> Make() {
  static int comm = 0;
  slow_cann::rank_size = kRankSize;
  slow_cann::answer = hccl::Result::kSuccess;
  reads.clear();
  CommunicatorSpec spec;
  spec.backend = "hccl";
  spec.rank = 0;
  spec.rank_size = kRankSize;
  return hccl::Make(std::make_shared<control::Control>(spec), slow_cann::GetApi(), &comm, false);
}

// An AllGatherV of one shape: the counts begin with 1 + `shape` and 3, with one element between.
struct Gather {
  int64_t send_count[1];
  int64_t recv_counts[2];
  int64_t rdispls[2];
  double x[16] = {};
  double output[32] = {};
  uint16_t y[32] = {};
  VariantPack pack;

  Gather(int shape, DType dtype)
      : send_count{1 + shape}, recv_counts{1 + shape, 3}, rdispls{0, 2 + shape} {
    const int64_t rows = rdispls[1] + recv_counts[1];
    pack.inputs = {MakeView(dtype, {send_count[0]}, x), MakeView(DType::kInt64, {1}, send_count),
                   MakeView(DType::kInt64, {2}, recv_counts), MakeView(DType::kInt64, {2}, rdispls),
                   MakeView(DType::kFloat16, {rows}, y)};
    pack.outputs = {MakeView(dtype, {rows}, output)};
    pack.inputs[0].device = pack.outputs[0].device = kNpu;
  }
};

// Plans and runs it, then destroys the caller's arrays.
void RunGather(Operation* operation, int shape, DType dtype, SlowStream* stream) {
  Gather call(shape, dtype);
  uint64_t bytes = 0;
  ExpectStatus(operation->GetWorkspaceSize(call.pack, &bytes), NO_ERROR, "");
  ExpectStatus(operation->Execute(call.pack, nullptr, 0, stream), NO_ERROR, "");
}

// Checks what the stream has read of a call of that shape; a type that travels as bytes is scaled.
void ExpectGather(size_t number, int shape, DType dtype) {
  const Gather want(shape, DType::kFloat32);
  const int64_t scale = dtype == DType::kFloat64 ? 8 : 1;
  for (size_t r = 0; r < kRankSize; ++r) {
    EXPECT_EQ(reads.at(number).counts[r], want.recv_counts[r] * scale);
    EXPECT_EQ(reads.at(number).displs[r], want.rdispls[r] * scale);
  }
}

// Data that a call needs, and whether it is alive.
struct Need {
  std::shared_ptr<std::vector<int64_t>> counts =
      std::make_shared<std::vector<int64_t>>(std::vector<int64_t>{2, 3});
  std::vector<int64_t> displs = {0, 2};
  std::weak_ptr<const void> seen = counts;
  int32_t output[5] = {};

  AllGatherVCall Call(SlowStream* stream) {
    static const Agreement agreement("AllGatherV");
    AllGatherVCall call;
    call.agreement = &agreement;
    call.dtype = DType::kInt32;
    call.x = stream;
    call.output = &output;
    call.recv_counts = counts->data();
    call.rdispls = displs.data();
    call.stream = stream;
    call.keep = std::move(counts);
    return call;
  }
  bool is_held() const { return !seen.expired(); }
};

}  // namespace

TEST(NineAlternatingShapesOnASlowStream) {
  for (const DType dtype : kTypes) {
    const auto communicator = Make();
    const auto operation = OperatorOn(communicator, AllGatherVParam());
    SlowStream stream;
    for (int call = 0; call < 3 * kShapes; ++call) {
      RunGather(operation.get(), call % kShapes, dtype, &stream);
    }
    EXPECT_TRUE(reads.empty());
    stream.RunAll();
    EXPECT_EQ(reads.size(), size_t{3 * kShapes});
    for (int call = 0; call < 3 * kShapes; ++call) {
      ExpectGather(static_cast<size_t>(call), call % kShapes, dtype);
    }
  }
}

TEST(AnOperationAndItsCommunicatorEndBeforeTheirStream) {
  SlowStream stream;
  auto communicator = Make();
  auto operation = OperatorOn(communicator, AllGatherVParam());
  RunGather(operation.get(), 4, DType::kFloat32, &stream);
  operation.reset();
  communicator->Close("done");
  communicator.reset();
  stream.RunAll();
  ExpectGather(0, 4, DType::kFloat32);
}

TEST(ACallThatFailedMayHaveBegun) {
  const auto communicator = Make();
  SlowStream stream;
  Need need;
  slow_cann::answer = hccl::Result::kInternal;
  EXPECT_EQ(communicator->AllGatherV(need.Call(&stream)).code(), ERROR_HCCL_FAIL);
  EXPECT_TRUE(need.is_held());
  stream.RunAll();
  EXPECT_EQ(reads.at(0).counts, (std::vector<int64_t>{2, 3}));
}

TEST(CountsAreCopiedIfNothingKeepsThemAlive) {
  const auto communicator = Make();
  SlowStream stream;
  Need need;
  {
    AllGatherVCall call = need.Call(&stream);
    const KeepAlive counts = std::move(call.keep);
    EXPECT_TRUE(communicator->AllGatherV(call).ok());
    call.keep = nullptr;
  }
  EXPECT_FALSE(need.is_held());
  stream.RunAll();
  EXPECT_EQ(reads.at(0).counts, (std::vector<int64_t>{2, 3}));
}

TEST(ADestroyedGraphReleasesWhatItKept) {
  const auto communicator = Make();
  SlowStream stream;
  SlowGraph graph;
  Need before;
  EXPECT_TRUE(communicator->AllGatherV(before.Call(&stream)).ok());  // connects
  stream.RunAll();
  stream.captured_into = &graph;
  const size_t num_events = slow_cann::events.size();
  Need first;
  Need second;
  EXPECT_TRUE(communicator->AllGatherV(first.Call(&stream)).ok());
  EXPECT_TRUE(communicator->AllGatherV(second.Call(&stream)).ok());
  EXPECT_EQ(slow_cann::events.size(), num_events);
  communicator->Close("done");
  EXPECT_TRUE(first.is_held() && second.is_held());
  slow_cann::Destroy(&graph);
  EXPECT_FALSE(first.is_held() || second.is_held());
}
