#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "collops/core/operation.h"
#include "collops/core/status.h"
#include "collops/operators/params.h"

namespace collops::bindings {

// One row per parameter struct. Python passes a struct as JSON, and its `hcclComm`, which JSON
// never contains, as a number.
struct ParamRow {
  const char* name;  // the struct's name, in C++ and in Python
  Status (*create)(const std::string& json, uintptr_t hccl_comm, const OperationOptions& options,
                   std::unique_ptr<Operation>* operation);
  Status (*update)(const std::string& json, uintptr_t hccl_comm,
                   std::unique_ptr<Operation>* operation);
  Status (*normalise)(const std::string& json, std::string* normal);
};

// The row with that name; raises ValueError if there is none.
const ParamRow& FindParam(const std::string& name);

}  // namespace collops::bindings
