// AllGatherV's checks of shapes, dtypes and outputs, in the documented order. Counts and memory are
// in all_gather_v_counts_test.cpp, execute's checks in execute_check_test.cpp.
#include <limits>

#include "operators/framework/operator_call.h"

using namespace collops;

namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
constexpr int64_t kMin = std::numeric_limits<int64_t>::min();

Shape Ones(int num_dims) {
  const int64_t sizes[kMaxDims] = {1, 1, 1, 1, 1, 1, 1, 1};
  return Shape::From(sizes, num_dims);
}

// Makes a valid call invalid by `spoil` and expects the error from planning.
template <typename Spoil>
void Faulty(ErrorCode code, const char* part, Spoil spoil) {
  GatherCall call;
  spoil(call);
  ExpectPlanFault(call, code, part);
}

// The same for an error that InferShape finds, too.
template <typename Spoil>
void FaultyDesc(ErrorCode code, const char* part, Spoil spoil) {
  GatherCall call;
  spoil(call);
  ExpectDescFault(call, code, part);
}

}  // namespace

TEST(InferShapeGivesTheOutput) {
  GatherCall call;
  std::vector<TensorDesc> outputs;
  ExpectStatus(call.operation.InferShape(Descs(call.pack.inputs), &outputs), NO_ERROR, "");
  ASSERT_EQ(outputs.size(), 1u);
  EXPECT_EQ(ToString(outputs[0].shape), std::string("[5, 4]"));
  EXPECT_EQ(outputs[0].dtype, DType::kFloat32);
  EXPECT_EQ(std::string(call.operation.Name()), std::string("AllGatherV"));
  EXPECT_EQ(call.operation.NumInputs(), 5);
  EXPECT_EQ(call.operation.NumOutputs(), 1);
}

TEST(NumberOfInputs) {
  FaultyDesc(ERROR_INVALID_IN_TENSOR_NUM, "AllGatherV: needs 5 inputs, got 4",
             [](GatherCall& call) { call.pack.inputs.pop_back(); });
  FaultyDesc(ERROR_INVALID_IN_TENSOR_NUM, "got 6",
             [](GatherCall& call) { call.pack.inputs.push_back(call.out()); });
}

TEST(NumberOfDimsLimit) {
  FaultyDesc(ERROR_INVALID_TENSOR_DIM, "x has 9 dims, the limit is 8",
             [](GatherCall& call) { call.input(kGatherX).desc.shape = Ones(9); });
  FaultyDesc(ERROR_INVALID_TENSOR_DIM, "recvCounts has 9 dims",
             [](GatherCall& call) { call.input(kRecvCounts).desc.shape = Ones(9); });
  FaultyDesc(ERROR_INVALID_TENSOR_DIM, "x has 0 dims",
             [](GatherCall& call) { call.input(kGatherX).desc.shape = Shape(); });
}

TEST(TensorSize) {
  FaultyDesc(ERROR_INVALID_TENSOR_SIZE, "x has size 0 in dim 1 of [2, 0]: only dim 0 may be 0",
             [](GatherCall& call) { call.input(kGatherX).desc.shape = {2, 0}; });
  FaultyDesc(ERROR_INVALID_TENSOR_SIZE, "x has size -1 in dim 0 of [-1, 4]: a size is at least 0",
             [](GatherCall& call) { call.input(kGatherX).desc.shape = {-1, 4}; });
  FaultyDesc(ERROR_INVALID_TENSOR_SIZE, "x has size -9223372036854775808 in dim 1",
             [](GatherCall& call) { call.input(kGatherX).desc.shape = {2, kMin}; });
  FaultyDesc(ERROR_INVALID_TENSOR_SIZE, "y of shape [137438953473] is over the limit of 256 GB",
             [](GatherCall& call) { call.input(kGatherY).desc.shape = {(int64_t{1} << 37) + 1}; });
  FaultyDesc(ERROR_INVALID_TENSOR_SIZE, "over the limit of 256 GB", [](GatherCall& call) {
    call.input(kGatherX).desc.shape = {int64_t{1} << 32, int64_t{1} << 32, 4};
  });
  FaultyDesc(ERROR_INVALID_TENSOR_SIZE, "over the limit of 256 GB",
             [](GatherCall& call) { call.input(kGatherX).desc.shape = {kMax, kMax}; });
}

TEST(TensorOfExactly256GBIsLegal) {
  GatherCall call;
  call.input(kGatherX).desc.shape = {int64_t{1} << 32, 16};  // float32: 2^38 bytes
  call.input(kGatherY).desc.shape = {0};
  std::vector<TensorDesc> outputs;
  ExpectStatus(call.operation.InferShape(Descs(call.pack.inputs), &outputs), NO_ERROR, "");
}

TEST(OutputThatFollowsFromTheInputsIsTooLarge) {
  FaultyDesc(ERROR_INVALID_TENSOR_SIZE, "the output of shape [4294967296, 4294967296]",
             [](GatherCall& call) {
               call.input(kGatherX).desc.shape = {0, int64_t{1} << 32};
               call.input(kGatherY).desc.shape = {int64_t{1} << 32};
             });
}

TEST(DTypes) {
  FaultyDesc(ERROR_INVALID_TENSOR_INI_MATCH,
             "x is complex64; pass one of float32, float16, int8, int32, uint8, int16, int64, "
             "float64, bool, bfloat16",
             [](GatherCall& call) { call.input(kGatherX).desc.dtype = DType::kComplex64; });
  FaultyDesc(ERROR_INVALID_TENSOR_INI_MATCH, "x is undefined; pass one of",
             [](GatherCall& call) { call.input(kGatherX).desc.dtype = DType::kUndefined; });
  FaultyDesc(ERROR_INVALID_TENSOR_INI_MATCH, "sendCount is int32; counts are elements as int64",
             [](GatherCall& call) { call.input(kSendCount).desc.dtype = DType::kInt32; });
  FaultyDesc(ERROR_INVALID_TENSOR_INI_MATCH, "recvCounts is uint64",
             [](GatherCall& call) { call.input(kRecvCounts).desc.dtype = DType::kUInt64; });
  FaultyDesc(ERROR_INVALID_TENSOR_INI_MATCH, "rdispls is float64",
             [](GatherCall& call) { call.input(kRdispls).desc.dtype = DType::kFloat64; });
  FaultyDesc(ERROR_INVALID_TENSOR_INI_MATCH,
             "AllGatherV: y is only a length: pass an empty float16 tensor of 5, got int64",
             [](GatherCall& call) { call.input(kGatherY).desc.dtype = DType::kInt64; });
}

TEST(EveryAllowedDTypePasses) {
  for (const DType dtype :
       {DType::kFloat16, DType::kBFloat16, DType::kFloat32, DType::kFloat64, DType::kInt8,
        DType::kUInt8, DType::kInt16, DType::kInt32, DType::kInt64, DType::kBool}) {
    GatherCall call;
    call.input(kGatherX).desc.dtype = dtype;
    std::vector<TensorDesc> outputs;
    ExpectStatus(call.operation.InferShape(Descs(call.pack.inputs), &outputs), NO_ERROR, "");
    EXPECT_EQ(outputs.at(0).dtype, dtype);
  }
  for (const DType dtype : {DType::kUInt16, DType::kUInt32, DType::kUInt64, DType::kComplex128}) {
    FaultyDesc(ERROR_INVALID_TENSOR_INI_MATCH, Name(dtype),
               [dtype](GatherCall& call) { call.input(kGatherX).desc.dtype = dtype; });
  }
}

TEST(Formats) {
  FaultyDesc(ERROR_INVALID_TENSOR_INI_MATCH, "x has format nhwc; pass it as nd",
             [](GatherCall& call) { call.input(kGatherX).desc.format = Format::kNHWC; });
  FaultyDesc(ERROR_INVALID_TENSOR_INI_MATCH, "y has format fractal_nz",
             [](GatherCall& call) { call.input(kGatherY).desc.format = Format::kFractalNZ; });
}

TEST(NumberOfDims) {
  const char* names[] = {"x", "sendCount", "recvCounts", "rdispls", "y"};
  for (const int i : {kSendCount, kRecvCounts, kRdispls, kGatherY}) {
    FaultyDesc(ERROR_INVALID_TENSOR_DIM_NUM,
               (std::string(names[i]) + " must have 1 dim, got 2 in shape [1, 1]").c_str(),
               [i](GatherCall& call) { call.input(i).desc.shape = Ones(2); });
    FaultyDesc(ERROR_INVALID_TENSOR_DIM_NUM, "must have 1 dim, got 0 in shape []",
               [i](GatherCall& call) { call.input(i).desc.shape = Shape(); });
  }
}

TEST(LengthsOfCounts) {
  FaultyDesc(ERROR_INVALID_TENSOR_DIM, "sendCount must have 1 element, got 2",
             [](GatherCall& call) { call.input(kSendCount).desc.shape = {2}; });
  FaultyDesc(ERROR_INVALID_TENSOR_DIM, "sendCount must have 1 element, got 0",
             [](GatherCall& call) { call.input(kSendCount).desc.shape = {0}; });
  FaultyDesc(ERROR_INVALID_TENSOR_DIM, "recvCounts must have 2 elements, one per rank, got 3",
             [](GatherCall& call) { call.input(kRecvCounts).desc.shape = {3}; });
  FaultyDesc(ERROR_INVALID_TENSOR_DIM, "rdispls must have 2 elements, one per rank, got 1",
             [](GatherCall& call) { call.input(kRdispls).desc.shape = {1}; });
}

TEST(Outputs) {
  Faulty(ERROR_INVALID_IN_TENSOR_NUM, "needs 1 output, got 0",
         [](GatherCall& call) { call.pack.outputs.clear(); });
  Faulty(ERROR_INVALID_IN_TENSOR_NUM, "needs 1 output, got 2",
         [](GatherCall& call) { call.pack.outputs.push_back(call.out()); });
  Faulty(ERROR_INVALID_TENSOR_DIM_NUM,
         "the output must have 2 dims, shape [5, 4], got 1 in shape [20]",
         [](GatherCall& call) { call.out().desc.shape = {20}; });
  Faulty(ERROR_INVALID_TENSOR_DIM, "the output must have shape [5, 4], got [4, 5]",
         [](GatherCall& call) { call.out().desc.shape = {4, 5}; });
  Faulty(ERROR_INVALID_TENSOR_INI_MATCH, "the output must be float32 as x, got float16",
         [](GatherCall& call) { call.out().desc.dtype = DType::kFloat16; });
  Faulty(ERROR_INVALID_TENSOR_INI_MATCH, "the output has format nchw",
         [](GatherCall& call) { call.out().desc.format = Format::kNCHW; });
}

// Each pair holds two neighbours of the documented order: the first one's code is reported.
TEST(OfTwoFaultsTheUpperLineIsReported) {
  FaultyDesc(ERROR_INVALID_IN_TENSOR_NUM, "inputs", [](GatherCall& call) {
    call.pack.inputs.pop_back();
    call.input(kGatherX).desc.shape = Ones(9);
  });
  FaultyDesc(ERROR_INVALID_TENSOR_DIM, "y has 9 dims", [](GatherCall& call) {
    call.input(kGatherX).desc.shape = {2, 0};
    call.input(kGatherY).desc.shape = Ones(9);
  });
  FaultyDesc(ERROR_INVALID_TENSOR_SIZE, "y has size -5", [](GatherCall& call) {
    call.input(kGatherX).desc.dtype = DType::kComplex64;
    call.input(kGatherY).desc.shape = {-5};
  });
  FaultyDesc(ERROR_INVALID_TENSOR_INI_MATCH, "y is only a length", [](GatherCall& call) {
    call.input(kSendCount).desc.shape = Ones(2);
    call.input(kGatherY).desc.dtype = DType::kFloat32;
  });
  FaultyDesc(ERROR_INVALID_TENSOR_DIM_NUM, "y must have 1 dim", [](GatherCall& call) {
    call.input(kRecvCounts).desc.shape = {3};
    call.input(kGatherY).desc.shape = Ones(2);
  });
  Faulty(ERROR_INVALID_TENSOR_DIM, "rdispls must have 2", [](GatherCall& call) {
    call.pack.outputs.clear();
    call.input(kRdispls).desc.shape = {3};
  });
}
