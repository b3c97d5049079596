#pragma once

#include <pybind11/pybind11.h>

#include <atomic>
#include <memory>

#include "core/operation.h"
#include "params.h"
#include "tensor.h"

namespace collops::bindings {

// An operation as Python holds it. Waits with the GIL released, so another Python thread may come
// by meanwhile: it gets an error instead of a data race.
class BoundOperation {
 public:
  BoundOperation(const ParamRow& row, std::unique_ptr<Operation> operation)
      : row_(row), operation_(std::move(operation)) {}

  const char* Name() const { return operation_->Name(); }
  pybind11::list InferShape(const pybind11::object& inputs);
  uint64_t GetWorkspaceSize(const pybind11::object& inputs, const pybind11::object& outputs);
  void Execute(const pybind11::object& inputs, const pybind11::object& outputs,
               const pybind11::object& workspace, const pybind11::object& stream);
  void Refuse(int code, const std::string& message);

 private:
  Status ToPack(const pybind11::tuple& inputs, const pybind11::tuple& outputs);
  Status ToViews(const pybind11::tuple& tensors, const char* label, const char* const* names,
                 std::vector<TensorView>* views);

  const ParamRow& row_;
  std::unique_ptr<Operation> operation_;
  VariantPack pack_;  // kept, so that a call allocates nothing
  std::atomic<bool> busy_{false};
};

}  // namespace collops::bindings
