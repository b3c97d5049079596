#pragma once

#include <pybind11/pybind11.h>

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "collops/operators/framework/collective_operation.h"
#include "params.h"
#include "run_times.h"
#include "tensors/tensor.h"
#include "workspace.h"

namespace collops::bindings {

// An operation as Python sees it. It waits with the GIL released, so a second Python thread may
// call it meanwhile; that thread gets an error instead of a data race.
class BoundOperation {
 public:
  BoundOperation(const ParamRow& row, std::string struct_text, std::unique_ptr<Operation> operation)
      : row_(row),
        struct_text_(std::move(struct_text)),
        operation_(std::move(operation)),
        name_(operation_->Name()) {}

  const char* Name() const { return name_; }
  std::string PlannedEngine() const;
  int NumInputs() const { return operation_->NumInputs(); }
  int NumOutputs() const { return operation_->NumOutputs(); }
  void Update(const std::string& param, const std::string& json, uintptr_t hccl_comm);
  pybind11::list InferShape(const pybind11::object& inputs);
  uint64_t GetWorkspaceSize(const pybind11::object& inputs, const pybind11::object& outputs);
  // How memory like the outputs of the last InferShape() is made, if its first input was of the
  // class `like`. For ForwardAgain(), until the next InferShape().
  void KeepMakers(const pybind11::list& makers, const pybind11::object& like);
  // Begins a call of the user's forward(). Forward() with outputs of its own, if the inputs are
  // like the last ones of InferShape(); the outputs and the bytes. Else None and 0, and nothing has
  // run.
  pybind11::tuple ForwardAgain(const pybind11::object& inputs);
  // Both phases. If they need a workspace, returns its bytes, and nothing has run.
  uint64_t Forward(const pybind11::object& inputs, const pybind11::object& outputs);
  // Ends the user's forward(), unless ForwardAgain() has run it: its time is kept.
  void EndForward() { RunTimes::OfThread().Add(name_, RunTimes::Clock::now() - forward_begin_); }
  void Execute(const pybind11::object& inputs, const pybind11::object& outputs,
               const pybind11::object& workspace, const pybind11::object& stream);
  void Refuse(int code, const std::string& message);
  void Prepack(const pybind11::object& weight);

 private:
  // Every operator is one.
  CollectiveOperation& collective() const { return static_cast<CollectiveOperation&>(*operation_); }

  // The owners of the memory of tensors that were read through DLPack.
  using Owners = std::vector<pybind11::object>;

  bool AreAsInferred() const;
  pybind11::list MakeOutputs() const;
  uint64_t RunBothPhases(Status status, const pybind11::tuple& inputs, CallStream* stream);
  void ExecuteOrRefuse(const Status& status, const Scratch& scratch);
  Status ToPack(const pybind11::tuple& inputs, const pybind11::tuple& outputs, CallStream* stream,
                Owners* owners);
  // `rules` know the tensors' names.
  Status ToViews(const pybind11::tuple& tensors, const char* label,
                 const std::vector<InputRule>& rules, CallStream* stream,
                 std::vector<TensorView>* views, Owners* owners);

  const ParamRow& row_;
  std::string struct_text_;  // the struct in its normal form, to recognise an equal one
  std::unique_ptr<Operation> operation_;
  const char* const name_;            // of the operation, also after an update
  std::vector<TensorDesc> inferred_;  // the inputs of the last InferShape() that succeeded
  Device inferred_device_;
  pybind11::list makers_;  // of the outputs that were inferred; may be empty
  pybind11::object like_;
  VariantPack pack_;  // reused, so that a call allocates nothing
  RunTimes::Clock::time_point forward_begin_;
  std::atomic<bool> busy_{false};
};

}  // namespace collops::bindings
