#include "collops/comm/window.h"

#include <pybind11/numpy.h>

#include "collops/comm/communicator.h"
#include "module.h"
#include "status.h"

namespace collops::bindings {
namespace {

// The array's base owns the window, so the memory lives as long as any array on it.
py::array_t<uint8_t> AllocateWindow(Communicator& communicator, int64_t bytes) {
  auto window = std::make_unique<std::shared_ptr<Window>>();
  RunWithoutGil([&] { return communicator.AllocateWindow(bytes, window.get()); });
  auto* data = static_cast<uint8_t*>((*window)->data());
  const py::capsule base(window.get(),
                         [](void* held) { delete static_cast<std::shared_ptr<Window>*>(held); });
  static_cast<void>(window.release());
  return py::array_t<uint8_t>(static_cast<py::ssize_t>(bytes), data, base);
}

}  // namespace

void BindWindow(py::module_& module) {
  module.def("window", &AllocateWindow, py::arg("communicator"), py::arg("bytes"));
}

}  // namespace collops::bindings
