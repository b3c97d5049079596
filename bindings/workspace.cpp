#include "workspace.h"

#include "tensor.h"

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

}  // namespace

Status ToScratch(py::handle workspace, py::handle stream, const char* operation, Scratch* scratch) {
  if (!stream.is_none()) RETURN_IF_ERROR(ToStream(stream, operation, &scratch->stream));
  if (workspace.is_none()) return Ok();
  Tensor tensor;
  RETURN_IF_ERROR(ToTensor(workspace, {operation, "workspace", -1, nullptr}, &tensor));
  CHECK_ARG(tensor.view.contiguous && !tensor.view.read_only, ERROR_INVALID_WORKSPACE_ADDR,
            operation,
            ": the workspace must be contiguous and writable: pass an empty uint8 array");
  scratch->workspace = tensor.view.data;
  scratch->bytes = static_cast<uint64_t>(tensor.numel * SizeOf(tensor.view.desc.dtype));
  return Ok();
}

}  // namespace collops::bindings
