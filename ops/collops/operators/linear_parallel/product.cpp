#include "collops/operators/linear_parallel/product.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "collops/kernels/copy.h"
#include "collops/kernels/reduce/reduce.h"

namespace collops {
namespace {

using kernels::GemmPlan;

// No more rows than this are packed together once all of them are there: multiplied member by
// member as they come, the weight would pass by once more for each.
constexpr int64_t kMostJoinedRows = 64;

// So are those of members whose panels would be half empty. Parts of a row would not begin at a
// unit of a leaf of int8.
bool JoinsRows(const LinearPlan& plan) {
  const LinearLayout& layout = plan.layout;
  if (layout.gather.ranks.size() == 1) return false;
  const int64_t tile = plan.gemm.row_tile;
  int64_t padded = 0;
  for (const int64_t rows : layout.gather.rows) padded += (rows + tile - 1) / tile * tile;
  const bool cuts_units = layout.leaves.count > 1 && layout.quant.kind == LinearQuant::kBoth;
  return layout.total_rows <= kMostJoinedRows || padded >= 2 * layout.total_rows || cuts_units;
}

// Elements between two rows of the weight.
int64_t WeightLd(const GemmPlan& gemm) {
  return gemm.trans_weight ? gemm.k : gemm.n;
}

// Null if there is no memory.
std::shared_ptr<void> Allocate(int64_t bytes) {
  const int64_t whole = (bytes / kernels::kGemmAlignment + 1) * kernels::kGemmAlignment;
  return {std::aligned_alloc(kernels::kGemmAlignment, static_cast<size_t>(whole)), &std::free};
}

// `count` scales or offsets; one alone is repeated.
void ReadFloats(const LinearQuant::Input& input, const void* data, int64_t count, float* to) {
  ReadScales(input.dtype, data, input.count, to);
  if (input.count == 1) std::fill_n(to, count, *to);
}

void ReadInts(const LinearQuant::Input& input, const void* data, int64_t count, int32_t* to) {
  const char* const from = static_cast<const char*>(data);
  for (int64_t i = 0; i < count; ++i) {
    std::memcpy(to + i, input.count == 1 ? from : from + i * 4, sizeof(*to));
  }
}

Status GatherTokenScales(const LinearRun& run, const float* own, float* all) {
  // Who disagrees about the call learns it before anything moves.
  COLLOPS_RETURN_IF_ERROR(run.communicator->Agree(run.agreement));
  GridParts parts;
  Status status = FindParts(run, &parts);
  const RowGroup& gather = run.plan.layout.gather;
  const Agreement agreement("AllGatherV");
  AllGatherVCall call;
  call.agreement = &agreement;
  call.dtype = DType::kFloat32;
  call.x = own;
  call.output = all;
  call.recv_counts = gather.rows.data();
  call.rdispls = gather.begin.data();
  if (status.ok()) status = InGroup(run.plan, gather.ranks, parts.gather->AllGatherV(call));
  return status.ok() ? status : FailInParts(run, status);
}

// Bytes of workspace for ReadQuant().
int64_t QuantBytes(const LinearPlan& plan) {
  const LinearQuant& quant = plan.layout.quant;
  if (quant.kind == LinearQuant::kNone) return 0;
  const int64_t own = plan.layout.gather.rows[static_cast<size_t>(plan.layout.gather.index)];
  const int64_t tokens = quant.has_token_scale ? own + plan.layout.total_rows : 0;
  return (2 * quant.groups * plan.layout.n + tokens) * int64_t{sizeof(float)};
}

// Gathers the token scales of the ranks whose rows are gathered, which waits for these ranks.
Status ReadQuant(LinearRun* run) {
  const LinearLayout& layout = run->plan.layout;
  const LinearQuant& quant = layout.quant;
  const LinearTensors& tensors = run->tensors;
  const int64_t count = quant.groups * layout.n;
  auto* const scale = reinterpret_cast<float*>(run->workspace + run->plan.memory.quant);
  float* const bias = scale + count;
  ReadFloats(quant.scale, tensors.scale, count, scale);
  const bool has_bias = quant.bias.count > 0;
  // int32 in the place of floats, which nothing reads as such.
  auto* const whole = reinterpret_cast<int32_t*>(bias);
  if (quant.kind == LinearQuant::kWeight) {
    if (has_bias) ReadFloats(quant.bias, tensors.bias, count, bias);
    run->weight_scale = {scale, has_bias ? bias : nullptr, quant.group_k};
  } else {
    if (has_bias) ReadInts(quant.bias, tensors.bias, count, whole);
    run->tile_scale = {scale, has_bias ? whole : nullptr, nullptr};
  }
  if (!quant.has_token_scale) return Ok();
  float* const all = bias + count;
  const int64_t own_rows = layout.gather.rows[static_cast<size_t>(layout.gather.index)];
  run->tile_scale.token_scale = all;
  const auto own_bytes = static_cast<size_t>(own_rows) * sizeof(float);
  if (!Gathers(run->plan)) {
    if (own_rows > 0) std::memcpy(all, tensors.token_scale, own_bytes);
    return Ok();
  }
  float* const own = all + layout.total_rows;
  if (own_rows > 0) std::memcpy(own, tensors.token_scale, own_bytes);
  return GatherTokenScales(*run, own, all);
}

}  // namespace

void MultiplyStrip(const GemmPlan& gemm, const void* panels, int64_t rows, const void* weight,
                   int64_t strip, void* scratch, float* tile, const kernels::TileScale& scale) {
  const kernels::RowGroup group = {panels, rows, {tile, gemm.StripColumns(strip)}, scale};
  const kernels::Weight from = {weight, WeightLd(gemm)};
  if (kernels::AreFewRows(gemm, rows)) {
    return kernels::MultiplyFewRows(gemm, from, strip, group, scratch);
  }
  for (int64_t k_block = 0; k_block < gemm.num_k_blocks(); ++k_block) {
    kernels::MultiplyBlock(gemm, from, strip, k_block, &group, 1, scratch);
  }
}

void ReadScales(DType dtype, const void* from, int64_t count, float* to) {
  if (dtype != DType::kInt64) return kernels::ToFloat32(dtype, from, count, to);
  for (int64_t i = 0; i < count; ++i) {
    std::memcpy(to + i, static_cast<const char*>(from) + i * int64_t{sizeof(int64_t)}, sizeof(*to));
  }
}

std::byte* Aligned(void* workspace, int64_t alignment) {
  const auto past = reinterpret_cast<uintptr_t>(workspace) % static_cast<uintptr_t>(alignment);
  const uintptr_t missing = past == 0 ? 0 : static_cast<uintptr_t>(alignment) - past;
  return static_cast<std::byte*>(workspace) + missing;
}

Status RunLinear(const LinearPlan& plan, const LinearTensors& tensors, const Agreement& agreement,
                 void* workspace, Communicator* communicator, void* stream, KeepAlive keep) {
  const int64_t alignment =
      plan.stream_compute == nullptr ? kernels::kGemmAlignment : plan.stream_compute->alignment();
  LinearRun run = {plan,         tensors, agreement,      Aligned(workspace, alignment),
                   communicator, stream,  std::move(keep)};
  if (plan.layout.quant.kind != LinearQuant::kNone && plan.stream_compute == nullptr) {
    COLLOPS_RETURN_IF_ERROR(ReadQuant(&run));
  }
  return plan.engine->run(run);
}

Places PlaceRows(LinearPlan* plan) {
  Places places(kernels::kGemmAlignment);
  LinearMemory& memory = plan->memory;
  memory = LinearMemory();
  for (const int64_t rows : plan->layout.gather.rows) {
    memory.panels.push_back(places.Take(kernels::PackedRowsBytes(plan->gemm, rows)));
  }
  if (JoinsRows(*plan)) {
    memory.raw_rows = places.Take(plan->layout.total_rows * RowBytes(*plan));
  }
  memory.weight_block = places.Take(kernels::WeightBlockBytes(plan->gemm));
  memory.quant = places.Take(QuantBytes(*plan));
  memory.spare_tiles = places.Take(plan->gemm.num_spare * TileBytes(*plan));
  return places;
}

std::shared_ptr<const void> PackWeight(const GemmPlan& gemm, const void* weight) {
  const std::shared_ptr<void> packed = Allocate(kernels::PackedWeightBytes(gemm));
  const std::shared_ptr<void> scratch = Allocate(kernels::PackWeightScratchBytes(gemm));
  if (packed == nullptr || scratch == nullptr) return nullptr;
  kernels::PackWeight(gemm, weight, WeightLd(gemm), scratch.get(), packed.get());
  return packed;
}

GatheredRows::GatheredRows(const LinearRun& run) : run_(run), row_bytes_(RowBytes(run.plan)) {
  const LinearLayout& layout = run.plan.layout;
  const LinearMemory& memory = run.plan.memory;
  for (size_t g = 0; g < layout.gather.rows.size(); ++g) {
    groups_.push_back(
        {layout.gather.begin[g], layout.gather.rows[g], run.workspace + memory.panels[g]});
  }
  packed_.assign(groups_.size(), !JoinsRows(run.plan));
  if (JoinsRows(run.plan)) raw_ = run.workspace + memory.raw_rows;
}

void GatheredRows::CopyPart(const MatrixPart& part, std::byte* to) const {
  for (int64_t row = 0; row < part.rows; ++row) {
    kernels::Copy(to + (part.row + row) * row_bytes_ + part.begin, part.data + row * part.ld_bytes,
                  part.end - part.begin);
  }
}

void GatheredRows::Take(size_t member, const MatrixPart& part) const {
  const Group& group = groups_[member];
  if (raw_ != nullptr) {
    CopyPart(part, raw_ + group.first_row * row_bytes_);
  } else {
    const int64_t item = SizeOf(run_.plan.dtype);
    kernels::PackRows(run_.plan.gemm, part.data, part.ld_bytes / item, part.row, part.rows,
                      part.begin / item, part.end / item, group.rows, group.panels);
  }
  if (run_.tensors.gathered == nullptr) return;
  CopyPart(part, static_cast<std::byte*>(run_.tensors.gathered) + group.first_row * row_bytes_);
}

void GatheredRows::PackRaw(const Group& group) const {
  const int64_t k = run_.plan.layout.k;
  kernels::PackRows(run_.plan.gemm, raw_ + group.first_row * row_bytes_, k, 0, group.rows, 0, k,
                    group.rows, group.panels);
}

// The members' panels, one after the other, have room for those of all rows together.
void GatheredRows::Join() {
  joined_ = {0, run_.plan.layout.total_rows, groups_[0].panels};
  PackRaw(joined_);
}

void GatheredRows::Pack(size_t member) {
  if (packed_[member]) return;
  packed_[member] = true;
  PackRaw(groups_[member]);
}

void LinearStrip::Multiply(const std::vector<Task>& tasks, int64_t strip, int64_t k_block,
                           int64_t ld_tile) {
  const GemmPlan& gemm = run_.plan.gemm;
  const LinearTensors& tensors = run_.tensors;
  std::byte* const scratch = run_.workspace + run_.plan.memory.weight_block;
  auto* const spare = reinterpret_cast<float*>(run_.workspace + run_.plan.memory.spare_tiles);
  const int64_t step = TileBytes(run_.plan) / int64_t{sizeof(float)};
  groups_.clear();
  for (const Task& task : tasks) {
    const GatheredRows::Group& group = task.group;
    groups_.push_back({group.panels,
                       group.rows,
                       {task.tile, ld_tile, step, spare + group.first_row * ld_tile},
                       run_.tile_scale});
    kernels::TileScale& scale = groups_.back().scale;
    if (scale.token_scale != nullptr) scale.token_scale += group.first_row;
  }
  const kernels::Weight weight = {tensors.weight, WeightLd(gemm), run_.weight_scale,
                                  tensors.packed_weight};
  if (groups_.size() == 1 && weight.packed == nullptr &&
      kernels::AreFewRows(gemm, groups_[0].rows)) {
    if (k_block == 0) kernels::MultiplyFewRows(gemm, weight, strip, groups_[0], scratch);
    return;
  }
  kernels::MultiplyBlock(gemm, weight, strip, k_block, groups_.data(), groups_.size(), scratch);
}

void LinearStrip::Store(const float* const* tiles, size_t num_tiles, int64_t ld_tile, int64_t strip,
                        int64_t output_row, int64_t rows) const {
  const LinearPlan& plan = run_.plan;
  const int64_t ld = plan.gemm.n;
  auto* const out = static_cast<std::byte*>(run_.tensors.output) +
                    (output_row * ld + plan.gemm.StripBegin(strip)) * SizeOf(plan.output_dtype);
  kernels::StoreSum(plan.output_dtype, tiles, static_cast<int>(num_tiles), ld_tile, Residual(strip),
                    rows, plan.gemm.StripColumns(strip), out, ld, plan.divisor,
                    plan.tree.empty() ? nullptr : &plan.tree);
}

void LinearStrip::Sum(const float* const* tiles, size_t num_tiles, int64_t ld_tile, int64_t strip,
                      float* sum) const {
  const LinearPlan& plan = run_.plan;
  kernels::StoreSum(DType::kFloat32, tiles, static_cast<int>(num_tiles), ld_tile, nullptr,
                    plan.layout.total_rows, plan.gemm.StripColumns(strip), sum, ld_tile,
                    plan.divisor, plan.tree.empty() ? nullptr : &plan.tree);
}

void LinearStrip::StoreSummed(const float* sum, int64_t ld_tile, int64_t strip) const {
  const LinearPlan& plan = run_.plan;
  auto* const out = static_cast<std::byte*>(run_.tensors.output) +
                    plan.gemm.StripBegin(strip) * SizeOf(plan.output_dtype);
  kernels::StoreSum(plan.output_dtype, &sum, 1, ld_tile, Residual(strip), plan.layout.total_rows,
                    plan.gemm.StripColumns(strip), out, plan.gemm.n);
}

const void* LinearStrip::Residual(int64_t strip) const {
  const auto* const residual = static_cast<const std::byte*>(run_.tensors.residual);
  const int64_t first = run_.plan.gemm.StripBegin(strip) * SizeOf(run_.plan.output_dtype);
  return residual == nullptr ? nullptr : residual + first;
}

}  // namespace collops
