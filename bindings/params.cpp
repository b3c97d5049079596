#include "operators/create_operation.h"

#include "module.h"
#include "params.h"
#include "status.h"

namespace collops::bindings {
namespace {

constexpr const char* kAllGatherVInputs[] = {"x",       "sendCount", "recvCounts",
                                             "rdispls", "y",         nullptr};
constexpr const char* kReduceScatterVInputs[] = {"x",         "sendCounts", "sdispls",
                                                 "recvCount", "y",          nullptr};

constexpr const char* kXOnly[] = {"x", nullptr};
constexpr const char* kAllToAllVV2Inputs[] = {"x",       "sendCounts", "sdispls", "recvCounts",
                                              "rdispls", "y",          nullptr};
constexpr const char* kLinearParallelInputs[] = {"x", "weight", "residual", nullptr};

template <typename Param>
Status Read(const std::string& json, uintptr_t hccl_comm, Param* param) {
  RETURN_IF_ERROR(FromJson(json, param));
  param->hcclComm = reinterpret_cast<void*>(hccl_comm);
  return Ok();
}

template <typename Param>
Status Create(const std::string& json, uintptr_t hccl_comm, const OperationOptions& options,
              std::unique_ptr<Operation>* operation) {
  Param param;
  RETURN_IF_ERROR(Read(json, hccl_comm, &param));
  return CreateOperation(param, options, operation);
}

template <typename Param>
Status Update(const std::string& json, uintptr_t hccl_comm, std::unique_ptr<Operation>* operation) {
  Param param;
  RETURN_IF_ERROR(Read(json, hccl_comm, &param));
  return UpdateOperation(param, operation);
}

// Parses the struct and writes it again: finds unknown keys and adds the defaults.
template <typename Param>
Status Normalise(const std::string& json, std::string* normal) {
  Param param;
  RETURN_IF_ERROR(FromJson(json, &param));
  *normal = ToJson(param);
  return Ok();
}

constexpr ParamRow kParams[] = {
    {"AllGatherVParam", "AllGatherV", kAllGatherVInputs, &Create<AllGatherVParam>,
     &Update<AllGatherVParam>, &Normalise<AllGatherVParam>},
    {"ReduceScatterVParam", "ReduceScatterV", kReduceScatterVInputs, &Create<ReduceScatterVParam>,
     &Update<ReduceScatterVParam>, &Normalise<ReduceScatterVParam>},
    {"AllGatherParam", "AllGather", kXOnly, &Create<AllGatherParam>, &Update<AllGatherParam>,
     &Normalise<AllGatherParam>},
    {"ReduceScatterParam", "ReduceScatter", kXOnly, &Create<ReduceScatterParam>,
     &Update<ReduceScatterParam>, &Normalise<ReduceScatterParam>},
    {"AllReduceParam", "AllReduce", kXOnly, &Create<AllReduceParam>, &Update<AllReduceParam>,
     &Normalise<AllReduceParam>},
    {"BroadcastParam", "Broadcast", kXOnly, &Create<BroadcastParam>, &Update<BroadcastParam>,
     &Normalise<BroadcastParam>},
    {"SendParam", "Send", kXOnly, &Create<SendParam>, &Update<SendParam>, &Normalise<SendParam>},
    {"RecvParam", "Recv", kXOnly, &Create<RecvParam>, &Update<RecvParam>, &Normalise<RecvParam>},
    {"AllToAllParam", "AllToAll", kXOnly, &Create<AllToAllParam>, &Update<AllToAllParam>,
     &Normalise<AllToAllParam>},
    {"AllToAllVParam", "AllToAllV", kXOnly, &Create<AllToAllVParam>, &Update<AllToAllVParam>,
     &Normalise<AllToAllVParam>},
    {"AllToAllVV2Param", "AllToAllVV2", kAllToAllVV2Inputs, &Create<AllToAllVV2Param>,
     &Update<AllToAllVV2Param>, &Normalise<AllToAllVV2Param>},
    {"LinearParallelParam", "LinearParallel", kLinearParallelInputs, &Create<LinearParallelParam>,
     &Update<LinearParallelParam>, &Normalise<LinearParallelParam>},
};

std::string NormalJson(const std::string& name, const std::string& json) {
  const ParamRow* row = FindParam(name);
  if (row == nullptr) throw py::value_error("no parameter struct is called " + name);
  std::string normal;
  ThrowIfError(row->normalise(json, &normal));
  return normal;
}

}  // namespace

const ParamRow* FindParam(const std::string& name) {
  for (const ParamRow& row : kParams) {
    if (name == row.name) return &row;
  }
  return nullptr;
}

void BindParams(py::module_& module) {
  module.def("normal_json", &NormalJson, py::arg("param"), py::arg("json"));
}

}  // namespace collops::bindings
