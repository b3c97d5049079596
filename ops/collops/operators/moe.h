#pragma once

#include <cstdint>
#include <optional>

#include "collops/comm/communicator.h"
#include "collops/core/status.h"
#include "collops/operators/moe_routing.h"
#include "collops/operators/plain/plain_tensors.h"
#include "collops/operators/plain/row_blocks.h"

namespace collops {

// One moe_dispatch. Its functions are called in this order.
struct MoeDispatch {
  RowShape x_shape;                   // [tokens, hidden]
  PlainTensor x;                      // of bytes, if x_shape has a type
  bool quantizes = false;             // to int8, with a scale for each row
  std::optional<PlainTensor> scales;  // [tokens] float32, which travel with the rows
  MoeRouting routing;
  PlainTensor rows;    // [received, hidden], expert by expert, of each those of rank 0 first
  PlainTensor scaled;  // [received] float32, if there are scales

  bool has_scales() const { return quantizes || scales.has_value(); }

  // The rows and what travels with them.
  Status CheckInputs(const Communicator& communicator) const;
  // Finds the routing of ids [tokens, top_k], -1 for none.
  Status Route(const Communicator& communicator, const PlainTensor& ids, int64_t num_experts);
  // The ranks tell each other their counts.
  Status ShareCounts(Communicator* communicator);
  // Tells the other ranks what is wrong here.
  Status Run(Communicator* communicator, SentRows* memory) const;

  static constexpr const char* kName = "moe_dispatch";

 private:
  Status CheckOutputs(const Communicator& communicator) const;
  void AddTerms(Agreement* agreement) const;
};

// One moe_combine, with the routing of a dispatch.
struct MoeCombine {
  RowShape rows_shape;                 // [received, hidden]
  PlainTensor rows;                    // as a dispatch leaves them
  std::optional<PlainTensor> weights;  // [tokens, top_k]
  MoeRouting routing;
  PlainTensor out;  // [tokens, hidden]

  Status CheckInputs(const Communicator& communicator) const;
  Status Run(Communicator* communicator, SentRows* memory) const;

  static constexpr const char* kName = "moe_combine";
};

}  // namespace collops
