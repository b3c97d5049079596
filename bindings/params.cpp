#include "collops/operators/params.h"

#include "module.h"
#include "params.h"
#include "status.h"

namespace collops::bindings {
namespace {

template <typename Param>
Status Read(const std::string& json, uintptr_t hccl_comm, Param* param) {
  COLLOPS_RETURN_IF_ERROR(FromJson(json, param));
  param->hcclComm = reinterpret_cast<void*>(hccl_comm);
  return Ok();
}

template <typename Param>
Status Create(const std::string& json, uintptr_t hccl_comm, const OperationOptions& options,
              std::unique_ptr<Operation>* operation) {
  Param param;
  COLLOPS_RETURN_IF_ERROR(Read(json, hccl_comm, &param));
  return CreateOperation(param, options, operation);
}

template <typename Param>
Status Update(const std::string& json, uintptr_t hccl_comm, std::unique_ptr<Operation>* operation) {
  Param param;
  COLLOPS_RETURN_IF_ERROR(Read(json, hccl_comm, &param));
  return UpdateOperation(param, operation);
}

// Parses the struct and writes it again: finds unknown keys and adds the defaults.
template <typename Param>
Status Normalise(const std::string& json, std::string* normal) {
  Param param;
  COLLOPS_RETURN_IF_ERROR(FromJson(json, &param));
  *normal = ToJson(param);
  return Ok();
}

template <typename Param>
constexpr ParamRow RowOf(const char* name) {
  return {name, &Create<Param>, &Update<Param>, &Normalise<Param>};
}

constexpr ParamRow kParams[] = {
    RowOf<AllGatherVParam>("AllGatherVParam"),
    RowOf<ReduceScatterVParam>("ReduceScatterVParam"),
    RowOf<AllGatherParam>("AllGatherParam"),
    RowOf<ReduceScatterParam>("ReduceScatterParam"),
    RowOf<AllReduceParam>("AllReduceParam"),
    RowOf<BroadcastParam>("BroadcastParam"),
    RowOf<SendParam>("SendParam"),
    RowOf<RecvParam>("RecvParam"),
    RowOf<AllToAllParam>("AllToAllParam"),
    RowOf<AllToAllVParam>("AllToAllVParam"),
    RowOf<AllToAllVV2Param>("AllToAllVV2Param"),
    RowOf<LinearParallelParam>("LinearParallelParam"),
};

std::string NormalJson(const std::string& name, const std::string& json) {
  std::string normal;
  ThrowIfError(FindParam(name).normalise(json, &normal));
  return normal;
}

}  // namespace

const ParamRow& FindParam(const std::string& name) {
  for (const ParamRow& row : kParams) {
    if (name == row.name) return row;
  }
  throw py::value_error("no parameter struct is called " + name);
}

void BindParams(py::module_& module) {
  module.def("normal_json", &NormalJson, py::arg("param"), py::arg("json"));
}

}  // namespace collops::bindings
