#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collops/core/status.h"
#include "collops/core/tensor.h"
#include "collops/kernels/reduce/leaf_tree.h"
#include "collops/operators/params.h"

namespace collops {

// The members of one group in the order of their places, and the rows that each of them has.
struct RowGroup {
  std::vector<int> ranks;
  int index = 0;               // this rank's place: ranks[index]
  std::vector<int64_t> rows;   // of the matrix [rows, k] or [rows, n]
  std::vector<int64_t> begin;  // where they begin among all rows
};

// What of a product is int8, and the inputs that say what it stands for. With x and weight of int8
// (ATB's W8A8) the sums are exact, and scaled before the ranks add up; with the weight alone
// (W8A16) it becomes numbers of x's type first.
struct LinearQuant {
  enum Kind { kNone, kWeight, kBoth };
  struct Input {
    DType dtype = DType::kUndefined;
    int64_t count = 0;  // of its numbers: 0 none, 1 for all columns
  };

  Kind kind = kNone;
  int64_t groups = 1;   // of the weight's k, of which each has a row of scales
  int64_t group_k = 0;  // elements of k in a group
  Input scale;
  Input bias;
  bool has_token_scale = false;
};

// How the inner dimension of all members of `scatter` is cut in leaves
// (kernels/reduce/leaf_tree.h), the first k mod count of which are a column longer.
struct LinearLeaves {
  int64_t count = 0;             // 0: none; the members' sums are added in rank order
  int64_t k = 0;                 // of all members
  std::vector<int64_t> begins;   // the first leaf of each member; then the count
  std::vector<int64_t> borders;  // of this member's leaves in its own k
  kernels::SumTree tree;         // of these
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
  LinearQuant quant;
  LinearLeaves leaves;
  Shape output;    // y
  Shape gathered;  // the gathered x
};

// What messages call the call and its arguments: the struct's names, or the plain level's.
struct LinearVoice {
  const char* method = nullptr;  // of the plain level; lives as long as the process
  bool has_one_list = false;     // of rows, which the method calls sizes

  const char* called() const { return method == nullptr ? "LinearParallel" : method; }
  const char* gather_rows() const {
    return method == nullptr ? "gatherRows" : has_one_list ? "sizes" : "gather_rows";
  }
  const char* scatter_rows() const {
    return method == nullptr ? "scatterRows" : has_one_list ? "sizes" : "scatter_rows";
  }
  const char* leaves() const { return method == nullptr ? "sumLeaves" : "leaves"; }
  const char* sum_columns() const { return method == nullptr ? "sumColumns" : "sum_columns"; }
  const char* weight_shape(bool trans_weight) const {
    if (method == nullptr) {
      return trans_weight ? "with transWeight true it is [n, k]"
                          : "with transWeight false it is [k, n]";
    }
    return trans_weight ? "with trans_weight=True it is [n, k]"
                        : "it is [k, n]: for [n, k] pass trans_weight=True";
  }
};

// A product's struct, and what is said of it besides.
struct LinearSettings {
  LinearSettings(const LinearParallelParam& of, const std::string& by = "")  // NOLINT: implicit
      : param(of), engine(by) {}

  LinearParallelParam param;
  std::string engine;     // its name (engine.h), equal on every rank; empty: the first that can
  bool averages = false;  // sums are divided by the ranks that add up, before the residual
  bool splits_unevenly = false;  // without scatterRows any number of rows is shared out
  bool scales_tokens = false;    // a scale for each row of x, as QUANT_TYPE_PER_TOKEN has
  LinearVoice voice;
};

// A residual is [n] or [1, n], else ERROR_INVALID_TENSOR_DIM.
Status CheckResidualShape(const char* called, int64_t n, const Shape& residual);

// Whether a type has experts.
bool HasExperts(LinearParallelParam::ParallelType type);

// Where a product's inputs are behind x and weight; -1: it has none such. ATB's order.
struct LinearInputs {
  explicit LinearInputs(const LinearSettings& settings);

  int bias = -1;  // of an int8 weight alone, an offset; may be empty
  int scale = -1;
  int residual = -1;
  int token_scale = -1;  // of x's rows
  int end = 2;           // what is behind them; experts have more there, and no bias

  static const char* token_scale_name(const LinearVoice& voice) {
    return voice.method == nullptr ? "perTokenScale" : "x_scale";
  }
};

// Cuts `k` columns of member `index` of `members`, if the settings want leaves; else
// ERROR_INVALID_PARAM.
Status MakeLinearLeaves(const LinearSettings& settings, size_t members, int index, int64_t k,
                        LinearLeaves* leaves);

// The same for a weight alone, of rank `rank`.
Status FindLinearLeaves(const LinearSettings& settings, int rank, int rank_size, int64_t k,
                        LinearLeaves* leaves);

// Computes the layout. The inputs have passed CheckInputs; what is wrong with the grid and the
// lists of rows is ERROR_INVALID_PARAM, then what does not multiply or divide
// ERROR_INVALID_TENSOR_DIM, and at last what no int64 counts ERROR_INVALID_TENSOR_SIZE.
Status MakeLinearLayout(const LinearSettings& settings, int rank, int rank_size,
                        const std::vector<TensorDesc>& inputs, LinearLayout* layout);

}  // namespace collops
