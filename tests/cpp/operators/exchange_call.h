// Valid calls of AllToAllV and AllToAllVV2, in which tests change one thing.
#ifndef COLLOPS_TESTS_CPP_EXCHANGE_CALL_H_
#define COLLOPS_TESTS_CPP_EXCHANGE_CALL_H_

#include <memory>
#include <vector>

#include "collops/operators/params.h"
#include "operators/framework/operator_call.h"

namespace collops {

// Rank 1 of 2 in the documented example: x [4]; its blocks lie in reverse order.
inline AllToAllVParam ExampleLists() {
  AllToAllVParam param;
  param.rank = 1;
  param.rankSize = 2;
  param.rankRoot = 1;
  param.backend = "shm";
  param.sendCounts = {2, 1};
  param.sdispls = {0, 3};
  param.recvCounts = {3, 1};
  param.rdispls = {1, 0};
  return param;
}

inline AllToAllVV2Param ExampleRoot() {
  AllToAllVV2Param param;
  param.rankRoot = 1;
  return param;
}

// AllToAllV with the example's lists, or others.
struct ListedCall {
  float x[4] = {10, 11, 12, 13};
  float output[4] = {};
  VariantPack pack;
  std::shared_ptr<RecordingCommunicator> communicator =
      std::make_shared<RecordingCommunicator>(1, 2);
  const std::unique_ptr<CollectiveOperation> made;
  CollectiveOperation& operation = *made;

  explicit ListedCall(const AllToAllVParam& param = ExampleLists())
      : made(OperatorOn(communicator, param)) {
    pack.inputs = {MakeView(DType::kFloat32, {4}, x)};
    pack.outputs = {MakeView(DType::kFloat32, {1, 4}, output)};
  }

  TensorView& input(int i) { return pack.inputs[static_cast<size_t>(i)]; }
  TensorView& out() { return pack.outputs[0]; }
};

enum ExchangeInput { kExchangeX, kSends, kSendsAt, kReceives, kReceivesAt, kExchangeY };

// AllToAllVV2 with the same lists as tensors.
struct TensorsCall {
  float x[4] = {10, 11, 12, 13};
  int64_t lists[4][2] = {{2, 1}, {0, 3}, {3, 1}, {1, 0}};
  int8_t y[4] = {};
  float output[4] = {};
  VariantPack pack;
  std::shared_ptr<RecordingCommunicator> communicator =
      std::make_shared<RecordingCommunicator>(1, 2);
  const std::unique_ptr<CollectiveOperation> made = OperatorOn(communicator, ExampleRoot());
  CollectiveOperation& operation = *made;

  TensorsCall() {
    pack.inputs = {MakeView(DType::kFloat32, {4}, x)};
    for (int64_t (&list)[2] : lists) pack.inputs.push_back(MakeView(DType::kInt64, {2}, list));
    pack.inputs.push_back(MakeView(DType::kInt8, {4}, y));
    pack.outputs = {MakeView(DType::kFloat32, {1, 4}, output)};
  }

  TensorView& input(int i) { return pack.inputs[static_cast<size_t>(i)]; }
  TensorView& out() { return pack.outputs[0]; }
};

}  // namespace collops

#endif  // COLLOPS_TESTS_CPP_EXCHANGE_CALL_H_
