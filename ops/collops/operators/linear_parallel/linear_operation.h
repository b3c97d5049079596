#pragma once

#include <string>
#include <utility>
#include <vector>

#include "collops/operators/framework/collective_operation.h"
#include "collops/operators/linear_parallel/layout.h"

namespace collops {

// The struct's quantType, at creation.
Status CheckQuantType(const LinearParallelParam& param);

// Adds the inputs behind x and weight, and which element types go together.
void AddLinearInputs(const LinearSettings& settings, OpSignature* signature);

// The element type of the output.
Status FindOutputType(const LinearSettings& settings, const std::vector<TensorDesc>& inputs,
                      DType* output);

// What all operators of LinearParallel's struct have.
class LinearOperation : public CollectiveOperation {
 public:
  const LinearSettings& settings() const { return settings_; }
  // The engine of the last plan; empty before the first.
  const std::string& planned_engine() const { return planned_engine_; }

 protected:
  LinearOperation(const LinearSettings& settings, OpSignature signature)
      : CollectiveOperation(std::move(signature)), settings_(settings) {}

  const LinearSettings settings_;
  mutable std::string planned_engine_;
};

}  // namespace collops
