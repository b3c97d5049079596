#pragma once

#include "collops/comm/agreement.h"
#include "collops/core/dtype.h"
#include "collops/core/tensor.h"

namespace collops {

// What the ranks of a collective agree on. An operation and an equivalent call of the plain level
// have the same terms, so they can meet in one call.
struct CollectiveTerms {
  const char* dtype = "";         // its name, or the name of a type whose elements travel as bytes
  const char* reduction = "sum";  // its name, if the call reduces
  int root = 0;
  int num_tensors = 1;      // tensors of a list that is gathered in one call after the other
  int dim = 0;              // the dimension that is cut into blocks
  Shape x_shape;            // empty if the ranks' shapes may differ
  const char* uneven = "";  // what the message adds where only dim 0 of x_shape differs
  int64_t elements = -1;    // of x, if the ranks compare these in place of x_shape
};

inline void AddTerms(const CollectiveTerms& terms, Agreement* agreement) {
  agreement->EqualText("dtype", terms.dtype)
      .EqualText("reduceType", terms.reduction)
      .Equal("rankRoot", terms.root)
      .Equal("the number of tensors", terms.num_tensors)
      .Equal("dim", terms.dim)
      .EqualShape("x's shape", terms.x_shape, terms.uneven)
      .Equal("x's number of elements", terms.elements);
}

}  // namespace collops
