#pragma once

#include "comm/agreement.h"
#include "core/dtype.h"
#include "core/tensor.h"

namespace collops {

// What the ranks of a collective agree on. An operation and a call of the plain level that mean the
// same have the same terms, so that they can meet.
struct CollectiveTerms {
  const char* dtype = "";         // its name, or that of a type whose elements travel as bytes
  const char* reduction = "sum";  // its name, where the call reduces
  int root = 0;
  int num_tensors = 1;  // of a list that is gathered in one call after the other
  int dim = 0;          // the dimension that is cut into blocks
  Shape x_shape;        // left empty where the ranks' shapes may differ
};

inline void AddTerms(const CollectiveTerms& terms, Agreement* agreement) {
  agreement->EqualText("dtype", terms.dtype)
      .EqualText("reduceType", terms.reduction)
      .Equal("rankRoot", terms.root)
      .Equal("the number of tensors", terms.num_tensors)
      .Equal("dim", terms.dim)
      .EqualShape("x's shape", terms.x_shape);
}

}  // namespace collops
