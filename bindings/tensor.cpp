#include "tensor.h"

#include "core/dtype.h"
#include "module.h"
#include "status.h"

namespace collops::bindings {
namespace {

Status NotATensor(py::handle object, const TensorName& name) {
  const char* advice = PyObject_HasAttrString(object.ptr(), "__dlpack__") != 0
                           ? "; numpy.from_dlpack() makes a numpy array of it without a copy"
                           : "";
  return Error(ERROR_INVALID_PARAM, ToString(name),
               ": a numpy array or a torch tensor is needed, got ", Py_TYPE(object.ptr())->tp_name,
               advice);
}

// What the core sees of a tensor; tests compare it with what Python sees.
py::dict Describe(const py::object& object) {
  Tensor tensor;
  ThrowIfError(ToTensor(object, {"describe", "tensor", -1, nullptr}, &tensor));
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

}  // namespace

std::string ToString(const TensorName& name) {
  if (name.index < 0) return Concat(name.operation, ": ", name.label);
  std::string text = Concat(name.operation, ": ", name.label, " ", name.index);
  if (name.name != nullptr) text += Concat(" (", name.name, ")");
  return text;
}

Status ToTensor(py::handle object, const TensorName& name, Tensor* tensor) {
  bool recognised = false;
  RETURN_IF_ERROR(NumpyToTensor(object, tensor, &recognised));
  if (recognised) return Ok();
  RETURN_IF_ERROR(TorchToTensor(object, name, tensor, &recognised));
  if (recognised) return Ok();
  RETURN_IF_ERROR(DescToTensor(object, name, tensor, &recognised));
  return recognised ? Ok() : NotATensor(object, name);
}

void BindTypes(py::module_& module) {
  py::dict dtypes;
  for (int number = 0; number <= static_cast<int>(DType::kBFloat16); ++number) {
    const DType dtype = static_cast<DType>(number);
    if (SizeOf(dtype) > 0) dtypes[Name(dtype)] = number;
  }
  module.attr("DTYPES") = dtypes;
  py::dict reduce_ops;
  for (const ReduceOp op :
       {ReduceOp::kSum, ReduceOp::kProd, ReduceOp::kMax, ReduceOp::kMin, ReduceOp::kAvg}) {
    reduce_ops[Name(op)] = static_cast<int>(op);
  }
  module.attr("REDUCE_OPS") = reduce_ops;
  module.def("describe", &Describe, py::arg("tensor"));
}

}  // namespace collops::bindings
