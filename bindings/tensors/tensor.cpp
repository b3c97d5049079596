#include "tensors/tensor.h"

#include "collops/core/dtype.h"
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

// Shape, name of the element type and device of a tensor of a GPU, of neither numpy nor torch; None
// of any other object.
py::object DescribeOnCuda(const py::object& object, const std::string& operation,
                          const std::string& label) {
  const TensorName name{operation.c_str(), label.c_str(), -1, nullptr};
  if (!IsOnCuda(object)) return py::none();
  Tensor tensor;
  ThrowIfError(ToTensor(object, name, &tensor));
  const Shape& shape = tensor.view.desc.shape;
  if (shape.num_dims > kMaxDims) {
    ThrowIfError(Error(ERROR_INVALID_TENSOR_DIM_NUM, ToString(name), " has ", shape.num_dims,
                       " dims; of a tensor on a GPU at most ", kMaxDims, " are taken"));
  }
  py::tuple sizes(shape.num_dims);
  for (int i = 0; i < shape.num_dims; ++i) sizes[i] = shape[i];
  return py::make_tuple(sizes, Name(tensor.view.desc.dtype), ToString(tensor.view.device));
}

}  // namespace

std::string ToString(const TensorName& name) {
  if (name.index < 0) return Concat(name.operation, ": ", name.label);
  std::string text = Concat(name.operation, ": ", name.label, " ", name.index);
  if (name.name != nullptr) text += Concat(" (", name.name, ")");
  return text;
}

Status ToTensor(py::handle object, const TensorName& name, Tensor* tensor, CallStream* stream) {
  bool recognised = false;
  tensor->owner = py::object();
  COLLOPS_RETURN_IF_ERROR(NumpyToTensor(object, name, tensor, &recognised));
  if (recognised) return Ok();
  COLLOPS_RETURN_IF_ERROR(TorchToTensor(object, name, tensor, &recognised));
  if (recognised) {
    if (stream != nullptr) stream->See(object, tensor->view.device);
    return Ok();
  }
  COLLOPS_RETURN_IF_ERROR(CudaMemoryToTensor(object, name, tensor, stream, &recognised));
  if (recognised) return Ok();
  COLLOPS_RETURN_IF_ERROR(DescToTensor(object, name, tensor, stream, &recognised));
  if (recognised) return Ok();
  CallStream own;
  CallStream* const known = stream == nullptr ? &own : stream;
  COLLOPS_RETURN_IF_ERROR(DlpackToTensor(object, name, tensor, known, &recognised));
  return recognised ? Ok() : NotATensor(object, name);
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
  module.def("cuda_tensor", &DescribeOnCuda, py::arg("tensor"), py::arg("operation"),
             py::arg("label"));
}

}  // namespace collops::bindings
