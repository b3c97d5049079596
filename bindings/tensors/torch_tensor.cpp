#include <cstring>
#include <unordered_map>
#include <vector>

#include "module.h"
#include "status.h"
#include "tensors/dlpack.h"
#include "tensors/tensor.h"

namespace collops::bindings {
namespace {

// Interns a name that every call looks up; it lives as long as the process.
PyObject* Interned(const char* name) {
  return PyUnicode_InternFromString(name);
}

py::object Attribute(py::handle object, PyObject* name) {
  PyObject* value = PyObject_GetAttr(object.ptr(), name);
  if (value == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(value);
}

py::object CallMethod(py::handle object, PyObject* name) {
  PyObject* value = PyObject_CallMethodNoArgs(object.ptr(), name);
  if (value == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(value);
}

bool IsTensorClass(py::handle type) {
  return std::strcmp(reinterpret_cast<PyTypeObject*>(type.ptr())->tp_name, "Tensor") == 0 &&
         py::str(type.attr("__module__")).cast<std::string>() == "torch";
}

// torch.float32 etc. are single objects that live as long as torch.
DType TorchType(py::handle dtype) {
  static std::unordered_map<PyObject*, DType> known;
  const auto found = known.find(dtype.ptr());
  if (found != known.end()) return found->second;
  const std::string text = py::str(dtype);
  DType result = DType::kUndefined;
  ParseDType(text.substr(text.rfind('.') + 1).c_str(), &result);
  known.emplace(dtype.inc_ref().ptr(), result);
  return result;
}

Device DeviceOf(py::handle object) {
  static PyObject* const is_cpu = Interned("is_cpu");
  if (Attribute(object, is_cpu).ptr() == Py_True) return Device();
  const py::object device = object.attr("device");
  const std::string kind = py::str(device.attr("type"));
  const py::object index = device.attr("index");
  Device result;
  result.kind = kind == "cuda"   ? DeviceKind::kCuda
                : kind == "npu"  ? DeviceKind::kNpu
                : kind == "meta" ? DeviceKind::kMeta
                                 : DeviceKind::kOther;
  result.index = index.is_none() ? 0 : index.cast<int>();
  return result;
}

// torch_npu stores some tensors in NPU formats, whose elements have another order. All plain
// formats (by aclFormat's numbers) count as ND here.
Format FormatOnNpu(py::handle object) {
  const py::dict modules = py::module_::import("sys").attr("modules");
  if (!modules.contains("torch_npu")) return Format::kND;
  const int number = py::int_(modules["torch_npu"].attr("get_npu_format")(object));
  for (const int plain : {-1, 0, 1, 2, 27, 30, 35, 47}) {
    if (number == plain) return Format::kND;
  }
  return static_cast<Format>(number);
}

void ReadShape(py::handle object, Tensor* tensor) {
  static PyObject* const shape_name = Interned("shape");
  const auto shape = py::reinterpret_borrow<py::tuple>(Attribute(object, shape_name));
  std::vector<int64_t> sizes;
  for (const py::handle size : shape) {
    sizes.push_back(PyLong_AsLongLong(size.ptr()));
    if (sizes.back() == -1 && PyErr_Occurred() != nullptr) throw py::error_already_set();
  }
  SetShape(sizes.data(), static_cast<int>(sizes.size()), tensor);
}

// torch.is_grad_enabled() of this thread: false under torch.no_grad() and inference_mode().
bool RecordsGradients() {
  const py::object torch = py::module_::import("sys").attr("modules")["torch"];
  return py::cast<bool>(torch.attr("is_grad_enabled")());
}

// Whether torch negates the elements when it reads them, as those of x.conj().imag.
bool IsNegated(py::handle object, DType dtype) {
  static PyObject* const is_neg = Interned("is_neg");
  const bool may_be = dtype == DType::kFloat32 || dtype == DType::kFloat64 ||
                      dtype == DType::kFloat16 || IsComplex(dtype);
  return may_be && CallMethod(object, is_neg).ptr() == Py_True;
}

// Refuses a tensor whose values are not in its memory: torch would have to compute them first.
Status CheckMaterial(py::handle object, const TensorName& name, DType dtype) {
  static PyObject* const requires_grad = Interned("requires_grad");
  COLLOPS_CHECK_ARG(Attribute(object, requires_grad).ptr() == Py_False || !RecordsGradients(),
                    ERROR_INVALID_PARAM, ToString(name),
                    " requires grad, but this call has no gradient: pass .detach(), or call under ",
                    "torch.no_grad()");
  COLLOPS_CHECK_ARG(
      dtype != DType::kUndefined || !py::cast<bool>(object.attr("is_quantized")),
      ERROR_INVALID_PARAM, ToString(name),
      " is quantised, and its scale would be lost: pass .dequantize(), or .int_repr()");
  COLLOPS_CHECK_ARG(!IsNegated(object, dtype), ERROR_INVALID_PARAM, ToString(name),
                    " is a lazily negated view: pass .resolve_neg()");
  if (IsComplex(dtype)) {
    COLLOPS_CHECK_ARG(!py::cast<bool>(object.attr("is_conj")()), ERROR_INVALID_PARAM,
                      ToString(name), " is a lazily conjugated view: pass .resolve_conj()");
  }
  return Ok();
}

using DescribeTensor = int (*)(void* object, dlpack::Tensor* tensor);

// torch's own C function for that class of tensors, which torch 2.13 has; else null. It takes less
// time than reading the attributes one after the other.
DescribeTensor FindDescribe(PyTypeObject* type) {
  const py::object capsule =
      py::getattr(reinterpret_cast<PyObject*>(type), "__dlpack_c_exchange_api__", py::none());
  constexpr const char* kName = "dlpack_exchange_api";
  if (PyCapsule_IsValid(capsule.ptr(), kName) == 0) return nullptr;
  const auto* api =
      static_cast<const dlpack::ExchangeApi*>(PyCapsule_GetPointer(capsule.ptr(), kName));
  return api->major == dlpack::kMajorVersion ? api->describe : nullptr;
}

// FindDescribe() of torch.Tensor itself: a class derived from it may have no memory of its own.
DescribeTensor DescribeOf(PyTypeObject* type) {
  static PyTypeObject* plain = nullptr;
  static DescribeTensor describe = nullptr;
  if (plain == nullptr && IsTensorClass(reinterpret_cast<PyObject*>(type))) {
    Py_INCREF(type);
    plain = type;
    describe = FindDescribe(type);
  }
  return type == plain ? describe : nullptr;
}

// Reads a plain tensor on the CPU or on CUDA at once; false if it is anything else, or torch will
// not say. Waits for no stream.
bool ReadAtOnce(py::handle object, Tensor* tensor) {
  const DescribeTensor describe = DescribeOf(Py_TYPE(object.ptr()));
  if (describe == nullptr) return false;
  dlpack::Tensor source;
  if (describe(object.ptr(), &source) != 0) {
    PyErr_Clear();
    return false;
  }
  Device device;
  if (!dlpack::ToDevice(source.device, &device)) return false;
  dlpack::SetView(source, device, tensor);
  return tensor->view.desc.dtype != DType::kUndefined;
}

Status ReadTorchTensor(py::handle object, const TensorName& name, Tensor* tensor) {
  if (ReadAtOnce(object, tensor)) {
    const DType known = tensor->view.desc.dtype;
    return IsFloating(known) || IsComplex(known) ? CheckMaterial(object, name, known) : Ok();
  }
  static PyObject* const dtype = Interned("dtype");
  static PyObject* const data_ptr = Interned("data_ptr");
  static PyObject* const is_contiguous = Interned("is_contiguous");
  TensorView& view = tensor->view;
  view = TensorView();
  view.desc.dtype = TorchType(Attribute(object, dtype));
  ReadShape(object, tensor);
  view.data = PyLong_AsVoidPtr(CallMethod(object, data_ptr).ptr());
  view.contiguous = CallMethod(object, is_contiguous).ptr() == Py_True;
  view.device = DeviceOf(object);
  if (view.device.kind == DeviceKind::kNpu) view.desc.format = FormatOnNpu(object);
  return CheckMaterial(object, name, view.desc.dtype);
}

}  // namespace

bool IsTorchTensor(py::handle object) {
  static PyTypeObject* last = nullptr;  // the last tensor's class, usually this one's, too
  PyTypeObject* type = Py_TYPE(object.ptr());
  if (type == last) return true;
  for (py::handle base : py::reinterpret_borrow<py::tuple>(type->tp_mro)) {
    if (!IsTensorClass(base)) continue;
    Py_INCREF(type);
    Py_XDECREF(last);
    last = type;
    return true;
  }
  return false;
}

Status TorchToTensor(py::handle object, const TensorName& name, Tensor* tensor, bool* recognised) {
  *recognised = IsTorchTensor(object);
  if (!*recognised) return Ok();
  try {
    return ReadTorchTensor(object, name, tensor);
  } catch (py::error_already_set& error) {
    // Sparse and similar tensors raise an error for their address.
    if (!error.matches(PyExc_Exception)) throw;
    return Error(ERROR_INVALID_PARAM, ToString(name),
                 ": this tensor has no plain memory to read: ", ToString(error));
  }
}

}  // namespace collops::bindings
