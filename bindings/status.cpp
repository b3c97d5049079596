#include "status.h"

#include "module.h"

namespace collops::bindings {

void ThrowIfError(const Status& status) {
  if (PyErr_Occurred() != nullptr) throw py::error_already_set();
  if (status.ok()) return;
  const py::object error =
      py::module_::import("collops.errors")
          .attr("status_error")(static_cast<int>(status.code()), py::str(status.message()));
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
  throw py::error_already_set();
}

std::string ToString(const py::error_already_set& error) {
  return py::str("{}: {}").format(error.type().attr("__name__"), error.value());
}

void BindStatus(py::module_& module) {
  module.def("error_name", &ErrorName, py::arg("code"));
}

}  // namespace collops::bindings
