#include "tensors/call_stream.h"

#include "module.h"
#include "status.h"
#include "tensors/tensor.h"

namespace collops::bindings {
namespace {

// CU_STREAM_LEGACY: the legacy default stream by a number of its own.
constexpr uintptr_t kLegacyStream = 1;

// A module that the program has imported, or None.
py::object ImportedModule(const char* name) {
  return py::module_::import("sys").attr("modules").attr("get")(name);
}

// The number of a stream. CUDA's protocol for Python says (0, number), where 0 is its version.
py::object NumberOf(py::handle object) {
  for (const char* attribute : {"npu_stream", "cuda_stream"}) {
    if (py::hasattr(object, attribute)) return object.attr(attribute);
  }
  if (py::hasattr(object, "__cuda_stream__")) {
    const py::tuple said = object.attr("__cuda_stream__")();
    const bool is_known = said.size() == 2 && py::object(said[0]).equal(py::int_(0));
    return is_known ? py::object(said[1]) : py::none();
  }
  if (py::hasattr(object, "ptr")) return object.attr("ptr");
  return py::reinterpret_borrow<py::object>(object);
}

Status ToStream(py::handle object, const char* operation, void** stream) {
  py::object number;
  try {
    number = NumberOf(object);
  } catch (py::error_already_set& error) {
    if (!error.matches(PyExc_Exception)) throw;
    return Error(ERROR_INVALID_STREAM, operation, ": stream has no address: ", ToString(error));
  }
  COLLOPS_CHECK_ARG(py::isinstance<py::int_>(number), ERROR_INVALID_STREAM, operation,
                    ": stream must be None, a number or a torch stream, got ",
                    Py_TYPE(object.ptr())->tp_name);
  const unsigned long long address = PyLong_AsUnsignedLongLong(number.ptr());
  if (PyErr_Occurred() == nullptr) {
    *stream = reinterpret_cast<void*>(static_cast<uintptr_t>(address));
    return Ok();
  }
  PyErr_Clear();
  return Error(ERROR_INVALID_STREAM, operation, ": stream is not an address");
}

// On CUDA the null stream is called by its number.
void NameNullStream(const Device& device, void** stream) {
  const bool is_null = *stream == nullptr && device.kind == DeviceKind::kCuda;
  if (is_null) *stream = reinterpret_cast<void*>(kLegacyStream);
}

// Asked in each call, because torch_npu first puts queued work on the stream when it returns the
// handle.
py::object StreamOfTorch(const Device& device) {
  const char* const part = device.kind == DeviceKind::kNpu ? "npu" : "cuda";
  return ImportedModule("torch").attr(part).attr("current_stream")(device.index);
}

py::object StreamOfCupy(const Device& device) {
  return ImportedModule("cupy").attr("cuda").attr("get_current_stream")(device.index);
}

// The current stream by `find`, which asks `library`.
template <typename Find>
Status Ask(const char* library, const Device& device, const char* operation, const Find& find,
           void** stream) {
  try {
    return ToStream(find(device), operation, stream);
  } catch (py::error_already_set& error) {
    if (!error.matches(PyExc_Exception)) throw;
    return Error(ERROR_INVALID_STREAM, operation, ": ", library,
                 " does not return its current stream of ", ToString(device), ": ",
                 ToString(error));
  }
}

// The current stream of the library that made the tensor; of one that tells none, the null stream.
Status StreamOf(py::handle tensor, const Device& device, const char* operation, void** stream) {
  if (device.kind == DeviceKind::kNpu || IsTorchTensor(tensor)) {
    return Ask("torch", device, operation, StreamOfTorch, stream);
  }
  if (IsFrom(tensor, "cupy")) return Ask("cupy", device, operation, StreamOfCupy, stream);
  return Ok();
}

// Whether the program has used torch on CUDA; asking for a stream would be its first use.
bool UsesTorchOnCuda() {
  const py::object torch = ImportedModule("torch");
  return !torch.is_none() && py::cast<bool>(torch.attr("cuda").attr("is_initialized")());
}

}  // namespace

Status CallStream::Find(const char* operation, void** stream) {
  if (!found_ && passed_ && !passed_.is_none()) {
    COLLOPS_RETURN_IF_ERROR(ToStream(passed_, operation, &stream_));
  } else if (!found_ && tensor_) {
    COLLOPS_RETURN_IF_ERROR(StreamOf(tensor_, device_, operation, &stream_));
  }
  found_ = true;
  NameNullStream(device_, &stream_);
  *stream = stream_;
  return Ok();
}

Status CurrentStream(const Device& device, const char* operation, void** stream) {
  *stream = nullptr;
  const bool on_cuda = device.kind == DeviceKind::kCuda;
  if (device.kind == DeviceKind::kNpu || (on_cuda && UsesTorchOnCuda())) {
    COLLOPS_RETURN_IF_ERROR(Ask("torch", device, operation, StreamOfTorch, stream));
  } else if (on_cuda && !ImportedModule("cupy").is_none()) {
    COLLOPS_RETURN_IF_ERROR(Ask("cupy", device, operation, StreamOfCupy, stream));
  }
  NameNullStream(device, stream);
  return Ok();
}

}  // namespace collops::bindings
