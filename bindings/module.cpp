#include "module.h"

PYBIND11_MODULE(_core, module) {
  using namespace collops::bindings;
  module.doc() = "The C++ core of collops; use the package collops, not this module.";
  module.attr("__version__") = COLLOPS_VERSION;
  BindStatus(module);
  BindTypes(module);
  BindDlpack(module);
  BindCudaDevice(module);
  BindCudaMemory(module);
  BindJob(module);
  BindRankTable(module);
  BindPrediction(module);
  BindCommunicator(module);
  BindWindow(module);
  BindParams(module);
  BindOperation(module);
  BindInterrupt(module);
  BindTrace(module);
  BindArithmetic(module);
  BindCuda(module);
}
