#include "gil.h"
#include "module.h"
#include "peak.h"

namespace collops::bindings {

void BindArithmetic(py::module_& module) {
  module.def(
      "run_arithmetic",
      [](int dtype, int64_t rounds) {
        return bench::RunArithmetic(static_cast<DType>(dtype), rounds);
      },
      py::arg("dtype"), py::arg("rounds"), py::call_guard<ReleasedGil>());
}

}  // namespace collops::bindings
