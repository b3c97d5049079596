#include "collops/kernels/cuda/compute.h"

#include <algorithm>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "collops/core/process/per_process.h"
#include "collops/kernels/cuda/bodies/elementwise.h"
#include "collops/kernels/cuda/bodies/leaf_product.h"
#include "collops/kernels/cuda/bodies/tree_sum.h"
#include "collops/kernels/cuda/devices.h"
#include "collops/kernels/cuda/driver.h"

namespace collops::cuda {

using kernels::DeviceMatrix;
using kernels::StreamStep;

namespace {

PerProcess<FreeList<Event>> free_events_here;

struct SideStreams {
  std::mutex mutex;
  std::set<Stream> streams;
};
PerProcess<SideStreams> side_streams_here;

// Events between two streams of a call. The last user may be a graph, which lets go in a thread in
// which nothing of CUDA may be called, so events are used again and not destroyed.
class Marks : public kernels::StreamMarks {
 public:
  Marks(const DriverApi& api, int device) : api_(api), device_(device) {}
  ~Marks() override { free_events_here.Get().Give(device_, events_); }

  Status Put(void* stream, int* mark) override {
    Event event = free_events_here.Get().Take(device_);
    if (event == nullptr) {
      COLLOPS_RETURN_IF_ERROR(
          ToStatus(api_, api_.event_create(&event, kEventDisableTiming), "cuEventCreate"));
    }
    *mark = static_cast<int>(events_.size());
    events_.push_back(event);
    return ToStatus(api_, api_.event_record(event, stream), "cuEventRecord");
  }

  Status Wait(void* stream, int mark) override {
    return ToStatus(api_, api_.stream_wait_event(stream, events_[static_cast<size_t>(mark)], 0),
                    "cuStreamWaitEvent");
  }

 private:
  const DriverApi& api_;
  const int device_;
  std::vector<Event> events_;
};

MatrixArgs ArgsOf(const DeviceMatrix& matrix) {
  return {const_cast<void*>(matrix.data), matrix.transposed ? 1 : matrix.ld,
          matrix.transposed ? matrix.ld : 1, matrix.dtype};
}

int64_t BytesOf(const DeviceMatrix& matrix) {
  return matrix.rows * matrix.columns * SizeOf(matrix.dtype);
}

// A row of numbers, or one for all columns, that is added to or multiplied with every row.
MatrixArgs RowArgs(const DeviceMatrix& matrix) {
  MatrixArgs args = ArgsOf(matrix);
  args.row_step = 0;
  if (matrix.columns == 1) args.column_step = 0;
  if (args.dtype == DType::kInt32) args.dtype = DType::kFloat32;
  return args;
}

MatrixArgs ColumnArgs(const DeviceMatrix& matrix) {
  MatrixArgs args = ArgsOf(matrix);
  args.column_step = 0;
  return args;
}

// How the leaves of a product are shared among the blocks of a GPU: in its roots, or, where these
// have fewer tiles than a GPU has places for, in smaller parts that are then added up. The same for
// all GPUs.
struct LeafCut {
  std::vector<int64_t> roots;  // borders
  std::vector<int64_t> parts;
  int blocks = 1;
  int most_waiting = 0;
  int64_t waiting_bytes = 0;
  int64_t bytes = 0;  // of scratch memory

  bool adds_parts() const { return parts.size() > roots.size(); }
};

LeafCut CutLeaves(const StreamStep& step) {
  // Two blocks on each of so many multiprocessors, and at most on so many.
  constexpr int64_t kEnoughBlocks = 2 * 128;
  constexpr int64_t kMostBlocks = 2 * 160;
  const kernels::StreamLeaves& leaves = step.leaves;
  const int64_t tiles = NumTiles(step.c.rows, step.c.columns);
  const auto blocks_of = [tiles](const std::vector<int64_t>& borders) {
    return tiles * (static_cast<int64_t>(borders.size()) - 1);
  };
  LeafCut cut;
  cut.roots = kernels::Subtrees(leaves.count, leaves.begin, leaves.end);
  cut.parts = cut.roots;
  for (int64_t most = kernels::kMostLeaves; most > 1 && blocks_of(cut.parts) < kEnoughBlocks;) {
    most /= 2;
    std::vector<int64_t> finer = kernels::Subtrees(leaves.count, leaves.begin, leaves.end, most);
    if (finer.size() > kMostParts + 1) break;
    cut.parts = std::move(finer);
  }
  cut.blocks = static_cast<int>(std::clamp<int64_t>(blocks_of(cut.parts), 1, kMostBlocks));
  int64_t longest = 1;
  for (size_t i = 1; i < cut.parts.size(); ++i) {
    longest = std::max(longest, cut.parts[i] - cut.parts[i - 1]);
  }
  while (int64_t{1} << cut.most_waiting < longest) ++cut.most_waiting;
  cut.waiting_bytes = WaitingBytes(step.c.rows, cut.blocks, cut.most_waiting);
  cut.bytes = cut.waiting_bytes;
  if (cut.adds_parts()) {
    cut.bytes += step.c.rows * step.c.columns * (static_cast<int64_t>(cut.parts.size()) - 1) *
                 int64_t{sizeof(float)};
  }
  return cut;
}

Status FillSummands(const StreamStep& step, TreeSumArgs* args) {
  const std::vector<int64_t>& holders = *step.holders;
  COLLOPS_CHECK_ARG(holders.size() <= kMostHolders && step.tree->size() <= kMostSummands,
                    ERROR_UNSUPPORTED, "GPUs add at most ", kMostSummands, " sums of leaves from ",
                    kMostHolders, " ranks, got ", step.tree->size(), " from ", holders.size());
  args->num_holders = static_cast<int32_t>(holders.size());
  for (size_t i = 0; i < holders.size(); ++i) args->counts[i] = static_cast<uint8_t>(holders[i]);
  std::copy(step.tree->begin(), step.tree->end(), args->adds);
  return Ok();
}

}  // namespace

Status CudaCompute::Available() {
  COLLOPS_RETURN_IF_ERROR(Kernels::Available());
  return matmul_.Available();
}

Status CudaCompute::OnDevice(const std::function<Status()>& work) {
  Status done;
  COLLOPS_RETURN_IF_ERROR(cuda::OnDevice(api_, device_, [&] { done = work(); }));
  return done;
}

struct CudaCompute::Padded {
  StreamStep step;  // of the copies
  StreamStep copies[2] = {};
  StreamStep result;  // of the products to where they are wanted
  std::byte* scratch = nullptr;
  int64_t bytes = 0;
};

CudaCompute::Padded CudaCompute::Pad(const StreamStep& step, void* scratch) {
  constexpr int64_t kUnit = 16;  // for which there are the fastest products
  const auto padded = [](int64_t size) { return (size + kUnit - 1) / kUnit * kUnit; };
  const int64_t k = padded(step.a.columns);
  const int64_t n = padded(step.c.columns);
  Padded made;
  std::byte* next = static_cast<std::byte*>(scratch);
  const auto take = [&](int64_t bytes) {
    std::byte* const taken = next == nullptr ? nullptr : next + made.bytes;
    made.bytes += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return taken;
  };
  made.step = step;
  made.step.a = {take(step.a.rows * k), DType::kInt8, step.a.rows, k, k, false};
  made.step.b = {take(n * k), DType::kInt8, k, n, k, true};
  made.copies[0].c = made.step.a;
  made.copies[0].a = step.a;
  made.copies[1].c = {made.step.b.data, DType::kInt8, step.b.rows, step.b.columns, k, true};
  made.copies[1].a = step.b;
  for (StreamStep& copy : made.copies) copy.kind = StreamStep::kConvert;
  made.copies[0].c.columns = step.a.columns;
  made.step.c = {
      take(step.c.rows * n * SizeOf(DType::kInt32)), DType::kInt32, step.c.rows, n, n, false};
  // The bits of int32 are copied as those of float32.
  made.result.kind = StreamStep::kConvert;
  made.result.a = made.step.c;
  made.result.c = step.c;
  made.result.a.columns = step.c.columns;
  made.result.a.dtype = made.result.c.dtype = DType::kFloat32;
  made.scratch = take(Matmul::kScratchBytes);
  return made;
}

Status CudaCompute::RunPadded(const StreamStep& step, void* scratch, void* stream, bool prepares) {
  const Padded padded = Pad(step, scratch);
  if (prepares) {
    return matmul_.Prepare(padded.step, padded.scratch, Matmul::kScratchBytes, stream);
  }
  for (const StreamStep& copy : padded.copies) {
    const bool is_b = copy.c.transposed;
    const DeviceMatrix& whole = is_b ? padded.step.b : padded.step.a;
    COLLOPS_RETURN_IF_ERROR(
        SetZero(const_cast<void*>(whole.data), whole.rows * whole.columns, stream));
    COLLOPS_RETURN_IF_ERROR(Launch(copy, stream));
  }
  COLLOPS_RETURN_IF_ERROR(matmul_.Run(padded.step, padded.scratch, Matmul::kScratchBytes, stream));
  return Launch(padded.result, stream);
}

Status CudaCompute::MultiplyLeaves(const StreamStep& step, void* scratch, void* stream) {
  const LeafCut cut = CutLeaves(step);
  const auto num_parts = static_cast<int64_t>(cut.parts.size()) - 1;
  auto* const sums = reinterpret_cast<float*>(static_cast<std::byte*>(scratch) + cut.waiting_bytes);
  auto* const roots = static_cast<float*>(const_cast<void*>(step.c.data));
  const int64_t rows = step.c.rows;
  const int64_t columns = step.c.columns;
  LeafProductArgs args = {};
  args.a = ArgsOf(step.a);
  args.b = ArgsOf(step.b);
  args.c = cut.adds_parts() ? sums : roots;
  args.c_row_step = cut.adds_parts() ? columns : step.c.ld;
  args.part_step = cut.adds_parts() ? rows * columns : columns;
  args.bias = RowArgs(step.bias);
  args.scale = RowArgs(step.scale);
  args.token = ColumnArgs(step.token);
  args.waiting = static_cast<float*>(scratch);
  args.rows = rows;
  args.columns = columns;
  args.k = step.leaves.k;
  args.leaves = static_cast<int32_t>(step.leaves.count);
  args.most_waiting = cut.most_waiting;
  args.num_parts = static_cast<int32_t>(num_parts);
  for (size_t i = 0; i < cut.parts.size(); ++i) {
    args.begins[i] = static_cast<int32_t>(cut.parts[i]);
  }
  const int blocks = std::min(cut.blocks, kernels_.MostBlocks(LeafProductArgs::kName));
  COLLOPS_RETURN_IF_ERROR(kernels_.LaunchBlocks(args, blocks, stream, LeafProductArgs::kThreads));
  if (!cut.adds_parts()) return Ok();
  // The parts of a root, each with the rows of one holder.
  auto part = cut.parts.begin();
  for (size_t root = 0; root + 1 < cut.roots.size(); ++root) {
    std::vector<int64_t> begins;
    const float* const first = sums + (part - cut.parts.begin()) * rows * columns;
    for (; *part < cut.roots[root + 1]; ++part) begins.push_back(*part - cut.roots[root]);
    const std::vector<int64_t> one_each(begins.size(), 1);
    begins.push_back(cut.roots[root + 1] - cut.roots[root]);
    const kernels::SumTree tree = kernels::TreeOfRoots(begins);
    StreamStep sum;
    sum.kind = StreamStep::kTreeSum;
    sum.a = {first, DType::kFloat32, rows, columns, columns, false};
    sum.c = step.c;
    sum.c.data = roots + static_cast<int64_t>(root) * columns;
    sum.holders = &one_each;
    sum.tree = &tree;
    COLLOPS_RETURN_IF_ERROR(Launch(sum, stream));
  }
  return Ok();
}

Status CudaCompute::ScratchBytes(const StreamStep& step, int64_t* bytes) {
  *bytes = 0;
  if (step.kind == StreamStep::kTreeSum) {
    TreeSumArgs args = {};
    return FillSummands(step, &args);
  }
  if (step.kind != StreamStep::kMultiply) return Ok();
  if (step.leaves.count > 0) {
    *bytes = CutLeaves(step).bytes;
    return Ok();
  }
  if (step.a.dtype == DType::kInt8 && !Matmul::FitsInt8(step)) {
    const Padded padded = Pad(step, nullptr);
    *bytes = padded.bytes;
    return matmul_.Check(padded.step);
  }
  COLLOPS_RETURN_IF_ERROR(matmul_.Check(step));
  *bytes = Matmul::kScratchBytes;
  return Ok();
}

Status CudaCompute::Run(const StreamStep& step, void* scratch, int64_t bytes, void* stream) {
  if (!kernels_loaded_) COLLOPS_RETURN_IF_ERROR(kernels_.Load());
  kernels_loaded_ = true;
  if (step.kind != StreamStep::kMultiply) return Launch(step, stream);
  if (step.leaves.count > 0) return MultiplyLeaves(step, scratch, stream);
  if (step.a.dtype != DType::kInt8) return matmul_.Run(step, scratch, bytes, stream);
  if (!Matmul::FitsInt8(step)) return RunPadded(step, scratch, stream, false);
  for (const DeviceMatrix* const matrix : {&step.a, &step.b}) {
    COLLOPS_CHECK_ARG(reinterpret_cast<uintptr_t>(matrix->data) % 4 == 0, ERROR_UNSUPPORTED,
                      "cuBLASLt multiplies int8 at addresses that are multiples of 4: pass tensors "
                      "that begin there");
  }
  return matmul_.Run(step, scratch, bytes, stream);
}

// What is no product.
Status CudaCompute::Launch(const StreamStep& step, void* stream) {
  const int64_t rows = step.c.rows;
  const int64_t columns = step.c.columns;
  const int64_t bytes = BytesOf(step.c);
  if (step.kind == StreamStep::kConvert) {
    return kernels_.Launch(ConvertArgs{ArgsOf(step.a), ArgsOf(step.c), rows, columns}, bytes,
                           stream);
  }
  if (step.kind == StreamStep::kScale) {
    const bool is_whole = step.a.dtype == DType::kInt32;
    ScaleArgs args = {ArgsOf(step.a),
                      RowArgs(step.bias),
                      RowArgs(step.scale),
                      ColumnArgs(step.token),
                      ArgsOf(step.c),
                      rows,
                      columns,
                      is_whole ? 1 : 0};
    if (is_whole) args.a.dtype = DType::kFloat32;
    if (step.a.transposed && step.c.transposed) {
      // As the numbers lie in memory.
      std::swap(args.rows, args.columns);
      for (MatrixArgs* const each : {&args.a, &args.bias, &args.scale, &args.token, &args.c}) {
        std::swap(each->row_step, each->column_step);
      }
    }
    return kernels_.Launch(args, bytes, stream);
  }
  if (step.kind == StreamStep::kTreeSum) {
    TreeSumArgs args = {};
    COLLOPS_RETURN_IF_ERROR(FillSummands(step, &args));
    args.summands = static_cast<const float*>(step.a.data);
    args.residual = RowArgs(step.b);
    args.c = ArgsOf(step.c);
    args.rows = rows;
    args.columns = columns;
    return kernels_.Launch(args, rows * columns * int64_t{sizeof(float)}, stream);
  }
  MatrixArgs added = ArgsOf(step.b);
  if (step.b.rows == 1) added.row_step = 0;
  return kernels_.Launch(AddArgs{ArgsOf(step.a), added, ArgsOf(step.c), rows, columns}, bytes,
                         stream);
}

Status CudaCompute::Prepare(const StreamStep& step, void* scratch, int64_t bytes, void* stream) {
  if (step.leaves.count > 0) return Run(step, scratch, bytes, stream);
  if (step.a.dtype == DType::kInt8 && !Matmul::FitsInt8(step)) {
    return RunPadded(step, scratch, stream, true);
  }
  return matmul_.Prepare(step, scratch, bytes, stream);
}

Status CudaCompute::SetZero(void* data, int64_t bytes, void* stream) {
  return cuda::SetZero(api_, data, bytes, stream);
}

Status CudaCompute::Copy(void* to, const void* from, int64_t bytes, void* stream) {
  return cuda::Copy(api_, to, from, bytes, stream);
}

Status CudaCompute::SideStream(void** stream) {
  if (side_ == nullptr) {
    // Blocks of a collective begin before those of a product, which may fill the GPU: they are few,
    // and peers wait for them.
    int greatest = 0;
    COLLOPS_RETURN_IF_ERROR(ToStatus(api_, api_.ctx_get_stream_priority_range(nullptr, &greatest),
                                     "cuCtxGetStreamPriorityRange"));
    COLLOPS_RETURN_IF_ERROR(
        ToStatus(api_, api_.stream_create_with_priority(&side_, kStreamNonBlocking, greatest),
                 "cuStreamCreateWithPriority"));
    SideStreams& all = side_streams_here.Get();
    const std::lock_guard<std::mutex> lock(all.mutex);
    all.streams.insert(side_);
  }
  *stream = side_;
  return Ok();
}

bool CudaCompute::IsSideStream(Stream stream) {
  SideStreams& all = side_streams_here.Get();
  const std::lock_guard<std::mutex> lock(all.mutex);
  return all.streams.count(stream) > 0;
}

std::shared_ptr<kernels::StreamMarks> CudaCompute::NewMarks() {
  return std::make_shared<Marks>(api_, device_);
}

void CudaCompute::Release() {
  if (device_ < 0) return;
  const DeviceScope scope(api_, device_);
  {
    SideStreams& all = side_streams_here.Get();
    const std::lock_guard<std::mutex> lock(all.mutex);
    all.streams.erase(side_);
  }
  // The caller cannot act on an error of this call.
  if (side_ != nullptr) static_cast<void>(api_.stream_destroy(side_));
  side_ = nullptr;
  matmul_.Release();
}

}  // namespace collops::cuda
