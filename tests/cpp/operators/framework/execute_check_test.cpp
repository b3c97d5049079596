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

TEST(GatherHandsThePlanToTheCommunicator) {
  GatherCall call;
  uint64_t bytes = 77;
  ExpectStatus(call.operation.GetWorkspaceSize(call.pack, &bytes), NO_ERROR, "");
  EXPECT_EQ(bytes, 0u);
  int stream = 0;
  ExpectStatus(call.operation.Execute(call.pack, nullptr, 0, &stream), NO_ERROR, "");
  ASSERT_EQ(call.communicator->gathers.size(), 1u);
  const AllGatherVCall& ran = call.communicator->gathers[0];
  EXPECT_EQ(call.communicator->agreements.at(0).op(), std::string("AllGatherV"));
  EXPECT_EQ(ran.dtype, DType::kFloat32);
  EXPECT_EQ(call.communicator->agreements.at(0).Value("rankRoot"), 1);
  EXPECT_TRUE(ran.x == call.x && ran.output == call.output && ran.stream == &stream);
  EXPECT_EQ(std::vector<int64_t>(ran.recv_counts, ran.recv_counts + 2),
            (std::vector<int64_t>{4, 2}));
  EXPECT_EQ(std::vector<int64_t>(ran.rdispls, ran.rdispls + 2), (std::vector<int64_t>{0, 4}));
  EXPECT_TRUE(ran.recv_counts != call.recv_counts && ran.rdispls != call.rdispls);
  ASSERT_EQ(ran.num_gaps, 1);
  EXPECT_EQ(ran.gaps[0].begin, 6);
  EXPECT_EQ(ran.gaps[0].end, 20);
}

TEST(GapsLieBetweenAndAroundTheBlocks) {
  GatherCall call;
  call.rdispls[0] = 11;  // block 1 is [4, 6), block 0 is [11, 15)
  ExpectStatus(PlanCall(call), NO_ERROR, "");
  ExpectStatus(RunCall(call), NO_ERROR, "");
  const AllGatherVCall& ran = call.communicator->gathers.at(0);
  std::vector<int64_t> ends;
  for (int64_t i = 0; i < ran.num_gaps; ++i) {
    ends.push_back(ran.gaps[i].begin);
    ends.push_back(ran.gaps[i].end);
  }
  EXPECT_EQ(ends, (std::vector<int64_t>{0, 4, 6, 11, 15, 20}));
}

TEST(BlocksThatFillTheOutputLeaveNoGap) {
  GatherCall call;
  call.recv_counts[1] = 16;
  ExpectStatus(PlanCall(call), NO_ERROR, "");
  ExpectStatus(RunCall(call), NO_ERROR, "");
  EXPECT_EQ(call.communicator->gathers.at(0).num_gaps, 0);
}

TEST(ScatterHandsThePlanToTheCommunicator) {
  ScatterCall call;
  ExpectStatus(PlanCall(call), NO_ERROR, "");
  ExpectStatus(RunCall(call), NO_ERROR, "");
  ASSERT_EQ(call.communicator->scatters.size(), 1u);
  const ReduceScatterVCall& ran = call.communicator->scatters[0];
  EXPECT_EQ(ran.dtype, DType::kFloat32);
  EXPECT_EQ(ran.op, ReduceOp::kMax);
  EXPECT_EQ(call.communicator->agreements.at(0).Value("rankRoot"), 1);
  EXPECT_EQ(ran.output_count, 6);
  EXPECT_TRUE(ran.x == call.x && ran.output == call.output);
  EXPECT_EQ(std::vector<int64_t>(ran.send_counts, ran.send_counts + 2),
            (std::vector<int64_t>{7, 5}));
  EXPECT_EQ(std::vector<int64_t>(ran.sdispls, ran.sdispls + 2), (std::vector<int64_t>{0, 7}));
  EXPECT_TRUE(ran.send_counts != call.send_counts && ran.sdispls != call.sdispls);
}

TEST(WithoutAPlanExecuteRefuses) {
  GatherCall call;
  ExpectRunFault(call, ERROR_INVALID_PARAM, "AllGatherV: no plan yet: run the first phase");
  EXPECT_EQ(call.communicator->refusals[0].name, "AllGatherV");
}

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

TEST(OtherAddressesUseTheSamePlan) {
  GatherCall call;
  ExpectStatus(PlanCall(call), NO_ERROR, "");
  float x[8] = {};
  float output[20] = {};
  int64_t recv_counts[2] = {4, 2};
  call.input(kGatherX).data = x;
  call.out().data = output;
  call.input(kRecvCounts).data = recv_counts;
  ExpectStatus(RunCall(call), NO_ERROR, "");
  EXPECT_TRUE(call.communicator->gathers.at(0).output == output);
}

TEST(CountsThatCannotBeReadAnyMore) {
  FaultyGather(ERROR_INVALID_TENSOR_ADDR, "recvCounts is on npu:0; counts are host tensors",
               [](GatherCall& call) { call.input(kRecvCounts).device = {DeviceKind::kNpu, 0}; });
  FaultyGather(ERROR_INVALID_TENSOR_ADDR, "sendCount of shape [1] has no address",
               [](GatherCall& call) { call.input(kSendCount).data = nullptr; });
  FaultyGather(ERROR_INVALID_TENSOR_ADDR, "rdispls is not contiguous",
               [](GatherCall& call) { call.input(kRdispls).contiguous = false; });
}

TEST(EmptyTensorsNeedNoAddress) {
  GatherCall call;
  call.send_count[0] = call.recv_counts[0] = 0;
  call.input(kGatherX) = MakeView(DType::kFloat32, {0, 4}, nullptr);
  ExpectStatus(PlanCall(call), NO_ERROR, "");
  ExpectStatus(RunCall(call), NO_ERROR, "");

  ScatterCall scatter;
  scatter.recv_count[0] = scatter.send_counts[1] = 0;
  scatter.input(kScatterY) = MakeView(DType::kFloat16, {0}, nullptr);
  scatter.out() = MakeView(DType::kFloat32, {0, 3}, nullptr);
  ExpectStatus(PlanCall(scatter), NO_ERROR, "");
  ExpectStatus(RunCall(scatter), NO_ERROR, "");
}

TEST(UnalignedCountsWork) {
  GatherCall call;
  unsigned char memory[3 * sizeof(int64_t) + 1];
  unsigned char* recv_counts = memory + 1;
  std::memcpy(recv_counts, call.recv_counts, sizeof(call.recv_counts));
  call.input(kRecvCounts).data = recv_counts;
  ExpectStatus(PlanCall(call), NO_ERROR, "");
  ExpectStatus(RunCall(call), NO_ERROR, "");
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
