#include "module.h"

PYBIND11_MODULE(_core, module) {
  using namespace collops::bindings;
  module.doc() = "The C++ core of collops; use the package collops, not this module.";
  module.attr("__version__") = COLLOPS_VERSION;
  BindStatus(module);
  BindTypes(module);
  BindDlpack(module);
  BindCudaMemory(module);
  BindCuda(module);
  BindMachine(module);
  BindJob(module);
  BindCommunicator(module);
  BindOperation(module);
  BindProcess(module);
  BindXla(module);
}
