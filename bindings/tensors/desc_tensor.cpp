#include <pybind11/pybind11.h>

#include <string>
#include <vector>

#include "tensors/tensor.h"

namespace collops::bindings {
namespace {

namespace py = pybind11;

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
Status ReadSizes(const py::tuple& shape, const TensorName& name, std::vector<int64_t>* sizes) {
  for (size_t i = 0; i < shape.size(); ++i) {
    int overflow = 0;
    const int64_t size = PyLong_AsLongLongAndOverflow(shape[i].ptr(), &overflow);
    COLLOPS_CHECK_ARG(overflow == 0, ERROR_INVALID_TENSOR_SIZE, ToString(name), " has size ",
                      std::string(py::str(shape[i])), " in dim ", i, ", which exceeds an int64");
    sizes->push_back(size);
  }
  return Ok();
}

Status ReadDesc(py::handle object, const TensorName& name, Tensor* tensor) {
  std::vector<int64_t> sizes;
  COLLOPS_RETURN_IF_ERROR(ReadSizes(object.attr("shape"), name, &sizes));
  const std::string dtype = py::str(object.attr("dtype"));
  tensor->view = TensorView();
  TensorDesc& desc = tensor->view.desc;
  desc.shape = Shape::From(sizes.data(), static_cast<int>(sizes.size()));
  ParseDType(dtype.c_str(), &desc.dtype);
  // May wrap around: the checks refuse sizes that are too large.
  uint64_t numel = 1;
  for (const int64_t size : sizes) numel *= static_cast<uint64_t>(size);
  tensor->numel = static_cast<int64_t>(numel);
  return ReadFormat(object, name, &desc.format);
}

}  // namespace

Status DescToTensor(py::handle object, const TensorName& name, Tensor* tensor, CallStream* stream,
                    bool* recognised) {
  *recognised = true;
  if (py::isinstance(object, DescClass())) return ReadDesc(object, name, tensor);
  *recognised = py::isinstance(object, FormattedClass());
  if (!*recognised) return Ok();
  COLLOPS_RETURN_IF_ERROR(ToTensor(object.attr("tensor"), name, tensor, stream));
  return ReadFormat(object, name, &tensor->view.desc.format);
}

py::object ToPython(const TensorDesc& desc) {
  const Shape& shape = desc.shape;
  py::tuple sizes(shape.num_dims);
  for (int i = 0; i < shape.num_dims; ++i) sizes[i] = shape[i];
  return DescClass()(sizes, Name(desc.dtype), Name(desc.format));
}

}  // namespace collops::bindings
