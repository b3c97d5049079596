#pragma once

#include <cstdint>
#include <vector>

#include "collops/core/status.h"
#include "collops/core/tensor.h"

namespace [[gnu::visibility("default")]] collops {

// One operator of one rank, configured by a param struct (CreateOperation in operators/). Two
// phases: GetWorkspaceSize checks, plans and copies the counts, and is local; Execute moves data
// together with the other ranks and waits for them, until the communicator's time-out. Not
// thread-safe: one thread at a time.
class Operation {
 public:
  virtual ~Operation() = default;

  virtual const char* Name() const = 0;
  virtual int NumInputs() const = 0;
  virtual int NumOutputs() const = 0;

  // Describes the outputs for these inputs.
  virtual Status InferShape(const std::vector<TensorDesc>& inputs,
                            std::vector<TensorDesc>* outputs) const = 0;

  // Checks and plans the call; `bytes` becomes the scratch memory that Execute needs (may be 0).
  virtual Status GetWorkspaceSize(const VariantPack& pack, uint64_t* bytes) = 0;

  // Runs a planned call. `stream` is the device's stream, null on the CPU.
  virtual Status Execute(const VariantPack& pack, void* workspace, uint64_t workspace_bytes,
                         void* stream) = 0;

  // Takes part in this rank's next call with a refusal: no data moves, and the other ranks get
  // ERROR_RANK_MISMATCH with `reason`'s message. Used when a call fails before Execute.
  virtual Status Refuse(const Status& reason) = 0;
};

}  // namespace collops
