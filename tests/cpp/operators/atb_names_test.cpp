// collops/atb.h: ATB's names and conversions. A whole program is in examples/cpp/atb_program.cpp.
#include <limits>
#include <string>

#include "operators/atb_rank.h"

TEST(BothPhases) {
  OnTwoRanks("both", [](int, Rank& rank) {
    EXPECT_EQ(rank.Setup(), atb::NO_ERROR);
    EXPECT_EQ(rank.bytes, 0u);
    EXPECT_EQ(rank.Execute(), atb::NO_ERROR);
    EXPECT_EQ(rank.y[0], 3.0f);
    EXPECT_EQ(rank.y[1], 10.0f);
  });
}

TEST(ErrorsHaveAtbsNumberAndAMessage) {
  OnTwoRanks("errors", [](int, Rank& rank) {
    EXPECT_EQ(rank.operation->Setup(rank.pack, rank.bytes, nullptr), atb::ERROR_INVALID_PARAM);
    EXPECT_TRUE(Says("AllReduce: context is null"));
    rank.pack.inTensors[0].dataSize = 4;
    EXPECT_EQ(rank.Setup(), atb::ErrorType::ERROR_INVALID_PARAM);
    EXPECT_TRUE(Says("inTensors[0].dataSize must be 8, the bytes of float32 [2], got 4"));
    rank.pack.inTensors[0].desc.shape.dimNum = std::numeric_limits<uint64_t>::max();
    EXPECT_EQ(rank.Setup(), atb::ERROR_INVALID_TENSOR_DIM);
    EXPECT_TRUE(Says("9 dims"));
    rank.pack.inTensors.clear();
    EXPECT_EQ(rank.Setup(), atb::ERROR_INVALID_IN_TENSOR_NUM);
  });
}

TEST(ParamsAreClonedAndUpdated) {
  atb::Operation* operation = nullptr;
  EXPECT_EQ(atb::CreateOperation(TwoThreads(0, "first"), &operation), atb::NO_ERROR);
  EXPECT_EQ(operation->GetName(), std::string("AllReduce"));
  EXPECT_EQ(operation->GetInputNum(), 1u);
  EXPECT_EQ(operation->GetOutputNum(), 1u);
  EXPECT_EQ(atb::UpdateOperationParam(operation, TwoThreads(0, "second")), atb::NO_ERROR);
  atb::infer::AllReduceParam param;
  EXPECT_EQ(atb::CloneOperationParam(operation, param), atb::NO_ERROR);
  EXPECT_EQ(param.commDomain, std::string("second"));
  param.rankSize = 1;
  EXPECT_EQ(atb::UpdateOperationParam(operation, param), atb::ERROR_INVALID_PARAM);
  atb::infer::AllGatherParam another;
  EXPECT_EQ(atb::CloneOperationParam(operation, another), atb::ERROR_INVALID_PARAM);
  EXPECT_TRUE(Says("CloneOperationParam: opParam is not the struct of AllReduce"));
  EXPECT_EQ(atb::DestroyOperation(operation), atb::NO_ERROR);
  EXPECT_EQ(atb::CreateOperation(param, nullptr), atb::ERROR_INVALID_PARAM);
  EXPECT_TRUE(Says("CreateOperation: operation is null"));
  EXPECT_EQ(atb::CloneOperationParam(nullptr, param), atb::ERROR_INVALID_PARAM);
  EXPECT_TRUE(Says("CloneOperationParam: operation is null"));
  EXPECT_EQ(atb::UpdateOperationParam(nullptr, param), atb::ERROR_INVALID_PARAM);
  EXPECT_TRUE(Says("UpdateOperationParam: operation is null"));
  EXPECT_EQ(atb::CreateContext(nullptr), atb::ERROR_INVALID_PARAM);
  EXPECT_TRUE(Says("CreateContext: context is null"));
}

TEST(ContextsAreMadeInEveryWay) {
  atb::Context* context = nullptr;
  const auto alloc = [](size_t) -> void* { return nullptr; };
  const auto dealloc = [](void*) {};
  EXPECT_EQ(atb::CreateContext(&context, alloc, dealloc), atb::NO_ERROR);
  EXPECT_EQ(atb::DestroyContext(context), atb::NO_ERROR);
  EXPECT_EQ(atb::CreateContext(&context, alloc, nullptr), atb::ERROR_INVALID_PARAM);
  EXPECT_TRUE(Says("CreateContext: alloc and dealloc must both be functions, or neither"));
  EXPECT_EQ(atb::CreateContext(&context, 127u, 32u), atb::ERROR_INVALID_PARAM);
  EXPECT_TRUE(Says("CreateContext: hostTilingBlockNum must be from 128 to 1024, got 127"));
  EXPECT_EQ(atb::CreateContext(&context, 128u, 1025u), atb::ERROR_INVALID_PARAM);
  EXPECT_TRUE(Says("deviceTilingBlockNum must be from 32 to 1024, got 1025"));
  EXPECT_EQ(atb::CreateContext(&context, 1024u, 32u), atb::NO_ERROR);
  EXPECT_EQ(context->SetLaunchMode(atb::GRAPH_LAUNCH_MODE), atb::NO_ERROR);
  EXPECT_EQ(context->GetLaunchMode(), atb::GRAPH_LAUNCH_MODE);
  EXPECT_EQ(context->SetLaunchMode(static_cast<atb::LaunchMode>(2)), atb::ERROR_INVALID_PARAM);
  EXPECT_TRUE(
      Says("SetLaunchMode: mode must be 0 (KERNEL_LAUNCH_MODE) or 1 (GRAPH_LAUNCH_MODE), "));
  EXPECT_EQ(atb::DestroyContext(context), atb::NO_ERROR);
  EXPECT_FALSE(atb::Utils::GetAtbVersion().empty());
}

TEST(AnOperationRunsOnTheStreamWithItsNumber) {
  OnTwoRanks("streams", [](int, Rank& rank) {
    EXPECT_EQ(atb::SetExecuteStreamId(rank.operation, 1), atb::NO_ERROR);
    EXPECT_EQ(atb::GetExecuteStreamId(rank.operation), 1u);
    EXPECT_EQ(rank.context->SetExecuteStreams({}), atb::ERROR_INVALID_PARAM);
    EXPECT_TRUE(Says("SetExecuteStreams: there must be a stream"));
    EXPECT_EQ(rank.context->SetExecuteStreams({nullptr, rank.stream}), atb::NO_ERROR);
    EXPECT_EQ(rank.context->GetExecuteStreams()[1], rank.stream);
    EXPECT_TRUE(rank.context->GetExecuteStream() == nullptr);
    EXPECT_EQ(rank.Setup(), atb::NO_ERROR);
    EXPECT_EQ(rank.Execute(), atb::NO_ERROR);
    EXPECT_EQ(rank.y[1], 10.0f);
  });
  EXPECT_EQ(atb::SetExecuteStreamId(nullptr, 1), atb::ERROR_INVALID_PARAM);
  EXPECT_TRUE(Says("SetExecuteStreamId: operation is null"));
}

TEST(AStreamThatTheContextHasNotIsRefused) {
  OnTwoRanks("no stream", [](int, Rank& rank) {
    EXPECT_EQ(atb::SetExecuteStreamId(rank.operation, 2), atb::NO_ERROR);
    EXPECT_EQ(rank.Setup(), atb::NO_ERROR);
    EXPECT_EQ(rank.Execute(), atb::ERROR_INVALID_PARAM);
    EXPECT_TRUE(Says("AllReduce: the stream id is 2, and must be below 1, the number of"));
  });
}

TEST(StructsWithAclsNumbersHaveTheFunctionsOfCollops) {
  atb::infer::AllReduceParam param = TwoThreads(0, "functions");
  param.outDataType = ACL_FLOAT16;
  atb::infer::AllReduceParam read;
  EXPECT_FALSE(read == param);
  EXPECT_TRUE(collops::FromJson(collops::ToJson(param), &read).ok());
  EXPECT_TRUE(read == param);
  EXPECT_EQ(read.outDataType, ACL_FLOAT16);
  read.outDataType = ACL_BF16;
  EXPECT_FALSE(read == param);

  param.outDataType = ACL_DT_UNDEFINED;
  std::unique_ptr<collops::Operation> operation;
  EXPECT_TRUE(collops::CreateOperation(param, &operation).ok());
  EXPECT_TRUE(collops::UpdateOperation(param, &operation).ok());
  std::vector<collops::TensorDesc> outputs;
  EXPECT_TRUE(collops::InferShape(param, 2, {{collops::DType::kFloat32, collops::Format::kND, {2}}},
                                  &outputs)
                  .ok());
  EXPECT_EQ(outputs.size(), 1u);
}

TEST(InferShapeGivesAtbsDescs) {
  atb::Operation* operation = nullptr;
  EXPECT_EQ(atb::CreateOperation(TwoThreads(0, "shapes"), &operation), atb::NO_ERROR);
  atb::SVector<atb::TensorDesc> outputs;
  const atb::Tensor x = MakeTensor(ACL_BF16, {3, 7}, nullptr);
  EXPECT_EQ(operation->InferShape({x.desc}, outputs), atb::NO_ERROR);
  ASSERT_EQ(outputs.size(), 1u);
  EXPECT_EQ(outputs[0].dtype, ACL_BF16);
  EXPECT_EQ(outputs[0].format, ACL_FORMAT_ND);
  EXPECT_EQ(outputs[0].shape.dimNum, 2u);
  EXPECT_EQ(outputs[0].shape.dims[1], 7);
  EXPECT_EQ(atb::DestroyOperation(operation), atb::NO_ERROR);
}

TEST(CastConvertsAndRefusesTheRest) {
  atb::infer::ElewiseParam param;
  atb::Operation* operation = nullptr;
  EXPECT_EQ(atb::CreateOperation(param, &operation), atb::ERROR_INVALID_PARAM);
  EXPECT_TRUE(Says("Elewise: elewiseType must be 1 (ELEWISE_CAST), got 0: collops has no other"));
  param.elewiseType = atb::infer::ElewiseParam::ELEWISE_CAST;
  param.outTensorType = ACL_INT8;
  EXPECT_EQ(atb::CreateOperation(param, &operation), atb::ERROR_INVALID_PARAM);
  EXPECT_TRUE(Says("outTensorType must be ACL_FLOAT (0), ACL_FLOAT16 (1) or ACL_BF16 (27), got 2"));
  EXPECT_EQ(atb::CreateOperation(atb::infer::TransdataParam(), &operation),
            atb::ERROR_INVALID_PARAM);
  EXPECT_TRUE(Says("Transdata: collops has no operator that changes the format of a tensor"));
  param.outTensorType = ACL_FLOAT16;
  EXPECT_EQ(atb::CreateOperation(param, &operation), atb::NO_ERROR);

  Rank rank(0, "cast");
  float wide[3] = {1.0f, -2.5f, 65520.0f};
  uint16_t half[3] = {};
  rank.pack.inTensors = {MakeTensor(ACL_FLOAT, {3}, wide)};
  rank.pack.outTensors = {MakeTensor(ACL_FLOAT16, {3}, half)};
  EXPECT_EQ(operation->Setup(rank.pack, rank.bytes, rank.context), atb::NO_ERROR);
  EXPECT_EQ(operation->Execute(rank.pack, nullptr, 0, rank.context), atb::NO_ERROR);
  EXPECT_EQ(half[0], 0x3c00u);
  EXPECT_EQ(half[1], 0xc100u);
  EXPECT_EQ(half[2], 0x7c00u);
  rank.pack.outTensors = {MakeTensor(ACL_FLOAT16, {2}, half)};
  EXPECT_EQ(operation->Setup(rank.pack, rank.bytes, rank.context), atb::ERROR_INVALID_TENSOR_DIM);
  EXPECT_EQ(atb::DestroyOperation(operation), atb::NO_ERROR);
}

TEST(DeviceMemoryIsHostMemory) {
  void* data = nullptr;
  EXPECT_EQ(aclrtMalloc(&data, 5, ACL_MEM_MALLOC_HUGE_FIRST), ACL_SUCCESS);
  char back[5] = {};
  EXPECT_EQ(aclrtMemcpy(data, 5, "abcd", 5, ACL_MEMCPY_HOST_TO_DEVICE), ACL_SUCCESS);
  EXPECT_EQ(aclrtMemcpy(back, 5, data, 5, ACL_MEMCPY_DEVICE_TO_HOST), ACL_SUCCESS);
  EXPECT_EQ(std::string(back), std::string("abcd"));
  EXPECT_EQ(aclrtFree(data), ACL_SUCCESS);
  EXPECT_EQ(aclrtSetDevice(3), ACL_SUCCESS);
  int32_t device = 0;
  EXPECT_EQ(aclrtGetDevice(&device), ACL_SUCCESS);
  EXPECT_EQ(device, 3);
  EXPECT_EQ(aclDataTypeSize(ACL_BF16), 2u);
}
