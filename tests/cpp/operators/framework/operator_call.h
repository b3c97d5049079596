// Valid calls of AllGatherV and ReduceScatterV, in which tests change one thing.
#ifndef COLLOPS_TESTS_CPP_OPERATOR_CALL_H_
#define COLLOPS_TESTS_CPP_OPERATOR_CALL_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "check.h"
#include "collops/core/tensor.h"
#include "collops/operators/framework/make_operator.h"
#include "collops/operators/params.h"
#include "operators/framework/recording_communicator.h"

namespace collops {

inline TensorView MakeView(DType dtype, const Shape& shape, void* data) {
  TensorView view;
  view.desc.dtype = dtype;
  view.desc.shape = shape;
  view.data = data;
  return view;
}

// The operator of a struct on a communicator of the test.
template <typename Param>
std::unique_ptr<CollectiveOperation> OperatorOn(std::shared_ptr<Communicator> communicator,
                                                const Param& param) {
  auto made = MakeOperator(param);
  made->Join(std::move(communicator));
  return made;
}

inline AllGatherVParam GatherParam() {
  AllGatherVParam param;
  param.rankRoot = 1;
  return param;
}

inline ReduceScatterVParam ScatterParam() {
  ReduceScatterVParam param;
  param.rankRoot = 1;
  param.reduceType = "max";
  return param;
}

enum GatherInput { kGatherX, kSendCount, kRecvCounts, kRdispls, kGatherY };

// The documented example as rank 0 of 2 sees it: x [2, 4], counts 4 and 2, output [5, 4].
struct GatherCall {
  float x[8] = {0, 1, 2, 3, 4, 5, 6, 7};
  int64_t send_count[1] = {4};
  int64_t recv_counts[2] = {4, 2};
  int64_t rdispls[2] = {0, 4};
  uint16_t y[5] = {};
  float output[20] = {};
  VariantPack pack;

  std::shared_ptr<RecordingCommunicator> communicator =
      std::make_shared<RecordingCommunicator>(0, 2);
  const std::unique_ptr<CollectiveOperation> made = OperatorOn(communicator, GatherParam());
  CollectiveOperation& operation = *made;

  GatherCall() {
    pack.inputs = {MakeView(DType::kFloat32, {2, 4}, x), MakeView(DType::kInt64, {1}, send_count),
                   MakeView(DType::kInt64, {2}, recv_counts), MakeView(DType::kInt64, {2}, rdispls),
                   MakeView(DType::kFloat16, {5}, y)};
    pack.outputs = {MakeView(DType::kFloat32, {5, 4}, output)};
  }

  TensorView& input(int i) { return pack.inputs[static_cast<size_t>(i)]; }
  TensorView& out() { return pack.outputs[0]; }
};

enum ScatterInput { kScatterX, kSendCounts, kSdispls, kRecvCount, kScatterY };

// Rank 1 of 2: x [4, 3] in slices of 7 and 5 elements, output [2, 3] with one element to spare.
struct ScatterCall {
  float x[12] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  int64_t send_counts[2] = {7, 5};
  int64_t sdispls[2] = {0, 7};
  int64_t recv_count[1] = {5};
  uint16_t y[2] = {};
  float output[6] = {};
  VariantPack pack;

  std::shared_ptr<RecordingCommunicator> communicator =
      std::make_shared<RecordingCommunicator>(1, 2);
  const std::unique_ptr<CollectiveOperation> made = OperatorOn(communicator, ScatterParam());
  CollectiveOperation& operation = *made;

  ScatterCall() {
    pack.inputs = {MakeView(DType::kFloat32, {4, 3}, x), MakeView(DType::kInt64, {2}, send_counts),
                   MakeView(DType::kInt64, {2}, sdispls), MakeView(DType::kInt64, {1}, recv_count),
                   MakeView(DType::kFloat16, {2}, y)};
    pack.outputs = {MakeView(DType::kFloat32, {2, 3}, output)};
  }

  TensorView& input(int i) { return pack.inputs[static_cast<size_t>(i)]; }
  TensorView& out() { return pack.outputs[0]; }
};

inline void ExpectStatus(const Status& status, ErrorCode code, const std::string& part) {
  EXPECT_EQ(std::string(ErrorName(status.code())), std::string(ErrorName(code)));
  EXPECT_CONTAINS(status.message(), part);
}

template <typename Call>
Status PlanCall(Call& call) {
  uint64_t bytes = 77;
  return call.operation.GetWorkspaceSize(call.pack, &bytes);
}

template <typename Call>
Status RunCall(Call& call) {
  return call.operation.Execute(call.pack, nullptr, 0, nullptr);
}

// An error that planning finds. Nothing is sent and no plan is stored.
template <typename Call>
void ExpectPlanFault(Call& call, ErrorCode code, const std::string& part) {
  ExpectStatus(PlanCall(call), code, part);
  EXPECT_TRUE(call.communicator->refusals.empty());
  ExpectStatus(RunCall(call), ERROR_INVALID_PARAM, "no plan: the first phase failed: ");
}

// An error that arises between planning and running: the other ranks get a refusal.
template <typename Call>
void ExpectRunFault(Call& call, ErrorCode code, const std::string& part) {
  const Status status = RunCall(call);
  ExpectStatus(status, code, part);
  ASSERT_EQ(call.communicator->refusals.size(), 1u);
  EXPECT_EQ(call.communicator->refusals[0].reason.message(), status.message());
  EXPECT_EQ(call.communicator->refusals[0].reason.code(), status.code());
  EXPECT_TRUE(call.communicator->gathers.empty());
  EXPECT_TRUE(call.communicator->scatters.empty());
}

}  // namespace collops

#endif  // COLLOPS_TESTS_CPP_OPERATOR_CALL_H_
