#include "status.h"

#include <pybind11/stl.h>
#include <unistd.h>

#include "module.h"

namespace collops::bindings {
namespace {

// A peer's text may be cut within a character, or be no UTF-8 at all.
py::str Readable(const std::string& text) {
  PyObject* const decoded =
      PyUnicode_DecodeUTF8(text.data(), static_cast<py::ssize_t>(text.size()), "replace");
  if (decoded == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::str>(decoded);
}

}  // namespace

void SleepForGood() {
  while (true) pause();
}

// Not inline: an exception must not unwind into a destructor of the caller, which is noexcept.
[[gnu::noinline]] void ReleasedGil::Take(PyThreadState* state) {
  NotUnwound([&] { PyEval_RestoreThread(state); });
}

HeldGil::HeldGil() {
  NotUnwound([&] { held_.emplace(); });
}

void ThrowIfError(const Status& status) {
  if (PyErr_Occurred() != nullptr) throw py::error_already_set();
  if (status.ok()) return;
  const py::object error =
      py::module_::import("collops.errors")
          .attr("status_error")(static_cast<int>(status.code()), Readable(status.message()));
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
  throw py::error_already_set();
}

Status StatusOf(const py::error_already_set& error) {
  const auto status_of = py::module_::import("collops.errors").attr("status_of");
  const auto [code, text] = status_of(error.value()).cast<std::pair<int, std::string>>();
  return Status(static_cast<ErrorCode>(code), text);
}

std::string ToString(const py::error_already_set& error) {
  return py::str("{}: {}").format(error.type().attr("__name__"), error.value());
}

void BindStatus(py::module_& module) {
  module.def("error_name", &ErrorName, py::arg("code"));
}

}  // namespace collops::bindings
