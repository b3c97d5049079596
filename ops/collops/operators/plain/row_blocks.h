#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collops/core/status.h"
#include "collops/core/tensor.h"
#include "collops/operators/framework/collective_terms.h"

namespace collops {

using Rows = std::vector<int64_t>;

// One number of rows for every rank, none below 0. `label` is what the method calls the list.
Status CheckSizes(const char* method, const char* label, const Rows& sizes, int rank_size);

// `root` is a rank.
Status CheckRoot(const char* method, int64_t root, int rank_size);

// A tensor that is cut into rows along one dimension, and how its elements count.
struct RowShape {
  std::vector<int64_t> sizes;  // of all dimensions of x
  int dim = 0;                 // that is cut
  int64_t unit = 1;            // elements of the core that one element counts as
  std::string type;            // of elements that travel as bytes, else empty

  int64_t rows() const { return sizes[static_cast<size_t>(dim)]; }
};

// The sizes add up to the rows of x.
Status CheckSum(const char* method, const char* label, const Rows& sizes, const RowShape& x);

// This rank's size is the number of rows of its x.
Status CheckOwnRows(const char* method, const Rows& sizes, int rank, const RowShape& x);

// The ranks' blocks of rows, one after the other, in elements.
class RowBlocks {
 public:
  RowBlocks() = default;

  // ERROR_INVALID_TENSOR_SIZE where so many rows have no offset of 64 bits in bytes of any type.
  static Status Make(const char* method, const RowShape& shape, const Rows& rows,
                     RowBlocks* blocks);

  int size() const { return static_cast<int>(counts_.size()); }
  int64_t total() const { return total_; }
  int64_t count(int rank) const { return counts_[static_cast<size_t>(rank)]; }
  int64_t begin(int rank) const { return displs_[static_cast<size_t>(rank)]; }
  const int64_t* counts() const { return counts_.data(); }
  const int64_t* displs() const { return displs_.data(); }
  const Rows& rows() const { return rows_; }
  int64_t row_elements() const { return row_elements_; }

 private:
  Rows rows_;
  std::vector<int64_t> counts_;
  std::vector<int64_t> displs_;
  int64_t total_ = 0;
  int64_t row_elements_ = 1;
};

// At most the largest number of 64 bits.
int64_t SumOf(const Rows& rows);
// By which ranks find that their numbers differ; not linear, so that no two changes cancel.
int64_t HashOf(const int64_t* numbers, size_t count);

// Rows per rank as numpy.array_split shares them out: the first ones get one more.
Rows SplitEvenly(int64_t rows, int rank_size);

// What the shapes of all ranks have in common where each has rows of its own along `dim`: -1 in
// its place; dims on one side of it may be cut up differently.
Shape ShapeBesideRows(const RowShape& shape);

}  // namespace collops
