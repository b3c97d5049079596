#pragma once

#include <cstdint>
#include <vector>

#include "collops/comm/communicator.h"
#include "collops/core/status.h"
#include "collops/core/tensor.h"

namespace collops {

// One rank's part of JAX's ragged_all_to_all: slices of rows, the same number for every rank, those
// for rank 0 first. Slice i of `operand` is written where this rank says, in its receiver's
// `output`. Counts are rows.
struct RaggedExchange {
  DType dtype = DType::kUndefined;
  Shape row;  // the sizes after dim 0
  void* operand = nullptr;
  int64_t operand_rows = 0;
  void* output = nullptr;
  int64_t output_rows = 0;
  std::vector<int64_t> input_offsets;   // where a slice begins in `operand`
  std::vector<int64_t> send_sizes;      // its rows
  std::vector<int64_t> output_offsets;  // where it begins in its receiver's `output`
  std::vector<int64_t> recv_sizes;      // rows of the slices that arrive, those of rank 0 first
};

// Rows of `output` that no slice covers keep their values. The ranks first tell each other their
// numbers, so that all of them find the same error before a row moves: a slice that is not in its
// array, sizes that differ between sender and receiver, slices that overlap in an output.
Status RaggedAllToAll(Communicator* communicator, const RaggedExchange& exchange);

// The way back, of gradients: `output` has the result's, and keeps those of the rows that no slice
// covered, with zeros for the others; `operand` gets its own, with zeros where no slice was. Slices
// that overlap in an operand are an error, too.
Status RaggedAllToAllGradient(Communicator* communicator, const RaggedExchange& exchange);

}  // namespace collops
