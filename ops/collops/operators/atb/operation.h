#pragma once

#include <any>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "collops/core/operation.h"
#include "collops/operators/atb/params.h"
#include "collops/operators/atb/types.h"

namespace collops {
namespace [[gnu::visibility("default")]] atb {

// ATB's Context and Operation (atb/context.h, atb/operation.h), made of collops's. A call that
// fails writes its message to standard error, as ATB's log does, and returns the code.

// The status's code; its message, if it has one, is written, and kept for LastMessage().
Status Report(const collops::Status& status);

// What a call runs on. The stream must be set, as in ATB; calls are complete when they return.
class Context {
 public:
  Status SetExecuteStream(aclrtStream stream);
  aclrtStream GetExecuteStream() const { return stream_; }
  Status SetAsyncTilingCopyStatus(bool enable);  // nothing is copied
  bool GetAsyncTilingCopyStatus() const { return copies_tiling_; }

 private:
  aclrtStream stream_ = nullptr;
  bool copies_tiling_ = false;
};

Status CreateContext(Context** context);
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
  template <typename Param>
  Status Update(const Param& param) {
    const Status status = Report(collops::UpdateOperation(infer::Own(param), &operation_));
    if (status == NO_ERROR) param_ = param;
    return status;
  }

 private:
  std::unique_ptr<collops::Operation> operation_;
  std::any param_;
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
