// GPUs, and streams, timed events and captured graphs of CUDA's driver, for programs that have no
// other library of CUDA's, as `collops bench`. Devices count as cuDeviceGet does.

#include <pybind11/stl.h>

#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "collops/kernels/cuda/devices.h"
#include "collops/kernels/cuda/driver.h"
#include "module.h"
#include "status.h"

namespace collops::bindings {
namespace {

using cuda::DriverApi;

// Makes a call of the driver, which `name` names; with a device while its context is current.
template <typename Call>
Status CallDriver(const char* name, const Call& call) {
  const DriverApi* api = nullptr;
  COLLOPS_RETURN_IF_ERROR(cuda::LoadDriver(&api));
  return cuda::ToStatus(*api, call(*api), name);
}

template <typename Call>
Status CallOn(int device, const char* name, const Call& call) {
  const DriverApi* api = nullptr;
  COLLOPS_RETURN_IF_ERROR(cuda::LoadDriver(&api));
  const cuda::DeviceScope scope(*api, device);
  COLLOPS_RETURN_IF_ERROR(scope.status());
  return cuda::ToStatus(*api, call(*api), name);
}

// What the driver has made on a device: a stream, an event or a graph.
template <auto kDestroy>
class Made {
 public:
  // `make` puts the handle where it is told; `name` is the driver's function.
  template <typename Make>
  Made(int device, const char* name, const Make& make) : device_(device) {
    RunWithoutGil([&] {
      return CallOn(device, name, [&](const DriverApi& api) { return make(api, &handle_); });
    });
  }
  ~Made() {
    static_cast<void>(
        CallOn(device_, "", [this](const DriverApi& api) { return (api.*kDestroy)(handle_); }));
  }
  Made(const Made&) = delete;
  Made& operator=(const Made&) = delete;

  int device() const { return device_; }
  void* handle() const { return handle_; }

  // Calls a function of the driver on it.
  template <typename Call>
  void Do(const char* name, const Call& call) const {
    RunWithoutGil([&] { return CallOn(device_, name, call); });
  }

 private:
  const int device_;
  void* handle_ = nullptr;
};

using CudaStream = Made<&DriverApi::stream_destroy>;
using CudaEvent = Made<&DriverApi::event_destroy>;
using CudaGraph = Made<&DriverApi::graph_exec_destroy>;

// A stream that waits for no other one.
std::unique_ptr<CudaStream> MakeStream(int device) {
  return std::make_unique<CudaStream>(device, "cuStreamCreate",
                                      [](const DriverApi& api, cuda::Stream* made) {
                                        return api.stream_create(made, cuda::kStreamNonBlocking);
                                      });
}

// What is put on the stream goes into a graph instead, until EndCapture(). Other threads may
// allocate meanwhile.
void BeginCapture(const CudaStream& self) {
  self.Do("cuStreamBeginCapture", [&](const DriverApi& api) {
    return api.stream_begin_capture(self.handle(), cuda::CaptureMode::kThreadLocal);
  });
}

std::unique_ptr<CudaGraph> EndCapture(const CudaStream& self) {
  cuda::Graph captured = nullptr;
  self.Do("cuStreamEndCapture",
          [&](const DriverApi& api) { return api.stream_end_capture(self.handle(), &captured); });
  return std::make_unique<CudaGraph>(self.device(), "cuGraphInstantiateWithFlags",
                                     [&](const DriverApi& api, cuda::GraphExec* made) {
                                       const auto result = api.graph_instantiate(made, captured, 0);
                                       static_cast<void>(api.graph_destroy(captured));
                                       return result;
                                     });
}

float ElapsedMs(const CudaEvent& self, const CudaEvent& begin) {
  float milliseconds = 0;
  self.Do("cuEventElapsedTime", [&](const DriverApi& api) {
    return api.event_elapsed_time(&milliseconds, begin.handle(), self.handle());
  });
  return milliseconds;
}

// The name, the bytes of L2, and the number of multiprocessors of a GPU.
using DeviceRow = std::tuple<std::string, int, int>;
Status FindDevice(int ordinal, std::vector<DeviceRow>* found) {
  cuda::Device device = 0;
  COLLOPS_RETURN_IF_ERROR(CallDriver(
      "cuDeviceGet", [&](const DriverApi& api) { return api.device_get(&device, ordinal); }));
  char name[256] = "";
  COLLOPS_RETURN_IF_ERROR(CallDriver("cuDeviceGetName", [&](const DriverApi& api) {
    return api.device_get_name(name, sizeof(name), device);
  }));
  int numbers[2] = {};
  for (const auto attribute :
       {cuda::DeviceAttribute::kL2CacheBytes, cuda::DeviceAttribute::kMultiprocessorCount}) {
    int* const number = &numbers[attribute == cuda::DeviceAttribute::kMultiprocessorCount];
    COLLOPS_RETURN_IF_ERROR(CallDriver("cuDeviceGetAttribute", [&](const DriverApi& api) {
      return api.device_get_attribute(number, attribute, device);
    }));
  }
  found->emplace_back(name, numbers[0], numbers[1]);
  return Ok();
}

std::vector<DeviceRow> FindDevices() {
  std::vector<DeviceRow> found;
  RunWithoutGil([&] {
    int count = 0;
    COLLOPS_RETURN_IF_ERROR(CallDriver(
        "cuDeviceGetCount", [&](const DriverApi& api) { return api.device_get_count(&count); }));
    for (int i = 0; i < count; ++i) COLLOPS_RETURN_IF_ERROR(FindDevice(i, &found));
    return Ok();
  });
  return found;
}

// Makes the device's primary context the thread's current one, as cudaSetDevice does.
void UseDevice(int device) {
  RunWithoutGil([&]() -> Status {
    const DriverApi* api = nullptr;
    COLLOPS_RETURN_IF_ERROR(cuda::LoadDriver(&api));
    cuda::Context chosen = nullptr;
    cuda::Context current = nullptr;
    COLLOPS_RETURN_IF_ERROR(cuda::PrimaryContext(*api, device, &chosen));
    COLLOPS_RETURN_IF_ERROR(
        cuda::ToStatus(*api, api->ctx_get_current(&current), "cuCtxGetCurrent"));
    if (current == chosen) return Ok();
    return cuda::ToStatus(*api, api->ctx_push_current(chosen), "cuCtxPushCurrent");
  });
}

}  // namespace

void BindCuda(py::module_& module) {
  py::class_<CudaGraph>(module, "CudaGraph")
      .def(
          "launch",
          [](const CudaGraph& self, const CudaStream& stream) {
            self.Do("cuGraphLaunch", [&](const DriverApi& api) {
              return api.graph_launch(self.handle(), stream.handle());
            });
          },
          py::arg("stream"));
  py::class_<CudaStream>(module, "CudaStream")
      .def(py::init(&MakeStream), py::arg("device"))
      .def_property_readonly("device", &CudaStream::device)
      // CUDA's protocol for Python: its version, and the stream's number.
      .def("__cuda_stream__",
           [](const CudaStream& self) {
             return std::pair(0, reinterpret_cast<uintptr_t>(self.handle()));
           })
      .def("synchronize",
           [](const CudaStream& self) {
             self.Do("cuStreamSynchronize",
                     [&](const DriverApi& api) { return api.stream_synchronize(self.handle()); });
           })
      .def(
          "copy",
          [](const CudaStream& self, uint64_t to, uint64_t from, int64_t bytes) {
            self.Do("cuMemcpyAsync", [&](const DriverApi& api) {
              return api.memcpy_async(to, from, static_cast<size_t>(bytes), self.handle());
            });
          },
          py::arg("to"), py::arg("source"), py::arg("bytes"))
      .def("begin_capture", &BeginCapture)
      .def("end_capture", &EndCapture);
  py::class_<CudaEvent>(module, "CudaEvent")
      .def(py::init([](int device) {
             return std::make_unique<CudaEvent>(
                 device, "cuEventCreate",
                 [](const DriverApi& api, cuda::Event* made) { return api.event_create(made, 0); });
           }),
           py::arg("device"))
      .def(
          "record",
          [](const CudaEvent& self, const CudaStream& stream) {
            self.Do("cuEventRecord", [&](const DriverApi& api) {
              return api.event_record(self.handle(), stream.handle());
            });
          },
          py::arg("stream"))
      .def("elapsed_ms", &ElapsedMs, py::arg("begin"));
  module.def("use_cuda_device", &UseDevice, py::arg("device"));
  module.def("cuda_devices", &FindDevices);
}

}  // namespace collops::bindings
