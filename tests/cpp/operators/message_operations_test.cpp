// Send and Recv: their structs, refused values, and both phases between threads.
#include <thread>

#include "collops/comm/registry.h"
#include "collops/operators/params.h"
#include "operators/framework/operator_call.h"

using namespace collops;

namespace {

template <typename Param>
Param Struct(int rank, int rank_size, uint32_t peer, const char* domain) {
  Param param;
  param.rank = rank;
  param.rankSize = rank_size;
  param.backend = "shm";
  param.commMode = COMM_MULTI_THREAD;
  param.commDomain = domain;
  if constexpr (std::is_same_v<Param, SendParam>) {
    param.destRank = peer;
  } else {
    param.srcRank = peer;
  }
  return param;
}

template <typename Param>
void JsonKeepsEveryField(const char* peer_key) {
  Param param = Struct<Param>(3, 5, 4, "dp");
  param.rankRoot = 2;
  param.rankTableFile = "table.json";
  Param read;
  EXPECT_EQ(FromJson(ToJson(param), &read).message(), "");
  EXPECT_TRUE(read == param);
  EXPECT_FALSE(param == Param());
  EXPECT_CONTAINS(ToJson(param), "\"rankRoot\":2,\"" + std::string(peer_key) + "\":4,\"backend\"");
  const std::string key = "{\"" + std::string(peer_key) + "\": ";
  ExpectStatus(FromJson(key + "-1}", &read), ERROR_INVALID_PARAM, peer_key);
  ExpectStatus(FromJson(key + "4294967296}", &read), ERROR_INVALID_PARAM, peer_key);
  ExpectStatus(FromJson("{\"destRnk\": 1}", &read), ERROR_INVALID_PARAM, "destRnk");
}

struct Message {
  std::vector<float> x;
  std::vector<float> output;
  VariantPack pack;
};

Message SendOf(int64_t count) {
  Message message;
  for (int64_t i = 0; i < count; ++i) message.x.push_back(static_cast<float>(i) + 0.5F);
  message.pack.inputs = {MakeView(DType::kFloat32, {count}, message.x.data())};
  return message;
}

Message RecvOf(const Shape& shape) {
  Message message;
  message.x.assign(static_cast<size_t>(Numel(shape)), -1);
  message.output.assign(message.x.size(), -77);
  message.pack.inputs = {MakeView(DType::kFloat32, shape, message.x.data())};
  message.pack.outputs = {MakeView(DType::kFloat32, shape, message.output.data())};
  return message;
}

Status BothPhases(Operation* operation, const VariantPack& pack) {
  uint64_t bytes = 77;
  const Status planned = operation->GetWorkspaceSize(pack, &bytes);
  if (!planned.ok()) {
    EXPECT_EQ(operation->Refuse(planned).message(), "");
    return planned;
  }
  EXPECT_EQ(bytes, 0u);
  return operation->Execute(pack, nullptr, 0, nullptr);
}

}  // namespace

TEST(TheStructsAreAtbs) {
  EXPECT_EQ(SendParam().destRank, 1u);
  EXPECT_EQ(RecvParam().srcRank, 1u);
  EXPECT_EQ(SendParam().rank, 0);
  EXPECT_EQ(RecvParam().backend, "hccl");
  JsonKeepsEveryField<SendParam>("destRank");
  JsonKeepsEveryField<RecvParam>("srcRank");
}

TEST(ThePeerIsCheckedAgainstTheCallersCommunicator) {
  std::unique_ptr<Operation> operation;
  std::unique_ptr<Operation> other;
  SendParam param = Struct<SendParam>(0, 2, 1, "handed in");
  EXPECT_EQ(CreateOperation(param, &operation).message(), "");
  // The domain's communicator, which another struct keeps alive.
  std::shared_ptr<Communicator> communicator;
  CommunicatorSpec spec;
  spec.backend = "shm";
  spec.comm_domain = "handed in";
  spec.rank_size = 2;
  spec.comm_mode = COMM_MULTI_THREAD;
  EXPECT_EQ(Registry::Instance().Get(spec, &communicator).message(), "");
  SendParam handed;
  handed.backend = "shm";
  handed.commMode = COMM_MULTI_THREAD;
  handed.hcclComm = communicator.get();
  handed.destRank = 0;
  ExpectStatus(CreateOperation(handed, &other), ERROR_INVALID_PARAM,
               "Send: destRank 0 is this rank itself");
  handed.destRank = 2;
  ExpectStatus(CreateOperation(handed, &other), ERROR_INVALID_PARAM,
               "Send: destRank must be in [0, 2), got 2");
  handed.destRank = 1;
  EXPECT_EQ(CreateOperation(handed, &other).message(), "");
}

TEST(AMessageArrivesInAnotherShapeAndInPlace) {
  std::thread sender([] {
    std::unique_ptr<Operation> operation;
    EXPECT_EQ(CreateOperation(Struct<SendParam>(0, 2, 1, "shape"), &operation).message(), "");
    Message message = SendOf(6);
    EXPECT_EQ(BothPhases(operation.get(), message.pack).message(), "");
    EXPECT_EQ(BothPhases(operation.get(), message.pack).message(), "");
    EXPECT_EQ(message.x, SendOf(6).x);
  });
  std::unique_ptr<Operation> operation;
  EXPECT_EQ(CreateOperation(Struct<RecvParam>(1, 2, 0, "shape"), &operation).message(), "");
  Message message = RecvOf({3, 2});
  std::vector<TensorDesc> outputs;
  EXPECT_EQ(operation->InferShape(Descs(message.pack.inputs), &outputs).message(), "");
  EXPECT_EQ(outputs.size(), 1u);
  EXPECT_TRUE(outputs[0] == message.pack.inputs[0].desc);
  EXPECT_EQ(BothPhases(operation.get(), message.pack).message(), "");
  EXPECT_EQ(message.output, SendOf(6).x);
  EXPECT_EQ(message.x, std::vector<float>(6, -1));
  message.pack.outputs[0].data = message.x.data();
  EXPECT_EQ(BothPhases(operation.get(), message.pack).message(), "");
  EXPECT_EQ(message.x, SendOf(6).x);
  sender.join();
}

TEST(ARefusalOfEitherPhaseReachesThePeer) {
  std::thread sender([] {
    std::unique_ptr<Operation> operation;
    EXPECT_EQ(CreateOperation(Struct<SendParam>(0, 2, 1, "refuse"), &operation).message(), "");
    Message message = SendOf(6);
    ExpectStatus(BothPhases(operation.get(), message.pack), ERROR_RANK_MISMATCH,
                 "Recv: the output overlaps x in memory");
    message.pack.inputs[0].contiguous = false;
    ExpectStatus(BothPhases(operation.get(), message.pack), ERROR_INVALID_TENSOR_ADDR,
                 "Send: x is not contiguous");
    message.pack.inputs[0].contiguous = true;
    message.pack.inputs[0].desc.shape = {7};
    // No plan has that shape: Execute refuses.
    ExpectStatus(operation->Execute(message.pack, nullptr, 0, nullptr), ERROR_INVALID_PARAM,
                 "get_workspace_size)");
    message.pack.inputs[0].desc.shape = {6};
    EXPECT_EQ(BothPhases(operation.get(), message.pack).message(), "");
  });
  std::unique_ptr<Operation> operation;
  EXPECT_EQ(CreateOperation(Struct<RecvParam>(1, 2, 0, "refuse"), &operation).message(), "");
  Message message = RecvOf({6});
  message.pack.outputs[0].data = message.x.data() + 1;
  ExpectStatus(BothPhases(operation.get(), message.pack), ERROR_INVALID_TENSOR_ADDR,
               "Recv: the output overlaps x in memory");
  message.pack.outputs[0].data = message.output.data();
  ExpectStatus(BothPhases(operation.get(), message.pack), ERROR_RANK_MISMATCH,
               "Send: x is not contiguous");
  ExpectStatus(BothPhases(operation.get(), message.pack), ERROR_RANK_MISMATCH,
               "get_workspace_size)");
  EXPECT_EQ(BothPhases(operation.get(), message.pack).message(), "");
  EXPECT_EQ(message.output, SendOf(6).x);
  sender.join();
}
