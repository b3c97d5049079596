#include "module.h"

#include <pybind11/stl.h>

#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "collops/kernels/cuda/devices.h"
#include "collops/kernels/cuda/driver.h"
#include "status.h"
#include "streams/cuda_stream.h"

namespace collops::bindings {
namespace {

// Makes a new object of CUDA's without the GIL, or raises.
template <typename Made, typename... Arguments>
std::unique_ptr<Made> New(Arguments... arguments) {
  std::unique_ptr<Made> made;
  RunWithoutGil([&] { return Made::Create(arguments..., &made); });
  return made;
}

// The name, the bytes of L2, and the number of multiprocessors of each GPU.
Status FindDevices(std::vector<std::tuple<std::string, int, int>>* found) {
  const cuda::DriverApi* api = nullptr;
  COLLOPS_RETURN_IF_ERROR(cuda::LoadDriver(&api));
  int count = 0;
  COLLOPS_RETURN_IF_ERROR(cuda::ToStatus(*api, api->device_get_count(&count), "cuDeviceGetCount"));
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    cuda::Device device = 0;
    COLLOPS_RETURN_IF_ERROR(cuda::ToStatus(*api, api->device_get(&device, ordinal), "cuDeviceGet"));
    char name[256] = "";
    COLLOPS_RETURN_IF_ERROR(
        cuda::ToStatus(*api, api->device_get_name(name, sizeof(name), device), "cuDeviceGetName"));
    int numbers[2] = {};
    const cuda::DeviceAttribute attributes[] = {cuda::DeviceAttribute::kL2CacheBytes,
                                                cuda::DeviceAttribute::kMultiprocessorCount};
    for (int i = 0; i < 2; ++i) {
      COLLOPS_RETURN_IF_ERROR(
          cuda::ToStatus(*api, api->device_get_attribute(&numbers[i], attributes[i], device),
                         "cuDeviceGetAttribute"));
    }
    found->emplace_back(name, numbers[0], numbers[1]);
  }
  return Ok();
}

// Makes the device's primary context the thread's current one, as cudaSetDevice does.
Status UseDevice(int device) {
  const cuda::DriverApi* api = nullptr;
  COLLOPS_RETURN_IF_ERROR(cuda::LoadDriver(&api));
  cuda::Context context = nullptr;
  COLLOPS_RETURN_IF_ERROR(cuda::PrimaryContext(*api, device, &context));
  return cuda::ToStatus(*api, api->ctx_push_current(context), "cuCtxPushCurrent");
}

}  // namespace

void BindCuda(py::module_& module) {
  py::class_<CudaGraph>(module, "CudaGraph")
      .def(
          "launch",
          [](const CudaGraph& self, const CudaStream& stream) {
            RunWithoutGil([&] { return self.Launch(stream); });
          },
          py::arg("stream"));
  py::class_<CudaStream>(module, "CudaStream")
      .def(py::init(&New<CudaStream, int>), py::arg("device"))
      .def_property_readonly("device", &CudaStream::device)
      // CUDA's protocol for Python: its version, and the stream's number.
      .def("__cuda_stream__",
           [](const CudaStream& self) {
             return std::pair(0, reinterpret_cast<uintptr_t>(self.handle()));
           })
      .def("synchronize",
           [](const CudaStream& self) { RunWithoutGil([&] { return self.Synchronize(); }); })
      .def(
          "copy",
          [](const CudaStream& self, uint64_t to, uint64_t from, int64_t bytes) {
            RunWithoutGil([&] { return self.Copy(to, from, bytes); });
          },
          py::arg("to"), py::arg("source"), py::arg("bytes"))
      .def("begin_capture",
           [](const CudaStream& self) { RunWithoutGil([&] { return self.BeginCapture(); }); })
      .def("end_capture", [](const CudaStream& self) {
        std::unique_ptr<CudaGraph> graph;
        RunWithoutGil([&] { return self.EndCapture(&graph); });
        return graph;
      });
  py::class_<CudaEvent>(module, "CudaEvent")
      .def(py::init(&New<CudaEvent, int>), py::arg("device"))
      .def(
          "record",
          [](const CudaEvent& self, const CudaStream& stream) {
            RunWithoutGil([&] { return self.Record(stream); });
          },
          py::arg("stream"))
      .def(
          "elapsed_ms",
          [](const CudaEvent& self, const CudaEvent& begin) {
            float milliseconds = 0;
            RunWithoutGil([&] { return self.ElapsedMs(begin, &milliseconds); });
            return milliseconds;
          },
          py::arg("begin"));
  module.def(
      "use_cuda_device", [](int device) { RunWithoutGil([&] { return UseDevice(device); }); },
      py::arg("device"));
  module.def("cuda_devices", [] {
    std::vector<std::tuple<std::string, int, int>> found;
    RunWithoutGil([&] { return FindDevices(&found); });
    return found;
  });
}

}  // namespace collops::bindings
