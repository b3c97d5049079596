#include "collops/operators/plain/row_blocks.h"

#include <limits>
#include <utility>

namespace collops {
namespace {

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
constexpr int64_t kWidest = 16;  // bytes of an element

// At most kMost, whatever the numbers are.
int64_t Times(int64_t a, int64_t b) {
  if (a == 0 || b == 0) return 0;
  return a > kMost / b ? kMost : a * b;
}

int64_t Plus(int64_t a, int64_t b) {
  return a > kMost - b ? kMost : a + b;
}

int64_t Product(const std::vector<int64_t>& sizes, size_t begin, size_t end) {
  int64_t product = 1;
  for (size_t i = begin; i < end; ++i) {
    if (sizes[i] == 0) return 0;
    product = Times(product, sizes[i]);
  }
  return product;
}

}  // namespace

Status CheckSizes(const char* method, const char* label, const Rows& sizes, int rank_size) {
  COLLOPS_CHECK_ARG(sizes.size() == static_cast<size_t>(rank_size), ERROR_INVALID_PARAM, method,
                    ": ", label, " must have length ", rank_size, ", one per rank, got ",
                    sizes.size());
  for (size_t r = 0; r < sizes.size(); ++r) {
    COLLOPS_CHECK_ARG(sizes[r] >= 0, ERROR_INVALID_PARAM, method, ": ", label, "[", r,
                      "] must be >= 0, got ", sizes[r]);
  }
  return Ok();
}

Status CheckRoot(const char* method, int64_t root, int rank_size) {
  COLLOPS_CHECK_ARG(root >= 0 && root < rank_size, ERROR_INVALID_PARAM, method,
                    ": root must be in [0, ", rank_size, "), got ", root);
  return Ok();
}

Status CheckSum(const char* method, const char* label, const Rows& sizes, const RowShape& x) {
  COLLOPS_CHECK_ARG(SumOf(sizes) == x.rows(), ERROR_INVALID_PARAM, method, ": ", label, " sum to ",
                    SumOf(sizes), " rows, but x has ", x.rows(),
                    x.dim == 0 ? "" : Concat(" along dim ", x.dim));
  return Ok();
}

Status CheckOwnRows(const char* method, const Rows& sizes, int rank, const RowShape& x) {
  const int64_t own = sizes[static_cast<size_t>(rank)];
  COLLOPS_CHECK_ARG(own == x.rows(), ERROR_INVALID_PARAM, method, ": sizes[", rank, "] is ", own,
                    ", but x has ", x.rows(), " rows",
                    x.dim == 0 ? "" : Concat(" along dim ", x.dim), " on rank ", rank);
  return Ok();
}

Status RowBlocks::Make(const char* method, const RowShape& shape, const Rows& rows,
                       RowBlocks* blocks) {
  const auto dim = static_cast<size_t>(shape.dim);
  const int64_t elements =
      Times(Times(Product(shape.sizes, 0, dim), Product(shape.sizes, dim + 1, shape.sizes.size())),
            shape.unit);
  const int64_t sum = SumOf(rows);
  COLLOPS_CHECK_ARG(Times(Times(sum, elements), kWidest) < kMost, ERROR_INVALID_TENSOR_SIZE, method,
                    ": ", sum, " rows of ", elements, " elements are more than memory can hold");
  RowBlocks made;
  made.rows_ = rows;
  made.row_elements_ = elements;
  for (const int64_t size : rows) {
    made.displs_.push_back(made.total_);
    made.counts_.push_back(size * elements);
    made.total_ += made.counts_.back();
  }
  *blocks = std::move(made);
  return Ok();
}

int64_t HashOf(const int64_t* numbers, size_t count) {
  uint64_t hash = 0xcbf29ce484222325ULL;
  for (size_t i = 0; i < count; ++i) {
    hash = (hash ^ static_cast<uint64_t>(numbers[i])) * 0x9e3779b97f4a7c15ULL;
    hash ^= hash >> 29;
  }
  return static_cast<int64_t>(hash);
}

int64_t SumOf(const Rows& rows) {
  int64_t sum = 0;
  for (const int64_t size : rows) sum = Plus(sum, size);
  return sum;
}

Rows SplitEvenly(int64_t rows, int rank_size) {
  Rows split(static_cast<size_t>(rank_size), rows / rank_size);
  for (int64_t r = 0; r < rows % rank_size; ++r) ++split[static_cast<size_t>(r)];
  return split;
}

Shape ShapeBesideRows(const RowShape& shape) {
  const auto dim = static_cast<size_t>(shape.dim);
  const int64_t after = Product(shape.sizes, dim + 1, shape.sizes.size());
  std::vector<int64_t> common;
  if (dim > 0) common.push_back(Product(shape.sizes, 0, dim));
  common.push_back(-1);
  if (after != 1) common.push_back(after);
  return Shape::From(common.data(), static_cast<int>(common.size()));
}

}  // namespace collops
