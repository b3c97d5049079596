// What Execute passes to the communicator. What it refuses besides: tests/refusals.
#include "operators/framework/operator_call.h"

using namespace collops;

namespace {

// Plans a valid call, then makes it invalid.
template <typename Spoil>
void FaultyGather(ErrorCode code, const char* part, Spoil spoil) {
  GatherCall call;
  ExpectStatus(PlanCall(call), NO_ERROR, "");
  spoil(call);
  ExpectRunFault(call, code, part);
}

// An operator that needs scratch memory, unlike AllGatherV and ReduceScatterV.
class ScratchOperation : public CollectiveOperation {
 public:
  explicit ScratchOperation(std::shared_ptr<Communicator> communicator)
      : CollectiveOperation(GetSignature()) {
    Join(std::move(communicator));
  }

  void* seen_workspace = nullptr;

 protected:
  static const OpSignature& GetSignature() {
    static const OpSignature signature = {
        "Scratch", {{"x", Role::kData, SetOf(DType::kFloat32), 1, Extent::kAny}}};
    return signature;
  }
  Status DescribeOutputs(const RankPlace& /*place*/, const std::vector<TensorDesc>& inputs,
                         std::vector<TensorDesc>* outputs) const override {
    *outputs = inputs;
    return Ok();
  }
  Status CheckSupport(DType) const override { return Ok(); }
  Status Complete(Plan* plan) const override {
    plan->workspace_bytes = 64;
    return Ok();
  }
  void AgreeOn(const Plan&, Agreement*) const override {}
  Status Run(const Plan&, const VariantPack&, void* workspace, void*) override {
    seen_workspace = workspace;
    return Ok();
  }
};

}  // namespace

// Nothing is sent, and no plan is stored.
TEST(ABackendIsAskedWhenACallIsPlanned) {
  GatherCall gather;
  gather.communicator->supports = Error(ERROR_UNSUPPORTED, "no such thing here");
  ExpectPlanFault(gather, ERROR_UNSUPPORTED, "no such thing here");
  EXPECT_TRUE(gather.communicator->asked.primitive == Primitive::kGather);
  EXPECT_EQ(gather.communicator->asked.dtype, DType::kFloat32);
  ScatterCall scatter;
  scatter.communicator->supports = Error(ERROR_UNSUPPORTED, "no max here");
  ExpectPlanFault(scatter, ERROR_UNSUPPORTED, "no max here");
  EXPECT_TRUE(scatter.communicator->asked.primitive == Primitive::kReduce);
  EXPECT_EQ(scatter.communicator->asked.op, ReduceOp::kMax);
}

TEST(CountsThatCannotBeReadAnyMore) {
  FaultyGather(ERROR_INVALID_TENSOR_ADDR, "recvCounts is on npu:0; counts are host tensors",
               [](GatherCall& call) { call.input(kRecvCounts).device = {DeviceKind::kNpu, 0}; });
  FaultyGather(ERROR_INVALID_TENSOR_ADDR, "sendCount of shape [1] has no address",
               [](GatherCall& call) { call.input(kSendCount).data = nullptr; });
  FaultyGather(ERROR_INVALID_TENSOR_ADDR, "rdispls is not contiguous",
               [](GatherCall& call) { call.input(kRdispls).contiguous = false; });
}

TEST(Workspace) {
  auto communicator = std::make_shared<RecordingCommunicator>(0, 2);
  ScratchOperation operation(communicator);
  float x[4] = {};
  float output[4] = {};
  const VariantPack pack = {{MakeView(DType::kFloat32, {4}, x)},
                            {MakeView(DType::kFloat32, {4}, output)}};
  uint64_t bytes = 0;
  ExpectStatus(operation.GetWorkspaceSize(pack, &bytes), NO_ERROR, "");
  EXPECT_EQ(bytes, 64u);
  char workspace[64];
  ExpectStatus(operation.Execute(pack, workspace, 63, nullptr), ERROR_INVALID_WORKSPACE_SIZE,
               "Scratch: the workspace has 63 bytes, the call needs 64");
  ExpectStatus(operation.Execute(pack, nullptr, 64, nullptr), ERROR_INVALID_WORKSPACE_ADDR,
               "Scratch: the workspace is missing, the call needs 64 bytes");
  EXPECT_EQ(communicator->refusals.size(), 2u);
  ExpectStatus(operation.Execute(pack, workspace, 64, nullptr), NO_ERROR, "");
  EXPECT_TRUE(operation.seen_workspace == workspace);
}

TEST(TheCallersErrorIsReturnedAndNotTheRefusals) {
  GatherCall call;
  call.communicator->refuse_result = Error(ERROR_TIMEOUT, "nobody came");
  ExpectRunFault(call, ERROR_INVALID_PARAM, "get_workspace_size");
}

TEST(RefuseTellsTheOthers) {
  ScatterCall call;
  ExpectStatus(call.operation.Refuse(Error(ERROR_INVALID_PARAM, "x requires grad")), NO_ERROR, "");
  ASSERT_EQ(call.communicator->refusals.size(), 1u);
  EXPECT_EQ(call.communicator->refusals[0].name, "ReduceScatterV");
  EXPECT_EQ(call.communicator->refusals[0].reason.message(), std::string("x requires grad"));
}

TEST(AnErrorOfTheCommunicatorIsNoRefusal) {
  GatherCall call;
  ExpectStatus(PlanCall(call), NO_ERROR, "");
  call.communicator->result = Error(ERROR_PEER_LOST, "rank 1 is gone");
  ExpectStatus(RunCall(call), ERROR_PEER_LOST, "rank 1 is gone");
  EXPECT_TRUE(call.communicator->refusals.empty());
}
