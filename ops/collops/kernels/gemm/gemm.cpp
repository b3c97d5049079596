#include "collops/kernels/gemm/gemm.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <vector>

#include "collops/kernels/gemm/gemm_kernels.h"
#include "collops/kernels/isa.h"
#include "collops/kernels/reduce/reduce_kernels.h"
#include "collops/kernels/thread_pool.h"

namespace collops::kernels {
namespace {

// Sizes and places in a plan's panels.

constexpr int64_t kUnitBytes = 4;

int64_t CeilDiv(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

int64_t RoundUp(int64_t a, int64_t b) {
  return CeilDiv(a, b) * b;
}

// Units of k elements from the beginning of a block on.
int64_t Units(const GemmPlan& plan, int64_t k) {
  return RoundUp(CeilDiv(k, plan.kernels->k_per_unit), plan.kernels->unit_step);
}

// Units of one panel over all of k.
int64_t AllUnits(const GemmPlan& plan) {
  const KBlock& last = plan.k_blocks.back();
  return last.units_before + Units(plan, last.size);
}

// Units of the longest block.
int64_t MostUnits(const GemmPlan& plan) {
  int64_t units = 0;
  for (const KBlock& block : plan.k_blocks) units = std::max(units, Units(plan, block.size));
  return units;
}

int64_t PaddedColumns(const GemmPlan& plan, int64_t strip) {
  return RoundUp(plan.StripColumns(strip), plan.kernels->column_tile);
}

const char* At(const GemmPlan& plan, const void* base, int64_t ld, int64_t row, int64_t column) {
  return static_cast<const char*>(base) + (row * ld + column) * SizeOf(plan.dtype);
}

// Bytes of an element of the weight in memory.
int64_t WeightItem(const GemmPlan& plan) {
  return plan.widens_weight ? 1 : SizeOf(plan.dtype);
}

// At row `k` and column `column` of the weight as [k, n].
const char* WeightAt(const GemmPlan& plan, const Weight& weight, int64_t k, int64_t column) {
  const int64_t at = plan.trans_weight ? column * weight.ld + k : k * weight.ld + column;
  return static_cast<const char*>(weight.data) + at * WeightItem(plan);
}

// Columns [first, first + columns) of the product and [k_begin, k_begin + k) of k.
ByteWeight BytesOf(const GemmPlan& plan, const Weight& weight, int64_t first, int64_t columns,
                   int64_t k_begin, int64_t k) {
  const WeightScale& by = weight.scale;
  const int64_t group = by.group_k == 0 ? 0 : k_begin / by.group_k;
  const int64_t place = group * plan.n + first;
  return {reinterpret_cast<const int8_t*>(WeightAt(plan, weight, k_begin, first)),
          weight.ld,
          plan.trans_weight,
          k,
          columns,
          by.scale + place,
          by.offset == nullptr ? nullptr : by.offset + place,
          plan.n,
          by.group_k,
          (group + 1) * by.group_k - k_begin};
}

// Packs columns [first, first + columns) of the product and [k_begin, k_begin + k) of k.
void PackWeightPart(const GemmPlan& plan, const Weight& weight, int64_t first, int64_t columns,
                    int64_t k_begin, int64_t k, uint32_t* panels) {
  const GemmKernels& kernels = *plan.kernels;
  const int64_t panel_units = Units(plan, k) * kernels.column_tile;
  if (plan.widens_weight) {
    return kernels.pack_bytes(BytesOf(plan, weight, first, columns, k_begin, k), panel_units,
                              panels);
  }
  if (!plan.trans_weight) {
    return kernels.pack_straight(WeightAt(plan, weight, k_begin, first), weight.ld, k, columns,
                                 panel_units, panels);
  }
  for (int64_t j = 0; j < columns; j += kernels.column_tile) {
    kernels.pack_columns(WeightAt(plan, weight, k_begin, first + j), weight.ld,
                         std::min(kernels.column_tile, columns - j), k,
                         panels + j / kernels.column_tile * panel_units);
  }
}

// The number of multiplications from which waking other threads pays.
constexpr int64_t kLeastSharedProducts = 8 << 20;

// Rows that one thread packs or multiplies at a time: so few that every thread has some.
int64_t PartRows(const GemmPlan& plan, int64_t rows) {
  constexpr int64_t kMost = 64;  // a multiple of every row_tile
  return std::min(RoundUp(CeilDiv(rows, NumThreads()), plan.row_tile), kMost);
}

const GemmKernels* FindKernels(DType dtype) {
#if defined(__x86_64__)
  switch (ActiveIsa()) {
    case Isa::kAmx:
      if (dtype == DType::kBFloat16) return AmxBFloat16GemmKernels();
      if (dtype == DType::kInt8 && Has(Extension::kAmxInt8)) return AmxInt8GemmKernels();
      [[fallthrough]];
    case Isa::kAvx512:
      if (dtype == DType::kBFloat16 && Has(Extension::kAvx512BFloat16)) {
        return Avx512BFloat16GemmKernels();
      }
      if (dtype == DType::kInt8 && Has(Extension::kAvx512Vnni)) return Avx512VnniGemmKernels();
      return Avx512GemmKernels(dtype);
    case Isa::kAvx2:
      if (dtype == DType::kInt8 && Has(Extension::kAvxVnni)) return AvxVnniGemmKernels();
      return Avx2GemmKernels(dtype);
    case Isa::kNeon:
    case Isa::kPortable:
      break;
  }
#elif defined(__aarch64__)
  if (ActiveIsa() == Isa::kNeon) {
    if (dtype == DType::kBFloat16 && Has(Extension::kBfmmla)) return BfmmlaGemmKernels();
    if (dtype == DType::kInt8 && Has(Extension::kSmmla)) return SmmlaGemmKernels();
    if (dtype == DType::kInt8 && Has(Extension::kDotProduct)) return SdotGemmKernels();
    return NeonGemmKernels(dtype);
  }
#endif
  return PortableGemmKernels(dtype);
}

// Those of floating point that PlanLeaves() promises.
const GemmKernels* FindKernelsInOrder(DType dtype) {
#if defined(__x86_64__)
  if (ActiveIsa() == Isa::kAmx || ActiveIsa() == Isa::kAvx512) return Avx512GemmKernels(dtype);
  if (ActiveIsa() == Isa::kAvx2) return Avx2GemmKernels(dtype);
#elif defined(__aarch64__)
  if (ActiveIsa() == Isa::kNeon) return NeonGemmKernels(dtype);
#endif
  return PortableFusedGemmKernels(dtype);
}

// Where a group's panels of a block begin, in units. The order is [k block][panel][unit][row].
int64_t BlockOffset(const GemmPlan& plan, int64_t group_rows, int64_t k_block) {
  return plan.Block(k_block).units_before * RoundUp(group_rows, plan.row_tile);
}

// The block that element `k` is in.
std::vector<KBlock>::const_iterator FindBlock(const GemmPlan& plan, int64_t k) {
  const auto is_before = [](int64_t at, const KBlock& block) { return at < block.begin; };
  return std::prev(std::upper_bound(plan.k_blocks.begin(), plan.k_blocks.end(), k, is_before));
}

// Packs the rows of one panel, across block borders.
void PackPanel(const GemmPlan& plan, const void* x, int64_t ldx, int64_t row, int64_t rows,
               int64_t k_begin, int64_t k_end, int64_t group_rows, uint32_t* panels) {
  const int64_t all_rows = RoundUp(group_rows, plan.row_tile);
  auto block = FindBlock(plan, k_begin);
  for (int64_t k = k_begin; k < k_end; ++block) {
    const int64_t end = std::min(k_end, block->begin + block->size);
    if (end == k) continue;
    uint32_t* const panel = panels + block->units_before * all_rows +
                            row * Units(plan, block->size) +
                            Units(plan, k - block->begin) * plan.row_tile;
    plan.kernels->pack_rows(At(plan, x, ldx, 0, k - k_begin), ldx, rows, end - k, panel);
    k = end;
  }
}

// Bytes of the weight in a strip from which waking other threads pays: about 50 us of reading.
constexpr int64_t kLeastSharedWeight = 512 << 10;

// What is packed and at once multiplied by few rows: 24 KiB, half of a first-level cache. Of a
// weight [n, k] that is one panel, of kPassingUnits in all. Of a weight [k, n] it is some units of
// every panel of a strip, so that neighbours in memory are read together.
constexpr int64_t kPassingUnits = 6144;
constexpr int64_t kPassingUnitsOfStrip = 16;

// Which tiles leaves are summed in, one after the other: those that end a root are the first.
class TilesOfTree {
 public:
  explicit TilesOfTree(const SumTree& tree) : tree_(tree), roots_(tree.size(), -1) {
    std::vector<size_t> left;
    for (size_t i = 0; i < tree.size(); ++i) {
      left.resize(left.size() - tree[i]);
      left.push_back(i);
    }
    for (const size_t leaf : left) roots_[leaf] = num_roots_++;
  }

  int num_roots() const { return num_roots_; }
  int num_spare() const { return static_cast<int>(is_free_.size()); }

  // The tile of a leaf.
  int Take(size_t leaf) {
    if (roots_[leaf] >= 0) return roots_[leaf];
    size_t spare = 0;
    while (spare < is_free_.size() && !is_free_[spare]) ++spare;
    if (spare == is_free_.size()) is_free_.push_back(true);
    is_free_[spare] = false;
    return num_roots_ + static_cast<int>(spare);
  }

  // The tiles that are added to the leaf's.
  std::vector<int> Add(size_t leaf, int tile) {
    std::vector<int> added;
    for (int i = 0; i < tree_[leaf]; ++i) {
      added.push_back(waiting_.back());
      waiting_.pop_back();
      if (added.back() >= num_roots_)
        is_free_[static_cast<size_t>(added.back() - num_roots_)] = true;
    }
    waiting_.push_back(tile);
    return added;
  }

 private:
  const SumTree& tree_;
  std::vector<int> roots_;  // of each leaf; -1: it is added to another
  int num_roots_ = 0;
  std::vector<bool> is_free_;
  std::vector<int> waiting_;
};

}  // namespace

bool CanMultiply(DType dtype) {
  return PortableGemmKernels(dtype) != nullptr;
}

GemmPlan PlanWith(const GemmKernels* kernels, DType dtype, int64_t n, bool trans_weight,
                  bool widens_weight, const std::vector<int64_t>& borders, const SumTree& tree) {
  GemmPlan plan = {dtype,   borders.back(), n, trans_weight, kernels->row_tile,
                   kernels, widens_weight};
  const int64_t most = kernels->block_units * kernels->k_per_unit;
  TilesOfTree tiles(tree);
  int64_t units = 0;
  for (size_t i = 1; i < borders.size(); ++i) {
    const int tile = tiles.Take(i - 1);
    int64_t k = borders[i - 1];
    do {
      const int64_t size = std::min(most, borders[i] - k);
      plan.k_blocks.push_back({k, size, units, k == borders[i - 1], k + size == borders[i],
                               static_cast<int64_t>(i) - 1, tile});
      units += Units(plan, size);
      k += size;
    } while (k < borders[i]);
    plan.k_blocks.back().added = tiles.Add(i - 1, tile);
  }
  plan.num_roots = tiles.num_roots();
  plan.num_spare = tiles.num_spare();
  return plan;
}

GemmPlan PlanGemm(DType dtype, int64_t k, int64_t n, bool trans_weight, bool widens_weight) {
  return PlanWith(FindKernels(dtype), dtype, n, trans_weight, widens_weight, {0, k}, {0});
}

GemmPlan PlanLeaves(DType dtype, int64_t n, bool trans_weight, bool widens_weight,
                    const std::vector<int64_t>& borders, const SumTree& tree) {
  const GemmKernels* const kernels =
      dtype == DType::kInt8 ? FindKernels(dtype) : FindKernelsInOrder(dtype);
  return PlanWith(kernels, dtype, n, trans_weight, widens_weight, borders, tree);
}

int64_t PackedRowsBytes(const GemmPlan& plan, int64_t rows) {
  return RoundUp(rows, plan.row_tile) * AllUnits(plan) * kUnitBytes;
}

void PackRows(const GemmPlan& plan, const void* x, int64_t ldx, int64_t row, int64_t rows,
              int64_t k_begin, int64_t k_end, int64_t group_rows, void* panels) {
  const auto pack = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i += plan.row_tile) {
      PackPanel(plan, At(plan, x, ldx, i, 0), ldx, row + i, std::min(plan.row_tile, end - i),
                k_begin, k_end, group_rows, static_cast<uint32_t*>(panels));
    }
  };
  const int64_t bytes = rows * (k_end - k_begin) * (SizeOf(plan.dtype) + kUnitBytes);
  if (bytes < kLeastSharedBytes || NumThreads() == 1) return pack(0, rows);
  const int64_t part_rows = PartRows(plan, rows);
  ParallelFor(static_cast<int>(CeilDiv(rows, part_rows)), [&](int part) {
    const int64_t begin = part * part_rows;
    pack(begin, std::min(begin + part_rows, rows));
  });
}

namespace {

// A part of a tile.
struct TilePart {
  int64_t row;
  int64_t rows;
  int64_t column;  // in the strip
  int64_t columns;
};

// A complete tile becomes what it stands for.
void ScaleTile(const GemmPlan& plan, const TileScale& scale, int64_t strip, bool is_first_leaf,
               const TilePart& part, float* c, int64_t ldc) {
  const float* const token = scale.token_scale == nullptr ? nullptr : scale.token_scale + part.row;
  if (scale.scale == nullptr) {
    for (int64_t i = 0; token != nullptr && i < part.rows; ++i) {
      for (int64_t j = 0; j < part.columns; ++j) c[i * ldc + j] *= token[i];
    }
    return;
  }
  const int64_t first = plan.StripBegin(strip) + part.column;
  const bool has_bias = scale.bias != nullptr && is_first_leaf;
  plan.kernels->scale_tile({scale.scale + first, has_bias ? scale.bias + first : nullptr, token},
                           part.rows, part.columns, c, ldc);
}

// What follows once a k block is in its tile: if that is complete, it is scaled, and others are
// added to it.
void CompleteTile(const GemmPlan& plan, const TileScale& scale, int64_t strip, const KBlock& block,
                  const TilePart& part, const SumTiles& c) {
  if (!block.ends_sum) return;
  const int64_t at = part.row * c.ld + part.column;
  float* const tile = c.Of(plan, block.tile) + at;
  ScaleTile(plan, scale, strip, block.leaf == 0, part, tile, c.ld);
  if (block.added.empty()) return;
  const float* summands[1 + kMostWaitingSums] = {tile};
  int count = 1;
  for (const int added : block.added) summands[count++] = c.Of(plan, added) + at;
  const StoreSumKernel add = ActiveReduceKernels().store_sum(DType::kFloat32);
  for (int64_t i = 0; i < part.rows; ++i) {
    add(summands, count, nullptr, i * c.ld, 1.0F, nullptr, part.columns, tile + i * c.ld);
  }
}

// The block after (strip, k_block), in the order of k, then of strips; false after the last.
bool NextBlock(const GemmPlan& plan, int64_t* strip, int64_t* k_block) {
  if (++*k_block < plan.num_k_blocks()) return true;
  *k_block = 0;
  return ++*strip < plan.num_strips();
}

// Bytes that a packed weight has for a unit.
int64_t PackedUnitBytes(const GemmPlan& plan) {
  return plan.kernels->half_weight != nullptr ? int64_t{sizeof(uint16_t)} : kUnitBytes;
}

// Where a block of a packed weight begins. The order is [strip][k block][panel][unit].
int64_t PackedOffset(const GemmPlan& plan, int64_t strip, int64_t k_block) {
  const int64_t units = plan.StripBegin(strip) * AllUnits(plan) +
                        PaddedColumns(plan, strip) * plan.Block(k_block).units_before;
  return units * PackedUnitBytes(plan);
}

// Where columns [begin, end) of a block are in memory.
NextMemory ColumnsOf(const GemmPlan& plan, const Weight& weight, int64_t strip, int64_t k_block,
                     int64_t begin, int64_t end) {
  constexpr int64_t kPageBytes = 4096;
  end = std::min(end, plan.StripColumns(strip));
  if (begin >= end) return {};
  const KBlock& of_k = plan.Block(k_block);
  if (weight.packed != nullptr) {
    const int64_t column_bytes = Units(plan, of_k.size) * PackedUnitBytes(plan);
    const int64_t bytes = RoundUp(end - begin, plan.kernels->column_tile) * column_bytes;
    // In pieces of a page, so that groups of rows can share them.
    return {static_cast<const char*>(weight.packed) + PackedOffset(plan, strip, k_block) +
                begin * column_bytes,
            CeilDiv(bytes, kPageBytes), kPageBytes, kPageBytes};
  }
  const int64_t item = WeightItem(plan);
  const void* const first = WeightAt(plan, weight, of_k.begin, plan.StripBegin(strip) + begin);
  if (plan.trans_weight) return {first, end - begin, of_k.size * item, weight.ld * item};
  return {first, of_k.size, (end - begin) * item, weight.ld * item};
}

// The same of the block behind (strip, k_block).
NextMemory NextColumns(const GemmPlan& plan, const Weight& weight, int64_t strip, int64_t k_block,
                       int64_t begin, int64_t end) {
  if (!NextBlock(plan, &strip, &k_block)) return {};
  return ColumnsOf(plan, weight, strip, k_block, begin, end);
}

// What rows [begin, end) of `all_rows` fetch of it.
NextMemory ShareOf(const NextMemory& next, int64_t begin, int64_t end, int64_t all_rows) {
  const int64_t first = next.rows * begin / all_rows;
  return {static_cast<const char*>(next.first) + first * next.ld_bytes,
          next.rows * end / all_rows - first, next.row_bytes, next.ld_bytes};
}

// Up to so many rows, 16-bit numbers of a packed weight are widened in passing, for each panel of
// rows anew; for more, once into scratch memory.
constexpr int64_t kMostWideningRows = 16;

// With fewer rows, memory is the limit, and fetching the weight ahead gains nothing. With 8 rows
// and a packed weight, it takes 0.8 of the time on Zen 3.
constexpr int64_t kLeastFetchingRows = 5;

// Every thread packs and multiplies the same number of panels, but for so much.
constexpr double kMostUneven = 1.1;

// While it lives, its thread may multiply.
class UseOfKernels {
 public:
  explicit UseOfKernels(const GemmPlan& plan) : kernels_(*plan.kernels) {
    if (kernels_.begin != nullptr) kernels_.begin();
  }
  ~UseOfKernels() {
    if (kernels_.end != nullptr) kernels_.end();
  }
  UseOfKernels(const UseOfKernels&) = delete;
  UseOfKernels& operator=(const UseOfKernels&) = delete;

 private:
  const GemmKernels& kernels_;
};

// Packs columns [begin, end) of a block of the weight, one panel while the one before it is
// multiplied: the arithmetic of tile registers and that of vectors overlap.
class PackingOfBlock final : public PanelPacking {
 public:
  PackingOfBlock(const GemmPlan& plan, const Weight& weight, int64_t strip, const KBlock& of_k,
                 int64_t begin, int64_t end, uint32_t* scratch)
      : plan_(plan),
        weight_(weight),
        first_(plan.StripBegin(strip)),
        of_k_(of_k),
        units_(Units(plan, of_k.size)),
        // Squares of an int8 weight have 64 rows of k, as many as two of bfloat16.
        piece_units_((plan.widens_weight ? 2 : 1) * plan.kernels->unit_step),
        end_(end),
        scratch_(scratch),
        column_(begin) {}

  // Makes the panel of `column` whole; the next is packed during so many steps.
  void Begin(int64_t column, int64_t steps) {
    while (column_ < end_ && column_ <= column) PackPiece();
    due_ = column + plan_.kernels->column_tile;
    every_ = std::max<int64_t>(steps / std::max<int64_t>(CeilDiv(units_, piece_units_), 1), 1);
    Wait();
  }

  void PackPiece() override {
    const int64_t tile = plan_.kernels->column_tile;
    const int64_t done = unit_ * plan_.kernels->k_per_unit;
    const int64_t size = std::min(piece_units_ * plan_.kernels->k_per_unit, of_k_.size - done);
    PackWeightPart(plan_, weight_, first_ + column_, std::min(tile, end_ - column_),
                   of_k_.begin + done, size, scratch_ + column_ * units_ + unit_ * tile);
    unit_ += piece_units_;
    if (unit_ >= units_) {
      unit_ = 0;
      column_ += tile;
    }
    Wait();
  }

 private:
  void Wait() { steps_left = column_ < end_ && column_ <= due_ ? every_ : 0; }

  const GemmPlan& plan_;
  const Weight& weight_;
  const int64_t first_;  // column of the strip
  const KBlock& of_k_;
  const int64_t units_;
  const int64_t piece_units_;
  const int64_t end_;
  uint32_t* const scratch_;
  int64_t column_;  // of the panel that is being packed
  int64_t unit_ = 0;
  int64_t due_ = 0;  // the last panel that may be packed now
  int64_t every_ = 1;
};

// The product of all groups and one block of the weight.
class BlockProduct {
 public:
  BlockProduct(const GemmPlan& plan, const Weight& weight, int64_t strip, int64_t k_block,
               const RowGroup* groups, size_t num_groups, void* scratch)
      : plan_(plan),
        weight_(weight),
        strip_(strip),
        k_block_(k_block),
        of_k_(plan.Block(k_block)),
        units_(Units(plan, of_k_.size)),
        columns_(plan.StripColumns(strip)),
        groups_(groups),
        num_groups_(num_groups),
        scratch_(static_cast<uint32_t*>(scratch)) {
    for (size_t g = 0; g < num_groups; ++g) all_rows_ += groups[g].rows;
    in_halves_ = weight.packed != nullptr && plan.kernels->half_weight != nullptr;
    loads_ = weight.packed == nullptr || (in_halves_ && all_rows_ > kMostWideningRows);
  }

  void Run() const {
    const bool shares = all_rows_ * columns_ * units_ >= kLeastSharedProducts;
    const int64_t threads = shares ? NumThreads() : 1;
    const int64_t panels = CeilDiv(columns_, plan_.kernels->column_tile);
    const int64_t parts = std::min(threads, panels);
    if (parts == 1) return RunColumns(0, columns_);
    const auto column = [&](int64_t part) {
      return std::min(panels * part / parts * plan_.kernels->column_tile, columns_);
    };
    const auto uneven =
        static_cast<double>(CeilDiv(panels, parts) * threads) / static_cast<double>(panels);
    if (uneven <= kMostUneven) {
      return ParallelFor(static_cast<int>(parts),
                         [&](int part) { RunColumns(column(part), column(part + 1)); });
    }
    if (loads_) {
      ParallelFor(static_cast<int>(parts), [&](int part) { Load(column(part), column(part + 1)); });
    }
    const int64_t rows = PartRows(plan_, all_rows_);
    ParallelFor(static_cast<int>(CeilDiv(all_rows_, rows)), [&](int part) {
      const UseOfKernels use(plan_);
      MultiplyAndFetch(part * rows, std::min((part + 1) * rows, all_rows_), 0, columns_);
    });
  }

 private:
  void RunColumns(int64_t begin, int64_t end) const {
    const UseOfKernels use(plan_);
    if (plan_.kernels->cached_rows > 0) return RunPanels(begin, end);
    if (loads_) Load(begin, end);
    MultiplyAndFetch(0, all_rows_, begin, end);
  }

  // Some rows after others, each by one panel after the other. A plain weight is packed while the
  // first rows are multiplied, and what is packed next but one is fetched.
  void RunPanels(int64_t begin, int64_t end) const {
    const GemmKernels& kernels = *plan_.kernels;
    const int64_t tile = kernels.column_tile;
    const int64_t height = 2 * kernels.row_tile;  // of a step
    const int64_t panels = CeilDiv(end - begin, tile);
    const int64_t ahead = std::min<int64_t>(panels, 2);
    const int64_t passes = std::max<int64_t>(CeilDiv(all_rows_, kernels.cached_rows), 1);
    const int64_t rows = RoundUp(CeilDiv(all_rows_, passes), height);
    PackingOfBlock packing(plan_, weight_, strip_, of_k_, begin, end, scratch_);
    for (int64_t row = 0; row < all_rows_; row += rows) {
      const int64_t row_end = std::min(row + rows, all_rows_);
      const bool packs = loads_ && row == 0;
      for (int64_t panel = 0; panel < panels; ++panel) {
        const int64_t column = begin + panel * tile;
        Meanwhile all;
        if (packs) {
          packing.Begin(column, CeilDiv(row_end, height) * (units_ / kernels.unit_step));
          all.packing = &packing;
          const int64_t first = column + ahead * tile;
          all.weight =
              first < end
                  ? ColumnsOf(plan_, weight_, strip_, k_block_, first, std::min(first + tile, end))
                  : Next(first - panels * tile, std::min(first - panels * tile + tile, end));
        } else if (!loads_) {
          all.weight = Next(column, std::min(column + tile, end));
        }
        MultiplyRows(
            row, row_end, column, std::min(column + tile, end), [&](int64_t from, int64_t to) {
              const int64_t done = panel * (row_end - row) + from - row;
              return Meanwhile{ShareOf(all.weight, from, to, packs ? row_end : all_rows_),
                               NextRows(row_end, rows, done, to - from, panels * (row_end - row)),
                               all.packing};
            });
      }
    }
  }

  // Of up to `rows` rows that are multiplied after those before `row_end`, the part that `count` of
  // `all` fetch, after `done` of them.
  NextMemory NextRows(int64_t row_end, int64_t rows, int64_t done, int64_t count,
                      int64_t all) const {
    int64_t strip = strip_;
    int64_t k_block = k_block_;
    int64_t first = row_end;
    if (row_end == all_rows_) {
      if (!NextBlock(plan_, &strip, &k_block)) return {};
      first = 0;
    }
    const int64_t size = std::min(rows, all_rows_ - first);
    int64_t begin = first + size * done / all;
    int64_t end = first + size * (done + count) / all;
    const RowGroup* group = groups_;
    for (; begin >= group->rows; ++group) {
      begin -= group->rows;
      end -= group->rows;
    }
    const int64_t units = Units(plan_, plan_.Block(k_block).size);
    return {static_cast<const uint32_t*>(group->panels) + BlockOffset(plan_, group->rows, k_block) +
                begin * units,
            1, (std::min(end, group->rows) - begin) * units * kUnitBytes, 0};
  }

  // Where columns [begin, end) of the next block are in memory, if that is worth fetching.
  NextMemory Next(int64_t begin, int64_t end) const {
    if (all_rows_ < kLeastFetchingRows) return {};
    return NextColumns(plan_, weight_, strip_, k_block_, begin, end);
  }

  const void* Packed(int64_t column) const {
    return static_cast<const char*>(weight_.packed) + PackedOffset(plan_, strip_, k_block_) +
           column * units_ * PackedUnitBytes(plan_);
  }

  // The panels of columns [begin, end), into scratch memory.
  void Load(int64_t begin, int64_t end) const {
    uint32_t* const to = scratch_ + begin * units_;
    if (weight_.packed == nullptr) {
      return PackWeightPart(plan_, weight_, plan_.StripBegin(strip_) + begin, end - begin,
                            of_k_.begin, of_k_.size, to);
    }
    plan_.kernels->half_weight->widen(static_cast<const uint16_t*>(Packed(begin)),
                                      RoundUp(end - begin, plan_.kernels->column_tile) * units_,
                                      to);
  }

  void MultiplyAndFetch(int64_t begin, int64_t end, int64_t column, int64_t column_end) const {
    const NextMemory next = Next(column, column_end);
    MultiplyRows(begin, end, column, column_end, [&](int64_t from, int64_t to) {
      return Meanwhile{ShareOf(next, from, to, all_rows_)};
    });
  }

  // Rows [begin, end) of all groups, one behind the other, from whole panels on; `meanwhile` tells
  // what some rows do.
  template <typename Besides>
  void MultiplyRows(int64_t begin, int64_t end, int64_t column, int64_t column_end,
                    const Besides& meanwhile) const {
    int64_t first = 0;
    for (size_t g = 0; g < num_groups_ && first < end; first += groups_[g++].rows) {
      const int64_t from = first + PanelIn(groups_[g], begin - first);
      const int64_t to = first + PanelIn(groups_[g], end - first);
      if (from >= to) continue;
      Multiply(groups_[g], {from - first, to - from, column, column_end - column},
               meanwhile(from, to));
    }
  }

  // The first panel of a group from a row on.
  int64_t PanelIn(const RowGroup& group, int64_t row) const {
    return std::min(RoundUp(std::max<int64_t>(row, 0), plan_.row_tile), group.rows);
  }

  void Multiply(const RowGroup& group, const TilePart& part, const Meanwhile& meanwhile) const {
    const uint32_t* const a = static_cast<const uint32_t*>(group.panels) +
                              BlockOffset(plan_, group.rows, k_block_) + part.row * units_;
    float* const c = group.c.Of(plan_, of_k_.tile) + part.row * group.c.ld + part.column;
    const auto run = [&](const auto* panels, auto* kernel) {
      kernel(a, part.rows, panels, part.columns, units_, of_k_.begins_sum, c, group.c.ld,
             meanwhile);
    };
    if (loads_) {
      run(scratch_ + part.column * units_, plan_.kernels->multiply);
    } else if (in_halves_) {
      run(static_cast<const uint16_t*>(Packed(part.column)), plan_.kernels->half_weight->multiply);
    } else {
      run(static_cast<const uint32_t*>(Packed(part.column)), plan_.kernels->multiply);
    }
    CompleteTile(plan_, group.scale, strip_, of_k_, part, group.c);
  }

  const GemmPlan& plan_;
  const Weight& weight_;
  const int64_t strip_;
  const int64_t k_block_;
  const KBlock& of_k_;
  const int64_t units_;  // of a panel
  const int64_t columns_;
  const RowGroup* const groups_;
  const size_t num_groups_;
  uint32_t* const scratch_;
  int64_t all_rows_ = 0;
  bool in_halves_ = false;
  bool loads_ = false;  // the weight, into scratch memory
};

}  // namespace

void MultiplyBlock(const GemmPlan& plan, const Weight& weight, int64_t strip, int64_t k_block,
                   const RowGroup* groups, size_t num_groups, void* scratch) {
  BlockProduct(plan, weight, strip, k_block, groups, num_groups, scratch).Run();
}

bool AreFewRows(const GemmPlan& plan, int64_t rows) {
  return rows <= plan.row_tile;
}

void MultiplyFewRows(const GemmPlan& plan, const Weight& weight, int64_t strip,
                     const RowGroup& group, void* scratch) {
  const GemmKernels& kernels = *plan.kernels;
  const int64_t columns = plan.StripColumns(strip);
  const auto* const rows = static_cast<const uint32_t*>(group.panels);
  const SumTiles& c = group.c;
  // Tile registers load and store all their sums for each piece.
  const int64_t of_strip = std::max(kPassingUnitsOfStrip, 4 * kernels.unit_step);
  const int64_t of_panel = std::min(kPassingUnits / kernels.column_tile, kernels.block_units);
  const int64_t step = (plan.trans_weight ? of_panel : of_strip) * kernels.k_per_unit;
  // Of a piece, for all leaves: threads that share the strip may be at different ones.
  const int64_t piece_units = std::min(Units(plan, step), MostUnits(plan));
  // The sum of the blocks from `first` on, of some columns; returns the block behind them.
  const auto sum = [&](int64_t first, int64_t begin, int64_t width) {
    int64_t last = first;
    while (!plan.Block(last).ends_sum) ++last;
    const int64_t k_begin = plan.Block(first).begin;
    const int64_t k_end = plan.Block(last).begin + plan.Block(last).size;
    uint32_t* const piece = static_cast<uint32_t*>(scratch) + begin * piece_units;
    const uint32_t* a = rows + BlockOffset(plan, group.rows, first);
    float* const tile = c.Of(plan, plan.Block(first).tile) + begin;
    int64_t k = k_begin;
    do {  // runs once even if there is no k: that sets C
      const int64_t size = std::min(step, k_end - k);
      const int64_t units = Units(plan, size);
      PackWeightPart(plan, weight, plan.StripBegin(strip) + begin, width, k, size, piece);
      kernels.multiply(a, group.rows, piece, width, units, k == k_begin, tile, c.ld, {});
      a += units * plan.row_tile;
      k += step;
    } while (k < k_end);
    CompleteTile(plan, group.scale, strip, plan.Block(last), {0, group.rows, begin, width}, c);
    return last + 1;
  };
  // Of a weight [n, k] one panel at a time.
  const int64_t tiles = CeilDiv(columns, kernels.column_tile);
  const int64_t bytes = columns * plan.k * WeightItem(plan);
  const bool shares = bytes >= kLeastSharedWeight && NumThreads() > 1;
  const int64_t parts = shares ? std::min<int64_t>(tiles, NumThreads()) : 1;
  const auto run = [&](int64_t part) {
    const UseOfKernels use(plan);
    const int64_t begin = tiles * part / parts * kernels.column_tile;
    const int64_t end = std::min(tiles * (part + 1) / parts * kernels.column_tile, columns);
    const int64_t width = plan.trans_weight ? kernels.column_tile : end - begin;
    for (int64_t j = begin; j < end; j += width) {
      for (int64_t k_block = 0; k_block < plan.num_k_blocks();) {
        k_block = sum(k_block, j, std::min(width, end - j));
      }
    }
  };
  if (parts == 1) {
    run(0);
  } else {
    ParallelFor(static_cast<int>(parts), run);
  }
}

int64_t WeightBlockBytes(const GemmPlan& plan) {
  const int64_t columns = std::min(RoundUp(plan.n, plan.kernels->column_tile), kGemmStripColumns);
  return RoundUp(columns * MostUnits(plan) * kUnitBytes, kGemmAlignment);
}

int64_t PackedWeightBytes(const GemmPlan& plan) {
  return RoundUp(plan.n, plan.kernels->column_tile) * AllUnits(plan) * PackedUnitBytes(plan);
}

int64_t PackWeightScratchBytes(const GemmPlan& plan) {
  return plan.kernels->half_weight == nullptr ? 0 : NumThreads() * WeightBlockBytes(plan);
}

void PackWeight(const GemmPlan& plan, const void* weight, int64_t ldw, void* scratch,
                void* packed) {
  const Weight from = {weight, ldw};
  const HalfWeight* const halves = plan.kernels->half_weight;
  const int64_t parts = NumThreads();
  ParallelFor(static_cast<int>(parts), [&](int part) {
    auto* const own =
        reinterpret_cast<uint32_t*>(static_cast<char*>(scratch) + part * WeightBlockBytes(plan));
    for (int64_t strip = part; strip < plan.num_strips(); strip += parts) {
      for (int64_t k_block = 0; k_block < plan.num_k_blocks(); ++k_block) {
        char* const to = static_cast<char*>(packed) + PackedOffset(plan, strip, k_block);
        const KBlock& of_k = plan.Block(k_block);
        PackWeightPart(plan, from, plan.StripBegin(strip), plan.StripColumns(strip), of_k.begin,
                       of_k.size, halves == nullptr ? reinterpret_cast<uint32_t*>(to) : own);
        if (halves == nullptr) continue;
        halves->narrow(own, PaddedColumns(plan, strip) * Units(plan, of_k.size),
                       reinterpret_cast<uint16_t*>(to));
      }
    }
  });
}

}  // namespace collops::kernels
