// A driver of CUDA that is made of functions here, which note how they were called.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "collops/kernels/cuda/bodies/reduction.h"
#include "collops/kernels/cuda/driver.h"

namespace noted_driver {

using namespace collops::cuda;

// Numbers of CUresult that collops has no name for.
constexpr auto kInvalidValue = static_cast<Result>(1);
constexpr auto kNotFound = static_cast<Result>(500);

// What the functions below were called with, and return.
struct Driver {
  std::vector<Context> contexts;  // the thread's, the current one last
  int retained = 0;
  int modules = 0;
  int loaded_functions = 0;
  std::string refused_function;
  std::map<Function, std::string> functions;
  std::string launched;
  unsigned int grid = 0;
  unsigned int block = 0;
  ReduceSlicesArgs args = {};
  Result user_object = Result::kSuccess;
  HostFunction let_go = nullptr;
  void* held = nullptr;
  int references = 0;
};

inline Driver driver;

inline Context ContextOf(int device) {
  return reinterpret_cast<Context>(uintptr_t{0x100} + static_cast<uintptr_t>(device));
}

inline void AddContexts(DriverApi* api) {
  api->device_get = [](Device* device, int ordinal) {
    *device = ordinal;
    return ordinal < 2 ? Result::kSuccess : Result::kInvalidDevice;
  };
  api->primary_ctx_retain = [](Context* context, Device device) {
    ++driver.retained;
    *context = ContextOf(device);
    return Result::kSuccess;
  };
  api->ctx_get_current = [](Context* context) {
    *context = driver.contexts.empty() ? nullptr : driver.contexts.back();
    return Result::kSuccess;
  };
  api->ctx_push_current = [](Context context) {
    driver.contexts.push_back(context);
    return Result::kSuccess;
  };
  api->ctx_pop_current = [](Context* context) {
    *context = driver.contexts.back();
    driver.contexts.pop_back();
    return Result::kSuccess;
  };
  api->ctx_get_device = [](Device* device) {
    *device = driver.contexts.back() == ContextOf(0) ? 0 : 1;
    return Result::kSuccess;
  };
}

inline void AddKernels(DriverApi* api) {
  api->device_get_attribute = [](int* value, DeviceAttribute attribute, Device) {
    *value = attribute == DeviceAttribute::kMultiprocessorCount ? 10 : 0;
    return Result::kSuccess;
  };
  api->module_load_data = [](Module* module, const void*) {
    *module = reinterpret_cast<Module>(uintptr_t{1});
    ++driver.modules;
    return Result::kSuccess;
  };
  api->module_unload = [](Module) {
    --driver.modules;
    return Result::kSuccess;
  };
  api->module_get_function = [](Function* function, Module, const char* name) {
    if (driver.refused_function == name) return kNotFound;
    *function = reinterpret_cast<Function>(driver.functions.size() + 1);
    driver.functions[*function] = name;
    return Result::kSuccess;
  };
  api->func_load = [](Function) {
    ++driver.loaded_functions;
    return Result::kSuccess;
  };
  api->occupancy_max_active_blocks = [](int* blocks, Function, int, size_t) {
    *blocks = 2;
    return Result::kSuccess;
  };
  api->launch_kernel = [](Function function, unsigned int grid, unsigned int, unsigned int,
                          unsigned int block, unsigned int, unsigned int, unsigned int, Stream,
                          void** args, void**) {
    driver.launched = driver.functions[function];
    driver.grid = grid;
    driver.block = block;
    if (driver.launched == ReduceSlicesArgs::kName) {
      driver.args = *static_cast<ReduceSlicesArgs*>(args[0]);
    }
    return Result::kSuccess;
  };
}

inline void AddGraphs(DriverApi* api) {
  api->user_object_create = [](UserObject* object, void* held, HostFunction let_go,
                               unsigned int references, unsigned int) {
    *object = &driver.held;
    driver.held = held;
    driver.let_go = let_go;
    driver.references = static_cast<int>(references);
    return driver.user_object;
  };
  api->graph_retain_user_object = [](Graph, UserObject object, unsigned int count, unsigned int) {
    const bool right = object == &driver.held && static_cast<int>(count) == driver.references;
    return right ? Result::kSuccess : kInvalidValue;
  };
}

inline DriverApi Api() {
  DriverApi api = {};
  api.get_error_name = [](Result error, const char** name) {
    if (error == kNotFound) *name = "CUDA_ERROR_NOT_FOUND";
    return error == kNotFound ? Result::kSuccess : kInvalidValue;
  };
  api.get_error_string = [](Result error, const char** text) {
    if (error == kNotFound) *text = "named symbol not found";
    return error == kNotFound ? Result::kSuccess : kInvalidValue;
  };
  AddContexts(&api);
  AddKernels(&api);
  AddGraphs(&api);
  return api;
}

}  // namespace noted_driver
