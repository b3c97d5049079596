#include "collops/comm/backends/hccl/communicator.h"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "collops/comm/backends/hccl/library.h"
#include "collops/core/process/per_process.h"
#include "collops/core/process/shared_library.h"
#include "collops/kernels/half.h"

namespace collops::hccl {

DeviceScope::DeviceScope(const Api& api, int device) : api_(api) {
  int32_t current = -1;
  const bool chosen = api.get_device(&current) == 0;
  if (chosen && current == device) return;
  // A thread without a device is no error here: discard CANN's error text.
  if (!chosen) static_cast<void>(api.get_recent_error());
  status_ = ToStatus(api, api.set_device(device), "aclrtSetDevice");
  if (status_.ok() && chosen) before_ = current;
}

DeviceScope::~DeviceScope() {
  if (before_ >= 0) static_cast<void>(api_.set_device(before_));
}

void* ElementAt(void* data, int64_t element, DType dtype) {
  return static_cast<std::byte*>(data) + element * SizeOf(dtype);
}

Status AllocateStandIn(const Api& api, void** stand_in) {
  return ToStatus(api, api.malloc(stand_in, kStandInBytes, AllocationPolicy::kHugeFirst),
                  "aclrtMalloc");
}

Status Zero(const Api& api, void* data, const Range& range, DType dtype, Stream stream) {
  const auto bytes = static_cast<size_t>((range.end - range.begin) * SizeOf(dtype));
  if (bytes == 0) return Ok();
  return ToStatus(api,
                  api.memset_async(ElementAt(data, range.begin, dtype), bytes, 0, bytes, stream),
                  "aclrtMemsetAsync");
}

Status Copy(const Api& api, void* to, const void* from, int64_t bytes, Stream stream) {
  if (bytes == 0 || to == from) return Ok();
  const auto size = static_cast<size_t>(bytes);
  return ToStatus(api, api.memcpy_async(to, size, from, size, CopyKind::kDeviceToDevice, stream),
                  "aclrtMemcpyAsync");
}

namespace {

using Held = std::vector<std::shared_ptr<const void>>;

// What each captured graph keeps alive. Never destroyed: a graph may outlive main().
struct Graphs {
  std::mutex mutex;
  std::map<Graph, Held> held;
};

PerProcess<Graphs> graphs_here;

void LetGo(void* graph) {
  Held held;  // destroyed without the lock
  Graphs& graphs = graphs_here.Get();
  const std::lock_guard<std::mutex> lock(graphs.mutex);
  const auto found = graphs.held.find(graph);
  if (found == graphs.held.end()) return;
  held.swap(found->second);
  graphs.held.erase(found);
}

}  // namespace

Status CreateEvent(const Api& api, Event* event) {
  if (api.create_event_ex == nullptr) {
    return ToStatus(api, api.create_event(event), "aclrtCreateEvent");
  }
  return ToStatus(api, api.create_event_ex(event, kEventFlags), "aclrtCreateEventExWithFlag");
}

Status AclRuntime::CreateEvent(Event* event) {
  return hccl::CreateEvent(api_, event);
}

Status AclRuntime::RecordEvent(Event event, Stream stream) {
  return ToStatus(api_, api_.record_event(event, stream), "aclrtRecordEvent");
}

kernels::DeviceRuntime::Progress AclRuntime::QueryEvent(Event event) {
  EventStatus status = EventStatus::kNotReady;
  if (api_.query_event_status(event, &status) != 0) return Progress::kUnknown;
  return status == EventStatus::kComplete ? Progress::kReached : Progress::kAhead;
}

// The caller cannot act on an error of this call.
void AclRuntime::DestroyEvent(Event event) {
  static_cast<void>(api_.destroy_event(event));
}

Status AclRuntime::FindGraph(Stream stream, Graph* graph) {
  *graph = nullptr;
  if (api_.capture_get_info == nullptr) return Ok();
  CaptureStatus status = CaptureStatus::kNone;
  Graph found = nullptr;
  const AclError error = api_.capture_get_info(stream, &status, &found);
  if (error == kAclNotSupported) return Ok();
  COLLOPS_RETURN_IF_ERROR(ToStatus(api_, error, "aclmdlRICaptureGetInfo"));
  if (status != CaptureStatus::kNone) *graph = found;
  return Ok();
}

// The runtime takes one callback per graph, so it is registered with the first object that a graph
// keeps alive, without the lock, which the callback takes. If the runtime refuses the callback, the
// graph's entry stays.
void AclRuntime::KeepWithGraph(Graph graph, std::shared_ptr<const void> kept) {
  bool is_first = false;
  {
    Graphs& graphs = graphs_here.Get();
    const std::lock_guard<std::mutex> lock(graphs.mutex);
    Held& held = graphs.held[graph];
    is_first = held.empty();
    held.push_back(std::move(kept));
  }
  if (!is_first || api_.on_graph_destroyed == nullptr) return;
  static_cast<void>(api_.on_graph_destroyed(graph, LetGo, graph));
}

namespace {

struct LoadedAclnn {
  Aclnn aclnn = {};
  Status status;

  LoadedAclnn() {
    SharedLibrary base("backend hccl", "libnnopbase.so");
    base.Find("aclCreateTensor", &aclnn.create_tensor);
    base.Find("aclDestroyTensor", &aclnn.destroy_tensor);
    base.Find("aclCreateScalar", &aclnn.create_scalar);
    base.Find("aclDestroyScalar", &aclnn.destroy_scalar);
    SharedLibrary operators("backend hccl", {"libopapi.so", "libopapi_nn.so", "libopapi_math.so",
                                             "libaclnn_ops_infer.so", "libaclnn_math.so"});
    operators.Find("aclnnMatmulGetWorkspaceSize", &aclnn.matmul_size);
    operators.Find("aclnnMatmul", &aclnn.matmul);
    operators.Find("aclnnMmGetWorkspaceSize", &aclnn.mm_size);
    operators.Find("aclnnMm", &aclnn.mm);
    operators.Find("aclnnCastGetWorkspaceSize", &aclnn.cast_size);
    operators.Find("aclnnCast", &aclnn.cast);
    operators.Find("aclnnAddGetWorkspaceSize", &aclnn.add_size);
    operators.Find("aclnnAdd", &aclnn.add);
    operators.Find("aclnnMulGetWorkspaceSize", &aclnn.mul_size);
    operators.Find("aclnnMul", &aclnn.mul);
    operators.FindIfThere("aclnnQuantMatmulV5GetWorkspaceSize", &aclnn.quant_matmul_size);
    operators.FindIfThere("aclnnQuantMatmulV5", &aclnn.quant_matmul);
    status = base.status().ok() ? operators.status() : base.status();
  }
};

}  // namespace

Status LoadAclnn(const Aclnn** aclnn) {
  static const LoadedAclnn* const loaded = new LoadedAclnn;
  *aclnn = &loaded->aclnn;
  return loaded->status;
}

using kernels::DeviceMatrix;
using kernels::StreamStep;

namespace {

// Events between two streams of a call. The runtime wants an event to live until the streams that
// wait for it are past it.
class Marks : public kernels::StreamMarks {
 public:
  Marks(const Api& api, int device) : api_(api), device_(device) {}
  // The caller cannot act on an error of these calls.
  ~Marks() override {
    const DeviceScope scope(api_, device_);
    for (const Event event : events_) static_cast<void>(api_.destroy_event(event));
  }

  Status Put(void* stream, int* mark) override {
    Event event = nullptr;
    COLLOPS_RETURN_IF_ERROR(CreateEvent(api_, &event));
    *mark = static_cast<int>(events_.size());
    events_.push_back(event);
    return ToStatus(api_, api_.record_event(event, stream), "aclrtRecordEvent");
  }

  Status Wait(void* stream, int mark) override {
    return ToStatus(api_, api_.stream_wait_event(stream, events_[static_cast<size_t>(mark)]),
                    "aclrtStreamWaitEvent");
  }

 private:
  const Api& api_;
  const int device_;
  std::vector<Event> events_;
};

}  // namespace

// An operator of aclnn: c from a and b.
struct Operator {
  enum Kind { kMatmul, kMm, kQuantMatmul, kCast, kAdd, kMul };
  Kind kind = kMatmul;
  DeviceMatrix a;
  DeviceMatrix b;
  DeviceMatrix c;
};

namespace {

const char* Name(Operator::Kind kind) {
  switch (kind) {
    case Operator::kMatmul:
      return "aclnnMatmul";
    case Operator::kMm:
      return "aclnnMm";
    case Operator::kQuantMatmul:
      return "aclnnQuantMatmulV5";
    case Operator::kCast:
      return "aclnnCast";
    case Operator::kAdd:
      return "aclnnAdd";
    case Operator::kMul:
      return "aclnnMul";
  }
  return "";
}

Status InAclnn(const Api& api, AclnnStatus status, Operator::Kind kind) {
  if (status == kAclnnInvalid) {
    const Status invalid = ToStatus(api, AclError{status}, Name(kind));
    return Error(ERROR_UNSUPPORTED, invalid.message());
  }
  return ToStatus(api, AclError{status}, Name(kind));
}

}  // namespace

// One operator of aclnn after its first phase. The tensors may go once the second phase has begun.
class AclCompute::Prepared {
 public:
  // `unread`: memory of the device that a tensor has which is not read.
  Prepared(const Aclnn& aclnn, void* unread) : aclnn_(aclnn), unread_(unread) {}
  ~Prepared() {
    for (const AclTensor tensor : tensors_) static_cast<void>(aclnn_.destroy_tensor(tensor));
    if (one_ != nullptr) static_cast<void>(aclnn_.destroy_scalar(one_));
  }
  Prepared(const Prepared&) = delete;
  Prepared& operator=(const Prepared&) = delete;

  // `stand_in`: the address of every matrix, or null for their own.
  AclnnStatus First(const Operator& step, void* stand_in) {
    const AclTensor a = Add(step.a, stand_in);
    const AclTensor c = Add(step.c, stand_in);
    switch (step.kind) {
      case Operator::kMatmul:
        second_ = aclnn_.matmul;
        return aclnn_.matmul_size(a, Add(step.b, stand_in), c, kKeepType, &bytes_, &executor_);
      case Operator::kMm:
        second_ = aclnn_.mm;
        return aclnn_.mm_size(a, Add(step.b, stand_in), c, kKeepType, &bytes_, &executor_);
      case Operator::kQuantMatmul: {
        second_ = aclnn_.quant_matmul;
        // As it lies in memory.
        DeviceMatrix b = step.b;
        if (b.transposed) std::swap(b.rows, b.columns);
        b.transposed = false;
        const AclTensor scale = AddOne();
        return aclnn_.quant_matmul_size(a, Add(b, stand_in), nullptr, scale, nullptr, nullptr,
                                        nullptr, nullptr, nullptr, false, step.b.transposed, 0, c,
                                        &bytes_, &executor_);
      }
      case Operator::kCast:
        second_ = aclnn_.cast;
        return aclnn_.cast_size(a, static_cast<int32_t>(step.c.dtype), c, &bytes_, &executor_);
      case Operator::kMul:
        second_ = aclnn_.mul;
        return aclnn_.mul_size(a, Add(step.b, stand_in), c, &bytes_, &executor_);
      case Operator::kAdd:
        break;
    }
    second_ = aclnn_.add;
    float real = 1.0F;
    int32_t whole = 1;
    const bool is_whole = step.c.dtype == DType::kInt32;
    one_ = aclnn_.create_scalar(is_whole ? static_cast<void*>(&whole) : static_cast<void*>(&real),
                                static_cast<int32_t>(is_whole ? DType::kInt32 : DType::kFloat32));
    return aclnn_.add_size(a, Add(step.b, stand_in), one_, c, &bytes_, &executor_);
  }

  uint64_t bytes() const { return bytes_; }
  AclnnStatus Second(void* scratch, Stream stream) const {
    return second_(bytes_ == 0 ? nullptr : scratch, bytes_, executor_, stream);
  }

 private:
  AclTensor Add(const DeviceMatrix& matrix, void* stand_in) {
    const int64_t dims[] = {matrix.rows, matrix.columns};
    const int64_t strides[] = {matrix.transposed ? 1 : matrix.ld,
                               matrix.transposed ? matrix.ld : 1};
    const int64_t extent = 1 + (matrix.rows - 1) * strides[0] + (matrix.columns - 1) * strides[1];
    void* const data = stand_in != nullptr ? stand_in : const_cast<void*>(matrix.data);
    tensors_.push_back(aclnn_.create_tensor(dims, 2, static_cast<int32_t>(matrix.dtype), strides, 0,
                                            kFormatNd, &extent, 1, data));
    return tensors_.back();
  }

  // A float32 of one element.
  AclTensor AddOne() {
    const int64_t one = 1;
    tensors_.push_back(aclnn_.create_tensor(&one, 1, static_cast<int32_t>(DType::kFloat32), &one, 0,
                                            kFormatNd, &one, 1, unread_));
    return tensors_.back();
  }

  const Aclnn& aclnn_;
  void* const unread_;
  std::vector<AclTensor> tensors_;
  AclScalar one_ = nullptr;
  AclExecutor executor_ = nullptr;
  uint64_t bytes_ = 0;
  AclnnStatus (*second_)(void*, uint64_t, AclExecutor, Stream) = nullptr;
};

struct AclCompute::Operators {
  std::vector<Operator> all;
  int64_t bytes = 0;  // of scratch memory before that of aclnn
};

namespace {

// How the library adds up products of a type of two bytes in float32. The NPUs of a process are of
// one kind.
enum class FloatSums { kNotAsked, kByMatmul, kByMm, kByNone };

std::atomic<FloatSums>& FloatSumsOf(DType dtype) {
  static std::atomic<FloatSums> found[2];
  return found[dtype == DType::kBFloat16 ? 1 : 0];
}

bool AddsUpTwoBytes(const StreamStep& step) {
  return step.kind == StreamStep::kMultiply && step.c.dtype == DType::kFloat32 &&
         (step.a.dtype == DType::kFloat16 || step.a.dtype == DType::kBFloat16);
}

// Lets this thread wait for its own streams while a stream is captured, and copy from memory that
// is not locked, without ending the capture.
class RelaxedCapture {
 public:
  explicit RelaxedCapture(const Api& api) : api_(api) { Exchange(); }
  ~RelaxedCapture() { Exchange(); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  // If it fails, what is not allowed is an error.
  void Exchange() {
    if (api_.exchange_capture_mode != nullptr) {
      static_cast<void>(api_.exchange_capture_mode(&mode_));
    }
  }

  const Api& api_;
  CaptureMode mode_ = CaptureMode::kRelaxed;
};

// A small product. Kept for good if its stream may not be past it.
struct Trial {
  Trial(const Api& given, DType dtype) : api(given) {
    // The sum is more than float16 holds, with more digits than bfloat16 has.
    constexpr float kFactors[] = {300, 1, 300, 0.5F};
    std::transform(std::begin(kFactors), std::end(kFactors), factors,
                   dtype == DType::kBFloat16 ? kernels::FloatToBFloat16 : kernels::FloatToFloat16);
  }
  // The caller cannot act on an error of these calls.
  ~Trial() {
    if (stream != nullptr) static_cast<void>(api.destroy_stream(stream));
    if (tensors != nullptr) static_cast<void>(api.free(tensors));
    if (workspace != nullptr) static_cast<void>(api.free(workspace));
  }
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;

  static constexpr float kRight = 300 * 300 + 1 * 0.5F;
  const Api& api;
  uint16_t factors[4] = {};
  float sum = 0;
  Stream stream = nullptr;
  void* tensors = nullptr;
  void* workspace = nullptr;
  bool is_past = true;
};

}  // namespace

Status AclCompute::TryFloatSum(const Operator& product, bool* is_right) const {
  constexpr int32_t kMostMs = 60000;  // the library may have to load the operator
  const auto let_go = [](Trial* trial) {
    if (trial->is_past) delete trial;
  };
  const RelaxedCapture relaxed(api_);
  const std::unique_ptr<Trial, decltype(let_go)> trial(new Trial(api_, product.a.dtype), let_go);
  COLLOPS_RETURN_IF_ERROR(
      ToStatus(api_, api_.malloc(&trial->tensors, 3 * kAlignment, AllocationPolicy::kHugeFirst),
               "aclrtMalloc"));
  Operator there = product;
  auto* const first = static_cast<std::byte*>(trial->tensors);
  there.a.data = first;
  there.b.data = first + kAlignment;
  there.c.data = first + 2 * kAlignment;
  Prepared prepared(*aclnn_, stand_in_);
  COLLOPS_RETURN_IF_ERROR(InAclnn(api_, prepared.First(there, nullptr), there.kind));
  if (prepared.bytes() > 0) {
    COLLOPS_RETURN_IF_ERROR(ToStatus(
        api_, api_.malloc(&trial->workspace, prepared.bytes(), AllocationPolicy::kHugeFirst),
        "aclrtMalloc"));
  }
  COLLOPS_RETURN_IF_ERROR(ToStatus(api_, api_.create_stream(&trial->stream), "aclrtCreateStream"));
  const auto copy = [&](const void* to, const void* from, size_t bytes, CopyKind kind) {
    return ToStatus(
        api_, api_.memcpy_async(const_cast<void*>(to), bytes, from, bytes, kind, trial->stream),
        "aclrtMemcpyAsync");
  };
  const size_t half = sizeof(trial->factors) / 2;
  trial->is_past = false;
  const Status status = [&]() -> Status {
    COLLOPS_RETURN_IF_ERROR(copy(there.a.data, trial->factors, half, CopyKind::kHostToDevice));
    COLLOPS_RETURN_IF_ERROR(copy(there.b.data, trial->factors + 2, half, CopyKind::kHostToDevice));
    COLLOPS_RETURN_IF_ERROR(
        InAclnn(api_, prepared.Second(trial->workspace, trial->stream), there.kind));
    return copy(&trial->sum, there.c.data, sizeof(trial->sum), CopyKind::kDeviceToHost);
  }();
  const AclError synchronized = api_.synchronize_stream(trial->stream, kMostMs);
  trial->is_past = synchronized == 0;
  *is_right = trial->sum == Trial::kRight;
  COLLOPS_RETURN_IF_ERROR(status);
  return ToStatus(api_, synchronized, "aclrtSynchronizeStreamWithTimeout");
}

Status AclCompute::FindFloatSums(DType dtype) const {
  std::atomic<FloatSums>& known = FloatSumsOf(dtype);
  FloatSums found = known;
  for (const Operator::Kind kind : {Operator::kMatmul, Operator::kMm}) {
    if (found != FloatSums::kNotAsked) break;
    bool is_right = false;
    const Status tried = TryFloatSum({kind,
                                      {nullptr, dtype, 1, 2, 2, false},
                                      {nullptr, dtype, 2, 1, 1, false},
                                      {nullptr, DType::kFloat32, 1, 1, 1, false}},
                                     &is_right);
    if (!tried.ok() && tried.code() != ERROR_UNSUPPORTED) return tried;
    if (is_right) found = kind == Operator::kMm ? FloatSums::kByMm : FloatSums::kByMatmul;
  }
  if (found == FloatSums::kNotAsked) found = FloatSums::kByNone;
  known = found;
  if (found != FloatSums::kByNone) return Ok();
  return Error(ERROR_UNSUPPORTED, "aclnnMatmul and aclnnMm do not add up products of ", Name(dtype),
               " in float32");
}

AclCompute::Operators AclCompute::OperatorsOf(const StreamStep& step, void* scratch) const {
  Operators operators;
  const auto add = [&](Operator::Kind kind, const DeviceMatrix& a, const DeviceMatrix& b,
                       const DeviceMatrix& c) { operators.all.push_back({kind, a, b, c}); };
  const auto take = [&](DType dtype, int64_t rows, int64_t columns) -> DeviceMatrix {
    operators.bytes = (rows * columns * SizeOf(dtype) + kAlignment - 1) / kAlignment * kAlignment;
    return {scratch, dtype, rows, columns, columns, false};
  };
  switch (step.kind) {
    case StreamStep::kMultiply: {
      if (AddsUpTwoBytes(step) && step.a.columns == 1) {
        // aclnn makes these products with the operator that rounds to the operands' type.
        const DeviceMatrix real = take(DType::kFloat32, step.a.rows, 1);
        add(Operator::kCast, step.a, {}, real);
        add(Operator::kMul, real, step.b, step.c);
        break;
      }
      if (step.a.dtype != DType::kInt8) {
        const bool is_mm = AddsUpTwoBytes(step) && FloatSumsOf(step.a.dtype) == FloatSums::kByMm;
        add(is_mm ? Operator::kMm : Operator::kMatmul, step.a, step.b, step.c);
        break;
      }
      // It takes a weight without gaps.
      DeviceMatrix b = step.b;
      if (!b.transposed && b.ld != b.columns) {
        b = take(DType::kInt8, b.rows, b.columns);
        add(Operator::kCast, step.b, {}, b);
      }
      add(Operator::kQuantMatmul, step.a, b, step.c);
      break;
    }
    case StreamStep::kConvert:
      add(Operator::kCast, step.a, {}, step.c);
      break;
    case StreamStep::kAdd:
      add(Operator::kAdd, step.a, step.b, step.c);
      break;
    case StreamStep::kScale: {
      const bool is_whole = step.a.dtype == DType::kInt32;
      const bool has_bias = step.bias.data != nullptr;
      if (has_bias && is_whole) add(Operator::kAdd, step.a, step.bias, step.a);
      const DeviceMatrix real = take(DType::kFloat32, step.c.rows, step.c.columns);
      add(Operator::kCast, step.a, {}, real);
      if (has_bias && !is_whole) add(Operator::kAdd, real, step.bias, real);
      if (step.scale.data != nullptr) add(Operator::kMul, real, step.scale, real);
      if (step.token.data != nullptr) add(Operator::kMul, real, step.token, real);
      operators.all.back().c = step.c;
      break;
    }
    case StreamStep::kTreeSum:
      break;  // leaves_missing()
  }
  return operators;
}

bool AclCompute::has_int8() const {
  const Aclnn* aclnn = nullptr;
  return LoadAclnn(&aclnn).ok() && aclnn->quant_matmul_size != nullptr &&
         aclnn->quant_matmul != nullptr;
}

void AclCompute::Release() {
  if (side_ == nullptr && stand_in_ == nullptr) return;
  const DeviceScope scope(api_, device_);
  // The caller cannot act on an error of these calls.
  if (side_ != nullptr) static_cast<void>(api_.destroy_stream(side_));
  if (stand_in_ != nullptr) static_cast<void>(api_.free(stand_in_));
  side_ = nullptr;
  stand_in_ = nullptr;
}

Status AclCompute::Available() {
  return LoadAclnn(&aclnn_);
}

Status AclCompute::OnDevice(const std::function<Status()>& work) {
  const DeviceScope scope(api_, device_);
  COLLOPS_RETURN_IF_ERROR(scope.status());
  return work();
}

Status AclCompute::ScratchBytes(const StreamStep& step, int64_t* bytes) {
  COLLOPS_RETURN_IF_ERROR(Available());
  if (stand_in_ == nullptr) {
    COLLOPS_RETURN_IF_ERROR(AllocateStandIn(api_, &stand_in_));
  }
  if (AddsUpTwoBytes(step) && step.a.columns > 1) {
    COLLOPS_RETURN_IF_ERROR(FindFloatSums(step.a.dtype));
  }
  const Operators operators = OperatorsOf(step, stand_in_);
  *bytes = 0;
  for (const Operator& each : operators.all) {
    Prepared prepared(*aclnn_, stand_in_);
    COLLOPS_RETURN_IF_ERROR(InAclnn(api_, prepared.First(each, stand_in_), each.kind));
    *bytes = std::max(*bytes, static_cast<int64_t>(prepared.bytes()));
  }
  *bytes += operators.bytes;
  return Ok();
}

Status AclCompute::Run(const StreamStep& step, void* scratch, int64_t bytes, void* stream) {
  const Operators operators = OperatorsOf(step, scratch);
  for (const Operator& each : operators.all) {
    Prepared prepared(*aclnn_, stand_in_);
    COLLOPS_RETURN_IF_ERROR(InAclnn(api_, prepared.First(each, nullptr), each.kind));
    const uint64_t needed = static_cast<uint64_t>(operators.bytes) + prepared.bytes();
    COLLOPS_CHECK_ARG(needed <= static_cast<uint64_t>(bytes), ERROR_RT_FAIL, Name(each.kind),
                      " asks for ", needed, " bytes of workspace, but asked for ", bytes,
                      " when the call was planned");
    void* const own = static_cast<std::byte*>(scratch) + operators.bytes;
    COLLOPS_RETURN_IF_ERROR(InAclnn(api_, prepared.Second(own, stream), each.kind));
  }
  return Ok();
}

Status AclCompute::SetZero(void* data, int64_t bytes, void* stream) {
  return Zero(api_, data, {0, bytes}, DType::kInt8, stream);
}

Status AclCompute::Copy(void* to, const void* from, int64_t bytes, void* stream) {
  return hccl::Copy(api_, to, from, bytes, stream);
}

Status AclCompute::SideStream(void** stream) {
  if (side_ == nullptr) {
    COLLOPS_RETURN_IF_ERROR(ToStatus(api_, api_.create_stream(&side_), "aclrtCreateStream"));
  }
  *stream = side_;
  return Ok();
}

std::shared_ptr<kernels::StreamMarks> AclCompute::NewMarks() {
  return std::make_shared<Marks>(api_, device_);
}

}  // namespace collops::hccl
