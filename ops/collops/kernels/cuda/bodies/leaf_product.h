#pragma once

#include <cstdint>
#include <type_traits>

#include "collops/core/dtype.h"
#include "collops/kernels/cuda/bodies/block.h"
#include "collops/kernels/cuda/bodies/elementwise.h"
#include "collops/kernels/cuda/bodies/memory.h"
#include "collops/kernels/cuda/bodies/number.h"

#if !defined(__CUDA_ARCH__)
#include <cmath>
#endif

// Products in leaves: kernels/reduce/leaf_tree.h has the tree. A leaf's products of an element are
// one chain of fused multiply-adds in float32, from zero and in ascending k; of int8 they are added
// in int32. So there are no matrix units, and no other thread takes part in a chain.
//
// A block computes tiles of C, 16 of k at a time: a stage of A and B is multiplied while the next
// one is loaded. A thread of a tile of 128 rows has 8 x 8 elements, for which it loads 4 vectors of
// shared memory for 64 fused multiply-adds; with two blocks of 256 threads on a multiprocessor
// that should reach 70 to 80 % of the float32 peak, which no GPU has measured yet. Of int8 a
// product is one integer multiply-add, at half of that rate on sm_90. Few rows are read from memory
// all the same: 16 rows a tile, whose bound is the weight's bytes.
//
// The sums of leaves that wait for others are in memory, a place for every block, which the L2 can
// hold. A thread writes and reads each once: 8 bytes of an element for as many multiply-adds as a
// leaf has columns.
namespace collops::cuda {

// Of a launch: C has a sum for each, of leaves that are a whole subtree.
constexpr int kMostParts = 64;

// c[part] = the sum, by the tree, of the part's leaves: each a * b over its columns of k. Of int8 a
// leaf becomes (leaf + bias) * scale, as ScaleArgs has it, with a `bias` of int32 that is passed as
// float32, in the first leaf of the launch only; it may be missing. Where there is a `token`, of
// float32, a leaf is multiplied by it.
struct LeafProductArgs {
  static constexpr const char* kName = "collops_leaf_product";
  static constexpr uint32_t kThreads = 256;
  MatrixArgs a;  // [rows, k of these leaves]; column_step is 1
  MatrixArgs b;  // [k of these leaves, columns], of a's type; one of the steps is 1
  float* c;      // of the first part; consecutive rows
  int64_t c_row_step;
  int64_t part_step;  // elements from a part's C to the next one's
  MatrixArgs bias;    // a row
  MatrixArgs scale;   // a row
  MatrixArgs token;   // a column
  float* waiting;     // for every block most_waiting tiles; a multiple of 16
  int64_t rows;
  int64_t columns;
  int64_t k;       // of all leaves
  int32_t leaves;  // all: the first k % leaves have a column more
  int32_t most_waiting;
  int32_t num_parts;
  int32_t begins[kMostParts + 1];  // part i has the leaves from begins[i] up to begins[i + 1]
};

constexpr uint32_t kTileColumns = 128;
constexpr uint32_t kStageK = 16;
// A tile's rows and columns in 16 x 16 threads.
constexpr uint32_t kThreadsAcross = 16;
constexpr uint32_t kThreadColumns = kTileColumns / kThreadsAcross;
constexpr uint32_t kManyThreadRows = 8;
constexpr uint32_t kFewThreadRows = 1;
constexpr int64_t kFewRows = kThreadsAcross * kFewThreadRows;

// Rows of a tile of a product of so many rows.
COLLOPS_DEVICE inline int64_t TileRows(int64_t rows) {
  return kThreadsAcross * (rows <= kFewRows ? kFewThreadRows : kManyThreadRows);
}
COLLOPS_DEVICE inline int64_t NumTiles(int64_t rows, int64_t columns) {
  const int64_t tile_rows = TileRows(rows);
  return (rows + tile_rows - 1) / tile_rows * ((columns + kTileColumns - 1) / kTileColumns);
}
// Of the sums that wait.
COLLOPS_DEVICE inline int64_t WaitingBytes(int64_t rows, int64_t blocks, int64_t most_waiting) {
  return blocks * most_waiting * TileRows(rows) * kTileColumns * int64_t{sizeof(float)};
}

// How many sums are added to that of a leaf once it is there, in a part that begins at leaf
// `begin`: one for every subtree of the part that ends with it. See SumTree.
COLLOPS_DEVICE inline int AddsBehindLeaf(int32_t leaves, int32_t begin, int32_t leaf) {
  int adds = 0;
  int32_t first = leaf;
  for (int32_t half = 1; half <= leaf; half *= 2) {
    if ((leaf & half) != 0) {
      first -= half;
      if (first < begin) break;
      ++adds;
    } else if (leaf + 1 < leaves) {
      break;
    }
  }
  return adds;
}

// One link of a chain.
COLLOPS_DEVICE inline float AddProduct(float a, float b, float sum) {
#if defined(__CUDA_ARCH__)
  return __fmaf_rn(a, b, sum);
#else
  return std::fma(a, b, sum);
#endif
}
COLLOPS_DEVICE inline uint32_t AddProduct(uint32_t a, uint32_t b, uint32_t sum) {
  return a * b + sum;
}

// int8 with sums modulo 2^32.
struct WholeInt8 {
  using Bits = uint8_t;
  using Value = uint32_t;
  static COLLOPS_DEVICE Value Widen(Bits bits) {
    return static_cast<uint32_t>(int32_t{BitCast<int8_t>(bits)});
  }
};

// One vector of shared memory, or of the sums that wait.
template <class T>
struct alignas(16) Four {
  T values[4];
};

// Numbers side by side in memory, as they were loaded.
template <class Bits>
class Loaded {
 public:
  static constexpr uint32_t kCount = 8;
  static constexpr uint32_t kBytes = sizeof(Bits);

  // The first `count`; others are zero.
  COLLOPS_DEVICE Loaded(const char* address, uint32_t count) {
    if (count >= kCount && reinterpret_cast<uintptr_t>(address) % sizeof(Vector) == 0) {
      COLLOPS_UNROLLED
      for (uint32_t i = 0; i < kVectors; ++i)
        vectors_[i] = Load<Vector>(address + i * sizeof(Vector));
      return;
    }
    COLLOPS_UNROLLED
    for (uint32_t i = 0; i < kCount; ++i) {
      if (i < count) Put(i, Load<Bits>(address + i * kBytes));
    }
  }
  COLLOPS_DEVICE Loaded() {}

  COLLOPS_DEVICE Bits At(uint32_t i) const {
    if constexpr (kBytes == 1) {
      return static_cast<Bits>(vectors_[0] >> 8 * i);
    } else {
      return Lane<Bits>(vectors_[i / kLanes], i % kLanes);
    }
  }

 private:
  using Vector = std::conditional_t<kBytes == 1, uint64_t, Wide>;
  static constexpr uint32_t kLanes = sizeof(Vector) / kBytes;
  static constexpr uint32_t kVectors = kCount / kLanes;

  COLLOPS_DEVICE void Put(uint32_t i, Bits bits) {
    if constexpr (kBytes == 1) {
      vectors_[0] |= uint64_t{bits} << 8 * i;
    } else {
      PutLane<Bits>(&vectors_[i / kLanes], i % kLanes, bits);
    }
  }

  Vector vectors_[kVectors] = {};
};

// The tiles of one type of operands and one number of rows.
template <class N, uint32_t kThreadRows, class Block>
class LeafTiles {
 public:
  COLLOPS_DEVICE LeafTiles(const LeafProductArgs& args, Block& block)
      : args_(args), block_(block), stages_(static_cast<Stage*>(block.Stages())), sums_(block) {}

  COLLOPS_DEVICE void Run() {
    const int64_t row_tiles = (args_.rows + kTileRows - 1) / kTileRows;
    const int64_t tiles = NumTiles(args_.rows, args_.columns);
    COLLOPS_ROLLED
    for (int64_t i = block_.index(); i < tiles * args_.num_parts; i += block_.count()) {
      part_ = static_cast<int32_t>(i / tiles);
      const int64_t tile = i - part_ * tiles;
      row_ = tile % row_tiles * kTileRows;
      column_ = tile / row_tiles * kTileColumns;
      RunPart();
    }
  }

 private:
  static constexpr uint32_t kTileRows = kThreadsAcross * kThreadRows;
  static constexpr uint32_t kLoads = Loaded<typename N::Bits>::kCount;
  using Value = typename N::Value;
  static constexpr bool kIsWhole = std::is_same_v<N, WholeInt8>;

  using Quad = Four<Value>;
  static constexpr uint32_t kQuad = 4;
  static constexpr uint32_t kQuads = kThreadColumns / kQuad;  // of a row of a thread

  // Of A and B, k by k.
  struct Stage {
    Quad a[kStageK][kTileRows / kQuad];
    Quad b[kStageK][kTileColumns / kQuad];
  };
  static_assert(2 * sizeof(Stage) <= kStagesBytes, "two stages");

  // Of one thread.
  struct Sums {
    Quad values[kThreadRows][kQuads];
  };
  // What they stand for.
  using Totals = Four<float>[kThreadRows][kQuads];

  // Some k of one leaf.
  struct Step {
    int32_t leaf;
    int64_t k;    // from the first of the launch
    int64_t end;  // of the leaf

    COLLOPS_DEVICE uint32_t count() const {
      return ends_leaf() ? static_cast<uint32_t>(end - k) : kStageK;
    }
    COLLOPS_DEVICE bool ends_leaf() const { return end - k <= kStageK; }
  };

  // Where a leaf begins, from the first of the launch.
  COLLOPS_DEVICE int64_t Border(int32_t leaf) const { return CutOf(leaf) - CutOf(args_.begins[0]); }
  COLLOPS_DEVICE int64_t CutOf(int32_t leaf) const {
    const int64_t more = args_.k % args_.leaves;
    return args_.k / args_.leaves * leaf + (leaf < more ? leaf : more);
  }

  COLLOPS_DEVICE void RunPart() {
    const int32_t end = args_.begins[part_ + 1];
    const int32_t first = args_.begins[part_];
    Step step = {first, Border(first), Border(first + 1)};
    int slot = 0;
    int num_waiting = 0;
    bool begins_leaf = true;
    block_.Each([&](uint32_t thread) {
      const Fetched fetched = Fetch(step, thread);
      Put(fetched, &stages_[0], thread);
    });
    block_.Sync();
    COLLOPS_ROLLED
    while (step.leaf < end) {
      Step next = step;
      next.k += kStageK;
      if (step.ends_leaf()) {
        ++next.leaf;
        next.k = step.end;
        next.end = Border(next.leaf + 1);
      }
      const bool has_next = next.leaf < end;
      const int adds = step.ends_leaf() ? AddsBehindLeaf(args_.leaves, first, step.leaf) : 0;
      block_.Each([&](uint32_t thread) {
        Fetched fetched;
        if (has_next) fetched = Fetch(next, thread);
        Sums& sums = sums_[thread];
        if (begins_leaf) sums = {};
        Multiply(stages_[slot], step.count(), thread, &sums);
        if (step.ends_leaf()) EndLeaf(step.leaf, adds, num_waiting, !has_next, sums, thread);
        if (has_next) Put(fetched, &stages_[1 - slot], thread);
      });
      block_.Sync();
      begins_leaf = step.ends_leaf();
      if (begins_leaf) num_waiting += 1 - adds;
      slot = 1 - slot;
      step = next;
    }
  }

  // What a thread loads of a stage.
  struct Fetched {
    Loaded<typename N::Bits> a;
    Loaded<typename N::Bits> b;
  };

  // Where in a stage: `line` of the rows or columns that are side by side in memory, or of k.
  struct Place {
    uint32_t line;
    uint32_t k;
  };
  // Lines whose k are side by side: neighbours in a warp have neighbouring lines, so that they
  // store side by side.
  static COLLOPS_DEVICE Place AlongK(uint32_t thread, uint32_t lines) {
    return {thread % lines, thread / lines * kLoads};
  }
  static COLLOPS_DEVICE Place AlongColumns(uint32_t thread) {
    constexpr uint32_t kPerK = kTileColumns / kLoads;
    return {thread % kPerK * kLoads, thread / kPerK};
  }
  COLLOPS_DEVICE bool b_along_k() const { return args_.b.column_step != 1; }

  static COLLOPS_DEVICE uint32_t AtMostLoads(int64_t left) {
    return left < kLoads ? static_cast<uint32_t>(left) : kLoads;
  }
  static COLLOPS_DEVICE const char* At(const MatrixArgs& matrix, int64_t i, int64_t j) {
    constexpr int64_t kBytes = sizeof(typename N::Bits);
    return static_cast<const char*>(matrix.data) +
           (i * matrix.row_step + j * matrix.column_step) * kBytes;
  }

  COLLOPS_DEVICE Fetched Fetch(const Step& step, uint32_t thread) const {
    using Numbers = Loaded<typename N::Bits>;
    Fetched fetched;
    const Place a = AlongK(thread, kTileRows);
    if (a.k < step.count() && row_ + a.line < args_.rows) {
      fetched.a =
          Numbers(At(args_.a, row_ + a.line, step.k + a.k), AtMostLoads(step.count() - a.k));
    }
    const Place b = b_along_k() ? AlongK(thread, kTileColumns) : AlongColumns(thread);
    const int64_t column = column_ + b.line;
    if (b.k < step.count() && column < args_.columns) {
      const int64_t left = b_along_k() ? step.count() - b.k : args_.columns - column;
      fetched.b = Numbers(At(args_.b, step.k + b.k, column), AtMostLoads(left));
    }
    return fetched;
  }

  template <uint32_t kLines>
  static COLLOPS_DEVICE void PutAlongK(const Loaded<typename N::Bits>& numbers, Place place,
                                       Quad (*to)[kLines]) {
    COLLOPS_UNROLLED
    for (uint32_t i = 0; i < kLoads; ++i) {
      to[place.k + i][place.line / kQuad].values[place.line % kQuad] = N::Widen(numbers.At(i));
    }
  }

  COLLOPS_DEVICE void Put(const Fetched& fetched, Stage* stage, uint32_t thread) const {
    const Place a = AlongK(thread, kTileRows);
    if (a.k < kStageK) PutAlongK(fetched.a, a, stage->a);
    if (b_along_k()) {
      PutAlongK(fetched.b, AlongK(thread, kTileColumns), stage->b);
      return;
    }
    const Place b = AlongColumns(thread);
    COLLOPS_UNROLLED
    for (uint32_t i = 0; i < kLoads; i += kQuad) {
      Quad quad;
      COLLOPS_UNROLLED
      for (uint32_t j = 0; j < kQuad; ++j) quad.values[j] = N::Widen(fetched.b.At(i + j));
      stage->b[b.k][(b.line + i) / kQuad] = quad;
    }
  }

  // Which of the 16 x 16 a thread is: a warp has 4 x 8 of them.
  static COLLOPS_DEVICE uint32_t Down(uint32_t thread) {
    return thread / 64 * 4 + thread % kWarpThreads / 8;
  }
  static COLLOPS_DEVICE uint32_t Across(uint32_t thread) {
    return thread / kWarpThreads % 2 * 8 + thread % 8;
  }
  // Its quads are 64 apart, so that the quads of neighbours are side by side.
  static COLLOPS_DEVICE uint32_t QuadOf(uint32_t place, uint32_t quad) {
    return quad * kThreadsAcross + place;
  }
  static COLLOPS_DEVICE uint32_t RowOf(uint32_t thread, uint32_t i) {
    if constexpr (kThreadRows == 1) return Down(thread);
    return QuadOf(Down(thread), i / kQuad) * kQuad + i % kQuad;
  }

  static COLLOPS_DEVICE void MultiplyOne(const Stage& stage, uint32_t k, uint32_t thread,
                                         Sums* sums) {
    Value a[kThreadRows];
    Quad b[kQuads];
    if constexpr (kThreadRows == 1) {
      const uint32_t row = Down(thread);
      a[0] = stage.a[k][row / kQuad].values[row % kQuad];
    } else {
      COLLOPS_UNROLLED
      for (uint32_t i = 0; i < kThreadRows; i += kQuad) {
        const Quad quad = stage.a[k][QuadOf(Down(thread), i / kQuad)];
        COLLOPS_UNROLLED
        for (uint32_t j = 0; j < kQuad; ++j) a[i + j] = quad.values[j];
      }
    }
    COLLOPS_UNROLLED
    for (uint32_t quad = 0; quad < kQuads; ++quad)
      b[quad] = stage.b[k][QuadOf(Across(thread), quad)];
    COLLOPS_UNROLLED
    for (uint32_t i = 0; i < kThreadRows; ++i) {
      COLLOPS_UNROLLED
      for (uint32_t quad = 0; quad < kQuads; ++quad) {
        COLLOPS_UNROLLED
        for (uint32_t j = 0; j < kQuad; ++j) {
          Value& sum = sums->values[i][quad].values[j];
          sum = AddProduct(a[i], b[quad].values[j], sum);
        }
      }
    }
  }

  // No zeros are added behind the leaf's end: they would make a sum of -0 a +0.
  static COLLOPS_DEVICE void Multiply(const Stage& stage, uint32_t count, uint32_t thread,
                                      Sums* sums) {
    if (count == kStageK) {
      COLLOPS_UNROLLED
      for (uint32_t k = 0; k < kStageK; ++k) MultiplyOne(stage, k, thread, sums);
      return;
    }
    COLLOPS_ROLLED
    for (uint32_t k = 0; k < count; ++k) MultiplyOne(stage, k, thread, sums);
  }

  // The sum of a leaf is there: what it stands for, and `adds` of the sums that wait.
  COLLOPS_DEVICE void EndLeaf(int32_t leaf, int adds, int num_waiting, bool ends_part,
                              const Sums& sums, uint32_t thread) const {
    Totals totals;
    Dequantise(leaf, sums, thread, &totals);
    COLLOPS_ROLLED
    for (int i = 1; i <= adds; ++i) {
      ForEachQuad([&](uint32_t row, uint32_t quad) {
        const auto waiting = Load<Four<float>>(WaitingAt(num_waiting - i, row, quad, thread));
        float (&sum)[kQuad] = totals[row][quad].values;
        COLLOPS_UNROLLED
        for (uint32_t j = 0; j < kQuad; ++j) sum[j] = waiting.values[j] + sum[j];
      });
    }
    if (ends_part) return StorePart(totals, thread);
    ForEachQuad([&](uint32_t row, uint32_t quad) {
      Store(WaitingAt(num_waiting - adds, row, quad, thread), totals[row][quad]);
    });
  }

  template <class F>
  static COLLOPS_DEVICE void ForEachQuad(F f) {
    COLLOPS_UNROLLED
    for (uint32_t row = 0; row < kThreadRows; ++row) {
      COLLOPS_UNROLLED
      for (uint32_t quad = 0; quad < kQuads; ++quad) f(row, quad);
    }
  }

  COLLOPS_DEVICE float* WaitingAt(int sum, uint32_t row, uint32_t quad, uint32_t thread) const {
    const int64_t tile = int64_t{block_.index()} * args_.most_waiting + sum;
    const int64_t at = (tile * kThreadRows + row) * kQuads + quad;
    return args_.waiting + (at * LeafProductArgs::kThreads + thread) * kQuad;
  }

  // What the sums of a leaf stand for.
  COLLOPS_DEVICE void Dequantise(int32_t leaf, const Sums& sums, uint32_t thread,
                                 Totals* totals) const {
    COLLOPS_UNROLLED
    for (uint32_t quad = 0; quad < kQuads; ++quad) {
      float biases[kQuad] = {};
      float scales[kQuad] = {1, 1, 1, 1};
      if constexpr (kIsWhole) {
        const int64_t column = ColumnOf(thread, quad);
        const int count = ColumnsFrom(column);
        if (args_.bias.data != nullptr && leaf == args_.begins[0]) {
          LoadNumbers<Real<float>>(args_.bias, 0, column, count, biases);
        }
        if (args_.scale.data != nullptr) LoadAny(args_.scale, 0, column, count, scales);
      }
      COLLOPS_UNROLLED
      for (uint32_t i = 0; i < kThreadRows; ++i) {
        COLLOPS_UNROLLED
        for (uint32_t j = 0; j < kQuad; ++j) {
          const Value sum = sums.values[i][quad].values[j];
          if constexpr (kIsWhole) {
            const uint32_t whole = sum + BitCast<uint32_t>(biases[j]);
            (*totals)[i][quad].values[j] = static_cast<float>(BitCast<int32_t>(whole)) * scales[j];
          } else {
            (*totals)[i][quad].values[j] = sum;
          }
        }
      }
    }
    if (args_.token.data == nullptr) return;
    COLLOPS_UNROLLED
    for (uint32_t i = 0; i < kThreadRows; ++i) {
      const int64_t row = row_ + RowOf(thread, i);
      if (row >= args_.rows) continue;
      const float token =
          Load<float>(static_cast<const float*>(args_.token.data) + row * args_.token.row_step);
      COLLOPS_UNROLLED
      for (uint32_t quad = 0; quad < kQuads; ++quad) {
        COLLOPS_UNROLLED
        for (uint32_t j = 0; j < kQuad; ++j)
          (*totals)[i][quad].values[j] = (*totals)[i][quad].values[j] * token;
      }
    }
  }

  COLLOPS_DEVICE int64_t ColumnOf(uint32_t thread, uint32_t quad) const {
    return column_ + QuadOf(Across(thread), quad) * kQuad;
  }
  COLLOPS_DEVICE int ColumnsFrom(int64_t column) const {
    const int64_t left = args_.columns - column;
    return static_cast<int>(left < 0 ? 0 : left < kQuad ? left : kQuad);
  }

  COLLOPS_DEVICE void StorePart(const Totals& totals, uint32_t thread) const {
    float* const c = args_.c + part_ * args_.part_step;
    ForEachQuad([&](uint32_t i, uint32_t quad) {
      const int64_t row = row_ + RowOf(thread, i);
      if (row >= args_.rows) return;
      const int64_t column = ColumnOf(thread, quad);
      StoreQuad(totals[i][quad], static_cast<uint32_t>(ColumnsFrom(column)),
                c + row * args_.c_row_step + column);
    });
  }
  static COLLOPS_DEVICE void StoreQuad(const Four<float>& quad, uint32_t count, float* to) {
    if (count == kQuad && reinterpret_cast<uintptr_t>(to) % sizeof(quad) == 0) {
      return Store(to, quad);
    }
    COLLOPS_UNROLLED
    for (uint32_t j = 0; j < kQuad; ++j) {
      if (j < count) Store(to + j, quad.values[j]);
    }
  }

  const LeafProductArgs& args_;
  Block& block_;
  Stage* const stages_;
  typename Block::template PerThread<Sums> sums_;
  int32_t part_ = 0;
  int64_t row_ = 0;  // of the tile, the first
  int64_t column_ = 0;
};

template <class N, class Block>
COLLOPS_DEVICE void MultiplyLeavesOf(const LeafProductArgs& args, Block& block) {
  if (args.rows <= kFewRows) {
    LeafTiles<N, kFewThreadRows, Block>(args, block).Run();
  } else {
    LeafTiles<N, kManyThreadRows, Block>(args, block).Run();
  }
}

// A block has LeafProductArgs::kThreads threads.
template <class Block>
COLLOPS_DEVICE void LeafProduct(const LeafProductArgs& args, Block& block) {
  if (args.a.dtype == DType::kFloat32) {
    MultiplyLeavesOf<Real<float>>(args, block);
  } else if (args.a.dtype == DType::kFloat16) {
    MultiplyLeavesOf<Float16>(args, block);
  } else if (args.a.dtype == DType::kBFloat16) {
    MultiplyLeavesOf<BFloat16>(args, block);
  } else if (args.a.dtype == DType::kInt8) {
    MultiplyLeavesOf<WholeInt8>(args, block);
  }
}

}  // namespace collops::cuda
