#include "collops/operators/linear_parallel/layout.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "collops/operators/plain/row_blocks.h"

namespace collops {
namespace {

using P = LinearParallelParam;

// What is gathered and scattered are slices of x along one dim. A row of that dim is `inner` rows
// of the matrices.
struct Slices {
  int dim = 0;
  int64_t count = 0;  // of this rank's x
  int64_t inner = 1;
};

// Types 0 and 3 move no rows, so that theirs are one after the other. As in ATB, type 1 scatters
// dim 1 of an x with one matrix.
Slices SlicesOf(P::ParallelType type, const Shape& x) {
  const bool has_batch = x.num_dims == 3;
  if (has_batch && type == P::LINEAR_REDUCE_SCATTER && x[0] == 1) return {1, x[1], 1};
  return {0, x[0], has_batch ? x[1] : 1};
}

RowGroup Alone(int rank) {
  RowGroup group;
  group.ranks = {rank};
  return group;
}

// `size` ranks from `first` on, `stride` apart, of which this one is number `index`.
RowGroup EveryNth(int first, int stride, int size, int index) {
  RowGroup group;
  for (int j = 0; j < size; ++j) group.ranks.push_back(first + j * stride);
  group.index = index;
  return group;
}

Status FindGrid(const P::TwoDimTPInfo& info, int rank, int rank_size, LinearLayout* layout) {
  const int ag = info.agDim;
  const int rs = info.rsDim;
  COLLOPS_CHECK_ARG(int64_t{ag} * rs == rank_size, ERROR_INVALID_PARAM,
                    "LinearParallel: twoDimTPInfo.agDim ", ag, " * rsDim ", rs,
                    " must be rankSize ", rank_size);
  if (info.innerDimIsAg != 0) {
    layout->gather = EveryNth(rank / ag * ag, 1, ag, rank % ag);
    layout->scatter = EveryNth(rank % ag, ag, rs, rank / ag);
  } else {
    layout->gather = EveryNth(rank % rs, rs, ag, rank / rs);
    layout->scatter = EveryNth(rank / rs * rs, 1, rs, rank % rs);
  }
  return Ok();
}

Status FindGroups(const P& param, int rank, int rank_size, LinearLayout* layout) {
  layout->gather = layout->scatter = Alone(rank);
  const RowGroup all = EveryNth(0, 1, rank_size, rank);
  switch (param.type) {
    case P::LINEAR_ALL_REDUCE:
    case P::LINEAR_REDUCE_SCATTER:
      layout->scatter = all;
      return Ok();
    case P::ALL_GATHER_LINEAR:
      layout->gather = all;
      return Ok();
    case P::ALL_GATHER_LINEAR_REDUCE_SCATTER:
      return FindGrid(param.twoDimTPInfo, rank, rank_size, layout);
    case P::PURE_LINEAR:
    case P::UNDEFINED:
    case P::ALLTOALLVC_ALL_GATHER_GMM:
    case P::GMM_REDUCE_SCATTER_ALLTOALLVC:
    case P::MAX:
      return Ok();
  }
  return Ok();
}

bool Gathers(P::ParallelType type) {
  return type == P::ALL_GATHER_LINEAR || type == P::ALL_GATHER_LINEAR_REDUCE_SCATTER;
}

bool Scatters(P::ParallelType type) {
  return type == P::LINEAR_REDUCE_SCATTER || type == P::ALL_GATHER_LINEAR_REDUCE_SCATTER;
}

// A list of rows, and what messages call it.
struct NamedRows {
  const char* called;
  const char* name;
  const std::vector<int64_t>& rows;
};

Status CheckUnused(const NamedRows& list, P::ParallelType type) {
  COLLOPS_CHECK_ARG(list.rows.empty(), ERROR_INVALID_PARAM, list.called, ": ", list.name,
                    " must be empty for type ", static_cast<int>(type), " (", Name(type),
                    "), got length ", list.rows.size());
  return Ok();
}

// A list with an entry for every member, none below 0, whose sum an int64 holds.
Status CheckList(const NamedRows& list, size_t members, int64_t* sum) {
  const auto& [called, name, rows] = list;
  COLLOPS_CHECK_ARG(rows.size() == members, ERROR_INVALID_PARAM, called, ": ", name,
                    " must have length ", members, ", one per member of the group, got ",
                    rows.size());
  *sum = 0;
  for (size_t j = 0; j < rows.size(); ++j) {
    COLLOPS_CHECK_ARG(rows[j] >= 0, ERROR_INVALID_PARAM, called, ": ", name, "[", j,
                      "] must be >= 0, got ", rows[j]);
    COLLOPS_CHECK_ARG(rows[j] <= std::numeric_limits<int64_t>::max() - *sum, ERROR_INVALID_PARAM,
                      called, ": the sum of ", name, " up to [", j, "] exceeds an int64");
    *sum += rows[j];
  }
  return Ok();
}

// The slices of every member of the gather group, and their number.
Status FindGathered(const LinearSettings& settings, const Shape& x, const Slices& slices,
                    RowGroup* group, int64_t* total) {
  const P& param = settings.param;
  const NamedRows list = {settings.voice.called(), settings.voice.gather_rows(), param.gatherRows};
  if (!Gathers(param.type)) COLLOPS_RETURN_IF_ERROR(CheckUnused(list, param.type));
  const auto members = static_cast<int64_t>(group->ranks.size());
  if (param.gatherRows.empty()) {
    COLLOPS_CHECK_ARG(slices.count <= std::numeric_limits<int64_t>::max() / members,
                      ERROR_INVALID_TENSOR_SIZE, list.called, ": ", members, " times ",
                      slices.count, " rows exceed an int64");
    group->rows.assign(group->ranks.size(), slices.count);
    *total = slices.count * members;
    return Ok();
  }
  COLLOPS_RETURN_IF_ERROR(CheckList(list, group->ranks.size(), total));
  const int64_t own = param.gatherRows[static_cast<size_t>(group->index)];
  COLLOPS_CHECK_ARG(own == slices.count || x.num_dims < 3, ERROR_INVALID_PARAM, list.called, ": ",
                    list.name, "[", group->index, "] is ", own, ", but dim 0 of x ", ToString(x),
                    " is ", slices.count, " on rank ",
                    group->ranks[static_cast<size_t>(group->index)],
                    ": rows are dim 0; reshape x to [rows, k]");
  COLLOPS_CHECK_ARG(own == slices.count, ERROR_INVALID_PARAM, list.called, ": ", list.name, "[",
                    group->index, "] is ", own, " but x of this rank ",
                    group->ranks[static_cast<size_t>(group->index)], " has ", slices.count,
                    " rows: they must be equal");
  group->rows = param.gatherRows;
  return Ok();
}

// The slices of every member of the scatter group, as far as a list says them.
Status FindScattered(const LinearSettings& settings, int64_t total, RowGroup* group) {
  const P& param = settings.param;
  const NamedRows list = {settings.voice.called(), settings.voice.scatter_rows(),
                          param.scatterRows};
  if (!Scatters(param.type)) {
    group->rows.assign(group->ranks.size(), total);
    return CheckUnused(list, param.type);
  }
  if (param.scatterRows.empty()) return Ok();
  int64_t sum = 0;
  COLLOPS_RETURN_IF_ERROR(CheckList(list, group->ranks.size(), &sum));
  COLLOPS_CHECK_ARG(sum == total, ERROR_INVALID_PARAM, list.called, ": ", list.name,
                    " have a sum of ", sum, " but ",
                    Gathers(param.type) ? "the gathered x has " : "x has ", total,
                    " rows: they must be equal");
  group->rows = param.scatterRows;
  return Ok();
}

Status ScatterEvenly(const LinearSettings& settings, int64_t total, int dim, RowGroup* group) {
  if (!group->rows.empty()) return Ok();
  const auto members = static_cast<int>(group->ranks.size());
  COLLOPS_CHECK_ARG(settings.splits_unevenly || total % members == 0, ERROR_INVALID_TENSOR_DIM,
                    settings.voice.called(), ": ", total, " rows in dim ", dim,
                    " do not divide by ", members, " ranks: give ", settings.voice.scatter_rows());
  group->rows = SplitEvenly(total, members);
  return Ok();
}

// Where the rows of each member begin, when they are stacked.
std::vector<int64_t> Stacked(const std::vector<int64_t>& rows) {
  std::vector<int64_t> begin(1, 0);
  for (size_t j = 1; j < rows.size(); ++j) begin.push_back(begin[j - 1] + rows[j - 1]);
  return begin;
}

// The shapes of the outputs, in slices.
void Describe(const Shape& x, const Slices& slices, int64_t total, LinearLayout* layout) {
  const RowGroup& scatter = layout->scatter;
  layout->gathered = layout->output = x;
  layout->gathered.dims[0] = total;
  layout->output.dims[slices.dim] = scatter.rows[static_cast<size_t>(scatter.index)];
  layout->output.dims[x.num_dims - 1] = layout->n;
}

// Turns slices into rows of the matrices, whose number times the longest row an int64 must hold.
Status CountRows(const char* called, const Slices& slices, int64_t total, LinearLayout* layout) {
  constexpr int64_t kMaxElements = std::numeric_limits<int64_t>::max() / 8;
  const int64_t columns = std::max({layout->k, layout->n, int64_t{1}});
  COLLOPS_CHECK_ARG(total == 0 || slices.inner <= kMaxElements / columns / total,
                    ERROR_INVALID_TENSOR_SIZE, called, ": a product of ", total, " times ",
                    slices.inner, " rows and ", layout->n,
                    " columns exceeds an int64: split the call");
  layout->total_rows = total * slices.inner;
  for (int64_t& rows : layout->gather.rows) rows *= slices.inner;
  for (int64_t& rows : layout->scatter.rows) rows *= slices.inner;
  return Ok();
}

Status CheckWeightShape(const LinearSettings& settings, int64_t k, const Shape& weight) {
  const char* const called = settings.voice.called();
  const bool trans_weight = settings.param.transWeight;
  const int num_dims = weight.num_dims;
  COLLOPS_CHECK_ARG(num_dims == 2 || weight[0] == 1, ERROR_INVALID_TENSOR_DIM, called,
                    ": a weight of 3 dims must have 1 matrix in dim 0, got ", weight[0]);
  const int64_t got = weight[trans_weight ? num_dims - 1 : num_dims - 2];
  COLLOPS_CHECK_ARG(got == k, ERROR_INVALID_TENSOR_DIM, called, ": x has k = ", k,
                    " columns but weight ", ToString(weight), " has ", got,
                    trans_weight ? " columns" : " rows", "; ",
                    settings.voice.weight_shape(trans_weight));
  return Ok();
}

// The shapes of x, weight and residual against each other. They have the right numbers of dims.
Status CheckShapes(const LinearSettings& settings, const std::vector<TensorDesc>& inputs) {
  const P& param = settings.param;
  constexpr int64_t kLeastMc2K = 256;
  constexpr int64_t kMc2K = 65535;
  const Shape& x = inputs[0].shape;
  const Shape& weight = inputs[1].shape;
  const int64_t k = x[x.num_dims - 1];
  COLLOPS_RETURN_IF_ERROR(CheckWeightShape(settings, k, weight));
  COLLOPS_CHECK_ARG(param.backend != "mc2" || (k >= kLeastMc2K && k < kMc2K),
                    ERROR_INVALID_TENSOR_DIM, settings.voice.called(),
                    ": backend \"mc2\" takes k in [", kLeastMc2K, ", ", kMc2K, "), got ", k);
  if (!param.hasResidual) return Ok();
  const int64_t n = weight[param.transWeight ? weight.num_dims - 2 : weight.num_dims - 1];
  const auto at = static_cast<size_t>(LinearInputs(settings).residual);
  return CheckResidualShape(settings.voice.called(), n, inputs[at].shape);
}

// A row of n numbers for each of `groups`, or one for all columns.
Status CheckRows(const LinearSettings& settings, const char* name, const Shape& shape, int64_t n,
                 int64_t groups) {
  const int64_t last = shape[shape.num_dims - 1];
  const int64_t first = shape.num_dims == 2 ? shape[0] : 1;
  std::string wanted = Concat("[", n, "] or [1, ", n, "]");
  if (groups != 1) wanted = Concat("[", groups, ", ", n, "], a row for each group of k");
  COLLOPS_CHECK_ARG(last == n && first == groups, ERROR_INVALID_TENSOR_DIM, settings.voice.called(),
                    ": ", name, " must be ", wanted, ", got ", ToString(shape));
  return Ok();
}

// The shapes of bias, scale and token scale against x and weight.
Status CheckQuantShapes(const LinearSettings& settings, const std::vector<TensorDesc>& inputs,
                        LinearLayout* layout) {
  const LinearInputs at(settings);
  LinearQuant& quant = layout->quant;
  quant = LinearQuant();
  if (at.scale < 0) return Ok();
  const P& param = settings.param;
  const TensorDesc& bias = inputs[static_cast<size_t>(at.bias)];
  const TensorDesc& scale = inputs[static_cast<size_t>(at.scale)];
  quant.kind = inputs[0].dtype == DType::kInt8 ? LinearQuant::kBoth : LinearQuant::kWeight;
  quant.group_k = std::max<int64_t>(layout->k, 1);
  if (param.quantType == P::QUANT_TYPE_PER_GROUP && param.quantGroupSize > 0) {
    quant.group_k = std::min<int64_t>(param.quantGroupSize, quant.group_k);
  }
  quant.groups = std::max<int64_t>((layout->k + quant.group_k - 1) / quant.group_k, 1);
  const int64_t columns = param.quantType == P::QUANT_TYPE_PER_TENSOR ? 1 : layout->n;
  quant.scale = {scale.dtype, Numel(scale.shape)};
  quant.bias = {bias.dtype, Numel(bias.shape)};
  if (quant.bias.count > 0) {
    COLLOPS_RETURN_IF_ERROR(CheckRows(settings, "bias", bias.shape, columns, quant.groups));
  }
  COLLOPS_RETURN_IF_ERROR(CheckRows(settings, "scale", scale.shape, columns, quant.groups));
  if (at.token_scale < 0) return Ok();
  const char* const name = LinearInputs::token_scale_name(settings.voice);
  const Shape& x = inputs[0].shape;
  const int64_t rows = x.num_dims == 3 ? x[0] * x[1] : x[0];
  const Shape& tokens = inputs[static_cast<size_t>(at.token_scale)].shape;
  COLLOPS_CHECK_ARG(Numel(tokens) == rows, ERROR_INVALID_TENSOR_DIM, settings.voice.called(), ": ",
                    name, " must be [", rows, "], a number for each row of x, got ",
                    ToString(tokens));
  quant.has_token_scale = true;
  return Ok();
}

}  // namespace

Status CheckResidualShape(const char* called, int64_t n, const Shape& residual) {
  const bool is_row = residual.num_dims == 1 || residual[0] == 1;
  COLLOPS_CHECK_ARG(is_row && residual[residual.num_dims - 1] == n, ERROR_INVALID_TENSOR_DIM,
                    called, ": residual must be [", n, "] or [1, ", n, "], got ",
                    ToString(residual));
  return Ok();
}

LinearInputs::LinearInputs(const LinearSettings& settings) {
  int next = 2;
  const P& param = settings.param;
  const bool is_quantised = param.quantType != P::QUANT_TYPE_UNQUANT;
  const bool scales_tokens = param.quantType == P::QUANT_TYPE_PER_TOKEN || settings.scales_tokens;
  if (is_quantised) {
    if (!HasExperts(param.type)) bias = next++;
    scale = next++;
  }
  if (param.hasResidual) residual = next++;
  if (is_quantised && scales_tokens) token_scale = next++;
  end = next;
}

bool HasExperts(P::ParallelType type) {
  return type == P::ALLTOALLVC_ALL_GATHER_GMM || type == P::GMM_REDUCE_SCATTER_ALLTOALLVC;
}

Status FindLinearLeaves(const LinearSettings& settings, int rank, int rank_size, int64_t k,
                        LinearLeaves* leaves) {
  LinearLayout layout;
  COLLOPS_RETURN_IF_ERROR(FindGroups(settings.param, rank, rank_size, &layout));
  const RowGroup& group = layout.scatter;
  return MakeLinearLeaves(settings, group.ranks.size(), group.index, k, leaves);
}

Status MakeLinearLayout(const LinearSettings& settings, int rank, int rank_size,
                        const std::vector<TensorDesc>& inputs, LinearLayout* layout) {
  const P& param = settings.param;
  const Shape& x = inputs[0].shape;
  const Shape& weight = inputs[1].shape;
  const Slices slices = SlicesOf(param.type, x);
  int64_t total = 0;
  COLLOPS_RETURN_IF_ERROR(FindGroups(param, rank, rank_size, layout));
  RowGroup& gather = layout->gather;
  RowGroup& scatter = layout->scatter;
  COLLOPS_RETURN_IF_ERROR(FindGathered(settings, x, slices, &gather, &total));
  COLLOPS_RETURN_IF_ERROR(FindScattered(settings, total, &scatter));
  layout->k = x[x.num_dims - 1];
  layout->n = weight[weight.num_dims - (param.transWeight ? 2 : 1)];
  COLLOPS_RETURN_IF_ERROR(CheckShapes(settings, inputs));
  COLLOPS_RETURN_IF_ERROR(CheckQuantShapes(settings, inputs, layout));
  COLLOPS_RETURN_IF_ERROR(
      MakeLinearLeaves(settings, scatter.ranks.size(), scatter.index, layout->k, &layout->leaves));
  COLLOPS_RETURN_IF_ERROR(ScatterEvenly(settings, total, slices.dim, &scatter));
  layout->trans_weight = param.transWeight;
  Describe(x, slices, total, layout);
  COLLOPS_RETURN_IF_ERROR(CountRows(settings.voice.called(), slices, total, layout));
  gather.begin = Stacked(gather.rows);
  scatter.begin = param.type == P::LINEAR_ALL_REDUCE ? std::vector<int64_t>(scatter.ranks.size(), 0)
                                                     : Stacked(scatter.rows);
  return Ok();
}

}  // namespace collops
