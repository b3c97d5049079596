// AllToAllV and AllToAllVV2: their calls of the communicator, and both between ranks that are
// threads.
#include <thread>

#include "collops/operators/params.h"
#include "operators/exchange_call.h"

using namespace collops;

namespace {

using List = std::vector<int64_t>;

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
