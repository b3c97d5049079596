#include <pybind11/numpy.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "module.h"
#include "status.h"
#include "tensors/dlpack.h"
#include "tensors/tensor.h"

namespace collops::bindings {
namespace {

namespace py = pybind11;

constexpr const char* kCapsule = "dltensor";
constexpr const char* kVersionedCapsule = "dltensor_versioned";

// What __dlpack__() has returned. The capsule stays unconsumed in DLPack's sense: it owns the
// tensor and releases it.
struct Exported {
  py::object capsule;
  const dlpack::Tensor* tensor = nullptr;
  bool is_versioned = false;
  bool is_read_only = false;  // by its flag, which versioned ones have
  Device device;
};

Status CheckDevice(const dlpack::Device& said, const TensorName& name, Device* device) {
  COLLOPS_CHECK_ARG(
      dlpack::ToDevice(said, device), ERROR_INVALID_TENSOR_ADDR, ToString(name), " is on ",
      dlpack::ToString(said),
      "; DLPack is read from memory of the CPU and of CUDA only: copy it to the CPU first");
  return Ok();
}

// Checked before __dlpack__() is called, which may wait for the device.
Status CheckSaidDevice(py::handle object, const TensorName& name, Device* device) {
  if (!py::hasattr(object, "__dlpack_device__")) return Ok();
  const auto said = py::tuple(object.attr("__dlpack_device__")());
  return CheckDevice({said[0].cast<int32_t>(), said[1].cast<int32_t>()}, name, device);
}

// Producers of DLPack before 1.0 do not accept max_version, and some accept no stream: then what
// they have on other streams than the legacy default one must be done.
py::object RequestCapsule(py::handle object, const py::dict& stream) {
  const py::object method = object.attr("__dlpack__");
  const auto version = py::make_tuple(dlpack::kMajorVersion, 0);
  try {
    return method(py::arg("max_version") = version, **stream);
  } catch (py::error_already_set& error) {
    if (!error.matches(PyExc_TypeError)) throw;
  }
  if (!stream.empty()) {
    try {
      return method(**stream);
    } catch (py::error_already_set& error) {
      if (!error.matches(PyExc_TypeError)) throw;
    }
  }
  return method();
}

Status ReadCapsule(const TensorName& name, Exported* exported) {
  PyObject* const capsule = exported->capsule.ptr();
  exported->is_versioned = PyCapsule_IsValid(capsule, kVersionedCapsule) != 0;
  if (exported->is_versioned) {
    const auto* managed = static_cast<const dlpack::ManagedVersioned*>(
        PyCapsule_GetPointer(capsule, kVersionedCapsule));
    COLLOPS_CHECK_ARG(managed->major == dlpack::kMajorVersion, ERROR_INVALID_PARAM, ToString(name),
                      ": DLPack version ", managed->major, " is not supported, only 1");
    exported->tensor = &managed->tensor;
    exported->is_read_only = (managed->flags & dlpack::kReadOnly) != 0;
    return Ok();
  }
  COLLOPS_CHECK_ARG(PyCapsule_IsValid(capsule, kCapsule) != 0, ERROR_INVALID_PARAM, ToString(name),
                    ": its __dlpack__ returned no DLPack capsule");
  exported->tensor =
      &static_cast<const dlpack::Managed*>(PyCapsule_GetPointer(capsule, kCapsule))->tensor;
  return Ok();
}

// On CUDA the producer is told the call's stream, and orders its own work before that.
Status Export(py::handle object, const TensorName& name, CallStream* stream, Exported* exported) {
  Device said;
  try {
    COLLOPS_RETURN_IF_ERROR(CheckSaidDevice(object, name, &said));
    py::dict arguments;
    if (said.kind == DeviceKind::kCuda) {
      void* number = nullptr;
      stream->See(object, said);
      COLLOPS_RETURN_IF_ERROR(stream->Find(name.operation, &number));
      arguments["stream"] = reinterpret_cast<uintptr_t>(number);
    }
    exported->capsule = RequestCapsule(object, arguments);
  } catch (py::error_already_set& error) {
    if (!error.matches(PyExc_Exception)) throw;
    return Error(ERROR_INVALID_PARAM, ToString(name), ": its __dlpack__ failed: ", ToString(error));
  } catch (py::cast_error&) {
    return Error(ERROR_INVALID_PARAM, ToString(name),
                 ": its __dlpack_device__ did not return two numbers");
  }
  COLLOPS_RETURN_IF_ERROR(ReadCapsule(name, exported));
  const dlpack::Tensor& tensor = *exported->tensor;
  COLLOPS_RETURN_IF_ERROR(CheckDevice(tensor.device, name, &exported->device));
  COLLOPS_CHECK_ARG(exported->device == said, ERROR_INVALID_PARAM, ToString(name),
                    ": its __dlpack__ gave ", "memory on ", ToString(exported->device),
                    ", but its __dlpack_device__ says ", ToString(said));
  COLLOPS_CHECK_ARG(tensor.type.lanes == 1, ERROR_INVALID_TENSOR_INI_MATCH, ToString(name),
                    ": its elements are vectors of ", tensor.type.lanes,
                    "; pass a tensor of numbers");
  return Ok();
}

bool HasDlpack(py::handle object) {
  return py::hasattr(object, "__dlpack__") && !PyType_Check(object.ptr());
}

std::byte* Address(const dlpack::Tensor& source) {
  return static_cast<std::byte*>(source.data) + source.byte_offset;
}

// On the CPU libraries may rely on constant memory without a flag that says so. On CUDA the flag
// decides; a capsule without flags is writable, as CuPy's are, unless it is of JAX, whose arrays
// never change.
bool IsReadOnly(py::handle object, const Exported& exported) {
  if (exported.device.kind == DeviceKind::kCpu) return true;
  if (exported.is_versioned) return exported.is_read_only;
  return IsFrom(object, "jax") || IsFrom(object, "jaxlib");
}

// Lists and numbers, of which numpy makes an array.
bool IsOfNumbers(py::handle object) {
  return PyList_Check(object.ptr()) != 0 || PyTuple_Check(object.ptr()) != 0 ||
         PyLong_Check(object.ptr()) != 0 || PyFloat_Check(object.ptr()) != 0;
}

// A read-only numpy array on the tensor's memory, and the name of its type. If numpy has no such
// type, the array has unsigned numbers of the same size.
py::tuple FromDlpack(const py::object& object, const std::string& operation,
                     const std::string& label) {
  const TensorName name{operation.c_str(), label.c_str(), -1, nullptr};
  if (!HasDlpack(object)) {
    ThrowIfError(Error(ERROR_INVALID_PARAM, ToString(name),
                       " must be a numpy array, a torch tensor or an object with __dlpack__, got ",
                       Py_TYPE(object.ptr())->tp_name,
                       IsOfNumbers(object) ? ": np.array([...]) makes one of numbers" : ""));
  }
  CallStream stream;
  Exported exported;
  ThrowIfError(Export(object, name, &stream, &exported));
  const dlpack::Tensor* const source = exported.tensor;
  if (exported.device.kind != DeviceKind::kCpu) {
    ThrowIfError(Error(ERROR_INVALID_TENSOR_ADDR, ToString(name), " is on ",
                       ToString(exported.device), ", and numpy reads memory of the CPU only"));
  }
  const dlpack::NamedType* type = dlpack::Find(source->type);
  if (type == nullptr) {
    ThrowIfError(Error(ERROR_INVALID_TENSOR_INI_MATCH, ToString(name), ": DLPack's type ",
                       int{source->type.code}, " of ", int{source->type.bits},
                       " bits is not supported"));
  }
  const auto item = static_cast<py::ssize_t>(type->bits / 8);
  std::vector<py::ssize_t> shape(source->shape, source->shape + source->num_dims);
  std::vector<py::ssize_t> strides;
  if (source->strides != nullptr) {
    for (int i = 0; i < source->num_dims; ++i) strides.push_back(source->strides[i] * item);
  }
  py::array array(py::dtype(type->numpy_name), shape, strides, Address(*source), exported.capsule);
  array.attr("setflags")(py::arg("write") = false);
  return py::make_tuple(array, type->name);
}

}  // namespace

bool IsOnCuda(py::handle object) {
  if (!HasDlpack(object)) return false;
  Device device;
  try {
    const TensorName no_name{"", "", -1, nullptr};
    return CheckSaidDevice(object, no_name, &device).ok() && device.kind == DeviceKind::kCuda;
  } catch (py::error_already_set& error) {
    if (!error.matches(PyExc_Exception)) throw;
  } catch (py::cast_error&) {
  }
  return false;  // what is wrong with it is said where it is read
}

Status DlpackToTensor(py::handle object, const TensorName& name, Tensor* tensor, CallStream* stream,
                      bool* recognised) {
  *recognised = HasDlpack(object);
  if (!*recognised) return Ok();
  Exported exported;
  COLLOPS_RETURN_IF_ERROR(Export(object, name, stream, &exported));
  const dlpack::Tensor& source = *exported.tensor;
  tensor->owner = std::move(exported.capsule);
  TensorView& view = tensor->view;
  view = TensorView();
  view.desc.dtype = dlpack::NumberOf(source.type);
  view.desc.shape = Shape::From(source.shape, source.num_dims);
  view.data = Address(source);
  view.device = exported.device;
  view.contiguous = dlpack::IsContiguous(source);
  view.read_only = IsReadOnly(object, exported);
  tensor->numel = 1;
  for (int i = 0; i < source.num_dims; ++i) tensor->numel *= source.shape[i];
  return Ok();
}

void BindDlpack(py::module_& module) {
  module.def("from_dlpack", &FromDlpack, py::arg("tensor"), py::arg("operation"), py::arg("label"));
}

}  // namespace collops::bindings
