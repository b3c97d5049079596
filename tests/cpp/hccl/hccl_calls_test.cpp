// What the hccl backend calls in HCCL and in the runtime, recorded by fake functions.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "check.h"
#include "collops/comm/backends/hccl/backend.h"
#include "collops/comm/backends/hccl/library.h"
#include "collops/comm/control/control.h"

namespace {

using collops::AllGatherVCall;
using collops::Communicator;
using collops::CommunicatorSpec;
using collops::DType;
using collops::Primitive;
using collops::Range;
using collops::ReduceOp;
using collops::ReduceScatterVCall;
using collops::Status;
using namespace collops::hccl;  // the declarations of CANN

constexpr int kRank = 1;
constexpr int kRankSize = 3;
constexpr int kDevice = 2;

struct Fill {
  uintptr_t address;
  size_t bytes;
};

// One call that HCCL got.
struct Seen {
  std::string function;
  void* send = nullptr;
  void* receive = nullptr;
  uint64_t own_count = 0;
  std::vector<uint64_t> counts;
  std::vector<uint64_t> displs;
  DataType type = DataType::kInt8;
  Reduction op = Reduction::kProd;
};

std::vector<Seen> calls;
std::vector<Fill> fills;
Result answer = Result::kSuccess;
Result health = Result::kSuccess;
int destroyed = 0;

std::vector<uint64_t> Numbers(const void* first) {
  const auto* numbers = static_cast<const uint64_t*>(first);
  return {numbers, numbers + kRankSize};
}

Api FakeApi() {
  Api api = {};
  api.get_device = [](int32_t* device) {
    *device = kDevice;
    return AclError{0};
  };
  api.get_soc_name = []() -> const char* { return "Ascend910B1"; };
  api.malloc = [](void** address, size_t, AllocationPolicy) {
    static char memory = 0;
    *address = &memory;
    return AclError{0};
  };
  api.free = [](void*) { return AclError{0}; };
  api.get_recent_error = []() -> const char* { return nullptr; };
  api.get_comm_async_error = [](Comm, Result* error) {
    *error = health;
    return Result::kSuccess;
  };
  api.comm_destroy = [](Comm) {
    ++destroyed;
    return Result::kSuccess;
  };
  api.memset_async = [](void* address, size_t, int32_t, size_t bytes, Stream) {
    fills.push_back({reinterpret_cast<uintptr_t>(address), bytes});
    return AclError{0};
  };
  api.create_event = [](Event*) { return AclError{0}; };
  api.record_event = [](Event, Stream) { return AclError{0}; };
  api.destroy_event = [](Event) { return AclError{0}; };
  api.query_event_status = [](Event, EventStatus* status) {
    *status = EventStatus::kComplete;
    return AclError{0};
  };
  api.all_gather_v = [](void* send, uint64_t count, void* receive, const void* counts,
                        const void* displs, DataType type, Comm, Stream) {
    calls.push_back({"gather", send, receive, count, Numbers(counts), Numbers(displs), type, {}});
    return answer;
  };
  api.barrier = [](Comm, Stream) {
    calls.emplace_back().function = "barrier";
    return answer;
  };
  api.reduce_scatter_v = [](void* send, const void* counts, const void* displs, void* receive,
                            uint64_t count, DataType type, Reduction op, Comm, Stream) {
    calls.push_back({"scatter", send, receive, count, Numbers(counts), Numbers(displs), type, op});
    return answer;
  };
  return api;
}

// A rank on an HcclComm of the caller's; clears the recorded calls.
std::shared_ptr<collops::Communicator> Make() {
  static const Api api = FakeApi();
  calls.clear();
  fills.clear();
  answer = health = Result::kSuccess;
  CommunicatorSpec spec;
  spec.backend = "hccl";
  spec.rank = kRank;
  spec.rank_size = kRankSize;
  static int comm = 0;
  return collops::hccl::Make(std::make_shared<collops::control::Control>(spec), api, &comm, false);
}

void* At(uintptr_t address) {
  return reinterpret_cast<void*>(address);
}

const std::vector<int64_t> kCounts = {4, 3, 0};
const std::vector<int64_t> kDispls = {5, 0, 9};

AllGatherVCall Gather(DType dtype) {
  static const collops::Agreement agreement("AllGatherV");
  AllGatherVCall call;
  call.agreement = &agreement;
  call.dtype = dtype;
  call.x = At(0x100);
  call.output = At(0x1000);
  call.recv_counts = kCounts.data();
  call.rdispls = kDispls.data();
  call.stream = At(0x7);
  return call;
}

ReduceScatterVCall Scatter(DType dtype, ReduceOp op) {
  static const collops::Agreement agreement("ReduceScatterV");
  ReduceScatterVCall call;
  call.agreement = &agreement;
  call.dtype = dtype;
  call.op = op;
  call.x = At(0x100);
  call.output = At(0x1000);
  call.output_count = 5;
  call.send_counts = kCounts.data();
  call.sdispls = kDispls.data();
  call.stream = At(0x7);
  return call;
}

}  // namespace

TEST(AGatherOfATypeThatHcclTakesGoesInElements) {
  const auto communicator = Make();
  EXPECT_EQ(communicator->AllGatherV(Gather(DType::kBFloat16)).message(), "");
  EXPECT_EQ(calls.size(), size_t{1});
  const Seen& seen = calls[0];
  EXPECT_TRUE(seen.send == At(0x100) && seen.receive == At(0x1000));
  EXPECT_EQ(seen.own_count, uint64_t{3});
  EXPECT_EQ(seen.counts, (std::vector<uint64_t>{4, 3, 0}));
  EXPECT_EQ(seen.displs, (std::vector<uint64_t>{5, 0, 9}));
  EXPECT_TRUE(seen.type == DataType::kBFloat16);
}

TEST(AGatherOfAnotherTypeGoesInBytes) {
  const auto communicator = Make();
  EXPECT_EQ(communicator->AllGatherV(Gather(DType::kFloat64)).message(), "");
  EXPECT_EQ(calls[0].own_count, uint64_t{24});
  EXPECT_EQ(calls[0].counts, (std::vector<uint64_t>{32, 24, 0}));
  EXPECT_EQ(calls[0].displs, (std::vector<uint64_t>{40, 0, 72}));
  EXPECT_TRUE(calls[0].type == DataType::kInt8);
}

TEST(GapsAreZeroed) {
  const auto communicator = Make();
  const Range gaps[] = {{3, 5}, {9, 20}};
  AllGatherVCall call = Gather(DType::kInt16);
  call.gaps = gaps;
  call.num_gaps = 2;
  EXPECT_EQ(communicator->AllGatherV(call).message(), "");
  EXPECT_EQ(fills.size(), size_t{2});
  EXPECT_TRUE(fills[0].address == 0x1000 + 6 && fills[0].bytes == 4);
  EXPECT_TRUE(fills[1].address == 0x1000 + 18 && fills[1].bytes == 22);
}

TEST(AScatterZeroesItsTail) {
  const auto communicator = Make();
  EXPECT_EQ(communicator->ReduceScatterV(Scatter(DType::kFloat32, ReduceOp::kMin)).message(), "");
  EXPECT_EQ(calls[0].counts, (std::vector<uint64_t>{4, 3, 0}));
  EXPECT_EQ(calls[0].own_count, uint64_t{3});
  EXPECT_TRUE(calls[0].type == DataType::kFloat32 && calls[0].op == Reduction::kMin);
  EXPECT_EQ(fills.size(), size_t{1});
  EXPECT_TRUE(fills[0].address == 0x1000 + 12 && fills[0].bytes == 8);
}

TEST(ARankThatReceivesNothingStillTakesPart) {
  const auto communicator = Make();
  const std::vector<int64_t> counts = {4, 0, 3};
  ReduceScatterVCall call = Scatter(DType::kInt8, ReduceOp::kSum);
  call.send_counts = counts.data();
  call.output = nullptr;
  call.output_count = 0;
  EXPECT_EQ(communicator->ReduceScatterV(call).message(), "");
  EXPECT_EQ(calls[0].own_count, uint64_t{0});
  EXPECT_TRUE(calls[0].receive != nullptr);
  EXPECT_TRUE(fills.empty());
}

TEST(AScatterOfNothingIsLeftOut) {
  const auto communicator = Make();
  const std::vector<int64_t> counts = {0, 0, 0};
  ReduceScatterVCall call = Scatter(DType::kInt8, ReduceOp::kSum);
  call.send_counts = counts.data();
  EXPECT_EQ(communicator->ReduceScatterV(call).message(), "");
  EXPECT_TRUE(calls.empty());
  EXPECT_EQ(fills.size(), size_t{1});
  EXPECT_EQ(fills[0].bytes, size_t{5});
}

TEST(TypesThatHcclDoesNotTakeAreRefused) {
  const auto communicator = Make();
  for (const DType dtype : {DType::kUInt8, DType::kInt64, DType::kFloat64}) {
    const Status status = communicator->Supports(Primitive::kReduce, dtype, ReduceOp::kSum);
    EXPECT_EQ(status.code(), collops::ERROR_UNSUPPORTED);
    EXPECT_CONTAINS(status.message(), std::string("HCCL does not reduce ") + collops::Name(dtype));
    EXPECT_TRUE(communicator->Supports(Primitive::kGather, dtype, ReduceOp::kSum).ok());
  }
  for (const ReduceOp op :
       {ReduceOp::kProd, ReduceOp::kAvg, ReduceOp::kBitAnd, ReduceOp::kBitOr, ReduceOp::kBitXor}) {
    const Status status = communicator->Supports(Primitive::kReduce, DType::kFloat16, op);
    EXPECT_EQ(status.code(), collops::ERROR_UNSUPPORTED);
  }
  const Status windows =
      communicator->Supports(Primitive::kWindows, DType::kFloat16, ReduceOp::kSum);
  EXPECT_EQ(windows.code(), collops::ERROR_UNSUPPORTED);
}

TEST(AnErrorEndsTheCommunicator) {
  const auto communicator = Make();
  answer = Result::kTimeout;
  const Status status = communicator->AllGatherV(Gather(DType::kInt8));
  EXPECT_EQ(status.code(), collops::ERROR_TIMEOUT);
  EXPECT_EQ(status.message(),
            std::string("AllGatherV: HcclAllGatherV returned 9 (HCCL_E_TIMEOUT)"));
  EXPECT_TRUE(communicator->failed());
  const Status again = communicator->AllGatherV(Gather(DType::kInt8));
  EXPECT_EQ(again.code(), collops::ERROR_TIMEOUT);
  EXPECT_CONTAINS(again.message(),
                  "make a new one on all ranks, e.g. collops.init()): AllGatherV: Hccl");
  EXPECT_EQ(calls.size(), size_t{1});
}

TEST(AnErrorOfAnEarlierCallIsReturnedByTheNext) {
  const auto communicator = Make();
  EXPECT_TRUE(communicator->AllGatherV(Gather(DType::kInt8)).ok());
  health = Result::kRemote;
  const Status status = communicator->AllGatherV(Gather(DType::kInt8));
  EXPECT_EQ(status.code(), collops::ERROR_PEER_LOST);
  EXPECT_CONTAINS(status.message(), "AllGatherV: an earlier call failed: HcclGetCommAsyncError");
  EXPECT_EQ(calls.size(), size_t{1});
}

TEST(ACallWithoutAStreamIsRefused) {
  const auto communicator = Make();
  AllGatherVCall call = Gather(DType::kInt8);
  call.stream = nullptr;
  const Status status = communicator->AllGatherV(call);
  EXPECT_EQ(status.code(), collops::ERROR_INVALID_STREAM);
  EXPECT_FALSE(communicator->failed());
  EXPECT_TRUE(calls.empty());
}

TEST(TheCallersCommunicatorIsNotDestroyed) {
  const int before = destroyed;
  auto communicator = Make();
  EXPECT_TRUE(communicator->AllGatherV(Gather(DType::kInt8)).ok());
  EXPECT_TRUE(communicator->device() == (collops::Device{collops::DeviceKind::kNpu, kDevice}));
  communicator->Close("done");
  communicator.reset();
  EXPECT_EQ(destroyed, before);
}

TEST(AForkedChildLeavesTheEngineToItsParent) {
  const auto communicator = Make();
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    const Status status = communicator->AllGatherV(Gather(DType::kInt8));
    const bool refused = status.message().find("belongs to the parent") != std::string::npos;
    communicator->Close("the child is done");
    _exit(refused && calls.empty() ? 0 : 1);
  }
  int outcome = 1;
  EXPECT_EQ(waitpid(child, &outcome, 0), child);
  EXPECT_EQ(outcome, 0);
  EXPECT_EQ(communicator->AllGatherV(Gather(DType::kInt8)).message(), "");
}

TEST(WithoutAHostConnectionABarrierNeedsAStream) {
  const auto communicator = Make();
  EXPECT_EQ(communicator->Barrier(At(4096)).message(), "");
  EXPECT_EQ(calls.back().function, "barrier");
  const Status status = communicator->Barrier();
  EXPECT_EQ(status.code(), collops::ERROR_UNSUPPORTED);
  EXPECT_CONTAINS(status.message(), "set COLLOPS_CHECK=1, or leave hcclComm out");
}
