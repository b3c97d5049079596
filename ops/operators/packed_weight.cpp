#include "operators/packed_weight.h"

#include <cstdlib>

#include "kernels/gemm.h"

namespace collops {

void PackedWeight::Free::operator()(void* memory) const {
  std::free(memory);
}

Status PackedWeight::Pack(const TensorView& weight, bool trans_weight,
                          std::shared_ptr<const PackedWeight>* packed) {
  const Shape& shape = weight.desc.shape;
  const int64_t rows = shape[shape.num_dims - 2];
  const int64_t columns = shape[shape.num_dims - 1];
  const kernels::GemmPlan plan = kernels::PlanGemm(weight.desc.dtype, trans_weight ? columns : rows,
                                                   trans_weight ? rows : columns, trans_weight);
  constexpr int64_t kAlignment = kernels::kGemmAlignment;
  const int64_t bytes = (kernels::PackedWeightBytes(plan) / kAlignment + 1) * kAlignment;
  const std::shared_ptr<PackedWeight> made(new PackedWeight);
  made->bytes_.reset(std::aligned_alloc(kAlignment, static_cast<size_t>(bytes)));
  CHECK_ARG(made->bytes_ != nullptr, ERROR_OUT_OF_HOST_MEMORY,
            "LinearParallel: no memory for a packed weight of ", bytes, " bytes");
  kernels::PackWeight(plan, weight.data, columns, made->bytes_.get());
  made->desc_ = weight.desc;
  made->source_ = weight.data;
  made->trans_weight_ = trans_weight;
  *packed = made;
  return Ok();
}

const void* PackedWeight::For(const TensorView& weight) const {
  return weight.data == source_ && weight.desc == desc_ ? bytes_.get() : nullptr;
}

}  // namespace collops
