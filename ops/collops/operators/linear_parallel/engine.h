#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "collops/comm/communicator.h"
#include "collops/core/status.h"
#include "collops/kernels/gemm/gemm.h"
#include "collops/kernels/reduce/leaf_tree.h"
#include "collops/kernels/stream_compute.h"
#include "collops/operators/framework/collective_operation.h"
#include "collops/operators/linear_parallel/layout.h"

namespace collops {

struct Engine;

// Where the CPU's scratch memory lies, in bytes from the start of the workspace. Its engines pack
// the gathered rows once, and one block of the weight at a time.
struct LinearMemory {
  std::vector<int64_t> panels;  // of each member that is gathered from
  int64_t raw_rows = 0;         // few rows, until all of them are there
  int64_t weight_block = 0;
  int64_t quant = 0;        // what products of int8 are scaled by
  int64_t bytes = 0;        // of the workspace
  int64_t spare_tiles = 0;  // in which leaves are summed
  int64_t tile = 0;  // kWindows: float32, total_rows x the columns of a strip; not there where
                     // it sums partial products, whose tiles are shared memory
  int64_t tile_slots = 0;  // kWindows: how many strips' tiles are kept
  int64_t tile_bytes = 0;  // kWindows: shared memory for all of them
};

// Some rows of every member, gathered by one AllGatherV: on a device to where they belong among all
// rows, on the CPU one member's behind the other's. In elements. Where there is nothing to gather,
// one chunk without elements is left, with which a backend compares the calls.
struct GatherChunk {
  int64_t row = 0;  // of each member
  std::vector<int64_t> counts;
  std::vector<int64_t> displs;
};

// Rows that one product takes, once they are there.
struct RowPiece {
  static constexpr int kInX = -1;  // this rank's own rows, which need no other rank

  int chunk = kInX;
  int64_t begin = 0;  // among all rows
  int64_t rows = 0;
};

// A strip of columns: of its products, and of the sums that are scattered.
struct ColumnStrip {
  int64_t begin = 0;
  int64_t columns = 0;
  std::vector<int64_t> counts;
  std::vector<int64_t> displs;
};

struct LinearStep {
  enum Kind {
    kGather,         // of the piece's chunk
    kConvertWeight,  // to float32
    kMultiply,       // the piece's rows by a strip of the weight
    kSum,            // a strip's products, over the ranks of the scatter group
    kStore,          // a strip, summed or as it was multiplied, into the output
  };
  Kind kind = kGather;
  int64_t strip = 0;
  RowPiece piece = {};
};

// What kLocal, kPipeline and kStreams do for one plan: the steps in the order in which they begin.
// The CPU does one after the other; a device has collectives on one stream and the rest on another,
// where a product waits for its chunk, a sum for its strip's products and a store for its sum. The
// cuts are equal on all ranks of a group, but for the pieces, which are one rank's. A tile holds
// the float32 products of a strip, `slots` this rank's part of their sum, or of leaves what it adds
// up itself; there are two of each unless all is done in turn, so that a strip is multiplied while
// the one before is summed. No strip is wider than the first.
struct LinearSchedule {
  static constexpr int kSlots = 2;

  // One collective or product after the other, in pieces as long as memory allows.
  bool in_turn = false;
  int num_slots() const { return in_turn ? 1 : kSlots; }

  std::vector<GatherChunk> gathers;
  std::vector<RowPiece> pieces;  // of the first strip
  std::vector<ColumnStrip> strips;
  std::vector<LinearStep> steps;
  bool sums = false;         // over the ranks of the scatter group
  bool all_reduces = false;  // every rank gets all rows of the sums

  // Places in the workspace.
  int64_t gathered = 0;
  int64_t tiles[kSlots] = {};
  int64_t slots[kSlots] = {};

  // The rest is a device's, also with places.
  int64_t token_scales = 0;  // of all gathered rows
  int64_t wide_weight = 0;   // what an int8 weight for rows of another type stands for
  bool overlaps = false;     // collectives and products run at the same time, on two streams
  bool has_tiles = false;    // else products go right into the output
  bool converts = false;     // operands become float32, because products of their type do not

  int64_t float_rows = 0;    // the gathered rows in float32
  int64_t float_weight = 0;  // the weight in float32
  int64_t sum_scratch = 0;   // of the reductions, which run one after the other
  int64_t scratch = 0;       // of the products
  int64_t scratch_bytes = 0;

  // Between these two all strips are as wide as the first of them.
  bool IsLikeAnother(const LinearStep& step) const {
    return step.strip > 1 && step.strip + 1 < static_cast<int64_t>(strips.size());
  }
};

// One planned call.
struct LinearPlan : PlanDetails {
  const char* called = "LinearParallel";  // in messages
  LinearLayout layout;
  int rank_size = 0;
  DType dtype = DType::kUndefined;         // of x
  DType output_dtype = DType::kUndefined;  // and of the residual
  float divisor = 1.0F;  // of the sums: the ranks that add up where an average is wanted
  kernels::StreamCompute* stream_compute = nullptr;  // null on the CPU
  kernels::GemmPlan gemm = {};                       // on the CPU
  const Communicator* communicator = nullptr;        // of all ranks; set where stream_compute is
  std::shared_ptr<const LinearSchedule> schedule;    // not of kWindows
  std::shared_ptr<const LinearSchedule> in_turn;     // kStreams: the same if nothing overlaps there
  bool has_residual = false;
  bool returns_gathered = false;
  const Engine* engine = nullptr;
  LinearMemory memory;
  // Of leaves: how many tiles each member of `scatter` has to add, and how they are added.
  std::vector<int64_t> roots;
  kernels::SumTree tree;
};

// Whether x and the weight are int8.
inline bool MultipliesInt8(const LinearPlan& plan) {
  return plan.layout.quant.kind == LinearQuant::kBoth;
}

// Whether the weight alone is, and becomes numbers of x's type first.
inline bool WidensWeight(const LinearPlan& plan) {
  return plan.layout.quant.kind == LinearQuant::kWeight;
}

// Whether what the ranks computed is summed over a group.
inline bool SumsPartials(const LinearPlan& plan) {
  return plan.layout.scatter.ranks.size() > 1;
}

// Whether every rank that sums gets all rows.
inline bool AllReduces(const LinearPlan& plan) {
  const LinearLayout& layout = plan.layout;
  return SumsPartials(plan) && std::all_of(layout.scatter.rows.begin(), layout.scatter.rows.end(),
                                           [&](int64_t rows) { return rows == layout.total_rows; });
}

inline int64_t RowBytes(const LinearPlan& plan) {
  return plan.layout.k * SizeOf(plan.dtype);
}

// Tiles of a member of `scatter` that are summed.
inline int64_t RootsOf(const LinearPlan& plan, size_t member) {
  return plan.roots.empty() ? 1 : plan.roots[member];
}
inline int64_t MostRoots(const LinearPlan& plan) {
  return plan.roots.empty() ? 1 : *std::max_element(plan.roots.begin(), plan.roots.end());
}

inline bool Gathers(const LinearPlan& plan) {
  return plan.layout.gather.ranks.size() > 1;
}

// Of this rank's output.
inline int64_t OwnRows(const LinearPlan& plan) {
  return plan.layout.scatter.rows[static_cast<size_t>(plan.layout.scatter.index)];
}

// Places one piece of the workspace after the other.
class Places {
 public:
  explicit Places(int64_t alignment) : alignment_(alignment) {}
  int64_t Take(int64_t bytes) {
    const int64_t begin = end_;
    end_ += (bytes + alignment_ - 1) / alignment_ * alignment_;
    return begin;
  }
  // The workspace may begin anywhere.
  int64_t bytes() const { return end_ + alignment_; }

 private:
  const int64_t alignment_;
  int64_t end_ = 0;
};

// The tensors of one call.
struct LinearTensors {
  const void* x = nullptr;
  const void* weight = nullptr;         // [n, k], or [k, n] without trans_weight
  const void* packed_weight = nullptr;  // by PackWeight() (product.h), or null
  const void* bias = nullptr;           // of products of int8, as the two below
  const void* scale = nullptr;
  const void* token_scale = nullptr;
  const void* residual = nullptr;  // [n], or null
  void* output = nullptr;
  void* gathered = nullptr;  // the gathered x is wanted here, or null
};

// One run of a planned call. `workspace` begins at a multiple of the device's alignment.
struct LinearRun {
  const LinearPlan& plan;
  const LinearTensors& tensors;
  const Agreement& agreement;
  std::byte* workspace = nullptr;
  Communicator* communicator = nullptr;
  void* stream = nullptr;              // the device's; null on the CPU
  KeepAlive keep;                      // holds the plan
  kernels::TileScale tile_scale = {};  // of products of int8; `token_scale` of all gathered rows
  kernels::WeightScale weight_scale = {};
};

// What decides which engine runs: placement and what the ranks agree on. All ranks choose the same,
// so nothing of one rank alone, such as its memory or its tensors, may be in here.
struct EnginePlace {
  std::string backend;
  int rank_size = 1;
  size_t gather_ranks = 1;
  size_t scatter_ranks = 1;
  bool has_windows = false;
  bool windows_wanted = true;  // false: COLLOPS_FUSED=0, where no engine is named
  bool on_device = false;      // the tensors are not the CPU's
  bool has_int8 = false;
  bool runs_int8 = false;    // such of int8, on this device
  bool has_experts = false;  // rows go to experts, or from them
  bool has_leaves = false;
  const char* leaves_missing = nullptr;  // why this device has none

  // Whether each rank computes by itself, although there may be others.
  bool alone() const { return gather_ranks == 1 && scatter_ranks == 1; }
};

// A way to run LinearParallel. There is a fixed list of them, in the order in which they are asked;
// the first that accepts runs. They give the same bits. `name` is what users choose by, and what
// the ranks compare.
struct Engine {
  const char* name;
  // Ok, or ERROR_UNSUPPORTED with the reason.
  Status (*accepts)(const EnginePlace& place);
  // Adds to the plan what this engine needs of memory.
  Status (*plan)(LinearPlan* plan);
  Status (*run)(const LinearRun& run);
};

extern const Engine kLocal;     // one product, nobody else
extern const Engine kWindows;   // computes while rows arrive and partial sums leave, over windows
extern const Engine kPipeline;  // collectives and products one after the other
extern const Engine kStreams;   // on a device: collectives on one stream, products on another

// Of the CPU's engines: ERROR_UNSUPPORTED for tensors of a device.
Status CheckOnCpu(const EnginePlace& place);

// What each engine of the list says of a place, in order: its name, and why not or nothing.
std::vector<std::pair<const char*, Status>> AskEngines(const EnginePlace& place);

// ERROR_INVALID_PARAM, with the engines there are, for a name that is none of them.
Status CheckEngineName(const std::string& name);

// The engine of that name, or why it does not accept; the first that accepts where `name` is empty.
// `called`: what messages call the call.
Status ChooseEngine(const std::string& name, const EnginePlace& place, const Engine** engine,
                    const char* called = "LinearParallel");

// The place of a call of this communicator. `by_default`: no engine is named, so that COLLOPS_FUSED
// counts.
EnginePlace PlaceOf(const LinearLayout& layout, Communicator& communicator, bool by_default);

// What the ranks compare before anything moves: also the engine, as ranks with different ones would
// wait for each other. The plan outlives the agreement.
void AddLinearTerms(const LinearSettings& settings, const LinearPlan& plan, Agreement* agreement);

// The product on the CPU of a weight's shape, in leaves if there are any.
kernels::GemmPlan PlanProduct(DType dtype, int64_t k, int64_t n, bool trans_weight,
                              bool widens_weight, const LinearLeaves& leaves);

// Plans memory and product of a call whose layout, rank_size, dtype, stream_compute and engine are
// set.
Status PlanLinear(LinearPlan* plan);

// The communicators of the group that a rank gathers from and of the group that it scatters to, for
// engines made of collectives. All operations on such a grid share them.
struct GridParts {
  std::shared_ptr<Communicator> gather;
  std::shared_ptr<Communicator> scatter;
};

// Finds them, or makes them in the first call, which waits for all ranks. A group of all ranks has
// the call's communicator, and one rank alone needs none.
Status FindParts(const LinearRun& run, GridParts* parts);

// An error of a part, in which the ranks have other numbers.
Status InGroup(const LinearPlan& plan, const std::vector<int>& ranks, const Status& status);

// Ends the call of all ranks with an error of this rank's steps; the ranks that wait in one of the
// groups hear of it there.
Status FailInParts(const LinearRun& run, const Status& status);

// The CPU's schedule, for chunks of rows that can be packed and the strips of its product; without
// places, as the next.
std::shared_ptr<LinearSchedule> CutForCpu(const LinearPlan& plan);
// A device's, without steps.
std::shared_ptr<LinearSchedule> CutForDevice(const LinearPlan& plan, bool in_turn);
// The steps of what was cut.
void MakeSteps(const LinearPlan& plan, LinearSchedule* schedule);

// What a call takes where ranks share a device, by a model of bytes, launches and multiprocessors.
// It knows what the ranks have agreed on and told each other only, so it is equal on all of them.
struct StreamTimes {
  double product_us = 0;  // of the products alone, of all ranks of a device
  double in_turn_us = 0;
  double overlapped_us = 0;
};
StreamTimes ModelTimes(const LinearPlan& plan, const DeviceShare& share);

// Beside what a device's products run. A product of one rank alone may run before the ranks have
// met, and later has the same algorithm.
kernels::Beside BesideProducts(const Communicator& communicator, bool overlaps, bool alone);

// Ok, or why the communicator's device, whose products are `compute`, has none.
Status CheckProducts(const Communicator& communicator, kernels::StreamCompute* compute);

// The plan's schedule for ranks that lie on devices like this.
const LinearSchedule& ChooseSchedule(const LinearPlan& plan, const DeviceShare& share);

}  // namespace collops
