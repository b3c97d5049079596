#include <pybind11/stl.h>

#include "tensor.h"

namespace collops::bindings {
namespace {

namespace py = pybind11;

// A class of the package, looked up once and kept.
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
  CHECK_ARG(ParseFormat(text.c_str(), format), ERROR_INVALID_PARAM, ToString(name),
            ": no format is called \"", text, "\"; the operators here take \"nd\"");
  return Ok();
}

Status ReadDesc(py::handle object, const TensorName& name, Tensor* tensor) {
  const auto sizes = object.attr("shape").cast<std::vector<int64_t>>();
  const std::string dtype = py::str(object.attr("dtype"));
  tensor->view = TensorView();
  TensorDesc& desc = tensor->view.desc;
  desc.shape = Shape::From(sizes.data(), static_cast<int>(sizes.size()));
  ParseDType(dtype.c_str(), &desc.dtype);
  tensor->numel = 1;
  for (const int64_t size : sizes) tensor->numel *= size;
  return ReadFormat(object, name, &desc.format);
}

}  // namespace

Status DescToTensor(py::handle object, const TensorName& name, Tensor* tensor, bool* recognised) {
  *recognised = true;
  if (py::isinstance(object, DescClass())) return ReadDesc(object, name, tensor);
  *recognised = py::isinstance(object, FormattedClass());
  if (!*recognised) return Ok();
  RETURN_IF_ERROR(ToTensor(object.attr("tensor"), name, tensor));
  return ReadFormat(object, name, &tensor->view.desc.format);
}

py::object ToPython(const TensorDesc& desc) {
  const Shape& shape = desc.shape;
  py::tuple sizes(shape.num_dims);
  for (int i = 0; i < shape.num_dims; ++i) sizes[i] = shape[i];
  return DescClass()(sizes, Name(desc.dtype), Name(desc.format));
}

}  // namespace collops::bindings
