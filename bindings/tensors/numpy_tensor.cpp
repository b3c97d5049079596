#include <pybind11/numpy.h>

#include "status.h"
#include "tensors/tensor.h"

namespace collops::bindings {
namespace {

namespace py = pybind11;

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

// Whether it is a numpy.ma.MaskedArray, whose memory does not contain the mask.
bool IsMasked(py::handle object) {
  const py::dict modules = py::module_::import("sys").attr("modules");
  return modules.contains("numpy.ma") &&
         py::isinstance(object, modules["numpy.ma"].attr("MaskedArray"));
}

bool HasFlag(const py::array& array, int flag) {
  return (array.flags() & flag) != 0;
}

}  // namespace

Status NumpyToTensor(py::handle object, const TensorName& name, Tensor* tensor, bool* recognised) {
  *recognised = py::isinstance<py::array>(object);
  if (!*recognised) return Ok();
  static PyTypeObject* const plain = py::detail::npy_api::get().PyArray_Type_;
  COLLOPS_CHECK_ARG(Py_TYPE(object.ptr()) == plain || !IsMasked(object), ERROR_INVALID_PARAM,
                    ToString(name),
                    " is a masked array, and its mask would be lost: pass .filled(value)");
  const py::array array = py::reinterpret_borrow<py::array>(object);
  const py::dtype dtype = array.dtype();
  const int num_dims = static_cast<int>(array.ndim());
  TensorView& view = tensor->view;
  view = TensorView();
  view.desc.dtype = NumpyType(dtype);
  view.desc.shape = Shape::From(array.shape(), num_dims);
  view.data = const_cast<void*>(array.data());
  view.contiguous = HasFlag(array, py::array::c_style);
  view.read_only = !array.writeable();
  view.foreign_endian = dtype.byteorder() == (PY_LITTLE_ENDIAN != 0 ? '>' : '<');
  tensor->numel = array.size();
  return Ok();
}

}  // namespace collops::bindings
