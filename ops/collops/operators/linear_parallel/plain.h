#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collops/operators/plain/plain_plan.h"

namespace collops {

// One of the plain level's products, but for its tensors.
struct ProductSpec {
  std::string method;
  int64_t ag_dim = 0;  // of the product that gathers and scatters, as the two below
  int64_t rs_dim = 0;
  bool inner_dim_is_ag = true;
  std::optional<Rows> gather_rows;   // none: all members have as many as x
  std::optional<Rows> scatter_rows;  // none: as numpy.array_split shares them out
  bool trans_weight = false;
  bool averages = false;
};

// `inputs`: x, the weight and the residual where there is one.
Status PlanProduct(const ProductSpec& spec, const std::vector<TensorDesc>& inputs,
                   std::shared_ptr<Communicator> communicator,
                   std::shared_ptr<const PlainPlan>* plan);

}  // namespace collops
