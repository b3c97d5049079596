#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "collops/comm/communicator.h"
#include "collops/core/status.h"
#include "collops/kernels/compute.h"
#include "collops/kernels/stream_compute.h"
#include "collops/operators/linear_parallel/layout.h"

namespace collops {

struct Engine;
struct StreamSchedule;

// Where a call's scratch memory lies, in bytes from the start of the workspace. All engines pack
// the gathered rows once, and one block of the weight at a time.
struct LinearMemory {
  std::vector<int64_t> panels;  // of each member that is gathered from
  int64_t raw_rows = 0;         // few rows, until all of them are there
  int64_t weight_block = 0;
  int64_t tile = 0;        // float32, total_rows x the columns of a strip; not there where kWindows
                           // sums partial products, whose tiles are shared memory
  int64_t sum = 0;         // kPipeline: this rank's sums of a strip
  int64_t gathered = 0;    // kPipeline: rows as they are gathered
  int64_t bytes = 0;       // of the workspace
  int64_t tile_slots = 0;  // kWindows: how many strips' tiles are kept
  int64_t tile_bytes = 0;  // kWindows: shared memory for all of them
};

// One planned call.
struct LinearPlan {
  LinearLayout layout;
  int rank_size = 0;
  DType dtype = DType::kUndefined;
  float divisor = 1.0F;  // of the sums: the ranks that add up where an average is wanted
  const kernels::Compute* compute = nullptr;  // null on a device, which has stream_compute
  std::shared_ptr<const kernels::Product> product;
  kernels::StreamCompute* stream_compute = nullptr;
  const Communicator* communicator = nullptr;      // of all ranks; set where stream_compute is
  std::shared_ptr<const StreamSchedule> schedule;  // kStreams
  std::shared_ptr<const StreamSchedule> in_turn;   // kStreams: the same if nothing overlaps there
  bool has_residual = false;
  bool returns_gathered = false;
  const Engine* engine = nullptr;
  LinearMemory memory;
};

// The tensors of one call.
struct LinearTensors {
  const void* x = nullptr;
  kernels::ProductWeight weight;
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
  void* stream = nullptr;  // the device's; null on the CPU
  KeepAlive keep;          // holds the plan
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
Status ChooseEngine(const std::string& name, const EnginePlace& place, const Engine** engine);

// The place of a call of this communicator. `by_default`: no engine is named, so that COLLOPS_FUSED
// counts.
EnginePlace PlaceOf(const LinearLayout& layout, const Communicator& communicator, bool by_default);

// What the ranks compare before anything moves: also the engine, as ranks with different ones would
// wait for each other. The plan outlives the agreement.
void AddLinearTerms(const LinearParallelParam& param, const LinearPlan& plan, Agreement* agreement);

// Plans memory and product of a call whose layout, rank_size, dtype, compute and engine are
// set.
Status PlanLinear(LinearPlan* plan);

// Runs a planned call. `workspace` has plan.memory.bytes bytes, of any alignment.
Status RunLinear(const LinearPlan& plan, const LinearTensors& tensors, const Agreement& agreement,
                 void* workspace, Communicator* communicator, void* stream,
                 KeepAlive keep = nullptr);

}  // namespace collops
