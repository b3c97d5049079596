#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/call.h"

namespace collops::bindings {

// The ranks' blocks, in elements, one after the other, and what else the ranks compare of such a
// call. Made once per set of sizes, used by every call that has them.
class Blocks {
 public:
  Blocks(std::vector<int64_t> counts, int dim, int num_tensors, const std::string& type,
         const std::vector<int64_t>& shape);

  int size() const { return static_cast<int>(counts_.size()); }
  int64_t total() const { return total_; }
  int64_t count(int rank) const { return counts_[static_cast<size_t>(rank)]; }
  int64_t begin(int rank) const { return displs_[static_cast<size_t>(rank)]; }
  const int64_t* counts() const { return counts_.data(); }
  const int64_t* displs() const { return displs_.data(); }
  const CallLabel& label() const { return label_; }
  // What the ranks' shapes of x have in common, at most 3 dims; none: shapes are not compared.
  const Shape& shape() const { return shape_; }

 private:
  std::vector<int64_t> counts_;
  std::vector<int64_t> displs_;
  int64_t total_ = 0;
  CallLabel label_;
  Shape shape_;
};

}  // namespace collops::bindings
