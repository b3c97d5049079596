#pragma once

#include <any>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "collops/core/operation.h"
#include "collops/operators/atb/params.h"
#include "collops/operators/atb/types.h"

namespace collops {
namespace [[gnu::visibility("default")]] atb {

// ATB's Context and Operation (atb/context.h, atb/operation.h), made of collops's. A call that
// fails writes its message to standard error, as ATB's log does, and returns the code.

// The status's code; its message, if it has one, is written, and kept for LastMessage().
Status Report(const collops::Status& status);

enum LaunchMode : int { KERNEL_LAUNCH_MODE = 0, GRAPH_LAUNCH_MODE = 1 };

// What a call runs on. The stream must be set, as in ATB; calls are complete when they return.
class Context {
 public:
  Status SetExecuteStream(aclrtStream stream);
  aclrtStream GetExecuteStream() const { return streams_[0]; }
  // An operation runs on the one with its number, by SetExecuteStreamId().
  Status SetExecuteStreams(const std::vector<aclrtStream>& streams);
  std::vector<aclrtStream> GetExecuteStreams() const { return streams_; }
  Status SetAsyncTilingCopyStatus(bool enable);  // nothing is copied
  bool GetAsyncTilingCopyStatus() const { return copies_tiling_; }
  Status SetLaunchMode(LaunchMode mode);  // both are one, as nothing is captured here
  LaunchMode GetLaunchMode() const { return launch_mode_; }

 private:
  std::vector<aclrtStream> streams_ = {nullptr};
  bool copies_tiling_ = false;
  LaunchMode launch_mode_ = KERNEL_LAUNCH_MODE;
};

// Tiling is what ATB copies to an NPU. There is none here: the functions are not called, and the
// numbers of blocks are checked only.
Status CreateContext(Context** context);
Status CreateContext(Context** context, const std::function<void*(size_t)>& alloc,
                     const std::function<void(void*)>& dealloc);
Status CreateContext(Context** context, uint32_t hostTilingBlockNum, uint32_t deviceTilingBlockNum);
Status DestroyContext(Context* context);

// One thread at a time, as collops::Operation.
class Operation {
 public:
  Operation(std::unique_ptr<collops::Operation> operation, std::any param)
      : operation_(std::move(operation)), param_(std::move(param)) {}

  std::string GetName() const { return operation_->Name(); }
  uint32_t GetInputNum() const { return static_cast<uint32_t>(operation_->NumInputs()); }
  uint32_t GetOutputNum() const { return static_cast<uint32_t>(operation_->NumOutputs()); }
  Status InferShape(const SVector<TensorDesc>& inTensorDescs,
                    SVector<TensorDesc>& outTensorDescs) const;
  Status Setup(const VariantPack& variantPack, uint64_t& workspaceSize, Context* context);
  Status Execute(const VariantPack& variantPack, uint8_t* workspace, uint64_t workspaceSize,
                 Context* context);

  const std::any& param() const { return param_; }
  uint32_t stream_id() const { return stream_id_; }
  void set_stream_id(uint32_t id) { stream_id_ = id; }
  template <typename Param>
  Status Update(const Param& param) {
    const Status status = Report(collops::UpdateOperation(infer::Own(param), &operation_));
    if (status == NO_ERROR) param_ = param;
    return status;
  }

 private:
  std::unique_ptr<collops::Operation> operation_;
  std::any param_;
  uint32_t stream_id_ = 0;
};

template <typename Param>
Status CreateOperation(const Param& opParam, Operation** operation) {
  if (operation == nullptr) {
    return Report(Error(ERROR_INVALID_PARAM, "CreateOperation: operation is null"));
  }
  std::unique_ptr<collops::Operation> made;
  const Status status = Report(infer::Make(opParam, &made));
  if (status == NO_ERROR) *operation = new Operation(std::move(made), opParam);
  return status;
}

Status DestroyOperation(Operation* operation);

// Of the context's streams.
Status SetExecuteStreamId(Operation* operation, uint32_t streamId);
uint32_t GetExecuteStreamId(Operation* operation);

template <typename Param>
Status CloneOperationParam(const Operation* operation, Param& opParam) {
  if (operation == nullptr) {
    return Report(Error(ERROR_INVALID_PARAM, "CloneOperationParam: operation is null"));
  }
  const Param* const param = std::any_cast<Param>(&operation->param());
  if (param == nullptr) {
    return Report(Error(ERROR_INVALID_PARAM, "CloneOperationParam: opParam is not the struct of ",
                        operation->GetName()));
  }
  opParam = *param;
  return NO_ERROR;
}

template <typename Param>
Status UpdateOperationParam(Operation* operation, const Param& opParam) {
  if (operation == nullptr) {
    return Report(Error(ERROR_INVALID_PARAM, "UpdateOperationParam: operation is null"));
  }
  return operation->Update(opParam);
}

}  // namespace atb
}  // namespace collops
