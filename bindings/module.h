#pragma once

#include <pybind11/pybind11.h>

namespace collops::bindings {

namespace py = pybind11;

// Each function adds its part to the extension module collops._core.
void BindStatus(py::module_& module);
void BindTypes(py::module_& module);
void BindDlpack(py::module_& module);
void BindCudaMemory(py::module_& module);
void BindCuda(py::module_& module);
void BindMachine(py::module_& module);
void BindJob(py::module_& module);
void BindCommunicator(py::module_& module);
void BindOperation(py::module_& module);
void BindProcess(py::module_& module);
void BindXla(py::module_& module);

}  // namespace collops::bindings
