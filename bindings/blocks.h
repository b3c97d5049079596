#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "operators/framework/collective_terms.h"

namespace collops::bindings {

// An operator's name as a text that lives as long as the process, which is what calls take.
const char* LastingName(const std::string& name);

// The method of the plain level that makes calls of this name: "all_gatherv" of "AllGatherV". It
// lives as long as the process.
const char* MethodOf(const std::string& operation);

// The ranks' blocks, in elements, one after the other, and what else the ranks compare of such a
// call. Made once per set of sizes, used by every call that has them.
class Blocks {
 public:
  // `operation` is the operator's name, by which the ranks know the call; `type` names elements
  // that travel as bytes; `root` is the rank that has all blocks, where one has.
  Blocks(const std::string& operation, std::vector<int64_t> counts, int dim, int num_tensors,
         std::string type, const std::vector<int64_t>& shape, int root);

  int size() const { return static_cast<int>(counts_.size()); }
  int64_t total() const { return total_; }
  int64_t count(int rank) const { return counts_[static_cast<size_t>(rank)]; }
  int64_t begin(int rank) const { return displs_[static_cast<size_t>(rank)]; }
  const int64_t* counts() const { return counts_.data(); }
  const int64_t* displs() const { return displs_.data(); }
  const char* operation() const { return operation_; }
  // What the ranks' shapes of x have in common, at most 3 dims; none: shapes are not compared.
  const Shape& shape() const { return shape_; }

  // Elements of one row, of which `sizes` count. Set before the first call.
  int64_t row_elements() const { return row_elements_; }
  void set_row_elements(int64_t elements) { row_elements_ = elements; }

  // What the ranks agree on in a call of `method` with these blocks, which outlive it.
  void AgreeOn(const char* method, const char* counts_name, const char* displs_name,
               CollectiveTerms terms, Agreement* agreement) const;

 private:
  const char* operation_;
  std::vector<int64_t> counts_;
  std::vector<int64_t> displs_;
  int64_t total_ = 0;
  int64_t row_elements_ = 1;
  int dim_;
  int num_tensors_;
  std::string type_;
  Shape shape_;
  int root_;
};

}  // namespace collops::bindings
