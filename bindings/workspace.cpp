#include "workspace.h"

#include "status.h"
#include "tensors/tensor.h"

namespace collops::bindings {
namespace {

namespace py = pybind11;

Status ToStream(py::handle object, const char* operation, void** stream) {
  py::object number = py::reinterpret_borrow<py::object>(object);
  for (const char* attribute : {"npu_stream", "cuda_stream"}) {
    if (py::hasattr(object, attribute)) number = object.attr(attribute);
  }
  CHECK_ARG(py::isinstance<py::int_>(number), ERROR_INVALID_STREAM, operation,
            ": stream must be None, a number or a torch stream, got ",
            Py_TYPE(object.ptr())->tp_name);
  *stream = PyLong_AsVoidPtr(number.ptr());
  if (PyErr_Occurred() == nullptr) return Ok();
  PyErr_Clear();
  return Error(ERROR_INVALID_STREAM, operation, ": stream is no address");
}

const Device* FindNpu(const VariantPack& pack) {
  for (const auto* tensors : {&pack.inputs, &pack.outputs}) {
    for (const TensorView& tensor : *tensors) {
      if (tensor.device.kind == DeviceKind::kNpu) return &tensor.device;
    }
  }
  return nullptr;
}

// A caller with an NPU tensor has imported torch and torch_npu. Asked in each call, because
// torch_npu first puts queued work on the stream when it returns the handle.
Status CurrentStream(const Device& npu, const char* operation, void** stream) {
  try {
    const py::object torch = py::module_::import("sys").attr("modules")["torch"];
    return ToStream(torch.attr("npu").attr("current_stream")(npu.index), operation, stream);
  } catch (py::error_already_set& error) {
    if (!error.matches(PyExc_Exception)) throw;
    return Error(ERROR_INVALID_STREAM, operation, ": torch does not tell its current stream of ",
                 ToString(npu), ": ", ToString(error));
  }
}

}  // namespace

py::object DeviceMemory(py::handle like, uint64_t bytes) {
  const py::object torch = py::module_::import("sys").attr("modules")["torch"];
  return torch.attr("empty")(bytes, py::arg("dtype") = torch.attr("uint8"),
                             py::arg("device") = like.attr("device"));
}

Status StreamOf(const Device& device, const char* operation, void** stream) {
  *stream = nullptr;
  if (device.kind != DeviceKind::kNpu) return Ok();
  return CurrentStream(device, operation, stream);
}

Status ToScratch(py::handle workspace, py::handle stream, const VariantPack& pack,
                 const char* operation, Scratch* scratch) {
  if (!stream.is_none()) {
    RETURN_IF_ERROR(ToStream(stream, operation, &scratch->stream));
  } else if (const Device* npu = FindNpu(pack)) {
    RETURN_IF_ERROR(CurrentStream(*npu, operation, &scratch->stream));
  }
  if (workspace.is_none()) return Ok();
  Tensor tensor;
  RETURN_IF_ERROR(ToTensor(workspace, {operation, "workspace", -1, nullptr}, &tensor));
  CHECK_ARG(tensor.view.contiguous && !tensor.view.read_only, ERROR_INVALID_WORKSPACE_ADDR,
            operation,
            ": the workspace must be contiguous and writable: pass an empty uint8 array");
  const bool on_host = pack.inputs.empty() || pack.inputs[0].device.kind == DeviceKind::kCpu;
  CHECK_ARG(!on_host || tensor.view.device.kind == DeviceKind::kCpu, ERROR_INVALID_WORKSPACE_ADDR,
            operation, ": the workspace is on ", ToString(tensor.view.device),
            ", but the call's tensors are on the CPU: pass an empty uint8 array");
  scratch->workspace = tensor.view.data;
  scratch->bytes = static_cast<uint64_t>(tensor.numel * SizeOf(tensor.view.desc.dtype));
  return Ok();
}

}  // namespace collops::bindings
