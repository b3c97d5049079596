// AllGatherV's checks of counts and memory, in the documented order.
#include <limits>

#include "operators/framework/operator_call.h"

using namespace collops;

namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
constexpr int64_t kMin = std::numeric_limits<int64_t>::min();

// Makes a valid call invalid by `spoil` and expects the error from planning.
template <typename Spoil>
void Faulty(ErrorCode code, const char* part, Spoil spoil) {
  GatherCall call;
  spoil(call);
  ExpectPlanFault(call, code, part);
}

}  // namespace

TEST(CountsPastAnEnd) {
  Faulty(ERROR_INVALID_TENSOR_DIM, "AllGatherV: sendCount 9 exceeds x's 8 elements",
         [](GatherCall& call) { call.send_count[0] = 9; });
  Faulty(ERROR_INVALID_TENSOR_DIM,
         "AllGatherV: block 1 (rdispls 19 + recvCounts 2) exceeds the output's 20 elements",
         [](GatherCall& call) { call.rdispls[1] = 19; });
  Faulty(ERROR_INVALID_TENSOR_DIM, "block 1 (rdispls 21 + recvCounts 0)", [](GatherCall& call) {
    call.recv_counts[1] = 0;
    call.rdispls[1] = 21;
  });
}

TEST(NegativeCountPastTheEnd) {
  Faulty(ERROR_INVALID_TENSOR_DIM, "block 1 (rdispls 40 + recvCounts -5)", [](GatherCall& call) {
    call.recv_counts[1] = -5;
    call.rdispls[1] = 40;
  });
  Faulty(ERROR_INVALID_PARAM, "recvCounts[1] must be >= 0, got -5", [](GatherCall& call) {
    call.recv_counts[1] = -5;
    call.rdispls[1] = 25;
  });
}

TEST(CountsThatWouldOverflow) {
  Faulty(ERROR_INVALID_TENSOR_DIM, "exceeds the output's 20 elements",
         [](GatherCall& call) { call.rdispls[1] = kMax; });
  Faulty(ERROR_INVALID_TENSOR_DIM, "exceeds the output's 20 elements",
         [](GatherCall& call) { call.recv_counts[1] = kMax; });
  Faulty(ERROR_INVALID_TENSOR_DIM, "exceeds the output's 20 elements",
         [](GatherCall& call) { call.recv_counts[1] = call.rdispls[1] = kMax; });
  Faulty(ERROR_INVALID_TENSOR_DIM, "sendCount 9223372036854775807",
         [](GatherCall& call) { call.send_count[0] = kMax; });
  Faulty(ERROR_INVALID_PARAM, "recvCounts[1] must be >= 0, got -9223372036854775808",
         [](GatherCall& call) {
           call.recv_counts[1] = kMin;
           call.rdispls[1] = kMax;
         });
  Faulty(ERROR_INVALID_PARAM, "rdispls[1] must be >= 0, got -9223372036854775808",
         [](GatherCall& call) { call.rdispls[1] = kMin; });
  Faulty(ERROR_INVALID_PARAM, "sendCount[0] must be >= 0",
         [](GatherCall& call) { call.send_count[0] = kMin; });
}

TEST(NegativeCounts) {
  Faulty(ERROR_INVALID_PARAM, "sendCount[0] must be >= 0, got -1",
         [](GatherCall& call) { call.send_count[0] = -1; });
  Faulty(ERROR_INVALID_PARAM, "recvCounts[0] must be >= 0, got -4", [](GatherCall& call) {
    call.recv_counts[0] = -4;
    call.send_count[0] = 4;
  });
  Faulty(ERROR_INVALID_PARAM, "rdispls[0] must be >= 0, got -1",
         [](GatherCall& call) { call.rdispls[0] = -1; });
}

TEST(AllCountsZero) {
  Faulty(ERROR_INVALID_PARAM, "AllGatherV: all recvCounts are 0", [](GatherCall& call) {
    call.send_count[0] = call.recv_counts[0] = call.recv_counts[1] = 0;
  });
}

TEST(OwnCountsDisagree) {
  Faulty(ERROR_INVALID_PARAM,
         "AllGatherV: recvCounts[0] is 4 but this rank 0 has sendCount 3: they must be equal",
         [](GatherCall& call) { call.send_count[0] = 3; });
}

TEST(OverlappingBlocks) {
  Faulty(ERROR_INVALID_PARAM,
         "AllGatherV: block 0 (rdispls 0 + recvCounts 4) overlaps block 1, which begins at 3",
         [](GatherCall& call) { call.rdispls[1] = 3; });
  Faulty(ERROR_INVALID_PARAM, "block 1 (rdispls 5 + recvCounts 2) overlaps block 0",
         [](GatherCall& call) {
           call.rdispls[0] = 6;
           call.rdispls[1] = 5;
         });
  Faulty(ERROR_INVALID_PARAM, "overlaps block 1, which begins at 8",
         [](GatherCall& call) { call.rdispls[0] = call.rdispls[1] = 8; });
}

TEST(EmptyBlockMayLieAnywhere) {
  for (const int64_t displ : {0, 2, 4, 20}) {
    GatherCall call;
    call.recv_counts[1] = 0;
    call.rdispls[1] = displ;
    ExpectStatus(PlanCall(call), NO_ERROR, "");
  }
}

TEST(NullHostData) {
  const char* names[] = {"x", "sendCount", "recvCounts", "rdispls"};
  for (const int i : {kSendCount, kRecvCounts, kRdispls}) {
    Faulty(ERROR_INVALID_PARAM, (std::string(names[i]) + " has no host data").c_str(),
           [i](GatherCall& call) { call.input(i).data = nullptr; });
  }
}

TEST(CountsOnADevice) {
  Faulty(ERROR_INVALID_TENSOR_ADDR,
         "AllGatherV: recvCounts is on npu:0; counts are host tensors: .cpu()",
         [](GatherCall& call) {
           call.input(kRecvCounts).device = {DeviceKind::kNpu, 0};
           // An address of another device: reading it would crash.
           call.input(kRecvCounts).data = reinterpret_cast<void*>(uintptr_t{64});
         });
  Faulty(ERROR_INVALID_TENSOR_ADDR, "sendCount is on cuda:1",
         [](GatherCall& call) { call.input(kSendCount).device = {DeviceKind::kCuda, 1}; });
}

TEST(OutputOverlapsAnInput) {
  Faulty(ERROR_INVALID_TENSOR_ADDR, "the output overlaps x in memory",
         [](GatherCall& call) { call.out().data = call.x; });
  Faulty(ERROR_INVALID_TENSOR_ADDR, "the output overlaps x", [](GatherCall& call) {
    call.input(kGatherX).data = call.output + 19;  // one element in common
  });
  Faulty(ERROR_INVALID_TENSOR_ADDR, "the output overlaps recvCounts", [](GatherCall& call) {
    call.output[0] = 0;
    int64_t counts[2] = {4, 2};
    std::memcpy(call.output + 10, counts, sizeof(counts));
    call.input(kRecvCounts).data = call.output + 10;
  });
}

TEST(NeighboursDoNotOverlap) {
  GatherCall call;
  std::vector<float> memory(28);
  call.input(kGatherX).data = memory.data();
  call.out().data = memory.data() + 8;
  ExpectStatus(PlanCall(call), NO_ERROR, "");
  call.out().data = memory.data();
  call.input(kGatherX).data = memory.data() + 20;
  ExpectStatus(PlanCall(call), NO_ERROR, "");
}

TEST(Layouts) {
  Faulty(ERROR_INVALID_TENSOR_ADDR, "the output is read-only",
         [](GatherCall& call) { call.out().read_only = true; });
  Faulty(ERROR_INVALID_TENSOR_ADDR, "x is not contiguous: pass .contiguous()",
         [](GatherCall& call) { call.input(kGatherX).contiguous = false; });
  Faulty(ERROR_INVALID_TENSOR_ADDR, "rdispls is not contiguous",
         [](GatherCall& call) { call.input(kRdispls).contiguous = false; });
  Faulty(ERROR_INVALID_TENSOR_ADDR, "the output is not contiguous",
         [](GatherCall& call) { call.out().contiguous = false; });
  Faulty(ERROR_INVALID_TENSOR_ADDR, "x is not in this machine's byte order",
         [](GatherCall& call) { call.input(kGatherX).foreign_endian = true; });
  Faulty(ERROR_INVALID_TENSOR_ADDR, "recvCounts is not in this machine's byte order",
         [](GatherCall& call) { call.input(kRecvCounts).foreign_endian = true; });
}

// Counts whose elements lie elsewhere or mean something else: their values are not checked.
TEST(CountsInAnotherLayoutAreNotRead) {
  Faulty(ERROR_INVALID_TENSOR_ADDR, "recvCounts is not contiguous", [](GatherCall& call) {
    call.input(kRecvCounts).contiguous = false;
    call.recv_counts[1] = 99;
  });
  Faulty(ERROR_INVALID_TENSOR_ADDR, "sendCount is not in this machine", [](GatherCall& call) {
    call.input(kSendCount).foreign_endian = true;
    call.send_count[0] = int64_t{4} << 56;
  });
}

TEST(ReadOnlyInputsAreFine) {
  GatherCall call;
  for (TensorView& input : call.pack.inputs) input.read_only = true;
  ExpectStatus(PlanCall(call), NO_ERROR, "");
}

TEST(DataOnAnotherDeviceThanTheBackends) {
  Faulty(ERROR_INVALID_TENSOR_ADDR, "x is on cuda:0; this backend moves CPU tensors",
         [](GatherCall& call) { call.input(kGatherX).device = {DeviceKind::kCuda, 0}; });
  Faulty(ERROR_INVALID_TENSOR_ADDR, "the output is on npu:3",
         [](GatherCall& call) { call.out().device = {DeviceKind::kNpu, 3}; });
}

TEST(AddressesOfDataAreNotNeededToPlan) {
  GatherCall call;
  call.input(kGatherX).data = nullptr;
  call.input(kGatherY).data = nullptr;
  call.out().data = nullptr;
  ExpectStatus(PlanCall(call), NO_ERROR, "");
}

TEST(BackendRefuses) {
  GatherCall call;
  call.communicator->supports = Error(ERROR_UNSUPPORTED, "no such thing here");
  ExpectPlanFault(call, ERROR_UNSUPPORTED, "no such thing here");
  EXPECT_TRUE(call.communicator->asked.primitive == Primitive::kGather);
  EXPECT_EQ(call.communicator->asked.dtype, DType::kFloat32);
}

// The error that is first in the documented order is reported.
TEST(OfTwoFaultsTheUpperLineIsReported) {
  Faulty(ERROR_INVALID_TENSOR_INI_MATCH, "the output must be float32", [](GatherCall& call) {
    call.send_count[0] = 9;
    call.out().desc.dtype = DType::kInt32;
  });
  Faulty(ERROR_INVALID_TENSOR_DIM, "block 1", [](GatherCall& call) {
    call.recv_counts[0] = -1;
    call.rdispls[1] = 19;
  });
  Faulty(ERROR_INVALID_TENSOR_DIM, "sendCount 9", [](GatherCall& call) {
    call.send_count[0] = 9;
    call.input(kRecvCounts).device = {DeviceKind::kNpu, 0};
    call.input(kRdispls).data = nullptr;
  });
  Faulty(ERROR_INVALID_PARAM, "rdispls has no host data", [](GatherCall& call) {
    call.input(kRecvCounts).device = {DeviceKind::kNpu, 0};
    call.input(kRdispls).data = nullptr;
  });
  Faulty(ERROR_INVALID_PARAM, "overlaps block 1", [](GatherCall& call) {
    call.rdispls[1] = 3;
    call.out().read_only = true;
  });
  Faulty(ERROR_INVALID_TENSOR_ADDR, "read-only", [](GatherCall& call) {
    call.out().read_only = true;
    call.communicator->supports = Error(ERROR_UNSUPPORTED, "no");
  });
}
