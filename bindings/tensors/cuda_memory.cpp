#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include "collops/core/deadline.h"
#include "collops/kernels/cuda/devices.h"
#include "collops/kernels/cuda/driver.h"
#include "collops/kernels/cuda/memory_pool.h"
#include "collops/kernels/cuda/runtime.h"
#include "module.h"
#include "status.h"
#include "tensors/call_stream.h"
#include "tensors/dlpack.h"
#include "tensors/tensor.h"

namespace collops::bindings {
namespace {

// Says that work on the stream uses the block, when the last of it has been put there: when this is
// destroyed. Needs no GIL.
class CudaUse {
 public:
  CudaUse(std::shared_ptr<cuda::Block> block, cuda::Stream stream)
      : block_(std::move(block)), stream_(stream) {}
  ~CudaUse() {
    if (block_ != nullptr) block_->UsedOn(stream_);
  }
  CudaUse(const CudaUse&) = delete;
  CudaUse& operator=(const CudaUse&) = delete;

 private:
  std::shared_ptr<cuda::Block> block_;
  cuda::Stream stream_;
};

// How long the pool waits for calls of this process before it calls the driver all the same: one of
// them may wait for the rank that needs the memory.
constexpr double kPatienceS = 2.0;

Status AwaitCalls(const cuda::DriverApi& driver) {
  const Deadline deadline = Deadline::After(kPatienceS);
  static_cast<void>(cuda::RunningCalls::Await(driver, [&]() -> Status {
    return deadline.Passed() ? Error(ERROR_TIMEOUT, "calls run") : Ok();
  }));
  return Ok();
}

const cuda::DriverApi& LoadedDriver(const std::string& operation) {
  const cuda::DriverApi* driver = nullptr;
  const Status loaded = cuda::LoadDriver(&driver);
  if (!loaded.ok()) Throw(loaded.code(), operation, ": ", loaded.message());
  return *driver;
}

dlpack::Type ElementType(const std::string& dtype, const std::string& operation) {
  std::string known;
  for (const dlpack::NamedType& row : dlpack::kTypes) {
    if (dtype == row.name) return {row.code, row.bits, 1};
    known += Concat(known.empty() ? "" : ", ", row.name);
  }
  Throw(ERROR_INVALID_TENSOR_INI_MATCH, operation, ": an array on a GPU has elements of ", known,
        "; got ", dtype);
}

Status CheckIndex(const cuda::DriverApi& driver, const std::string& operation, int* device) {
  if (*device == -1) return cuda::CurrentDevice(driver, device);
  int count = 0;
  COLLOPS_RETURN_IF_ERROR(
      cuda::ToStatus(driver, driver.device_get_count(&count), "cuDeviceGetCount"));
  COLLOPS_CHECK_ARG(*device >= 0 && *device < count, ERROR_INVALID_PARAM, operation,
                    ": device must be from 0 to ", count - 1, ", got ", *device);
  return Ok();
}

// Elements in row-major order in memory of a GPU that is made here; what collops.CudaArray is. The
// memory goes to a later one when the array and all consumers of it are gone and the streams that
// they named are past. One thread at a time needs the GIL.
class CudaMemory {
 public:
  // `dtype`: numpy's or ml_dtypes' name. `device`: -1 for the one of the thread's current context.
  // `operation` is for messages.
  CudaMemory(std::vector<int64_t> shape, const std::string& dtype, int device,
             const std::string& operation);
  ~CudaMemory();
  CudaMemory(const CudaMemory&) = delete;
  CudaMemory& operator=(const CudaMemory&) = delete;

  int device() const { return device_; }
  const std::vector<int64_t>& shape() const { return shape_; }
  const dlpack::Type& type() const { return type_; }
  const std::shared_ptr<cuda::Block>& block() const { return block_; }
  // The address; null without elements.
  void* data() const;

  // Copies all bytes, on the stream, and waits for it.
  void Write(const py::array& from, const py::object& stream) const;
  void Read(const py::array& to, const py::object& stream) const;
  // A DLPack capsule for a consumer on that stream; -1: it orders itself.
  py::object Export(const py::object& stream, bool versioned) const;
  // The address, for a use on an unknown stream that follows the legacy default stream.
  uintptr_t Show();

 private:
  template <typename Put>
  void Transfer(const char* operation, const py::object& stream, const Put& put) const;

  std::vector<int64_t> shape_;
  dlpack::Type type_ = {};
  int64_t bytes_ = 0;
  int device_ = 0;
  std::shared_ptr<cuda::Block> block_;  // null without elements
  bool is_shown_ = false;
};

CudaMemory::CudaMemory(std::vector<int64_t> shape, const std::string& dtype, int device,
                       const std::string& operation)
    : shape_(std::move(shape)), type_(ElementType(dtype, operation)), device_(device) {
  const cuda::DriverApi& driver = LoadedDriver(operation);
  bytes_ = type_.bits / 8;
  for (const int64_t size : shape_) bytes_ *= size;
  RunWithoutGil([&]() -> Status {
    COLLOPS_RETURN_IF_ERROR(CheckIndex(driver, operation, &device_));
    if (bytes_ == 0) return Ok();
    const Status taken =
        cuda::Pool::Take(driver, device_, bytes_, [&] { return AwaitCalls(driver); }, &block_);
    COLLOPS_CHECK_ARG(taken.ok(), taken.code(), operation, ": ", bytes_, " bytes of GPU ", device_,
                      ": ", taken.message(),
                      taken.code() == ERROR_OUT_OF_DEVICE_MEMORY
                          ? "; collops.cuda_empty_cache() frees what no array uses"
                          : "");
    return Ok();
  });
}

// What an address was used for is not known; it may be on any stream that follows this one.
CudaMemory::~CudaMemory() {
  if (is_shown_ && block_ != nullptr) block_->UsedOn(cuda::LegacyStream());
}

void* CudaMemory::data() const {
  return block_ == nullptr ? nullptr : reinterpret_cast<void*>(block_->pointer());
}

// `put` puts the copy on the stream.
template <typename Put>
void CudaMemory::Transfer(const char* operation, const py::object& stream, const Put& put) const {
  CallStream asked(stream);
  void* on = nullptr;
  asked.See(py::none(), {DeviceKind::kCuda, device_});
  ThrowIfError(asked.Find(operation, &on));
  if (block_ == nullptr) return;
  const cuda::DriverApi& driver = LoadedDriver(operation);
  const auto run = [&]() -> Status {
    COLLOPS_RETURN_IF_ERROR(block_->OrderBehindUses(on));
    const cuda::DeviceScope scope(driver, device_);
    COLLOPS_RETURN_IF_ERROR(scope.status());
    cuda::Graph graph = nullptr;
    COLLOPS_RETURN_IF_ERROR(cuda::Runtime(driver).FindGraph(on, &graph));
    COLLOPS_CHECK_ARG(graph == nullptr, ERROR_INVALID_STREAM,
                      "the stream is captured, and this copy waits for it");
    Status status = put(driver, on);
    if (status.ok()) {
      status = cuda::ToStatus(driver, driver.stream_synchronize(on), "cuStreamSynchronize");
    }
    if (!status.ok()) block_->UsedOn(on);
    return status;
  };
  RunWithoutGil([&]() -> Status {
    const Status status = run();
    return status.ok() ? Ok() : Error(status.code(), operation, ": ", status.message());
  });
}

void CudaMemory::Write(const py::array& from, const py::object& stream) const {
  const void* const host = from.data();
  Transfer("CudaArray.write", stream, [&](const cuda::DriverApi& driver, cuda::Stream on) {
    return cuda::ToStatus(
        driver, driver.memcpy_htod_async(block_->pointer(), host, static_cast<size_t>(bytes_), on),
        "cuMemcpyHtoDAsync");
  });
}

void CudaMemory::Read(const py::array& to, const py::object& stream) const {
  void* const host = const_cast<void*>(to.data());
  Transfer("CudaArray.read", stream, [&](const cuda::DriverApi& driver, cuda::Stream on) {
    return cuda::ToStatus(
        driver, driver.memcpy_dtoh_async(host, block_->pointer(), static_cast<size_t>(bytes_), on),
        "cuMemcpyDtoHAsync");
  });
}

py::object CudaMemory::Export(const py::object& stream, bool versioned) const {
  void* on = cuda::LegacyStream();
  const bool orders_itself = py::isinstance<py::int_>(stream) && stream.equal(py::int_(-1));
  if (!orders_itself) {
    CallStream asked(stream);
    asked.See(py::none(), {DeviceKind::kCuda, device_});
    ThrowIfError(asked.Find("CudaArray.__dlpack__", &on));
    if (block_ != nullptr) {
      RunWithoutGil([&] { return block_->OrderBehindUses(on); });
    }
  }
  return dlpack::Export(data(), {dlpack::kCuda, device_}, type_, shape_,
                        std::make_shared<CudaUse>(block_, on), versioned);
}

uintptr_t CudaMemory::Show() {
  is_shown_ = true;
  return reinterpret_cast<uintptr_t>(data());
}

}  // namespace

Status CudaMemoryToTensor(py::handle object, const TensorName& name, Tensor* tensor,
                          CallStream* stream, bool* recognised) {
  *recognised = py::isinstance<CudaMemory>(object);
  if (!*recognised) return Ok();
  const auto& memory = object.cast<const CudaMemory&>();
  tensor->view = TensorView();
  tensor->view.desc.dtype = dlpack::NumberOf(memory.type());
  tensor->view.data = memory.data();
  tensor->view.device = {DeviceKind::kCuda, memory.device()};
  SetShape(memory.shape().data(), static_cast<int>(memory.shape().size()), tensor);
  if (stream == nullptr || stream->only_looks()) return Ok();
  void* on = nullptr;
  stream->See(object, tensor->view.device);
  COLLOPS_RETURN_IF_ERROR(stream->Find(name.operation, &on));
  if (memory.block() == nullptr) return Ok();
  const Status ordered = memory.block()->OrderBehindUses(on);
  COLLOPS_CHECK_ARG(ordered.ok(), ordered.code(), ToString(name), ": ", ordered.message());
  tensor->owner = py::capsule(new CudaUse(memory.block(), on),
                              [](void* use) { delete static_cast<CudaUse*>(use); });
  return Ok();
}

void BindCudaMemory(py::module_& module) {
  py::class_<CudaMemory>(module, "CudaMemory")
      .def(py::init<std::vector<int64_t>, const std::string&, int, const std::string&>(),
           py::arg("shape"), py::arg("dtype"), py::arg("device"), py::arg("operation"))
      .def_property_readonly("device", &CudaMemory::device)
      .def("copy_in", &CudaMemory::Write, py::arg("source"), py::arg("stream"))
      .def("copy_out", &CudaMemory::Read, py::arg("target"), py::arg("stream"))
      .def("export", &CudaMemory::Export, py::arg("stream"), py::arg("versioned"))
      .def("show", &CudaMemory::Show);
  module.def("empty_cuda_cache", [] {
    const cuda::DriverApi& driver = LoadedDriver("cuda_empty_cache");
    int64_t freed = 0;
    RunWithoutGil(
        [&] { return cuda::Pool::Empty(driver, [&] { return AwaitCalls(driver); }, &freed); });
    return freed;
  });
}

}  // namespace collops::bindings
