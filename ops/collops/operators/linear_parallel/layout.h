#pragma once

#include <cstdint>
#include <vector>

#include "collops/core/status.h"
#include "collops/core/tensor.h"
#include "collops/operators/params.h"

namespace collops {

// The members of one group in the order of their places, and the rows that each of them has.
struct RowGroup {
  std::vector<int> ranks;
  int index = 0;               // this rank's place: ranks[index]
  std::vector<int64_t> rows;   // of the matrix [rows, k] or [rows, n]
  std::vector<int64_t> begin;  // where they begin among all rows
};

// Who multiplies what, as one rank sees it: the x of `gather` stacked are [total_rows, k]; times
// this rank's weight that is [total_rows, n]; summed over the ranks of `scatter` it is cut into
// their outputs. A type that does not gather (or reduce) has this rank alone in that group. In
// LINEAR_ALL_REDUCE every member of `scatter` has all rows, from 0 on.
struct LinearLayout {
  RowGroup gather;
  RowGroup scatter;
  int64_t total_rows = 0;
  int64_t k = 0;
  int64_t n = 0;
  bool trans_weight = true;
  Shape output;    // y
  Shape gathered;  // the gathered x
};

// Computes the layout. The inputs have passed CheckInputs; what is wrong with the grid and the
// lists of rows is ERROR_INVALID_PARAM, then what does not multiply or divide
// ERROR_INVALID_TENSOR_DIM, and at last what no int64 counts ERROR_INVALID_TENSOR_SIZE.
// `splits_unevenly`: without scatterRows any number of rows is shared out.
Status MakeLinearLayout(const LinearParallelParam& param, int rank, int rank_size,
                        const std::vector<TensorDesc>& inputs, LinearLayout* layout,
                        bool splits_unevenly = false);

}  // namespace collops
