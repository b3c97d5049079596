#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "collops/core/dtype.h"
#include "collops/kernels/reduce/leaf_tree.h"

namespace collops::kernels {

constexpr int64_t kGemmAlignment = 64;

// Columns of C in a strip, on every machine; the last strip may have fewer.
constexpr int64_t kGemmStripColumns = 384;

// Every row_tile divides this, so rows may come in pieces of a multiple of it.
constexpr int64_t kGemmRowUnit = 48;

// k_begin of PackRows() is a multiple of so many bytes of a row.
constexpr int64_t kGemmStepBytes = 64;

struct GemmKernels;  // gemm_kernels.h

// Some of k, which is multiplied at a time.
struct KBlock {
  int64_t begin;
  int64_t size;
  int64_t units_before;  // of a panel (gemm_kernels.h)
  bool begins_sum;       // the tile becomes the products, which else are added to it
  bool ends_sum;         // the tile is complete
  int64_t leaf = 0;
  int tile = 0;  // of SumTiles
  // Tiles that are added to the complete one, in this order, and then free.
  std::vector<int> added = {};
};

// How a product is cut: computed from dtype, shape and the kernels in use.
struct GemmPlan {
  DType dtype;
  int64_t k;
  int64_t n;
  bool trans_weight;
  int64_t row_tile;  // rows of a panel
  const GemmKernels* kernels;
  bool widens_weight = false;  // the weight is int8, and rows are of floating point
  // In the order of k. At least one, so that the first sets C even where k is 0.
  std::vector<KBlock> k_blocks = {};
  int num_roots = 1;  // tiles that are left: the first ones
  int num_spare = 0;  // others

  int64_t num_k_blocks() const { return static_cast<int64_t>(k_blocks.size()); }
  const KBlock& Block(int64_t k_block) const { return k_blocks[static_cast<size_t>(k_block)]; }
  int64_t num_strips() const { return (n + kGemmStripColumns - 1) / kGemmStripColumns; }
  int64_t StripBegin(int64_t strip) const { return strip * kGemmStripColumns; }
  int64_t StripColumns(int64_t strip) const {
    return std::min(kGemmStripColumns, n - StripBegin(strip));
  }
};

// Where a product is summed: tiles with the rows of C and the columns of a strip.
struct SumTiles {
  float* roots = nullptr;  // those of the plan; without leaves one
  int64_t ld = 0;          // floats between two rows
  int64_t step = 0;        // and between two tiles
  float* spare = nullptr;  // the plan's others

  float* Of(const GemmPlan& plan, int tile) const {
    return tile < plan.num_roots ? roots + tile * step : spare + (tile - plan.num_roots) * step;
  }
};

// The product C[rows, n] = A[rows, k] * W for float32, bfloat16 and float16, accumulated in
// float32, cut so that rows, columns and k may arrive and leave in pieces. W is weight[n, k]
// transposed (trans_weight) or weight[k, n].
//
// A product of int8 by int8 is accumulated in int32, modulo 2^32: the same bits with all kernels. C
// holds int32 until the last block of a strip, which leaves float32 there (TileScale). An int8
// weight for rows of floating point becomes numbers of their type first (WeightScale).
//
// An element is summed in the order of k, from zero. Its bits depend only on its row of A, its
// column of W, the dtype and the kernels in use (isa.h): not on the grouping of rows, the pieces,
// the threads, or whether the weight was packed before. For bfloat16, AVX512_BF16 adds two products
// at a time, AMX adds the sums of the 16 even and of the 16 odd ones of every 32 in k, and bfmmla
// (FEAT_BF16 of arm64) adds two products at a time and rounds each sum to odd: one that is inexact
// gets 1 as its last bit, so it may be off by one last place instead of half of one. All three
// treat subnormals as zero. The Arm Architecture Reference Manual says so of BFMMLA while FPCR.EBF
// is 0, and nothing here sets it; tests/cpp/kernels/gemm_models.h has a model.
//
// Pointers to A and to the weight may have any alignment; panels and scratch begin at multiples of
// kGemmAlignment bytes. Large pieces are shared among NumThreads() threads.

// The plan for a dtype of rows that CanMultiply(), and of the weight: the same, or int8.
GemmPlan PlanGemm(DType dtype, int64_t k, int64_t n, bool trans_weight, bool widens_weight = false);

// The plan of a product in leaves, each summed from zero and scaled, and added to others by the
// tree (leaf_tree.h), whose roots are left. `borders` are those of the leaves in k, from 0 to k; a
// leaf may be empty. Kernels are chosen that add up an element of a leaf exactly, or in the order
// of k, each product and sum rounded once together (fma): its bits depend on its row, its column
// and the leaf alone.
GemmPlan PlanLeaves(DType dtype, int64_t n, bool trans_weight, bool widens_weight,
                    const std::vector<int64_t>& borders, const SumTree& tree);

// Either plan for kernels that are known.
GemmPlan PlanWith(const GemmKernels* kernels, DType dtype, int64_t n, bool trans_weight,
                  bool widens_weight, const std::vector<int64_t>& borders, const SumTree& tree);

// float32, bfloat16, float16 and int8.
bool CanMultiply(DType dtype);

// What a sum of products of int8 stands for: (sum + bias[column], modulo 2^32) as float32, times
// scale[column], times token_scale[row], each step rounded. `bias` and `token_scale` may be null.
// Of other products there is token_scale alone. Only the first leaf has the bias.
struct TileScale {
  const float* scale = nullptr;        // [n]
  const int32_t* bias = nullptr;       // [n]
  const float* token_scale = nullptr;  // of the group's rows
};

// What numbers of an int8 weight stand for: (number + offset) * scale in float32, rounded once to
// the dtype of the rows. Element (i, j) of the weight as [k, n] has those of [i / group_k, j].
struct WeightScale {
  const float* scale = nullptr;
  const float* offset = nullptr;  // null: none
  int64_t group_k = 0;
};

// Bytes of the panels of a group of `rows` rows, all of k.
int64_t PackedRowsBytes(const GemmPlan& plan, int64_t rows);

// Puts rows [row, row + rows) and columns [k_begin, k_end) of a group of `group_rows` rows into the
// group's panels; `x` points at the element (row, k_begin), and `ldx` is in elements. `row` is a
// multiple of row_tile, and so is `rows` except at the group's end; `k_begin` is a multiple of
// kGemmStepBytes, and so is `k_end` except at k. Pieces may come in any order, from several
// threads.
void PackRows(const GemmPlan& plan, const void* x, int64_t ldx, int64_t row, int64_t rows,
              int64_t k_begin, int64_t k_end, int64_t group_rows, void* panels);

// A weight, as weight[n, k] (trans_weight) or weight[k, n], or packed before by PackWeight().
struct Weight {
  const void* data = nullptr;
  int64_t ld = 0;  // elements between two rows
  WeightScale scale = {};
  const void* packed = nullptr;  // else `data` is read
};

// A group of packed rows, and where its product goes.
struct RowGroup {
  const void* panels = nullptr;
  int64_t rows = 0;
  SumTiles c = {};
  TileScale scale = {};
};

// Bytes of scratch memory for one block of the weight.
int64_t WeightBlockBytes(const GemmPlan& plan);

// A constant weight, packed whole and once, unless it is widened. The same bytes serve every
// product of this weight. PackWeight() takes PackWeightScratchBytes() of scratch memory.
int64_t PackedWeightBytes(const GemmPlan& plan);
int64_t PackWeightScratchBytes(const GemmPlan& plan);
void PackWeight(const GemmPlan& plan, const void* weight, int64_t ldw, void* scratch, void* packed);

// Of every group: the k block's tile[rows, columns of the strip] = (it begins a sum ? 0 : the tile)
// + the group's panels of this k block times the block (strip, k_block) of the weight, which is
// loaded once for all groups: each thread packs the columns that it multiplies, into `scratch` of
// WeightBlockBytes() bytes. Blocks of one strip come in the order of k. One of int8 that ends a sum
// takes the group's scale, or leaves int32.
void MultiplyBlock(const GemmPlan& plan, const Weight& weight, int64_t strip, int64_t k_block,
                   const RowGroup* groups, size_t num_groups, void* scratch);

// Whether MultiplyFewRows() takes that many rows, and is faster.
bool AreFewRows(const GemmPlan& plan, int64_t rows);

// MultiplyBlock() for all of k, of a weight that is not packed and at most the rows of one panel:
// each part of the weight is packed and used in the first-level cache.
void MultiplyFewRows(const GemmPlan& plan, const Weight& weight, int64_t strip,
                     const RowGroup& group, void* scratch);

}  // namespace collops::kernels
