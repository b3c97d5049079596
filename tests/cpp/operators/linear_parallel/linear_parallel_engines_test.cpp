// The engines of LinearParallel: which one runs, and what the others say.
#include "collops/operators/linear_parallel/engine.h"
#include "collops/operators/linear_parallel/operator.h"
#include "collops/operators/params.h"
#include "operators/framework/operator_call.h"

using namespace collops;

namespace {

using P = LinearParallelParam;

EnginePlace TwoRanks() {
  EnginePlace place;
  place.backend = "shm";
  place.rank_size = 2;
  place.gather_ranks = 2;
  place.has_windows = true;
  return place;
}

std::string Chosen(const EnginePlace& place, const std::string& name = "") {
  const Engine* engine = nullptr;
  const Status status = ChooseEngine(name, place, &engine);
  return status.ok() ? engine->name : status.message();
}

TEST(TheFirstEngineThatAcceptsRuns) {
  EnginePlace place = TwoRanks();
  EXPECT_EQ(Chosen(place), "windows");
  place.has_windows = false;
  EXPECT_EQ(Chosen(place), "pipeline");
  place.gather_ranks = 1;
  EXPECT_EQ(Chosen(place), "local");
  place.has_windows = true;
  EXPECT_EQ(Chosen(place), "local");
  place.scatter_ranks = 2;
  place.windows_wanted = false;
  EXPECT_EQ(Chosen(place), "pipeline");
}

TEST(TensorsOfADeviceHaveAnEngineOfTheirOwn) {
  EnginePlace place = TwoRanks();
  place.backend = "hccl";
  place.on_device = true;
  EXPECT_EQ(Chosen(place), "streams");
  EXPECT_CONTAINS(Chosen(place, "windows"), "it computes on the CPU");
  place.gather_ranks = 1;
  EXPECT_EQ(Chosen(place), "streams");
}

TEST(EveryRefusalHasAReason) {
  EnginePlace place = TwoRanks();
  place.has_windows = false;
  place.backend = "hccl";
  const auto answers = AskEngines(place);
  EXPECT_EQ(answers.size(), size_t{4});
  EXPECT_EQ(answers[0].second.message(), "a product of 2 ranks needs communication");
  EXPECT_EQ(answers[1].second.message(), "backend hccl has no windows");
  EXPECT_EQ(answers[2].second.message(), "");
  EXPECT_EQ(answers[3].second.message(), "the tensors of backend hccl are not on a device");
  place.has_windows = true;
  place.windows_wanted = false;
  EXPECT_CONTAINS(AskEngines(place)[1].second.message(), "COLLOPS_FUSED=0");
}

TEST(ANamedEngineRunsOrSaysWhyNot) {
  EnginePlace place = TwoRanks();
  EXPECT_EQ(Chosen(place, "pipeline"), "pipeline");
  EXPECT_EQ(Chosen(place, "windows"), "windows");
  EXPECT_CONTAINS(Chosen(place, "local"), "engine \"local\" cannot run this call: a product of 2");
  place.has_windows = false;
  EXPECT_CONTAINS(Chosen(place, "windows"), "backend shm has no windows");
  place.gather_ranks = 1;  // PURE_LINEAR: the other rank may be in no call
  EXPECT_CONTAINS(Chosen(place, "pipeline"), "this product needs no communication");
  place.rank_size = 1;
  EXPECT_EQ(Chosen(place, "pipeline"), "pipeline");
  const Engine* engine = nullptr;
  EXPECT_EQ(ChooseEngine("windows", place, &engine).code(), ERROR_UNSUPPORTED);
  EXPECT_EQ(ChooseEngine("fused", place, &engine).code(), ERROR_INVALID_PARAM);
  EXPECT_CONTAINS(Chosen(place, "fused"), "local, windows, pipeline");
}

P Gathering() {
  P param;
  param.rank = 1;
  param.rankSize = 2;
  param.backend = "shm";
  param.commMode = COMM_MULTI_THREAD;
  param.commDomain = "linear_parallel_engines_test";
  param.type = P::ALL_GATHER_LINEAR;
  param.keepIntermediate = true;
  return param;
}

// Rank 1 of 2: x [40, 3], weight [5, 3]; outputs [80, 5] and the gathered x [80, 3].
struct Call {
  std::vector<float> x = std::vector<float>(120, 1);
  std::vector<float> weight = std::vector<float>(15, 2);
  std::vector<float> y = std::vector<float>(400);
  std::vector<float> gathered = std::vector<float>(240);
  VariantPack pack = {{MakeView(DType::kFloat32, {40, 3}, x.data()),
                       MakeView(DType::kFloat32, {5, 3}, weight.data())},
                      {MakeView(DType::kFloat32, {80, 5}, y.data()),
                       MakeView(DType::kFloat32, {80, 3}, gathered.data())}};
};

TEST(ADeviceWithoutProductsRunsNoLinearParallel) {
  Call call;
  uint64_t bytes = 0;
  const auto communicator = std::make_shared<RecordingCommunicator>(1, 2);
  communicator->where = {DeviceKind::kNpu, 0};
  for (TensorView* const view :
       {&call.pack.inputs[0], &call.pack.inputs[1], &call.pack.outputs[0], &call.pack.outputs[1]}) {
    view->device = communicator->where;
  }
  LinearParallel operation(Gathering());
  operation.Join(communicator);
  for (const Status& status :
       {operation.GetWorkspaceSize(call.pack, &bytes), operation.Prepack(call.pack.inputs[1])}) {
    EXPECT_EQ(status.code(), ERROR_UNSUPPORTED);
    EXPECT_CONTAINS(status.message(), "LinearParallel does not run on it");
  }
}

TEST(ThePipelineAgreesOnceAndGathersTheRows) {
  Call call;
  const auto communicator = std::make_shared<RecordingCommunicator>(1, 2);
  LinearParallel operation(Gathering());
  operation.Join(communicator);
  uint64_t bytes = 0;
  EXPECT_EQ(operation.GetWorkspaceSize(call.pack, &bytes).message(), "");
  std::vector<std::byte> workspace(bytes);
  EXPECT_EQ(operation.Execute(call.pack, workspace.data(), bytes, nullptr).message(), "");
  EXPECT_EQ(communicator->agreements.size(), size_t{2});  // on the call, and of the rows' gather
  EXPECT_EQ(communicator->gathers.size(), size_t{1});
}

}  // namespace
