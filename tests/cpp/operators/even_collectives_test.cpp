// AllGather, ReduceScatter, AllReduce and Broadcast: their calls of the communicator, the default
// implementations, and the checks that these operators add.
#include "check.h"
#include "collops/operators/params.h"
#include "operators/framework/operator_call.h"
#include "ranks.h"

using namespace collops;

namespace {

using Numbers = std::vector<int64_t>;

// Rank 1 of 3 with x [6, 2] and room for any output.
struct EvenCall {
  float x[12] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  float output[36] = {};
  VariantPack pack;
  std::shared_ptr<RecordingCommunicator> communicator =
      std::make_shared<RecordingCommunicator>(1, 3);
  const std::unique_ptr<CollectiveOperation> made;
  CollectiveOperation& operation = *made;

  template <typename Param>
  EvenCall(const Shape& shape, const Param& param) : made(OperatorOn(communicator, param)) {
    pack.inputs = {MakeView(DType::kFloat32, {6, 2}, x)};
    if (shape.num_dims > 0) pack.outputs = {MakeView(DType::kFloat32, shape, output)};
  }
};

template <typename Param>
Param Root2(const char* backend = "shm") {
  Param param;
  param.rankRoot = 2;
  param.backend = backend;
  return param;
}
ReduceScatterParam Scattering(ReduceOp op, const char* backend) {
  auto param = Root2<ReduceScatterParam>(backend);
  param.reduceType = Name(op);
  return param;
}
AllReduceParam Reducing(ReduceOp op, const char* backend) {
  auto param = Root2<AllReduceParam>(backend);
  param.allReduceType = Name(op);
  return param;
}

struct GatherOf : EvenCall {
  GatherOf() : EvenCall({3, 6, 2}, Root2<AllGatherParam>()) {}
};
struct ScatterOf : EvenCall {
  explicit ScatterOf(ReduceOp op = ReduceOp::kMax, const char* backend = "shm")
      : EvenCall({2, 2}, Scattering(op, backend)) {}
};
struct ReduceOf : EvenCall {
  explicit ReduceOf(ReduceOp op = ReduceOp::kSum, const char* backend = "shm")
      : EvenCall({6, 2}, Reducing(op, backend)) {}
};
struct BroadcastOf : EvenCall {
  BroadcastOf() : EvenCall({}, Root2<BroadcastParam>()) {}
};

Numbers Listed(const int64_t* numbers, int size) {
  return {numbers, numbers + size};
}

template <typename Call>
void BothPhasesPass(Call& call) {
  ExpectStatus(PlanCall(call), NO_ERROR, "");
  ExpectStatus(RunCall(call), NO_ERROR, "");
}

// Copies the counts that the default implementations pass, whose memory ends with the call.
class Watching : public RecordingCommunicator {
 public:
  using RecordingCommunicator::RecordingCommunicator;
  Status DoAllGatherV(const AllGatherVCall& call) override {
    counts.push_back(Listed(call.recv_counts, size()));
    displs.push_back(Listed(call.rdispls, size()));
    return RecordingCommunicator::DoAllGatherV(call);
  }
  Status DoReduceScatterV(const ReduceScatterVCall& call) override {
    counts.push_back(Listed(call.send_counts, size()));
    displs.push_back(Listed(call.sdispls, size()));
    return RecordingCommunicator::DoReduceScatterV(call);
  }
  std::vector<Numbers> counts, displs;
};

}  // namespace

TEST(AllGatherAsksForOneGather) {
  GatherOf call;
  BothPhasesPass(call);
  ASSERT_EQ(call.communicator->gathers.size(), 1u);
  const AllGatherVCall& asked = call.communicator->gathers[0];
  const Agreement& agreement = call.communicator->agreements.at(0);
  EXPECT_EQ(agreement.op(), std::string("AllGather"));
  EXPECT_EQ(agreement.Value("rankRoot"), 2);
  EXPECT_EQ(Listed(asked.recv_counts, 3), (Numbers{12, 12, 12}));
  EXPECT_EQ(Listed(asked.rdispls, 3), (Numbers{0, 12, 24}));
  EXPECT_TRUE(asked.x == call.x && asked.output == call.output);
}

TEST(ReduceScatterAsksForOneReduction) {
  ScatterOf call;
  BothPhasesPass(call);
  ASSERT_EQ(call.communicator->scatters.size(), 1u);
  const ReduceScatterVCall& asked = call.communicator->scatters[0];
  EXPECT_EQ(call.communicator->agreements.at(0).op(), std::string("ReduceScatter"));
  EXPECT_TRUE(asked.op == ReduceOp::kMax);
  EXPECT_EQ(Listed(asked.send_counts, 3), (Numbers{4, 4, 4}));
  EXPECT_EQ(Listed(asked.sdispls, 3), (Numbers{0, 4, 8}));
  EXPECT_EQ(asked.output_count, 4);
}

TEST(AllReduceIsAReductionAndAGatherOfAnEvenSplit) {
  Watching communicator(1, 3);
  float x[7] = {};
  float output[7] = {};
  static const collops::Agreement agreement("AllReduce");
  AllReduceCall call;
  call.agreement = &agreement;
  call.dtype = DType::kFloat32;
  call.op = ReduceOp::kMin;
  call.x = x;
  call.count = 7;
  call.output = output;
  ExpectStatus(communicator.AllReduce(call), NO_ERROR, "");
  EXPECT_EQ(communicator.counts, (std::vector<Numbers>{{3, 2, 2}, {3, 2, 2}}));
  EXPECT_EQ(communicator.displs, (std::vector<Numbers>{{0, 3, 5}, {0, 3, 5}}));
  const ReduceScatterVCall& reduce = communicator.scatters.at(0);
  const AllGatherVCall& gather = communicator.gathers.at(0);
  EXPECT_TRUE(reduce.agreement == &agreement && gather.agreement == &agreement);
  EXPECT_TRUE(reduce.x == x && reduce.op == ReduceOp::kMin);
  EXPECT_TRUE(reduce.output == output + 3 && reduce.output_count == 2);
  EXPECT_TRUE(gather.x == output + 3 && gather.output == output);
}

TEST(AFailedReductionIsNotGathered) {
  RecordingCommunicator communicator(1, 3);
  communicator.result = Error(ERROR_RANK_MISMATCH, "they disagree");
  float x[7] = {};
  static const collops::Agreement agreement("AllReduce");
  AllReduceCall call;
  call.agreement = &agreement;
  call.dtype = DType::kFloat32;
  call.x = call.output = x;
  call.count = 7;
  ExpectStatus(communicator.AllReduce(call), ERROR_RANK_MISMATCH, "they disagree");
  EXPECT_TRUE(communicator.gathers.empty());
}

TEST(BroadcastIsAGatherInWhichOnlyTheRootHasElements) {
  Watching communicator(1, 3);
  int16_t data[5] = {};
  static const collops::Agreement agreement("Broadcast");
  BroadcastCall call;
  call.agreement = &agreement;
  call.dtype = DType::kInt16;
  call.root = 2;
  call.data = data;
  call.count = 5;
  ExpectStatus(communicator.Broadcast(call), NO_ERROR, "");
  EXPECT_EQ(communicator.counts, (std::vector<Numbers>{{0, 0, 5}}));
  EXPECT_EQ(communicator.displs, (std::vector<Numbers>{{0, 0, 0}}));
  const AllGatherVCall& gather = communicator.gathers.at(0);
  EXPECT_TRUE(gather.agreement == &agreement);
  EXPECT_TRUE(gather.x == data && gather.output == data);
}

TEST(BroadcastHasNoOutput) {
  BroadcastOf call;
  BothPhasesPass(call);
  EXPECT_EQ(call.operation.NumOutputs(), 0);
  std::vector<TensorDesc> outputs(3);
  ExpectStatus(call.operation.InferShape(Descs(call.pack.inputs), &outputs), NO_ERROR, "");
  EXPECT_TRUE(outputs.empty());
}

// Sizes for the call record, the stage and several chunks; in place and not.
TEST(AllReduceOverSharedMemory) {
  ranks::Run(3, [](int rank, Communicator& communicator) {
    for (const int64_t count :
         {int64_t{0}, int64_t{2}, int64_t{7}, int64_t{5000}, int64_t{400001}}) {
      for (const bool in_place : {false, true}) {
        std::vector<int32_t> x(static_cast<size_t>(count));
        for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<int32_t>(i) * (rank + 1);
        std::vector<int32_t> output(x.size(), -1);
        static const collops::Agreement agreement("AllReduce");
        AllReduceCall call;
        call.agreement = &agreement;
        call.dtype = DType::kInt32;
        call.x = x.data();
        call.count = count;
        call.output = in_place ? x.data() : output.data();
        ExpectStatus(communicator.AllReduce(call), NO_ERROR, "");
        const std::vector<int32_t>& got = in_place ? x : output;
        size_t wrong = 0;
        for (size_t i = 0; i < got.size(); ++i) wrong += got[i] != static_cast<int32_t>(i) * 6;
        EXPECT_EQ(wrong, 0u);
      }
    }
  });
}

TEST(BroadcastOverSharedMemory) {
  ranks::Run(3, [](int rank, Communicator& communicator) {
    for (const int root : {2, 0}) {
      std::vector<int32_t> data(70000);
      for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<int32_t>(i) + 1000 * rank;
      static const collops::Agreement agreement("Broadcast");
      BroadcastCall call;
      call.agreement = &agreement;
      call.dtype = DType::kInt32;
      call.root = root;
      call.data = data.data();
      call.count = 70000;
      ExpectStatus(communicator.Broadcast(call), NO_ERROR, "");
      size_t wrong = 0;
      for (size_t i = 0; i < data.size(); ++i) {
        wrong += data[i] != static_cast<int32_t>(i) + 1000 * root;
      }
      EXPECT_EQ(wrong, 0u);
    }
  });
}

TEST(AReductionOfAnotherKindIsNamed) {
  ranks::Run(2, [](int rank, Communicator& communicator) {
    int32_t x[4] = {1, 2, 3, 4};
    int32_t output[4] = {};
    const int64_t counts[2] = {2, 2};
    const int64_t displs[2] = {0, 2};
    Status status;
    if (rank == 0) {
      static const collops::Agreement agreement("AllReduce");
      AllReduceCall call;
      call.agreement = &agreement;
      call.dtype = DType::kInt32;
      call.x = x;
      call.count = 4;
      call.output = output;
      status = communicator.AllReduce(call);
    } else {
      static const collops::Agreement agreement("ReduceScatterV");
      ReduceScatterVCall call;
      call.agreement = &agreement;
      call.dtype = DType::kInt32;
      call.x = x;
      call.output = output;
      call.output_count = 2;
      call.send_counts = counts;
      call.sdispls = displs;
      status = communicator.ReduceScatterV(call);
    }
    ExpectStatus(status, ERROR_RANK_MISMATCH, "AllReduce");
    EXPECT_CONTAINS(status.message(), "ReduceScatterV");
  });
}
