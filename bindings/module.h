#pragma once

#include <pybind11/pybind11.h>

namespace collops::bindings {

namespace py = pybind11;

// Each function adds its part to the extension module collops._core.
void BindStatus(py::module_& module);
void BindTypes(py::module_& module);
void BindDlpack(py::module_& module);
void BindCudaDevice(py::module_& module);
void BindCudaMemory(py::module_& module);
void BindJob(py::module_& module);
void BindRankTable(py::module_& module);
void BindPrediction(py::module_& module);
void BindCommunicator(py::module_& module);
void BindWindow(py::module_& module);
void BindParams(py::module_& module);
void BindOperation(py::module_& module);
void BindInterrupt(py::module_& module);
void BindTrace(py::module_& module);
void BindArithmetic(py::module_& module);
void BindCuda(py::module_& module);

}  // namespace collops::bindings
