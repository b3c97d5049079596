// How many rows go where, by a table of them.
#include <limits>
#include <numeric>
#include <utility>

#include "collops/operators/linear_parallel/experts.h"
#include "collops/operators/plain/row_blocks.h"

namespace collops {
Status CheckExpertInputs(const ExpertsVoice& voice, const LinearSettings& settings,
                         const std::vector<TensorDesc>& inputs, ExpertsLayout* layout) {
  const LinearInputs at(settings);
  const auto shape_of = [&inputs](int i) -> const Shape& {
    return inputs[static_cast<size_t>(i)].shape;
  };
  const bool trans_weight = settings.param.transWeight;
  const Shape& weight = shape_of(1);
  layout->k = shape_of(0)[1];
  layout->n = weight[trans_weight ? 1 : 2];
  layout->trans_weight = trans_weight;
  const int64_t n = layout->n;
  const int64_t got = weight[trans_weight ? 2 : 1];
  COLLOPS_CHECK_ARG(got == layout->k, ERROR_INVALID_TENSOR_DIM, voice.called,
                    ": x has k = ", layout->k, " columns but the matrices of weight ",
                    ToString(weight), " have ", got, trans_weight ? " columns; " : " rows; ",
                    trans_weight ? voice.transposed : voice.as_it_is);
  if (at.scale >= 0) {
    const Shape& scale = shape_of(at.scale);
    const bool fits = Numel(scale) == layout->experts * n &&
                      (scale.num_dims == 1 || scale[0] == 1 || scale[0] == layout->experts);
    COLLOPS_CHECK_ARG(fits, ERROR_INVALID_TENSOR_DIM, voice.called, ": scale must be [",
                      layout->experts, ", ", n, "], or as long, a number for each column of each ",
                      "expert, got ", ToString(scale));
  }
  if (at.residual >= 0) {
    COLLOPS_RETURN_IF_ERROR(CheckResidualShape(voice.called, n, shape_of(at.residual)));
  }
  if (at.token_scale < 0) return Ok();
  const Shape& tokens = shape_of(at.token_scale);
  COLLOPS_CHECK_ARG(Numel(tokens) == layout->x_rows, ERROR_INVALID_TENSOR_DIM, voice.called, ": ",
                    LinearInputs::token_scale_name(settings.voice), " must be [", layout->x_rows,
                    "], a number for each row of x, got ", ToString(tokens));
  return Ok();
}

ExpertRows::ExpertRows(const ExpertsLayout& layout, std::vector<int64_t> to,
                       std::vector<int64_t> from)
    : experts_(layout.experts), to_(std::move(to)), from_(std::move(from)) {
  const int size = layout.rank_size;
  for (int r = 0; r < size; ++r) {
    // The members of a place get the same rows.
    const bool is_first = r % layout.tp_size == 0;
    begin_of_.push_back(is_first ? own_ : begin_of_.back());
    int64_t sent = 0;
    int64_t received = 0;
    for (int64_t l = 0; l < experts_; ++l) {
      to_begin_.push_back(begin_of_.back() + sent);
      sent += to_[Cell(r, l)];
      from_begin_.push_back(received);
      received += from_[Cell(r, l)];
    }
    if (is_first) own_ += sent;
    to_rank_.push_back(sent);
    from_rank_.push_back(received);
  }
  at_begin_.resize(from_.size());
  for (int64_t l = 0; l < experts_; ++l) {
    expert_begin_.push_back(of_experts_);
    for (int s = 0; s < size; ++s) {
      at_begin_[Cell(s, l)] = of_experts_;
      of_experts_ += from_[Cell(s, l)];
    }
    for_expert_.push_back(of_experts_ - expert_begin_.back());
  }
}

Status ExpertRows::FromTable(const ExpertsLayout& layout, const ExpertsVoice& voice,
                             const std::vector<int64_t>& tokens,
                             std::unique_ptr<ExpertRows>* rows) {
  const int places = layout.rank_size / layout.tp_size;
  const int64_t columns = places * layout.experts;
  int64_t sum = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const int64_t line = static_cast<int64_t>(i) / columns;
    const int64_t column = static_cast<int64_t>(i) % columns;
    COLLOPS_CHECK_ARG(tokens[i] >= 0, ERROR_INVALID_PARAM, voice.called, ": ", voice.table, "[",
                      line, "][", column, "] must be >= 0, got ", tokens[i]);
    COLLOPS_CHECK_ARG(tokens[i] <= std::numeric_limits<int64_t>::max() / layout.tp_size - sum,
                      ERROR_INVALID_PARAM, voice.called, ": the sum of ", voice.table, " up to [",
                      line, "][", column, "] exceeds an int64");
    sum += tokens[i];
  }
  std::vector<int64_t> to;
  std::vector<int64_t> from;
  const int64_t own = layout.place(layout.rank);
  for (int r = 0; r < layout.rank_size; ++r) {
    const int64_t other = layout.place(r);
    for (int64_t l = 0; l < layout.experts; ++l) {
      to.push_back(tokens[static_cast<size_t>(own * columns + other * layout.experts + l)]);
      from.push_back(tokens[static_cast<size_t>(other * columns + own * layout.experts + l)]);
    }
  }
  *rows = std::make_unique<ExpertRows>(layout, std::move(to), std::move(from));
  (*rows)->table_hash_ = HashOf(tokens.data(), tokens.size());
  return Ok();
}

Status ExpertRows::CheckFit(const ExpertsLayout& layout, const ExpertsVoice& voice) const {
  const char* const x = "x has";
  const std::string most = Concat(voice.most, " is");
  COLLOPS_CHECK_ARG(own_ <= layout.most_own_rows(), ERROR_INVALID_TENSOR_DIM, voice.called,
                    ": rank ", layout.rank, layout.to_experts ? " sends " : " gets back ", own_,
                    " rows by ", voice.table, " but ", layout.to_experts ? x : most.c_str(), " ",
                    layout.most_own_rows());
  COLLOPS_CHECK_ARG(
      of_experts_ <= layout.most_expert_rows(), ERROR_INVALID_TENSOR_DIM, voice.called, ": rank ",
      layout.rank, layout.to_experts ? " receives " : " sends back ", of_experts_, " rows by ",
      voice.table, " but ", layout.to_experts ? most.c_str() : x, " ", layout.most_expert_rows());
  return Ok();
}

}  // namespace collops
