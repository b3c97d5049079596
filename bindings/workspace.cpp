#include "workspace.h"

#include <string>
#include <utility>

#include "status.h"
#include "tensors/tensor.h"

namespace collops::bindings {
namespace {

namespace py = pybind11;

// A workspace lies where the call's tensors lie. On an NPU the backend checks it.
Status CheckPlace(const VariantPack& pack, const Device& where, const char* operation) {
  const Device wanted = pack.inputs.empty() ? Device() : pack.inputs[0].device;
  COLLOPS_CHECK_ARG(wanted.kind != DeviceKind::kCpu || where.kind == DeviceKind::kCpu,
                    ERROR_INVALID_WORKSPACE_ADDR, operation, ": the workspace is on ",
                    ToString(where),
                    ", but the call's tensors are on the CPU: pass an empty uint8 array");
  COLLOPS_CHECK_ARG(wanted.kind != DeviceKind::kCuda || where == wanted,
                    ERROR_INVALID_WORKSPACE_ADDR, operation, ": the workspace is on ",
                    ToString(where), ", but the call's tensors are on ", ToString(wanted));
  return Ok();
}

// Torch gives freed memory away to what comes next on the stream that it was made on, which is
// torch's current one. What works on another stream is recorded.
void KeepForStream(const py::object& torch, const py::object& memory, const Device& device,
                   void* stream) {
  if (device.kind != DeviceKind::kCuda) return;
  const py::object cuda = torch.attr("cuda");
  const auto number = reinterpret_cast<uintptr_t>(stream);
  void* current = nullptr;
  CallStream of_torch;
  of_torch.See(memory, device);
  ThrowIfError(of_torch.Find("workspace", &current));
  if (current == stream) return;
  memory.attr("record_stream")(
      cuda.attr("ExternalStream")(number, py::arg("device") = memory.attr("device")));
}

py::object MakeMemory(py::handle like, const Device& device, uint64_t bytes, const char* operation,
                      void* stream) {
  if (!IsTorchTensor(like)) {
    const auto make = py::module_::import("collops.tensors").attr("empty_like_kind");
    return make(operation, like, py::make_tuple(bytes), "uint8");
  }
  const py::object torch = py::module_::import("sys").attr("modules")["torch"];
  const py::object memory = torch.attr("empty")(bytes, py::arg("dtype") = torch.attr("uint8"),
                                                py::arg("device") = like.attr("device"));
  KeepForStream(torch, memory, device, stream);
  return memory;
}

}  // namespace

Status DeviceMemory(py::handle like, const Device& device, uint64_t bytes, const char* operation,
                    void* stream, py::object* memory) {
  try {
    *memory = MakeMemory(like, device, bytes, operation, stream);
    return Ok();
  } catch (py::error_already_set& error) {
    if (!error.matches(PyExc_Exception)) throw;
    const auto status_of = py::module_::import("collops.errors").attr("status_of");
    const auto [code, text] = status_of(error.value()).cast<std::pair<int, std::string>>();
    return Error(static_cast<ErrorCode>(code), operation, ": no workspace of ", bytes,
                 " bytes: ", text);
  }
}

Status ToScratch(py::handle workspace, CallStream* stream, const VariantPack& pack,
                 const char* operation, Scratch* scratch) {
  COLLOPS_RETURN_IF_ERROR(stream->Find(operation, &scratch->stream));
  if (workspace.is_none()) return Ok();
  Tensor tensor;
  COLLOPS_RETURN_IF_ERROR(
      ToTensor(workspace, {operation, "workspace", -1, nullptr}, &tensor, stream));
  COLLOPS_CHECK_ARG(tensor.view.contiguous && !tensor.view.read_only, ERROR_INVALID_WORKSPACE_ADDR,
                    operation,
                    ": the workspace must be contiguous and writable: pass an empty uint8 array");
  COLLOPS_RETURN_IF_ERROR(CheckPlace(pack, tensor.view.device, operation));
  scratch->workspace = tensor.view.data;
  scratch->bytes = static_cast<uint64_t>(tensor.numel * SizeOf(tensor.view.desc.dtype));
  scratch->owner = std::move(tensor.owner);
  return Ok();
}

}  // namespace collops::bindings
