#include <pybind11/numpy.h>

#include <algorithm>
#include <cstring>

#include "module.h"
#include "status.h"
#include "tensors/dlpack.h"
#include "tensors/tensor.h"

namespace collops::bindings {
namespace {

namespace py = pybind11;

constexpr const char* kCapsule = "dltensor";
constexpr const char* kVersionedCapsule = "dltensor_versioned";

Status CheckDevice(const dlpack::Device& device, const TensorName& name) {
  const bool on_host = device.type == dlpack::kCpu || device.type == dlpack::kCudaHost ||
                       device.type == dlpack::kRocmHost;
  CHECK_ARG(on_host, ERROR_INVALID_TENSOR_ADDR, ToString(name), " is on ", dlpack::ToString(device),
            "; through DLPack only memory of the CPU is read: copy it to the CPU first");
  return Ok();
}

// Checked before __dlpack__() is called, which may wait for the device.
Status CheckSaidDevice(py::handle object, const TensorName& name) {
  if (!py::hasattr(object, "__dlpack_device__")) return Ok();
  const auto said = py::tuple(object.attr("__dlpack_device__")());
  return CheckDevice({said[0].cast<int32_t>(), said[1].cast<int32_t>()}, name);
}

// Producers of DLPack before 1.0 do not accept max_version.
py::object RequestCapsule(py::handle object) {
  const py::object method = object.attr("__dlpack__");
  try {
    return method(py::arg("max_version") = py::make_tuple(dlpack::kMajorVersion, 0));
  } catch (py::error_already_set& error) {
    if (!error.matches(PyExc_TypeError)) throw;
  }
  return method();
}

// The capsule stays unconsumed in DLPack's sense: it owns the tensor and releases it.
Status ReadCapsule(py::handle capsule, const TensorName& name, const dlpack::Tensor** tensor) {
  if (PyCapsule_IsValid(capsule.ptr(), kVersionedCapsule) != 0) {
    const auto* managed = static_cast<const dlpack::ManagedVersioned*>(
        PyCapsule_GetPointer(capsule.ptr(), kVersionedCapsule));
    CHECK_ARG(managed->major == dlpack::kMajorVersion, ERROR_INVALID_PARAM, ToString(name),
              ": DLPack ", managed->major, " is not known here, only 1");
    *tensor = &managed->tensor;
    return Ok();
  }
  CHECK_ARG(PyCapsule_IsValid(capsule.ptr(), kCapsule) != 0, ERROR_INVALID_PARAM, ToString(name),
            ": its __dlpack__ returned no DLPack capsule");
  *tensor =
      &static_cast<const dlpack::Managed*>(PyCapsule_GetPointer(capsule.ptr(), kCapsule))->tensor;
  return Ok();
}

Status Export(py::handle object, const TensorName& name, py::object* capsule,
              const dlpack::Tensor** source) {
  try {
    RETURN_IF_ERROR(CheckSaidDevice(object, name));
    *capsule = RequestCapsule(object);
  } catch (py::error_already_set& error) {
    if (!error.matches(PyExc_Exception)) throw;
    return Error(ERROR_INVALID_PARAM, ToString(name), ": its __dlpack__ failed: ", ToString(error));
  } catch (py::cast_error&) {
    return Error(ERROR_INVALID_PARAM, ToString(name),
                 ": its __dlpack_device__ did not return two numbers");
  }
  RETURN_IF_ERROR(ReadCapsule(*capsule, name, source));
  RETURN_IF_ERROR(CheckDevice((*source)->device, name));
  CHECK_ARG((*source)->type.lanes == 1, ERROR_INVALID_TENSOR_INI_MATCH, ToString(name),
            ": its elements are vectors of ", (*source)->type.lanes, "; pass a tensor of numbers");
  return Ok();
}

bool HasDlpack(py::handle object) {
  return py::hasattr(object, "__dlpack__") && !PyType_Check(object.ptr());
}

std::byte* Address(const dlpack::Tensor& source) {
  return static_cast<std::byte*>(source.data) + source.byte_offset;
}

// A read-only numpy array on the tensor's memory, and the name of its type. If numpy has no such
// type, the array has unsigned numbers of the same size.
py::tuple FromDlpack(const py::object& object, const std::string& operation,
                     const std::string& label) {
  const TensorName name{operation.c_str(), label.c_str(), -1, nullptr};
  py::object capsule;
  const dlpack::Tensor* source = nullptr;
  if (!HasDlpack(object)) {
    ThrowIfError(
        Error(ERROR_INVALID_PARAM, ToString(name),
              " must be a numpy array, a torch tensor or an object with __dlpack__, got a ",
              Py_TYPE(object.ptr())->tp_name));
  }
  ThrowIfError(Export(object, name, &capsule, &source));
  const dlpack::NamedType* type = dlpack::Find(source->type);
  if (type == nullptr) {
    ThrowIfError(Error(ERROR_INVALID_TENSOR_INI_MATCH, ToString(name), ": DLPack's type ",
                       int{source->type.code}, " of ", int{source->type.bits},
                       " bits is not known here"));
  }
  const auto item = static_cast<py::ssize_t>(type->bits / 8);
  std::vector<py::ssize_t> shape(source->shape, source->shape + source->num_dims);
  std::vector<py::ssize_t> strides;
  if (source->strides != nullptr) {
    for (int i = 0; i < source->num_dims; ++i) strides.push_back(source->strides[i] * item);
  }
  py::array array(py::dtype(type->numpy_name), shape, strides, Address(*source), capsule);
  array.attr("setflags")(py::arg("write") = false);
  return py::make_tuple(array, type->name);
}

}  // namespace

Status DlpackToTensor(py::handle object, const TensorName& name, Tensor* tensor, bool* recognised) {
  *recognised = HasDlpack(object);
  if (!*recognised) return Ok();
  const dlpack::Tensor* source = nullptr;
  RETURN_IF_ERROR(Export(object, name, &tensor->owner, &source));
  TensorView& view = tensor->view;
  view = TensorView();
  view.desc.dtype = dlpack::NumberOf(source->type);
  view.desc.shape = Shape::From(source->shape, source->num_dims);
  view.data = Address(*source);
  view.contiguous = dlpack::IsContiguous(*source);
  view.read_only = true;  // the library may rely on constant memory, as JAX does
  tensor->numel = 1;
  for (int i = 0; i < source->num_dims; ++i) tensor->numel *= source->shape[i];
  return Ok();
}

void BindDlpack(py::module_& module) {
  module.def("from_dlpack", &FromDlpack, py::arg("tensor"), py::arg("operation"), py::arg("label"));
}

}  // namespace collops::bindings
