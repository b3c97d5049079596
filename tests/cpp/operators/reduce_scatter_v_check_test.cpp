// ReduceScatterV's checks in InferShape and GetWorkspaceSize, in the documented order. Those of
// Execute are in execute_check_test.cpp.
#include <limits>

#include "operators/framework/operator_call.h"

using namespace collops;

namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
constexpr int64_t kMin = std::numeric_limits<int64_t>::min();

template <typename Spoil>
void Faulty(ErrorCode code, const char* part, Spoil spoil) {
  ScatterCall call;
  spoil(call);
  ExpectPlanFault(call, code, part);
}

template <typename Spoil>
void FaultyDesc(ErrorCode code, const char* part, Spoil spoil) {
  ScatterCall call;
  spoil(call);
  ExpectDescFault(call, code, part);
}

}  // namespace

TEST(InferShapeGivesTheOutput) {
  ScatterCall call;
  std::vector<TensorDesc> outputs;
  ExpectStatus(call.operation.InferShape(Descs(call.pack.inputs), &outputs), NO_ERROR, "");
  ASSERT_EQ(outputs.size(), 1u);
  EXPECT_EQ(ToString(outputs[0].shape), std::string("[2, 3]"));
  EXPECT_EQ(outputs[0].dtype, DType::kFloat32);
  EXPECT_EQ(std::string(call.operation.Name()), std::string("ReduceScatterV"));
}

TEST(NumberOfInputs) {
  FaultyDesc(ERROR_INVALID_IN_TENSOR_NUM, "ReduceScatterV: needs 5 inputs, got 0",
             [](ScatterCall& call) { call.pack.inputs.clear(); });
}

TEST(DimsAndSizes) {
  FaultyDesc(ERROR_INVALID_TENSOR_DIM, "x has 9 dims",
             [](ScatterCall& call) { call.input(kScatterX).desc.shape.num_dims = 9; });
  FaultyDesc(ERROR_INVALID_TENSOR_SIZE, "x has size 0 in dim 1",
             [](ScatterCall& call) { call.input(kScatterX).desc.shape = {4, 0}; });
  FaultyDesc(ERROR_INVALID_TENSOR_SIZE, "sendCounts has size -2 in dim 0",
             [](ScatterCall& call) { call.input(kSendCounts).desc.shape = {-2}; });
  FaultyDesc(ERROR_INVALID_TENSOR_SIZE, "x of shape [9223372036854775807, 3] is over",
             [](ScatterCall& call) { call.input(kScatterX).desc.shape = {kMax, 3}; });
}

TEST(DTypesAndFormats) {
  FaultyDesc(ERROR_INVALID_TENSOR_INI_MATCH,
             "x is bool; pass one of float32, float16, int8, int32, uint8, int16, int64, float64, "
             "bfloat16",
             [](ScatterCall& call) { call.input(kScatterX).desc.dtype = DType::kBool; });
  FaultyDesc(ERROR_INVALID_TENSOR_INI_MATCH, "sdispls is int32",
             [](ScatterCall& call) { call.input(kSdispls).desc.dtype = DType::kInt32; });
  FaultyDesc(ERROR_INVALID_TENSOR_INI_MATCH, "recvCount is int32",
             [](ScatterCall& call) { call.input(kRecvCount).desc.dtype = DType::kInt32; });
  FaultyDesc(ERROR_INVALID_TENSOR_INI_MATCH, "pass an empty float16 tensor of 2, got bfloat16",
             [](ScatterCall& call) { call.input(kScatterY).desc.dtype = DType::kBFloat16; });
  FaultyDesc(ERROR_INVALID_TENSOR_INI_MATCH, "sendCounts has format nchw",
             [](ScatterCall& call) { call.input(kSendCounts).desc.format = Format::kNCHW; });
}

TEST(EveryAllowedDTypePasses) {
  for (const DType dtype :
       {DType::kFloat16, DType::kBFloat16, DType::kFloat32, DType::kFloat64, DType::kInt8,
        DType::kUInt8, DType::kInt16, DType::kInt32, DType::kInt64}) {
    ScatterCall call;
    call.input(kScatterX).desc.dtype = dtype;
    std::vector<TensorDesc> outputs;
    ExpectStatus(call.operation.InferShape(Descs(call.pack.inputs), &outputs), NO_ERROR, "");
  }
}

TEST(NumberOfDims) {
  FaultyDesc(ERROR_INVALID_TENSOR_DIM_NUM, "x must have 2 dims, got 1 in shape [12]",
             [](ScatterCall& call) { call.input(kScatterX).desc.shape = {12}; });
  FaultyDesc(ERROR_INVALID_TENSOR_DIM_NUM, "x must have 2 dims, got 3",
             [](ScatterCall& call) { call.input(kScatterX).desc.shape = {2, 2, 3}; });
  FaultyDesc(ERROR_INVALID_TENSOR_DIM_NUM, "x must have 2 dims, got 0",
             [](ScatterCall& call) { call.input(kScatterX).desc.shape = Shape(); });
  FaultyDesc(ERROR_INVALID_TENSOR_DIM_NUM, "recvCount must have 1 dim, got 2",
             [](ScatterCall& call) { call.input(kRecvCount).desc.shape = {1, 1}; });
}

TEST(LengthsOfCounts) {
  FaultyDesc(ERROR_INVALID_TENSOR_DIM, "sendCounts must have 2 elements, one per rank, got 3",
             [](ScatterCall& call) { call.input(kSendCounts).desc.shape = {3}; });
  FaultyDesc(ERROR_INVALID_TENSOR_DIM, "sdispls must have 2 elements, one per rank, got 0",
             [](ScatterCall& call) { call.input(kSdispls).desc.shape = {0}; });
  FaultyDesc(ERROR_INVALID_TENSOR_DIM, "recvCount must have 1 element, got 2",
             [](ScatterCall& call) { call.input(kRecvCount).desc.shape = {2}; });
}

TEST(Outputs) {
  Faulty(ERROR_INVALID_IN_TENSOR_NUM, "needs 1 output, got 0",
         [](ScatterCall& call) { call.pack.outputs.clear(); });
  Faulty(ERROR_INVALID_TENSOR_DIM_NUM,
         "the output must have 2 dims, shape [2, 3], got 1 in shape [6]",
         [](ScatterCall& call) { call.out().desc.shape = {6}; });
  Faulty(ERROR_INVALID_TENSOR_DIM, "the output must have shape [2, 3], got [3, 3]",
         [](ScatterCall& call) { call.out().desc.shape = {3, 3}; });
  Faulty(ERROR_INVALID_TENSOR_INI_MATCH, "the output must be float32 as x, got float64",
         [](ScatterCall& call) { call.out().desc.dtype = DType::kFloat64; });
  Faulty(ERROR_INVALID_TENSOR_INI_MATCH, "the output has format undefined",
         [](ScatterCall& call) { call.out().desc.format = Format::kUndefined; });
}

TEST(CountsPastAnEnd) {
  Faulty(ERROR_INVALID_TENSOR_DIM,
         "ReduceScatterV: slice 1 (sdispls 8 + sendCounts 5) exceeds x's 12 elements",
         [](ScatterCall& call) { call.sdispls[1] = 8; });
  Faulty(ERROR_INVALID_TENSOR_DIM, "slice 0 (sdispls 0 + sendCounts 13)",
         [](ScatterCall& call) { call.send_counts[0] = 13; });
  Faulty(ERROR_INVALID_TENSOR_DIM, "ReduceScatterV: recvCount 7 exceeds the output's 6 elements",
         [](ScatterCall& call) {
           call.recv_count[0] = call.send_counts[1] = 7;
           call.sdispls[1] = 5;
         });
  Faulty(ERROR_INVALID_TENSOR_DIM, "exceeds x's 12 elements",
         [](ScatterCall& call) { call.sdispls[0] = call.send_counts[0] = kMax; });
  Faulty(ERROR_INVALID_TENSOR_DIM, "recvCount 9223372036854775807",
         [](ScatterCall& call) { call.recv_count[0] = kMax; });
}

TEST(NegativeCounts) {
  Faulty(ERROR_INVALID_PARAM, "sendCounts[0] must be >= 0, got -1",
         [](ScatterCall& call) { call.send_counts[0] = -1; });
  Faulty(ERROR_INVALID_PARAM, "sdispls[1] must be >= 0, got -9223372036854775808",
         [](ScatterCall& call) { call.sdispls[1] = kMin; });
  Faulty(ERROR_INVALID_PARAM, "recvCount[0] must be >= 0, got -9223372036854775808",
         [](ScatterCall& call) { call.recv_count[0] = kMin; });
}

TEST(OwnCountsDisagree) {
  Faulty(ERROR_INVALID_PARAM,
         "ReduceScatterV: sendCounts[1] is 5 but this rank 1 has recvCount 4: they must be equal",
         [](ScatterCall& call) { call.recv_count[0] = 4; });
}

TEST(SlicesMayOverlapAndBeEmpty) {
  ScatterCall call;
  call.sdispls[1] = 2;
  ExpectStatus(PlanCall(call), NO_ERROR, "");
  call.send_counts[0] = call.send_counts[1] = call.recv_count[0] = 0;
  call.sdispls[0] = 12;
  ExpectStatus(PlanCall(call), NO_ERROR, "");
}

TEST(HostDataOfCounts) {
  Faulty(ERROR_INVALID_PARAM, "sdispls has no host data",
         [](ScatterCall& call) { call.input(kSdispls).data = nullptr; });
  Faulty(ERROR_INVALID_TENSOR_ADDR, "recvCount is on cuda:0; counts are host tensors: .cpu()",
         [](ScatterCall& call) { call.input(kRecvCount).device = {DeviceKind::kCuda, 0}; });
}

TEST(Memory) {
  Faulty(ERROR_INVALID_TENSOR_ADDR, "ReduceScatterV: the output overlaps x in memory",
         [](ScatterCall& call) { call.out().data = call.x + 6; });
  Faulty(ERROR_INVALID_TENSOR_ADDR, "the output is read-only",
         [](ScatterCall& call) { call.out().read_only = true; });
  Faulty(ERROR_INVALID_TENSOR_ADDR, "sendCounts is not contiguous: pass .contiguous()",
         [](ScatterCall& call) { call.input(kSendCounts).contiguous = false; });
  Faulty(ERROR_INVALID_TENSOR_ADDR, "the output is not in this machine's byte order",
         [](ScatterCall& call) { call.out().foreign_endian = true; });
  Faulty(ERROR_INVALID_TENSOR_ADDR, "x is on npu:0; this backend moves CPU tensors",
         [](ScatterCall& call) { call.input(kScatterX).device = {DeviceKind::kNpu, 0}; });
}

TEST(BackendRefuses) {
  ScatterCall call;
  call.communicator->supports = Error(ERROR_UNSUPPORTED, "no max here");
  ExpectPlanFault(call, ERROR_UNSUPPORTED, "no max here");
  EXPECT_TRUE(call.communicator->asked.primitive == Primitive::kReduce);
  EXPECT_EQ(call.communicator->asked.op, ReduceOp::kMax);
}

TEST(OfTwoFaultsTheUpperLineIsReported) {
  FaultyDesc(ERROR_INVALID_TENSOR_INI_MATCH, "x is bool", [](ScatterCall& call) {
    call.input(kScatterX).desc.dtype = DType::kBool;
    call.input(kSendCounts).desc.shape = {2, 2};
  });
  FaultyDesc(ERROR_INVALID_TENSOR_DIM_NUM, "x must have 2 dims", [](ScatterCall& call) {
    call.input(kScatterX).desc.shape = {12};
    call.input(kSendCounts).desc.shape = {3};
  });
  Faulty(ERROR_INVALID_TENSOR_DIM, "recvCount 7", [](ScatterCall& call) {
    call.sdispls[0] = -1;
    call.recv_count[0] = 7;
  });
  Faulty(ERROR_INVALID_PARAM, "sdispls[0]", [](ScatterCall& call) {
    call.sdispls[0] = -1;
    call.input(kRecvCount).data = nullptr;
    call.out().data = call.x;
  });
  Faulty(ERROR_INVALID_PARAM, "recvCount has no host data", [](ScatterCall& call) {
    call.input(kRecvCount).data = nullptr;
    call.out().data = call.x;
  });
}
