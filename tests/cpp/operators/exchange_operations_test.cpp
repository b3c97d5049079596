// AllToAllV and AllToAllVV2: their calls of the communicator, their checks in the documented order,
// and both between ranks that are threads.
#include <limits>
#include <thread>

#include "collops/operators/params.h"
#include "operators/exchange_call.h"

using namespace collops;

namespace {

using List = std::vector<int64_t>;
constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
constexpr int64_t kMin = std::numeric_limits<int64_t>::min();

List Listed(const int64_t* numbers) {
  return {numbers, numbers + 2};
}

template <typename Call>
void AsksForTheExample(Call& call, const char* name) {
  ExpectStatus(PlanCall(call), NO_ERROR, "");
  ExpectStatus(RunCall(call), NO_ERROR, "");
  ASSERT_EQ(call.communicator->exchanges.size(), 1u);
  const ExchangeVCall& asked = call.communicator->exchanges[0];
  EXPECT_EQ(asked.dtype, DType::kFloat32);
  EXPECT_TRUE(asked.x == call.x && asked.output == call.output);
  EXPECT_EQ(Listed(asked.send_counts), (List{2, 1}));
  EXPECT_EQ(Listed(asked.sdispls), (List{0, 3}));
  EXPECT_EQ(Listed(asked.recv_counts), (List{3, 1}));
  EXPECT_EQ(Listed(asked.rdispls), (List{1, 0}));
  EXPECT_EQ(asked.num_gaps, 0);
  EXPECT_TRUE(asked.keep == nullptr);
  const Agreement& agreement = call.communicator->agreements.at(0);
  EXPECT_EQ(std::string(agreement.op()), std::string(name));
  EXPECT_EQ(agreement.Value("rankRoot"), 1);
  EXPECT_TRUE(agreement.balance() != 0);
  EXPECT_TRUE(call.communicator->asked.primitive == Primitive::kExchange);
}

// An error in the lists of AllToAllV, which InferShape finds, too.
template <typename Change>
void FaultyLists(ErrorCode code, const char* part, Change change) {
  AllToAllVParam param = ExampleLists();
  change(param);
  ListedCall call(param);
  ExpectDescFault(call, code, part);
}

template <typename Spoil>
void FaultyTensors(ErrorCode code, const char* part, Spoil spoil) {
  TensorsCall call;
  spoil(call);
  ExpectPlanFault(call, code, part);
}

template <typename Spoil>
void FaultyDescs(ErrorCode code, const char* part, Spoil spoil) {
  TensorsCall call;
  spoil(call);
  ExpectDescFault(call, code, part);
}

// The documented example as each rank sees it.
template <typename Param>
Param OfRank(int rank, const char* domain) {
  Param param;
  param.rank = rank;
  param.rankSize = 2;
  param.backend = "shm";
  param.commMode = COMM_MULTI_THREAD;
  param.commDomain = domain;
  return param;
}

template <typename Param>
Status BothPhases(const Param& param, const VariantPack& pack) {
  std::unique_ptr<Operation> operation;
  COLLOPS_RETURN_IF_ERROR(CreateOperation(param, &operation));
  uint64_t bytes = 1;
  COLLOPS_RETURN_IF_ERROR(operation->GetWorkspaceSize(pack, &bytes));
  EXPECT_EQ(bytes, 0u);
  return operation->Execute(pack, nullptr, 0, nullptr);
}

Status Example(int rank, bool with_tensors, int64_t received, std::vector<float>* output) {
  const char* domain = with_tensors ? "exchange_operations_test VV2" : "exchange_operations_test";
  std::vector<float> x = {0, 1, 2, 3, 4, 5};
  if (rank == 1) x = {10, 11, 12, 13};
  List lists[4] = {{1, 3}, {0, 2}, {1, 2}, {0, 1}};
  if (rank == 1) {
    const List others[4] = {{2, 1}, {0, 3}, {received, 1}, {1, 0}};
    std::copy_n(others, 4, lists);
  }
  const int64_t count = lists[2][0] + lists[2][1];
  output->assign(static_cast<size_t>(count), -77.0F);
  VariantPack pack;
  pack.inputs = {rank == 0 ? MakeView(DType::kFloat32, {2, 3}, x.data())
                           : MakeView(DType::kFloat32, {4}, x.data())};
  pack.outputs = {MakeView(DType::kFloat32, {1, count}, output->data())};
  if (!with_tensors) {
    auto param = OfRank<AllToAllVParam>(rank, domain);
    param.sendCounts = lists[0];
    param.sdispls = lists[1];
    param.recvCounts = lists[2];
    param.rdispls = lists[3];
    return BothPhases(param, pack);
  }
  for (List& list : lists) pack.inputs.push_back(MakeView(DType::kInt64, {2}, list.data()));
  std::vector<int8_t> y(static_cast<size_t>(count));
  pack.inputs.push_back(MakeView(DType::kInt8, {count}, y.data()));
  return BothPhases(OfRank<AllToAllVV2Param>(rank, domain), pack);
}

std::vector<Status> OnTwoRanks(bool with_tensors, int64_t received, std::vector<float>* outputs) {
  std::vector<Status> results(2);
  std::thread other([&] { results[1] = Example(1, with_tensors, received, &outputs[1]); });
  results[0] = Example(0, with_tensors, received, &outputs[0]);
  other.join();
  return results;
}

}  // namespace

TEST(ArgumentsOfTheCommunicatorsCall) {
  ListedCall listed;
  AsksForTheExample(listed, "AllToAllV");
  TensorsCall tensors;
  AsksForTheExample(tensors, "AllToAllVV2");
}

TEST(TheOutputIsOneRow) {
  std::vector<TensorDesc> outputs;
  ListedCall listed;
  ExpectStatus(listed.operation.InferShape(Descs(listed.pack.inputs), &outputs), NO_ERROR, "");
  EXPECT_EQ(ToString(outputs.at(0).shape), std::string("[1, 4]"));
  TensorsCall tensors;
  tensors.input(kExchangeY).desc.shape = {9};
  ExpectStatus(tensors.operation.InferShape(Descs(tensors.pack.inputs), &outputs), NO_ERROR, "");
  EXPECT_EQ(ToString(outputs.at(0).shape), std::string("[1, 9]"));
  EXPECT_EQ(outputs.at(0).dtype, DType::kFloat32);
}

// A plan outlives the operation while a device still runs a call of it.
TEST(APlansListsOutliveItsOperation) {
  const auto communicator = std::make_shared<RecordingCommunicator>(1, 2);
  communicator->where = {DeviceKind::kNpu, 0};
  {
    ListedCall call;
    const auto operation = OperatorOn(communicator, ExampleLists());
    for (TensorView* view : {&call.input(0), &call.out()}) view->device = communicator->where;
    uint64_t bytes = 0;
    ExpectStatus(operation->GetWorkspaceSize(call.pack, &bytes), NO_ERROR, "");
    ExpectStatus(operation->Execute(call.pack, nullptr, 0, nullptr), NO_ERROR, "");
  }
  const ExchangeVCall& asked = communicator->exchanges.at(0);
  EXPECT_TRUE(asked.keep != nullptr);
  EXPECT_EQ(Listed(asked.recv_counts), (List{3, 1}));
}

TEST(ListsAgainstX) {
  using P = AllToAllVParam;
  const ErrorCode code = ERROR_INVALID_PARAM;
  FaultyLists(code, "AllToAllV: slice 1 (sdispls 4 + sendCounts 1) exceeds x's 4 elements",
              [](P& p) { p.sdispls = {0, 4}; });
  FaultyLists(code, "slice 0 (sdispls 9223372036854775807 + sendCounts 2) exceeds", [](P& p) {
    p.sdispls = {kMax, 0};
    p.recvCounts = {0, 0};
  });
  FaultyLists(code, "AllToAllV: the sum of recvCounts does not fit into 64 bits", [](P& p) {
    p.recvCounts = {kMax, 1};
    p.rdispls = {0, kMax};
  });
  FaultyLists(code,
              "AllToAllV: all recvCounts are 0: this rank must receive something; "
              "comm.all_to_allv allows ranks that do not",
              [](P& p) {
                p.recvCounts = {0, 0};
                p.rdispls = {1, 0};
              });
  FaultyLists(code, "AllToAllV: block 0 (rdispls 2 + recvCounts 3) exceeds the output's 4 elements",
              [](P& p) { p.rdispls = {2, 2}; });
  FaultyLists(code,
              "AllToAllV: block 0 (rdispls 0 + recvCounts 3) overlaps block 1, which begins at 2: "
              "keep them apart",
              [](P& p) { p.rdispls = {0, 2}; });
  FaultyLists(ERROR_INVALID_TENSOR_SIZE, "the output of shape [1, 549755813888] is over the limit",
              [](P& p) {
                p.recvCounts = {(int64_t{1} << 39) - 1, 1};
                p.rdispls = {1, 0};
              });
}

TEST(TensorsAndTheirLists) {
  const ErrorCode dim = ERROR_INVALID_TENSOR_DIM;
  const ErrorCode param = ERROR_INVALID_PARAM;
  FaultyTensors(dim, "AllToAllVV2: slice 1 (sdispls 4 + sendCounts 1) exceeds x's 4 elements",
                [](TensorsCall& call) { call.lists[1][1] = 4; });
  FaultyTensors(dim, "AllToAllVV2: block 0 (rdispls 2 + recvCounts 3) exceeds the output's 4 el",
                [](TensorsCall& call) { call.lists[3][0] = 2; });
  FaultyTensors(dim, "AllToAllVV2: recvCounts add up to 3 but y has length 4: they must be equal",
                [](TensorsCall& call) { call.lists[2][1] = 0; });
  // Neither sum fits into 64 bits, although the blocks end within the output.
  FaultyTensors(dim, "the sum of recvCounts does not fit into 64 bits", [](TensorsCall& call) {
    call.lists[2][0] = kMin;
    call.lists[2][1] = -1;
    call.lists[3][0] = 0;
  });
  FaultyTensors(param, "AllToAllVV2: sendCounts[0] must be >= 0, got -1",
                [](TensorsCall& call) { call.lists[0][0] = -1; });
  FaultyTensors(param, "AllToAllVV2: rdispls[1] must be >= 0, got -1",
                [](TensorsCall& call) { call.lists[3][1] = -1; });
  FaultyTensors(param, "block 0 (rdispls 0 + recvCounts 3) overlaps block 1, which begins at 1",
                [](TensorsCall& call) {
                  call.lists[3][0] = 0;
                  call.lists[3][1] = 1;
                });
  FaultyTensors(param, "recvCounts has no host data",
                [](TensorsCall& call) { call.input(kReceives).data = nullptr; });
}

TEST(DescriptionsOfTensors) {
  FaultyDescs(ERROR_INVALID_TENSOR_INI_MATCH,
              "AllToAllVV2: y is only a length: pass an empty int8 tensor of 4, got float16",
              [](TensorsCall& call) { call.input(kExchangeY).desc.dtype = DType::kFloat16; });
  FaultyDescs(ERROR_INVALID_TENSOR_DIM_NUM, "sdispls must have 1 dim, got 2 in shape [1, 2]",
              [](TensorsCall& call) { call.input(kSendsAt).desc.shape = {1, 2}; });
  FaultyDescs(ERROR_INVALID_TENSOR_DIM_NUM, "y must have 1 dim, got 2",
              [](TensorsCall& call) { call.input(kExchangeY).desc.shape = {1, 4}; });
  FaultyDescs(ERROR_INVALID_TENSOR_DIM, "rdispls must have 2 elements, one per rank, got 3",
              [](TensorsCall& call) { call.input(kReceivesAt).desc.shape = {3}; });
  FaultyDescs(ERROR_INVALID_TENSOR_SIZE, "the output has size 0 in dim 1 of [1, 0]",
              [](TensorsCall& call) { call.input(kExchangeY).desc.shape = {0}; });
  FaultyDescs(ERROR_INVALID_IN_TENSOR_NUM, "needs 6 inputs, got 5",
              [](TensorsCall& call) { call.pack.inputs.pop_back(); });
}

TEST(OutputsOfBoth) {
  for (const Shape& shape : {Shape{4}, Shape{1, 5}}) {
    ListedCall call;
    call.out().desc.shape = shape;
    const ErrorCode code =
        shape.num_dims == 1 ? ERROR_INVALID_TENSOR_DIM_NUM : ERROR_INVALID_TENSOR_DIM;
    ExpectPlanFault(call, code, "the output must have");
  }
  ListedCall overlapping;
  overlapping.out().data = overlapping.x;
  ExpectPlanFault(overlapping, ERROR_INVALID_TENSOR_ADDR, "the output overlaps x in memory");
}

TEST(ABackendWithoutExchanges) {
  ListedCall call;
  call.communicator->supports = Error(ERROR_UNSUPPORTED, "not here");
  ExpectPlanFault(call, ERROR_UNSUPPORTED, "not here");
}

TEST(TheExampleOnThreads) {
  for (const bool with_tensors : {false, true}) {
    std::vector<float> outputs[2];
    for (const Status& status : OnTwoRanks(with_tensors, 3, outputs)) {
      ExpectStatus(status, NO_ERROR, "");
    }
    EXPECT_EQ(outputs[0], (std::vector<float>{0, 10, 11}));
    EXPECT_EQ(outputs[1], (std::vector<float>{13, 2, 3, 4}));
  }
}

// 4 elements are expected but 3 are sent: no rank moves data.
TEST(APairThatDisagrees) {
  std::vector<float> outputs[2];
  for (const Status& status : OnTwoRanks(false, 4, outputs)) {
    ExpectStatus(status, ERROR_RANK_MISMATCH, "sendCounts[1] is 3 on rank 0");
    EXPECT_CONTAINS(status.message(), "recvCounts[0] is 4 on rank 1");
  }
  EXPECT_EQ(outputs[0], std::vector<float>(3, -77.0F));
  EXPECT_EQ(outputs[1], std::vector<float>(5, -77.0F));
}
