#include "tensors/tensor.h"

#include "core/dtype.h"
#include "module.h"
#include "status.h"

namespace collops::bindings {
namespace {

Status NotATensor(py::handle object, const TensorName& name) {
  return Error(ERROR_INVALID_PARAM, ToString(name),
               ": a numpy array, a torch tensor or an object with __dlpack__ is needed, got ",
               Py_TYPE(object.ptr())->tp_name);
}

// The core's view of a tensor, which messages call `label` of `operation`.
py::dict Describe(const py::object& object, const std::string& operation,
                  const std::string& label) {
  Tensor tensor;
  ThrowIfError(ToTensor(object, {operation.c_str(), label.c_str(), -1, nullptr}, &tensor));
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
  tensor->owner = py::object();
  RETURN_IF_ERROR(NumpyToTensor(object, name, tensor, &recognised));
  if (recognised) return Ok();
  RETURN_IF_ERROR(TorchToTensor(object, name, tensor, &recognised));
  if (recognised) return Ok();
  RETURN_IF_ERROR(DescToTensor(object, name, tensor, &recognised));
  if (recognised) return Ok();
  RETURN_IF_ERROR(DlpackToTensor(object, name, tensor, &recognised));
  return recognised ? Ok() : NotATensor(object, name);
}

Status NameElementType(const Status& status, py::handle tensor) {
  const std::string unknown = Name(DType::kUndefined);
  const size_t at = status.message().find(" " + unknown);
  if (status.code() != ERROR_INVALID_TENSOR_INI_MATCH || at == std::string::npos) return status;
  py::object dtype = py::getattr(tensor, "dtype", py::none());
  if (dtype.is_none()) {  // collops.with_format()
    dtype = py::getattr(py::getattr(tensor, "tensor", py::none()), "dtype", py::none());
  }
  if (dtype.is_none()) return status;
  std::string message = status.message();
  return Status(status.code(), message.replace(at + 1, unknown.size(), py::str(dtype)));
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
       {ReduceOp::kSum, ReduceOp::kProd, ReduceOp::kMax, ReduceOp::kMin, ReduceOp::kAvg,
        ReduceOp::kBitAnd, ReduceOp::kBitOr, ReduceOp::kBitXor}) {
    reduce_ops[Name(op)] = static_cast<int>(op);
  }
  module.attr("REDUCE_OPS") = reduce_ops;
  module.def("describe", &Describe, py::arg("tensor"), py::arg("operation") = "describe",
             py::arg("label") = "tensor");
}

}  // namespace collops::bindings
