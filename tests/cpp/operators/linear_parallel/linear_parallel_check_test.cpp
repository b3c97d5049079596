// Every line of the contract's table of checks as LinearParallel meets it: infer_shape,
// get_workspace_size and execute. Rows and groups are in linear_parallel_layout_test.cpp.
#include "collops/operators/linear_parallel/operator.h"
#include "operators/framework/operator_call.h"

using namespace collops;

namespace {

using P = LinearParallelParam;

enum LinearInput { kX, kWeight, kResidual };

P TypeOne() {
  P param;
  param.rankSize = 2;
  param.type = P::LINEAR_REDUCE_SCATTER;
  param.hasResidual = true;
  return param;
}

P Gathering() {
  P param = TypeOne();
  param.type = P::ALL_GATHER_LINEAR;
  param.hasResidual = false;
  param.keepIntermediate = true;
  return param;
}

P Mc2() {
  P param = TypeOne();
  param.backend = "mc2";
  param.commMode = COMM_MULTI_THREAD;
  param.hasResidual = false;
  return param;
}

// Rank 1 of 2: x [4, 3], weight [5, 3], residual [5]; output [2, 5], or with Gathering() [8, 5] and
// the gathered x [8, 3].
struct LinearCall {
  float x[12] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  float weight[15] = {};
  float residual[5] = {};
  float output[40] = {};
  float gathered[24] = {};
  VariantPack pack;

  std::shared_ptr<RecordingCommunicator> communicator =
      std::make_shared<RecordingCommunicator>(1, 2);
  LinearParallel operation;

  explicit LinearCall(const P& param = TypeOne()) : operation(param) {
    operation.Join(communicator);
    pack.inputs = {MakeView(DType::kFloat32, {4, 3}, x), MakeView(DType::kFloat32, {5, 3}, weight)};
    if (param.hasResidual) pack.inputs.push_back(MakeView(DType::kFloat32, {5}, residual));
    const int64_t rows = param.type == P::ALL_GATHER_LINEAR ? 8 : 2;
    pack.outputs = {MakeView(DType::kFloat32, {rows, 5}, output)};
    if (param.keepIntermediate) {
      pack.outputs.push_back(MakeView(DType::kFloat32, {8, 3}, gathered));
    }
  }

  TensorView& input(int i) { return pack.inputs[static_cast<size_t>(i)]; }
  TensorView& out() { return pack.outputs[0]; }
};

template <typename Spoil>
void FaultyDesc(ErrorCode code, const char* part, Spoil spoil, const P& param = TypeOne()) {
  LinearCall call(param);
  spoil(call);
  ExpectDescFault(call, code, part);
}

template <typename Spoil>
void Faulty(ErrorCode code, const char* part, Spoil spoil, const P& param = TypeOne()) {
  LinearCall call(param);
  spoil(call);
  ExpectPlanFault(call, code, part);
}

}  // namespace

TEST(ACorrectCall) {
  LinearCall call;
  std::vector<TensorDesc> outputs;
  ExpectStatus(call.operation.InferShape(Descs(call.pack.inputs), &outputs), NO_ERROR, "");
  ASSERT_EQ(outputs.size(), 1u);
  EXPECT_EQ(ToString(outputs[0].shape), std::string("[2, 5]"));
  EXPECT_EQ(call.operation.NumInputs(), 3);
  ExpectStatus(PlanCall(call), NO_ERROR, "");
  EXPECT_TRUE(call.communicator->asked.primitive == Primitive::kReduce);
}

TEST(TwoOutputs) {
  LinearCall call(Gathering());
  std::vector<TensorDesc> outputs;
  ExpectStatus(call.operation.InferShape(Descs(call.pack.inputs), &outputs), NO_ERROR, "");
  ASSERT_EQ(outputs.size(), 2u);
  EXPECT_EQ(ToString(outputs[1].shape), std::string("[8, 3]"));
  EXPECT_EQ(call.operation.NumInputs(), 2);
  EXPECT_EQ(call.operation.NumOutputs(), 2);
  ExpectStatus(PlanCall(call), NO_ERROR, "");
}

TEST(NumberOfInputs) {
  FaultyDesc(ERROR_INVALID_IN_TENSOR_NUM, "LinearParallel: needs 3 inputs, got 2",
             [](LinearCall& call) { call.pack.inputs.pop_back(); });
  FaultyDesc(
      ERROR_INVALID_IN_TENSOR_NUM, "needs 2 inputs, got 3",
      [](LinearCall& call) { call.pack.inputs.push_back(call.input(kX)); }, Gathering());
}

TEST(DimsAndSizes) {
  FaultyDesc(ERROR_INVALID_TENSOR_DIM, "weight has 9 dims",
             [](LinearCall& call) { call.input(kWeight).desc.shape.num_dims = 9; });
  FaultyDesc(ERROR_INVALID_TENSOR_SIZE, "x has size 0 in dim 1",
             [](LinearCall& call) { call.input(kX).desc.shape = {4, 0}; });
  FaultyDesc(ERROR_INVALID_TENSOR_SIZE, "weight of shape [4294967296, 4294967296] is over",
             [](LinearCall& call) {
               call.input(kWeight).desc.shape = {int64_t{1} << 32, int64_t{1} << 32};
             });
  FaultyDesc(ERROR_INVALID_TENSOR_SIZE, "the output has size 0 in dim 1", [](LinearCall& call) {
    call.input(kWeight).desc.shape = {0, 3};
    call.input(kResidual).desc.shape = {0};
  });
  FaultyDesc(
      ERROR_INVALID_TENSOR_SIZE, "the output of shape [4294967296, 1048576] is over",
      [](LinearCall& call) {
        call.input(kX).desc.shape = {int64_t{1} << 31, 1};
        call.input(kWeight).desc.shape = {int64_t{1} << 20, 1};
      },
      Gathering());
}

TEST(DTypesAndFormats) {
  FaultyDesc(ERROR_INVALID_TENSOR_INI_MATCH, "x is int8; pass one of float32, float16, bfloat16",
             [](LinearCall& call) { call.input(kX).desc.dtype = DType::kInt8; });
  FaultyDesc(ERROR_INVALID_TENSOR_INI_MATCH, "weight is float64",
             [](LinearCall& call) { call.input(kWeight).desc.dtype = DType::kFloat64; });
  FaultyDesc(ERROR_INVALID_TENSOR_INI_MATCH, "residual is float16 but x is float32: convert",
             [](LinearCall& call) { call.input(kResidual).desc.dtype = DType::kFloat16; });
  FaultyDesc(ERROR_INVALID_TENSOR_INI_MATCH, "weight has format fractal_nz",
             [](LinearCall& call) { call.input(kWeight).desc.format = Format::kFractalNZ; });
  P param = TypeOne();
  param.outDataType = DType::kFloat16;
  FaultyDesc(
      ERROR_INVALID_TENSOR_INI_MATCH, "outDataType is 1 (float16) but x is float32",
      [](LinearCall&) {}, param);
}

TEST(EveryAllowedDTypePasses) {
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16, DType::kFloat32}) {
    P param = TypeOne();
    param.outDataType = dtype;
    LinearCall call(param);
    for (TensorView& input : call.pack.inputs) input.desc.dtype = dtype;
    call.out().desc.dtype = dtype;
    ExpectStatus(PlanCall(call), NO_ERROR, "");
  }
}

// 8, as ATB's tests expect; with mc2 it is 16.
TEST(NumberOfDims) {
  FaultyDesc(ERROR_INVALID_TENSOR_DIM, "x must have 2 or 3 dims, got 1 in shape [12]",
             [](LinearCall& call) { call.input(kX).desc.shape = {12}; });
  FaultyDesc(ERROR_INVALID_TENSOR_DIM, "weight must have 2 or 3 dims, got 4",
             [](LinearCall& call) { call.input(kWeight).desc.shape = {1, 1, 5, 3}; });
  FaultyDesc(ERROR_INVALID_TENSOR_DIM, "residual must have 1 or 2 dims, got 3",
             [](LinearCall& call) { call.input(kResidual).desc.shape = {1, 1, 5}; });
  FaultyDesc(
      ERROR_INVALID_TENSOR_DIM_NUM, "x must have 2 dims, got 3",
      [](LinearCall& call) { call.input(kX).desc.shape = {1, 4, 3}; }, Mc2());
  FaultyDesc(
      ERROR_INVALID_TENSOR_DIM_NUM, "weight must have 2 dims, got 3",
      [](LinearCall& call) { call.input(kWeight).desc.shape = {1, 5, 3}; }, Mc2());
}

TEST(GridAndLists) {
  P param = TypeOne();
  param.type = P::ALL_GATHER_LINEAR_REDUCE_SCATTER;
  param.twoDimTPInfo.agDim = param.twoDimTPInfo.rsDim = 2;
  FaultyDesc(
      ERROR_INVALID_PARAM, "twoDimTPInfo.agDim 2 * rsDim 2 must be rankSize 2", [](LinearCall&) {},
      param);
  param = TypeOne();
  param.scatterRows = {1, 2};
  FaultyDesc(
      ERROR_INVALID_PARAM, "scatterRows have a sum of 3 but x has 4 rows", [](LinearCall&) {},
      param);
}

TEST(ShapesThatDoNotMultiply) {
  FaultyDesc(ERROR_INVALID_TENSOR_DIM, "x has k = 4 columns but weight [5, 3] has 3 columns",
             [](LinearCall& call) { call.input(kX).desc.shape = {4, 4}; });
  FaultyDesc(ERROR_INVALID_TENSOR_DIM, "must have 1 matrix in dim 0, got 2",
             [](LinearCall& call) { call.input(kWeight).desc.shape = {2, 5, 3}; });
  FaultyDesc(ERROR_INVALID_TENSOR_DIM, "residual must be [5] or [1, 5], got [4]",
             [](LinearCall& call) { call.input(kResidual).desc.shape = {4}; });
  FaultyDesc(ERROR_INVALID_TENSOR_DIM, "residual must be [5] or [1, 5], got [2, 5]",
             [](LinearCall& call) { call.input(kResidual).desc.shape = {2, 5}; });
  FaultyDesc(ERROR_INVALID_TENSOR_DIM, "3 rows in dim 0 do not divide by 2 ranks",
             [](LinearCall& call) { call.input(kX).desc.shape = {3, 3}; });
  FaultyDesc(
      ERROR_INVALID_TENSOR_DIM, "backend \"mc2\" takes k in [256, 65535), got 3",
      [](LinearCall&) {}, Mc2());
}

TEST(ValidShapes) {
  LinearCall call;
  call.input(kResidual).desc.shape = {1, 5};
  call.input(kWeight).desc.shape = {1, 5, 3};
  call.input(kX).desc.shape = {4, 1, 3};
  call.out().desc.shape = {2, 1, 5};
  ExpectStatus(PlanCall(call), NO_ERROR, "");
}

TEST(Outputs) {
  Faulty(ERROR_INVALID_IN_TENSOR_NUM, "needs 1 output, got 0",
         [](LinearCall& call) { call.pack.outputs.clear(); });
  Faulty(
      ERROR_INVALID_IN_TENSOR_NUM, "needs 2 outputs, got 1",
      [](LinearCall& call) { call.pack.outputs.pop_back(); }, Gathering());
  Faulty(ERROR_INVALID_TENSOR_DIM,
         "the output must have 2 dims, shape [2, 5], got 3 in shape [1, 2, 5]",
         [](LinearCall& call) { call.out().desc.shape = {1, 2, 5}; });
  Faulty(
      ERROR_INVALID_TENSOR_DIM_NUM,
      "the output must have 2 dims, shape [2, 5], got 1 in shape [10]",
      [](LinearCall& call) {
        call.input(kX).desc.shape = {4, 300};
        call.input(kWeight).desc.shape = {5, 300};
        call.out().desc.shape = {10};
      },
      Mc2());
  Faulty(ERROR_INVALID_TENSOR_DIM, "the output must have shape [2, 5], got [4, 5]",
         [](LinearCall& call) { call.out().desc.shape = {4, 5}; });
  Faulty(
      ERROR_INVALID_TENSOR_DIM, "the gathered x must have shape [8, 3], got [8, 5]",
      [](LinearCall& call) { call.pack.outputs[1].desc.shape = {8, 5}; }, Gathering());
  Faulty(ERROR_INVALID_TENSOR_INI_MATCH, "the output must be float32 as x, got bfloat16",
         [](LinearCall& call) { call.out().desc.dtype = DType::kBFloat16; });
  Faulty(ERROR_INVALID_TENSOR_INI_MATCH, "the output has format nchw",
         [](LinearCall& call) { call.out().desc.format = Format::kNCHW; });
}

TEST(Memory) {
  Faulty(ERROR_INVALID_TENSOR_ADDR, "the output overlaps weight in memory",
         [](LinearCall& call) { call.out().data = call.weight + 14; });
  Faulty(
      ERROR_INVALID_TENSOR_ADDR, "the gathered x overlaps x in memory",
      [](LinearCall& call) { call.pack.outputs[1].data = call.x; }, Gathering());
  Faulty(
      ERROR_INVALID_TENSOR_ADDR, "the gathered x overlaps the output in memory",
      [](LinearCall& call) { call.pack.outputs[1].data = call.output + 39; }, Gathering());
  Faulty(
      ERROR_INVALID_TENSOR_ADDR, "the gathered x is read-only",
      [](LinearCall& call) { call.pack.outputs[1].read_only = true; }, Gathering());
  Faulty(ERROR_INVALID_TENSOR_ADDR, "residual is not contiguous: pass .contiguous()",
         [](LinearCall& call) { call.input(kResidual).contiguous = false; });
  Faulty(ERROR_INVALID_TENSOR_ADDR, "weight is not in this machine's byte order",
         [](LinearCall& call) { call.input(kWeight).foreign_endian = true; });
  Faulty(ERROR_INVALID_TENSOR_ADDR, "weight is on npu:0; this backend moves CPU tensors",
         [](LinearCall& call) { call.input(kWeight).device = {DeviceKind::kNpu, 0}; });
}

TEST(BackendRefuses) {
  LinearCall call;
  call.communicator->supports = Error(ERROR_UNSUPPORTED, "no products here");
  ExpectPlanFault(call, ERROR_UNSUPPORTED, "no products here");
}

TEST(ExecuteRefusesAndTellsTheOthers) {
  {
    LinearCall call;
    ExpectRunFault(call, ERROR_INVALID_PARAM, "LinearParallel: no plan yet: run the first phase");
    EXPECT_EQ(call.communicator->refusals[0].name, "LinearParallel");
  }
  LinearCall call;
  ExpectStatus(PlanCall(call), NO_ERROR, "");
  call.input(kResidual).data = nullptr;
  ExpectRunFault(call, ERROR_INVALID_TENSOR_ADDR, "residual of shape [5] has no address");
}

TEST(ExecuteChecksTheWorkspace) {
  LinearCall call;
  uint64_t bytes = 0;
  ExpectStatus(call.operation.GetWorkspaceSize(call.pack, &bytes), NO_ERROR, "");
  ASSERT_TRUE(bytes > 0);
  ExpectStatus(call.operation.Execute(call.pack, &bytes, bytes - 1, nullptr),
               ERROR_INVALID_WORKSPACE_SIZE, "LinearParallel: the workspace has");
  ExpectStatus(call.operation.Execute(call.pack, nullptr, bytes, nullptr),
               ERROR_INVALID_WORKSPACE_ADDR, "LinearParallel: the workspace is missing");
}

TEST(PrepackChecksTheWeight) {
  LinearCall call;
  LinearParallel& operation = call.operation;
  const TensorView weight = call.input(kWeight);
  ExpectStatus(operation.Prepack(weight), NO_ERROR, "");
  TensorView bad = weight;
  bad.desc.dtype = DType::kInt8;
  ExpectStatus(operation.Prepack(bad), ERROR_INVALID_TENSOR_INI_MATCH, "weight is int8");
  bad = MakeView(DType::kFloat32, {15}, call.weight);
  ExpectStatus(operation.Prepack(bad), ERROR_INVALID_TENSOR_DIM, "weight must have 2 or 3 dims");
  bad = MakeView(DType::kFloat32, {3, 1, 5}, call.weight);
  ExpectStatus(operation.Prepack(bad), ERROR_INVALID_TENSOR_DIM, "must have 1 matrix in dim 0");
  bad = weight;
  bad.contiguous = false;
  ExpectStatus(operation.Prepack(bad), ERROR_INVALID_TENSOR_ADDR, "weight is not contiguous");
  bad = weight;
  bad.data = nullptr;
  ExpectStatus(operation.Prepack(bad), ERROR_INVALID_TENSOR_ADDR, "weight of shape [5, 3]");
}

TEST(OfTwoFaultsTheUpperLineIsReported) {
  FaultyDesc(ERROR_INVALID_TENSOR_INI_MATCH, "weight is float16 but x", [](LinearCall& call) {
    call.input(kWeight).desc.dtype = DType::kFloat16;
    call.input(kWeight).desc.shape = {15};
  });
  FaultyDesc(ERROR_INVALID_TENSOR_DIM, "weight must have 2 or 3 dims", [](LinearCall& call) {
    call.input(kWeight).desc.shape = {15};
    call.input(kX).desc.shape = {3, 3};
  });
  Faulty(ERROR_INVALID_TENSOR_INI_MATCH, "the output must be float32", [](LinearCall& call) {
    call.out().desc.dtype = DType::kFloat16;
    call.input(kX).contiguous = false;
  });
}
