// How the inner dimension of a product is cut in leaves, and which of them this rank has.
#include <algorithm>
#include <numeric>

#include "collops/operators/linear_parallel/layout.h"
#include "collops/operators/plain/row_blocks.h"

namespace collops {
namespace {

// Where leaf `leaf` begins among all columns.
int64_t BorderOf(const LinearLeaves& leaves, int64_t leaf) {
  return leaf * (leaves.k / leaves.count) + std::min(leaf, leaves.k % leaves.count);
}

// The leaf that begins at a column, or -1.
int64_t LeafAt(const LinearLeaves& leaves, int64_t column) {
  const int64_t leaf = column / (leaves.k / leaves.count + (leaves.k % leaves.count == 0 ? 0 : 1));
  for (int64_t at = leaf; at <= leaves.count && BorderOf(leaves, at) <= column; ++at) {
    if (BorderOf(leaves, at) == column) return at;
  }
  return -1;
}

// Leaves that are shared out as evenly as possible, each of as many columns as this member's.
Status ShareOut(const LinearSettings& settings, int64_t members, int index, int64_t k,
                LinearLeaves* leaves) {
  const LinearVoice& voice = settings.voice;
  COLLOPS_CHECK_ARG(leaves->count >= members, ERROR_INVALID_PARAM, voice.called(), ": ",
                    voice.leaves(), " is ", leaves->count, ", fewer than the ", members,
                    " ranks that add up");
  leaves->begins = {0};
  for (const int64_t own : SplitEvenly(leaves->count, static_cast<int>(members))) {
    leaves->begins.push_back(leaves->begins.back() + own);
  }
  const auto own = static_cast<size_t>(index);
  const int64_t count = leaves->begins[own + 1] - leaves->begins[own];
  COLLOPS_CHECK_ARG(k % count == 0, ERROR_INVALID_PARAM, voice.called(), ": k = ", k,
                    " is not a multiple of the ", count, " of ", leaves->count,
                    " leaves that this rank has: pass ", voice.sum_columns(),
                    ", the k of every rank that adds up");
  leaves->k = k / count * leaves->count;
  return Ok();
}

// Leaves of the columns that the settings list.
Status CutListed(const LinearSettings& settings, size_t members, int index, int64_t k,
                 LinearLeaves* leaves) {
  const LinearVoice& voice = settings.voice;
  const char* const called = voice.called();
  const char* const name = voice.sum_columns();
  const std::vector<int64_t>& columns = settings.param.sumColumns;
  COLLOPS_CHECK_ARG(columns.size() == members, ERROR_INVALID_PARAM, called, ": ", name,
                    " must have length ", members, ", one per rank that adds up, got ",
                    columns.size());
  constexpr int64_t kMostColumns = int64_t{1} << 48;
  for (size_t j = 0; j < members; ++j) {
    COLLOPS_CHECK_ARG(columns[j] >= 1 && columns[j] <= kMostColumns, ERROR_INVALID_PARAM, called,
                      ": ", name, "[", j, "] must be in [1, 2^48], got ", columns[j]);
  }
  const int64_t own = columns[static_cast<size_t>(index)];
  COLLOPS_CHECK_ARG(own == k, ERROR_INVALID_PARAM, called, ": ", name, "[", index, "] is ", own,
                    " but x has k = ", k, " columns");
  leaves->k = std::accumulate(columns.begin(), columns.end(), int64_t{0});
  COLLOPS_CHECK_ARG(leaves->count <= leaves->k, ERROR_INVALID_PARAM, called, ": ", voice.leaves(),
                    " is ", leaves->count, ", more than the ", leaves->k,
                    " columns of all ranks that add up");
  int64_t column = 0;
  for (size_t j = 0; j < members; ++j) {
    const int64_t leaf = LeafAt(*leaves, column);
    COLLOPS_CHECK_ARG(leaf >= 0, ERROR_INVALID_PARAM, called, ": the columns of ", name, "[", j,
                      "] begin at ", column, ", where none of the ", leaves->count, " leaves of ",
                      leaves->k, " columns begins");
    leaves->begins.push_back(leaf);
    column += columns[j];
  }
  leaves->begins.push_back(leaves->count);
  return Ok();
}

}  // namespace

Status MakeLinearLeaves(const LinearSettings& settings, size_t members, int index, int64_t k,
                        LinearLeaves* leaves) {
  *leaves = LinearLeaves();
  const LinearVoice& voice = settings.voice;
  const int64_t count = settings.param.sumLeaves;
  if (count == 0) return Ok();
  leaves->count = count;
  if (settings.param.sumColumns.empty() && members == 1) {
    COLLOPS_CHECK_ARG(count <= k, ERROR_INVALID_PARAM, voice.called(), ": ", voice.leaves(), " is ",
                      count, ", more than the ", k, " columns of x");
    leaves->k = k;
    leaves->begins = {0, count};
  } else if (settings.param.sumColumns.empty()) {
    COLLOPS_RETURN_IF_ERROR(ShareOut(settings, static_cast<int64_t>(members), index, k, leaves));
  } else {
    COLLOPS_RETURN_IF_ERROR(CutListed(settings, members, index, k, leaves));
  }
  const auto own = static_cast<size_t>(index);
  const int64_t first = BorderOf(*leaves, leaves->begins[own]);
  for (int64_t leaf = leaves->begins[own]; leaf <= leaves->begins[own + 1]; ++leaf) {
    leaves->borders.push_back(BorderOf(*leaves, leaf) - first);
  }
  leaves->tree = kernels::TreeWithin(count, leaves->begins[own], leaves->begins[own + 1]);
  return Ok();
}

}  // namespace collops
