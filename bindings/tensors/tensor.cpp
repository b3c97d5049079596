#include "tensors/tensor.h"

#include <pybind11/numpy.h>

#include "collops/core/dtype.h"
#include "module.h"
#include "status.h"

namespace collops::bindings {
namespace {

constexpr int kFirstUserType = 256;  // numpy numbers types of other packages from here

// numpy's type numbers (NPY_TYPES), which its ABI fixes; on Linux `long` has 64 bits.
constexpr DType kBuiltinTypes[] = {
    DType::kBool,    DType::kInt8,      DType::kUInt8,     DType::kInt16,
    DType::kUInt16,  DType::kInt32,     DType::kUInt32,    DType::kInt64,
    DType::kUInt64,  DType::kInt64,     DType::kUInt64,    DType::kFloat32,
    DType::kFloat64, DType::kUndefined, DType::kComplex64, DType::kComplex128};
constexpr int kHalf = 23;

// ml_dtypes registers bfloat16 under a number that differs from process to process.
DType UserType(const py::dtype& dtype) {
  static int bfloat16_number = -1;
  const int number = dtype.num();
  if (number == bfloat16_number) return DType::kBFloat16;
  if (py::str(dtype.attr("name")).cast<std::string>() != "bfloat16") return DType::kUndefined;
  bfloat16_number = number;
  return DType::kBFloat16;
}

DType NumpyType(const py::dtype& dtype) {
  const int number = dtype.num();
  if (number >= 0 && number < static_cast<int>(std::size(kBuiltinTypes))) {
    return kBuiltinTypes[number];
  }
  if (number == kHalf) return DType::kFloat16;
  return number >= kFirstUserType ? UserType(dtype) : DType::kUndefined;
}

// Not kept in a static variable: the first look may give up the GIL, and a thread that gets it
// would wait for the variable.
PyTypeObject* ArrayClass() {
  return py::detail::npy_api::get().PyArray_Type_;
}

Status ReadArray(py::handle object, const TensorName& name, Tensor* tensor) {
  COLLOPS_CHECK_ARG(Py_TYPE(object.ptr()) == ArrayClass() || !IsMasked(object), ERROR_INVALID_PARAM,
                    ToString(name),
                    " is a masked array, and its mask would be lost: pass .filled(value)");
  const py::array array = py::reinterpret_borrow<py::array>(object);
  const py::dtype dtype = array.dtype();
  TensorView& view = tensor->view;
  view = TensorView();
  view.desc.dtype = NumpyType(dtype);
  view.data = const_cast<void*>(array.data());
  view.contiguous = (array.flags() & py::array::c_style) != 0;
  view.read_only = !array.writeable();
  view.foreign_endian = dtype.byteorder() == (PY_LITTLE_ENDIAN != 0 ? '>' : '<');
  SetShape(array.shape(), static_cast<int>(array.ndim()), tensor);
  return Ok();
}

// A class of the package, looked up once; its reference is never released.
py::handle PackageClass(const char* name) {
  return py::module_::import("collops.tensors").attr(name).cast<py::object>().release();
}

py::handle DescClass() {
  static const py::handle type = PackageClass("TensorDesc");
  return type;
}

py::handle FormattedClass() {
  static const py::handle type = PackageClass("Formatted");
  return type;
}

Status ReadFormat(py::handle object, const TensorName& name, Format* format) {
  const std::string text = py::str(object.attr("format"));
  COLLOPS_CHECK_ARG(ParseFormat(text.c_str(), format), ERROR_INVALID_PARAM, ToString(name),
                    ": unknown format \"", text, "\"; the operators take \"nd\"");
  return Ok();
}

// A Python integer may not fit into int64_t.
Status ReadDesc(py::handle object, const TensorName& name, Tensor* tensor) {
  const py::tuple shape = object.attr("shape");
  std::vector<int64_t> sizes;
  for (size_t i = 0; i < shape.size(); ++i) {
    int overflow = 0;
    sizes.push_back(PyLong_AsLongLongAndOverflow(shape[i].ptr(), &overflow));
    COLLOPS_CHECK_ARG(overflow == 0, ERROR_INVALID_TENSOR_SIZE, ToString(name), " has size ",
                      std::string(py::str(shape[i])), " in dim ", i, ", which exceeds an int64");
  }
  const std::string dtype = py::str(object.attr("dtype"));
  tensor->view = TensorView();
  ParseDType(dtype.c_str(), &tensor->view.desc.dtype);
  SetShape(sizes.data(), static_cast<int>(sizes.size()), tensor);
  return ReadFormat(object, name, &tensor->view.desc.format);
}

// Python's word for the element type of a tensor, for which the core has no number; or null.
const char* WordOfType(py::handle object) {
  py::object dtype = py::getattr(object, "dtype", py::none());
  if (dtype.is_none()) return nullptr;
  if (PyObject_Hash(dtype.ptr()) == -1) {
    PyErr_Clear();
    dtype = py::str(dtype);
  }
  static auto* const words = new py::dict;  // never destroyed, guarded by the GIL
  if (!words->contains(dtype)) (*words)[dtype] = py::str(dtype);
  return PyUnicode_AsUTF8(py::object((*words)[dtype]).ptr());
}

Status ReadTensor(py::handle object, const TensorName& name, Tensor* tensor, CallStream* stream) {
  if (py::isinstance<py::array>(object)) return ReadArray(object, name, tensor);
  bool recognised = false;
  COLLOPS_RETURN_IF_ERROR(TorchToTensor(object, name, tensor, &recognised));
  if (recognised) {
    if (stream != nullptr) stream->See(object, tensor->view.device);
    return Ok();
  }
  COLLOPS_RETURN_IF_ERROR(CudaMemoryToTensor(object, name, tensor, stream, &recognised));
  if (recognised) return Ok();
  if (py::isinstance(object, DescClass())) return ReadDesc(object, name, tensor);
  if (py::isinstance(object, FormattedClass())) {
    COLLOPS_RETURN_IF_ERROR(ToTensor(object.attr("tensor"), name, tensor, stream));
    return ReadFormat(object, name, &tensor->view.desc.format);
  }
  CallStream own;
  CallStream* const known = stream == nullptr ? &own : stream;
  COLLOPS_RETURN_IF_ERROR(DlpackToTensor(object, name, tensor, known, &recognised));
  COLLOPS_CHECK_ARG(recognised, ERROR_INVALID_PARAM, ToString(name),
                    ": a numpy array, a torch tensor or an object with __dlpack__ is needed, got ",
                    Py_TYPE(object.ptr())->tp_name);
  return Ok();
}

// The core's view of a tensor, which messages call `label` of `operation`.
py::dict Describe(const py::object& object, const std::string& operation,
                  const std::string& label) {
  Tensor tensor;
  ThrowIfError(ToTensor(object, {operation.c_str(), label.c_str()}, &tensor));
  const TensorView& view = tensor.view;
  py::dict result;
  result["address"] = reinterpret_cast<uintptr_t>(view.data);
  result["shape"] = ToString(view.desc.shape);
  result["numel"] = tensor.numel;
  result["dtype"] = Name(view.desc.dtype);
  result["format"] = Name(view.desc.format);
  result["device"] = ToString(view.device);
  result["contiguous"] = view.contiguous;
  result["read_only"] = view.read_only;
  result["foreign_endian"] = view.foreign_endian;
  return result;
}

// Shape, name of the element type and device of a tensor of a GPU, of neither numpy nor torch; None
// of any other object.
py::object DescribeOnCuda(const py::object& object, const std::string& operation,
                          const std::string& label) {
  const TensorName name{operation.c_str(), label.c_str()};
  if (!IsOnCuda(object)) return py::none();
  Tensor tensor;
  ThrowIfError(ToTensor(object, name, &tensor));
  const Shape& shape = tensor.view.desc.shape;
  if (shape.num_dims > kMaxDims) {
    ThrowIfError(Error(ERROR_INVALID_TENSOR_DIM_NUM, ToString(name), " has ", shape.num_dims,
                       " dims; of a tensor on a GPU at most ", kMaxDims, " are taken"));
  }
  return py::make_tuple(ToTuple({shape.dims, shape.dims + shape.num_dims}),
                        Name(tensor.view.desc.dtype), ToString(tensor.view.device));
}

py::object OfTensors(const char* function) {
  return py::module_::import("collops.tensors").attr(function);
}

// Torch gives freed memory away to what comes next on the stream that it was made on, which is
// torch's current one. What works on another stream is recorded.
void KeepForStream(const py::object& torch, const py::object& memory, const Device& device,
                   void* stream) {
  if (device.kind != DeviceKind::kCuda) return;
  void* current = nullptr;
  CallStream of_torch;
  of_torch.See(memory, device);
  ThrowIfError(of_torch.Find("workspace", &current));
  if (current == stream) return;
  memory.attr("record_stream")(torch.attr("cuda").attr("ExternalStream")(
      reinterpret_cast<uintptr_t>(stream), py::arg("device") = memory.attr("device")));
}

}  // namespace

std::string ToString(const TensorName& name) {
  if (name.index < 0) return Concat(name.operation, ": ", name.label);
  std::string text = Concat(name.operation, ": ", name.label, " ", name.index);
  if (name.name != nullptr) text += Concat(" (", name.name, ")");
  return text;
}

void SetShape(const int64_t* sizes, int num_dims, Tensor* tensor) {
  tensor->view.desc.shape = Shape::From(sizes, num_dims);
  uint64_t numel = 1;
  for (int i = 0; i < num_dims; ++i) numel *= static_cast<uint64_t>(sizes[i]);
  tensor->numel = static_cast<int64_t>(numel);
}

Status ToTensor(py::handle object, const TensorName& name, Tensor* tensor, CallStream* stream) {
  tensor->owner = py::object();
  COLLOPS_RETURN_IF_ERROR(ReadTensor(object, name, tensor, stream));
  TensorDesc& desc = tensor->view.desc;
  if (desc.dtype == DType::kUndefined && desc.type_name == nullptr) {
    desc.type_name = WordOfType(object);
  }
  return Ok();
}

bool ReadInOrder(py::handle object, Tensor* tensor) {
  const TensorName unnamed{"", ""};
  const TensorView& view = tensor->view;
  const Shape& shape = view.desc.shape;
  if (Py_TYPE(object.ptr()) == ArrayClass()) {
    if (!ReadArray(object, unnamed, tensor).ok() || view.foreign_endian) return false;
  } else {
    bool is_torch = false;
    if (!TorchToTensor(object, unnamed, tensor, &is_torch).ok() || !is_torch) return false;
    if (shape.num_dims > 0 && shape.num_dims <= kMaxDims && shape[shape.num_dims - 1] == 2) {
      return false;
    }
  }
  return view.contiguous && view.device == Device() && shape.num_dims <= kMaxDims &&
         view.desc.dtype != DType::kUndefined;
}

bool IsMasked(py::handle object) {
  const py::dict modules = py::module_::import("sys").attr("modules");
  return modules.contains("numpy.ma") &&
         py::isinstance(object, modules["numpy.ma"].attr("MaskedArray"));
}

bool IsFrom(py::handle object, const char* package) {
  const std::string name = package;
  const auto* type = Py_TYPE(object.ptr());
  for (py::handle base : py::reinterpret_borrow<py::tuple>(type->tp_mro)) {
    const py::object module = py::getattr(base, "__module__", py::none());
    if (!py::isinstance<py::str>(module)) continue;
    const std::string path = module.cast<std::string>();
    if (path.substr(0, path.find('.')) == name) return true;
  }
  return false;
}

py::tuple ToTuple(const std::vector<int64_t>& sizes) {
  py::tuple tuple(sizes.size());
  for (size_t i = 0; i < sizes.size(); ++i) tuple[i] = sizes[i];
  return tuple;
}

py::object ToPython(const TensorDesc& desc) {
  const int64_t* const dims = desc.shape.dims;
  return DescClass()(ToTuple({dims, dims + desc.shape.num_dims}), Name(desc.dtype),
                     Name(desc.format));
}

py::object MakeLike(const char* operation, py::handle like, const std::vector<int64_t>& sizes,
                    const char* dtype) {
  if (dtype == nullptr && py::isinstance<py::array>(like)) {
    try {
      return py::array(py::reinterpret_borrow<py::array>(like).dtype(), sizes);
    } catch (py::error_already_set& error) {
      if (!error.matches(PyExc_Exception)) throw;  // else the next line says what is wrong
    }
  }
  return OfTensors("empty_like_kind")(operation, like, ToTuple(sizes), dtype);
}

py::object ResultMaker::Make(const char* operation, py::handle like,
                             const std::vector<int64_t>& sizes, const char* dtype) {
  if (dtype == nullptr && py::isinstance<py::array>(like)) return MakeLike(operation, like, sizes);
  if (make_ && type_.is(py::type::handle_of(like))) {
    PyObject* const made = PyObject_CallNoArgs(py::object(make_).ptr());
    if (made != nullptr) return py::reinterpret_steal<py::object>(made);
    if (PyErr_ExceptionMatches(PyExc_Exception) == 0) throw py::error_already_set();
    PyErr_Clear();  // the next line says what is wrong
  }
  py::object result = MakeLike(operation, like, sizes, dtype);
  const py::object maker = OfTensors("maker")(result);
  // What a Formatted holds is of another class.
  if (!maker.is_none() && !py::isinstance(like, FormattedClass())) {
    make_ = maker;
    type_ = py::type::of(like);
  }
  return result;
}

py::object MakeWorkspace(py::handle like, const Device& device, uint64_t bytes,
                         const char* operation, void* stream) {
  try {
    if (!IsTorchTensor(like)) {
      return OfTensors("empty_like_kind")(operation, like, py::make_tuple(bytes), "uint8");
    }
    const py::object torch = py::module_::import("sys").attr("modules")["torch"];
    const py::object memory = torch.attr("empty")(bytes, py::arg("dtype") = torch.attr("uint8"),
                                                  py::arg("device") = like.attr("device"));
    KeepForStream(torch, memory, device, stream);
    return memory;
  } catch (py::error_already_set& error) {
    if (!error.matches(PyExc_Exception)) throw;
    const Status reason = StatusOf(error);
    ThrowIfError(
        Error(reason.code(), operation, ": no workspace of ", bytes, " bytes: ", reason.message()));
  }
  return py::none();  // not reached
}

void BindTypes(py::module_& module) {
  py::dict dtypes;
  for (int number = 0; number <= static_cast<int>(DType::kBFloat16); ++number) {
    const DType dtype = static_cast<DType>(number);
    if (SizeOf(dtype) > 0) dtypes[Name(dtype)] = number;
  }
  module.attr("DTYPES") = dtypes;
  module.def("describe", &Describe, py::arg("tensor"), py::arg("operation") = "describe",
             py::arg("label") = "tensor");
  module.def("cuda_tensor", &DescribeOnCuda, py::arg("tensor"), py::arg("operation"),
             py::arg("label"));
}

}  // namespace collops::bindings
