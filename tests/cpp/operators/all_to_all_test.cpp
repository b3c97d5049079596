// AllToAll: its struct, its calls of the communicator, its checks, and both forms between processes
// and between threads.
#include <cstring>

#include "collops/operators/params.h"
#include "operators/framework/operator_call.h"
#include "ranks.h"

using namespace collops;

namespace {

using List = std::vector<int64_t>;

AllToAllParam Right() {
  AllToAllParam param;
  param.rankSize = 2;
  param.backend = "shm";
  return param;
}

std::unique_ptr<CollectiveOperation> AllToAllOn(std::shared_ptr<Communicator> communicator,
                                                int root, bool transpose) {
  AllToAllParam param = Right();
  param.rankRoot = root;
  param.transpose = transpose;
  return OperatorOn(std::move(communicator), param);
}

// Rank 1 of 4 with x [3, 8].
struct AllToAllCall {
  float x[24];
  float output[24] = {};
  float workspace[24] = {};
  VariantPack pack;
  std::shared_ptr<RecordingCommunicator> communicator =
      std::make_shared<RecordingCommunicator>(1, 4);
  const std::unique_ptr<CollectiveOperation> made;
  CollectiveOperation& operation = *made;

  explicit AllToAllCall(bool transpose = false) : made(AllToAllOn(communicator, 2, transpose)) {
    for (int i = 0; i < 24; ++i) x[i] = static_cast<float>(i);
    pack.inputs = {MakeView(DType::kFloat32, {3, 8}, x)};
    pack.outputs = {MakeView(DType::kFloat32, transpose ? Shape{12, 2} : Shape{3, 8}, output)};
  }

  TensorView& input() { return pack.inputs[0]; }
};

int32_t Value(int rank, int64_t i) {
  return static_cast<int32_t>(i) * 7 + rank * 100000;
}

// x [rows, columns] of every rank, with or without transpose, element by element.
void Exchange(int rank, Communicator& communicator, int64_t rows, int64_t columns) {
  const int size = communicator.size();
  const auto count = static_cast<size_t>(rows * columns);
  const int64_t width = columns / size;
  std::vector<int32_t> x(count);
  for (size_t i = 0; i < count; ++i) x[i] = Value(rank, static_cast<int64_t>(i));
  for (const bool transpose : {false, true}) {
    std::vector<int32_t> output(count, -1);
    std::vector<int32_t> workspace(count, -2);
    const auto operation = AllToAllOn(communicator.shared_from_this(), 0, transpose);
    VariantPack pack;
    pack.inputs = {MakeView(DType::kInt32, {rows, columns}, x.data())};
    pack.outputs = {MakeView(DType::kInt32,
                             transpose ? Shape{rows * size, width} : Shape{rows, columns},
                             output.data())};
    uint64_t bytes = 0;
    ExpectStatus(operation->GetWorkspaceSize(pack, &bytes), NO_ERROR, "");
    EXPECT_EQ(bytes, transpose ? count * 4 : 0);
    ExpectStatus(operation->Execute(pack, workspace.data(), bytes, nullptr), NO_ERROR, "");
    size_t wrong = 0;
    const int64_t part = rows * width;
    for (int64_t i = 0; i < part * size; ++i) {
      const int from = static_cast<int>(i / part);
      const int64_t k = i % part;
      const int64_t at =
          transpose ? k / width * columns + rank * width + k % width : rank * part + k;
      wrong += output[static_cast<size_t>(i)] != Value(from, at);
    }
    EXPECT_EQ(wrong, 0u);
  }
}

}  // namespace

TEST(TheStruct) {
  EXPECT_EQ(sizeof(AllToAllParam().rsv), 62u);
  EXPECT_EQ(ToJson(AllToAllParam()),
            std::string("{\"rank\":0,\"rankSize\":0,\"rankRoot\":0,\"backend\":\"hccl\","
                        "\"commMode\":0,\"rankTableFile\":\"\",\"commDomain\":\"\","
                        "\"transpose\":false}"));
  AllToAllParam param = Right();
  param.transpose = true;
  AllToAllParam read;
  ExpectStatus(FromJson(ToJson(param), &read), NO_ERROR, "");
  EXPECT_TRUE(read == param);
  read.transpose = false;
  EXPECT_TRUE(!(read == param));
  ExpectStatus(FromJson("{\"transpose\": 1}", &read), ERROR_INVALID_PARAM,
               "AllToAllParam: transpose must be true or false, got 1");
}

TEST(ArgumentsOfTheCommunicatorsCall) {
  AllToAllCall call;
  ExpectStatus(PlanCall(call), NO_ERROR, "");
  ExpectStatus(RunCall(call), NO_ERROR, "");
  const ExchangeVCall& asked = call.communicator->exchanges.at(0);
  EXPECT_TRUE(asked.x == call.x && asked.output == call.output);
  for (const int64_t* counts : {asked.send_counts, asked.recv_counts}) {
    EXPECT_EQ(List(counts, counts + 4), (List{6, 6, 6, 6}));
  }
  for (const int64_t* displs : {asked.sdispls, asked.rdispls}) {
    EXPECT_EQ(List(displs, displs + 4), (List{0, 6, 12, 18}));
  }
  const Agreement& agreement = call.communicator->agreements.at(0);
  EXPECT_EQ(std::string(agreement.op()), std::string("AllToAll"));
  EXPECT_EQ(agreement.Value("rankRoot"), 2);
  EXPECT_EQ(agreement.Value("transpose"), 0);
}

TEST(ColumnsGoThroughTheWorkspace) {
  AllToAllCall call(true);
  uint64_t bytes = 0;
  ExpectStatus(call.operation.GetWorkspaceSize(call.pack, &bytes), NO_ERROR, "");
  EXPECT_EQ(bytes, sizeof(call.x));
  ExpectStatus(call.operation.Execute(call.pack, call.workspace, bytes - 1, nullptr),
               ERROR_INVALID_WORKSPACE_SIZE, "AllToAll: the workspace has 95 bytes");
  ExpectStatus(call.operation.Execute(call.pack, nullptr, bytes, nullptr),
               ERROR_INVALID_WORKSPACE_ADDR, "the workspace is missing");
  ExpectStatus(call.operation.Execute(call.pack, call.workspace, bytes, nullptr), NO_ERROR, "");
  const ExchangeVCall& asked = call.communicator->exchanges.at(0);
  EXPECT_TRUE(asked.x == call.workspace);
  const float packed[24] = {0, 1, 8,  9,  16, 17, 2, 3, 10, 11, 18, 19,
                            4, 5, 12, 13, 20, 21, 6, 7, 14, 15, 22, 23};
  EXPECT_EQ(std::memcmp(call.workspace, packed, sizeof(packed)), 0);
  EXPECT_EQ(call.communicator->agreements.at(0).Value("transpose"), 1);
}

TEST(ABackendThatCannot) {
  AllToAllCall call;
  call.communicator->supports = Error(ERROR_UNSUPPORTED, "not here");
  ExpectPlanFault(call, ERROR_UNSUPPORTED, "not here");
  AllToAllCall columns(true);
  columns.communicator->where = {DeviceKind::kNpu, 1};
  columns.input().device = columns.pack.outputs[0].device = {DeviceKind::kNpu, 1};
  ExpectPlanFault(columns, ERROR_UNSUPPORTED,
                  "AllToAll: transpose copies columns on the CPU; x is on npu:1");
}

// No elements, few, as many as a call record's cells hold, and more than a stage.
TEST(EveryElementOverProcesses) {
  for (const int size : {2, 3, 4}) {
    ranks::Run(size, [size](int rank, Communicator& communicator) {
      for (const int64_t rows : {int64_t{0}, int64_t{1}, int64_t{5}, int64_t{60011}}) {
        Exchange(rank, communicator, rows, 3 * size);
      }
      Exchange(rank, communicator, 2, 70001 * size);
    });
  }
}

TEST(EveryElementOverThreads) {
  ranks::RunThreads(3, [](int rank, Communicator& communicator) {
    Exchange(rank, communicator, 7, 6);
    Exchange(rank, communicator, 1009, 300);
  });
}
