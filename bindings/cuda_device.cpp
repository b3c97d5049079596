#include "collops/kernels/cuda/devices.h"
#include "collops/kernels/cuda/driver.h"
#include "module.h"
#include "status.h"

namespace collops::bindings {
namespace {

// Calls `step` with the driver.
template <typename Step>
void WithDriver(const Step& step) {
  RunWithoutGil([&]() -> Status {
    const cuda::DriverApi* driver = nullptr;
    COLLOPS_RETURN_IF_ERROR(cuda::LoadDriver(&driver));
    return step(*driver);
  });
}

int CountDevices() {
  int count = 0;
  WithDriver([&](const cuda::DriverApi& driver) {
    return cuda::ToStatus(driver, driver.device_get_count(&count), "cuDeviceGetCount");
  });
  return count;
}

// Makes a GPU this thread's, as cudaSetDevice() does: its primary context becomes current.
void ChooseDevice(int index) {
  WithDriver([&](const cuda::DriverApi& driver) -> Status {
    cuda::Context chosen = nullptr;
    cuda::Context current = nullptr;
    COLLOPS_RETURN_IF_ERROR(cuda::PrimaryContext(driver, index, &chosen));
    COLLOPS_RETURN_IF_ERROR(
        cuda::ToStatus(driver, driver.ctx_get_current(&current), "cuCtxGetCurrent"));
    if (current == chosen) return Ok();
    return cuda::ToStatus(driver, driver.ctx_push_current(chosen), "cuCtxPushCurrent");
  });
}

// A stream of this thread's GPU that waits for no other one; it lives until the process ends.
uintptr_t MakeStream() {
  cuda::Stream stream = nullptr;
  WithDriver([&](const cuda::DriverApi& driver) {
    return cuda::ToStatus(driver, driver.stream_create(&stream, cuda::kStreamNonBlocking),
                          "cuStreamCreate");
  });
  return reinterpret_cast<uintptr_t>(stream);
}

}  // namespace

void BindCudaDevice(py::module_& module) {
  module.def("count_cuda_devices", &CountDevices);
  module.def("choose_cuda_device", &ChooseDevice, py::arg("index"));
  module.def("make_cuda_stream", &MakeStream);
}

}  // namespace collops::bindings
