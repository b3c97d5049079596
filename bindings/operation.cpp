#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "collops/comm/backends/backend_table.h"
#include "collops/core/env.h"
#include "collops/core/prepackable.h"
#include "collops/operators/framework/collective_operation.h"
#include "collops/operators/linear_parallel/engine.h"
#include "collops/operators/linear_parallel/operator.h"
#include "collops/operators/params.h"
#include "module.h"
#include "status.h"
#include "tensors/tensor.h"

namespace collops::bindings {
namespace {

// One row per parameter struct. Python passes a struct as JSON, and its `hcclComm`, which JSON
// never contains, as a number.
struct ParamRow {
  const char* name;  // the struct's name, in C++ and in Python
  Status (*create)(const std::string& json, uintptr_t hccl_comm, const OperationOptions& options,
                   std::unique_ptr<Operation>* operation);
  Status (*update)(const std::string& json, uintptr_t hccl_comm,
                   std::unique_ptr<Operation>* operation);
  // Parses the struct and writes it again: finds unknown keys and adds the defaults.
  Status (*normalise)(const std::string& json, std::string* normal);
};

template <typename Param>
Status Read(const std::string& json, uintptr_t hccl_comm, Param* param) {
  COLLOPS_RETURN_IF_ERROR(FromJson(json, param));
  param->hcclComm = reinterpret_cast<void*>(hccl_comm);
  return Ok();
}

template <typename Param>
constexpr ParamRow RowOf(const char* name) {
  return {name,
          [](const std::string& json, uintptr_t hccl_comm, const OperationOptions& options,
             std::unique_ptr<Operation>* operation) -> Status {
            Param param;
            COLLOPS_RETURN_IF_ERROR(Read(json, hccl_comm, &param));
            return CreateOperation(param, options, operation);
          },
          [](const std::string& json, uintptr_t hccl_comm,
             std::unique_ptr<Operation>* operation) -> Status {
            Param param;
            COLLOPS_RETURN_IF_ERROR(Read(json, hccl_comm, &param));
            return UpdateOperation(param, operation);
          },
          [](const std::string& json, std::string* normal) -> Status {
            Param param;
            COLLOPS_RETURN_IF_ERROR(FromJson(json, &param));
            *normal = ToJson(param);
            return Ok();
          }};
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

const ParamRow& FindParam(const std::string& name) {
  for (const ParamRow& row : kParams) {
    if (name == row.name) return row;
  }
  throw py::value_error("no parameter struct is called " + name);
}

std::string NormalJson(const std::string& name, const std::string& json) {
  std::string normal;
  ThrowIfError(FindParam(name).normalise(json, &normal));
  return normal;
}

// The last run times of this thread's forward() calls by the operator's name, as torch_atb.Prof has
// them: whole microseconds, the latest one last, at most 1000.
class RunTimes {
 public:
  using Clock = std::chrono::steady_clock;

  static RunTimes& OfThread() {
    static thread_local RunTimes times;
    return times;
  }

  void Add(const char* name, Clock::duration time) {
    std::deque<uint64_t>& times = times_[name];
    if (times.size() == kMost) times.pop_front();
    const auto whole = std::chrono::duration_cast<std::chrono::microseconds>(time);
    times.push_back(static_cast<uint64_t>(whole.count()));
  }

  std::vector<uint64_t> Get(const std::string& name) const {
    const auto found = times_.find(name);
    if (found == times_.end()) return {};
    return {found->second.begin(), found->second.end()};
  }

 private:
  static constexpr size_t kMost = 1000;
  std::unordered_map<std::string, std::deque<uint64_t>> times_;
};

// Marks the operation as in use by this thread; without it a second thread could change the plan
// that the first one reads.
class Use {
 public:
  Use(std::atomic<bool>* busy, const char* operation) : busy_(busy) {
    if (busy_->exchange(true)) {
      Throw(ERROR_INVALID_PARAM, operation,
            ": another thread is inside this operation; one thread at a time");
    }
  }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;
  ~Use() { busy_->store(false); }

 private:
  std::atomic<bool>* busy_;
};

// A tuple of its own keeps the tensors alive if another thread changes the caller's list.
py::tuple Hold(const py::object& tensors, const char* operation, const char* label) {
  const bool is_plain = PyList_CheckExact(tensors.ptr()) || PyTuple_CheckExact(tensors.ptr());
  // A sequence of its rows.
  if (!is_plain && py::hasattr(tensors, "__dlpack__") && py::hasattr(tensors, "shape")) {
    Throw(ERROR_INVALID_PARAM, operation, ": ", label, "s must be a list of tensors, got one ",
          Py_TYPE(tensors.ptr())->tp_name, " of shape ",
          std::string(py::str(py::tuple(tensors.attr("shape")))), ": pass [x]");
  }
  PyObject* tuple =
      PySequence_Check(tensors.ptr()) != 0 ? PySequence_Tuple(tensors.ptr()) : nullptr;
  if (tuple == nullptr) {
    PyErr_Clear();
    Throw(ERROR_INVALID_PARAM, operation, ": ", label, "s must be a list of tensors, got ",
          Py_TYPE(tensors.ptr())->tp_name);
  }
  return py::reinterpret_steal<py::tuple>(tuple);
}

// What Execute gets besides the tensors.
struct Scratch {
  void* workspace = nullptr;
  uint64_t bytes = 0;
  void* stream = nullptr;
  py::object owner;
};

// A workspace lies where the call's tensors lie. On an NPU the backend checks it.
Status CheckPlace(const VariantPack& pack, const Device& where, const char* operation) {
  const Device wanted = pack.inputs.empty() ? Device() : pack.inputs[0].device;
  COLLOPS_CHECK_ARG(wanted.kind != DeviceKind::kCpu || where.kind == DeviceKind::kCpu,
                    ERROR_INVALID_WORKSPACE_ADDR, operation, ": the workspace is on ",
                    ToString(where),
                    ", but the call's tensors are on the CPU: pass an empty uint8 array");
  COLLOPS_CHECK_ARG(wanted.kind != DeviceKind::kCuda || where == wanted,
                    ERROR_INVALID_WORKSPACE_ADDR, operation, ": the workspace is on ",
                    ToString(where), ", but the call's tensors are on ", ToString(wanted));
  return Ok();
}

// `workspace`: a tensor with writable memory, or None. `stream` has seen the tensors of the call.
Status ToScratch(py::handle workspace, CallStream* stream, const VariantPack& pack,
                 const char* operation, Scratch* scratch) {
  COLLOPS_RETURN_IF_ERROR(stream->Find(operation, &scratch->stream));
  if (workspace.is_none()) return Ok();
  Tensor tensor;
  COLLOPS_RETURN_IF_ERROR(ToTensor(workspace, {operation, "workspace"}, &tensor, stream));
  COLLOPS_CHECK_ARG(tensor.view.contiguous && !tensor.view.read_only, ERROR_INVALID_WORKSPACE_ADDR,
                    operation,
                    ": the workspace must be contiguous and writable: pass an empty uint8 array");
  COLLOPS_RETURN_IF_ERROR(CheckPlace(pack, tensor.view.device, operation));
  scratch->workspace = tensor.view.data;
  scratch->bytes = static_cast<uint64_t>(tensor.numel * SizeOf(tensor.view.desc.dtype));
  scratch->owner = std::move(tensor.owner);
  return Ok();
}

// An operation as Python sees it. It waits with the GIL released, so a second Python thread may
// call it meanwhile; that thread gets an error instead of a data race.
class BoundOperation {
 public:
  BoundOperation(const std::string& param, const std::string& json, uintptr_t hccl_comm,
                 const std::string& engine, bool averages);

  const char* Name() const { return name_; }
  std::string PlannedEngine() const;
  int NumInputs() const { return operation_->NumInputs(); }
  int NumOutputs() const { return operation_->NumOutputs(); }
  void Update(const std::string& param, const std::string& json, uintptr_t hccl_comm);
  py::list InferShape(const py::object& inputs);
  uint64_t GetWorkspaceSize(const py::object& inputs, const py::object& outputs);
  // Makes the outputs and the workspace, and runs both phases.
  py::list Forward(const py::object& inputs);
  void Execute(const py::object& inputs, const py::object& outputs, const py::object& workspace,
               const py::object& stream);
  void Refuse(int code, const std::string& message);
  void Prepack(const py::object& weight);

 private:
  // The owners of the memory of tensors that were read through DLPack.
  using Owners = std::vector<py::object>;

  // Every operator is one.
  CollectiveOperation& collective() const { return static_cast<CollectiveOperation&>(*operation_); }

  std::string StructText(const std::string& json, uintptr_t hccl_comm) const;
  Status ReadInputs(const py::tuple& inputs, CallStream* stream, Owners* owners);
  Status ReadOutputs(const py::tuple& outputs, CallStream* stream, Owners* owners);
  Status Infer();
  py::list MakeOutputs(py::handle like);
  py::list PrepareForward(const py::object& inputs, CallStream* stream, Owners* owners,
                          Scratch* scratch);
  void ExecuteOrRefuse(const Status& status, const Scratch& scratch);

  const ParamRow& row_;
  std::string text_;  // the struct in its normal form, to recognise an equal one
  std::unique_ptr<Operation> operation_;
  const char* name_ = "";             // of the operation, also after an update
  std::vector<TensorDesc> inferred_;  // the inputs of the last Infer() that succeeded
  Device inferred_device_;
  std::vector<TensorDesc> outputs_;  // that were inferred
  std::vector<ResultMaker> makers_;
  VariantPack pack_;  // reused, so that a call allocates nothing
  std::atomic<bool> busy_{false};
};

BoundOperation::BoundOperation(const std::string& param, const std::string& json,
                               uintptr_t hccl_comm, const std::string& engine, bool averages)
    : row_(FindParam(param)), text_(StructText(json, hccl_comm)) {
  RunWithoutGil([&] { return row_.create(json, hccl_comm, {engine, averages}, &operation_); });
  name_ = operation_->Name();
}

// The struct with all its fields, as text.
std::string BoundOperation::StructText(const std::string& json, uintptr_t hccl_comm) const {
  std::string text;
  ThrowIfError(row_.normalise(json, &text));
  return Concat(text, " hcclComm ", hccl_comm);
}

Status BoundOperation::ReadInputs(const py::tuple& inputs, CallStream* stream, Owners* owners) {
  const std::vector<InputRule>& rules = collective().signature().inputs;
  pack_.inputs.clear();
  Tensor tensor;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const char* const own_name = i < rules.size() ? rules[i].name : nullptr;
    const TensorName tensor_name{name_, "input", static_cast<int>(i), own_name};
    COLLOPS_RETURN_IF_ERROR(
        ToTensor(PyTuple_GET_ITEM(inputs.ptr(), i), tensor_name, &tensor, stream));
    pack_.inputs.push_back(tensor.view);
    if (tensor.owner) owners->push_back(tensor.owner);
  }
  return Ok();
}

Status BoundOperation::ReadOutputs(const py::tuple& outputs, CallStream* stream, Owners* owners) {
  pack_.outputs.clear();
  Tensor tensor;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const TensorName tensor_name{name_, "output", static_cast<int>(i)};
    COLLOPS_RETURN_IF_ERROR(
        ToTensor(PyTuple_GET_ITEM(outputs.ptr(), i), tensor_name, &tensor, stream));
    pack_.outputs.push_back(tensor.view);
    if (tensor.owner) owners->push_back(tensor.owner);
  }
  return Ok();
}

// If the struct is equal, nothing changes, and the plans stay.
void BoundOperation::Update(const std::string& param, const std::string& json,
                            uintptr_t hccl_comm) {
  const Use use(&busy_, name_);
  if (param != row_.name) {
    Throw(ERROR_INVALID_PARAM, name_, ": update() needs another ", row_.name, ", got ", param);
  }
  std::string text = StructText(json, hccl_comm);
  if (text == text_) return;
  RunWithoutGil([&] { return row_.update(json, hccl_comm, &operation_); });
  text_ = std::move(text);
  inferred_.clear();  // another struct may have other outputs
}

// The outputs for the inputs in pack_; nothing is done again for inputs with the shapes and types
// of the last ones, the first of them on the same device.
Status BoundOperation::Infer() {
  const auto is_equal = [](const TensorView& view, const TensorDesc& desc) {
    return view.desc == desc;
  };
  if (!inferred_.empty() && !pack_.inputs.empty() && pack_.inputs[0].device == inferred_device_ &&
      std::equal(pack_.inputs.begin(), pack_.inputs.end(), inferred_.begin(), inferred_.end(),
                 is_equal)) {
    return Ok();
  }
  std::vector<TensorDesc> descs;
  for (const TensorView& view : pack_.inputs) descs.push_back(view.desc);
  inferred_.clear();
  outputs_.clear();
  COLLOPS_RETURN_IF_ERROR(operation_->InferShape(descs, &outputs_));
  inferred_device_ = pack_.inputs[0].device;
  inferred_ = std::move(descs);
  makers_ = std::vector<ResultMaker>(outputs_.size());
  return Ok();
}

py::list BoundOperation::InferShape(const py::object& inputs) {
  const Use use(&busy_, name_);
  Owners owners;
  CallStream stream;
  stream.OnlyLook();
  ThrowIfError(ReadInputs(Hold(inputs, name_, "input"), &stream, &owners));
  ThrowIfError(Infer());
  py::list result;
  for (const TensorDesc& desc : outputs_) result.append(ToPython(desc));
  return result;
}

uint64_t BoundOperation::GetWorkspaceSize(const py::object& inputs, const py::object& outputs) {
  const Use use(&busy_, name_);
  const py::tuple in = Hold(inputs, name_, "input");
  const py::tuple out = Hold(outputs, name_, "output");
  Owners owners;
  CallStream stream;
  stream.OnlyLook();
  ThrowIfError(ReadInputs(in, &stream, &owners));
  ThrowIfError(ReadOutputs(out, &stream, &owners));
  uint64_t bytes = 0;
  ThrowIfError(operation_->GetWorkspaceSize(pack_, &bytes));
  return bytes;
}

// Of the kind of the first input.
py::list BoundOperation::MakeOutputs(py::handle like) {
  py::list outputs;
  for (size_t i = 0; i < outputs_.size(); ++i) {
    const TensorDesc& desc = outputs_[i];
    const char* const dtype =
        desc.dtype == inferred_[0].dtype ? nullptr : collops::Name(desc.dtype);
    const std::vector<int64_t> sizes(desc.shape.dims, desc.shape.dims + desc.shape.num_dims);
    outputs.append(makers_[i].Make(name_, like, sizes, dtype));
  }
  return outputs;
}

py::list BoundOperation::PrepareForward(const py::object& inputs, CallStream* stream,
                                        Owners* owners, Scratch* scratch) {
  const py::tuple in = Hold(inputs, name_, "input");
  owners->push_back(in);
  ThrowIfError(ReadInputs(in, stream, owners));
  ThrowIfError(Infer());
  py::list outputs = MakeOutputs(in[0]);
  ThrowIfError(ReadOutputs(py::tuple(outputs), stream, owners));
  uint64_t bytes = 0;
  ThrowIfError(operation_->GetWorkspaceSize(pack_, &bytes));
  py::object workspace = py::none();
  if (bytes > 0) {
    void* on = nullptr;
    ThrowIfError(stream->Find(name_, &on));
    workspace = MakeWorkspace(in[0], pack_.inputs[0].device, bytes, name_, on);
    owners->push_back(workspace);
  }
  ThrowIfError(ToScratch(workspace, stream, pack_, name_, scratch));
  return outputs;
}

py::list BoundOperation::Forward(const py::object& inputs) {
  const Use use(&busy_, name_);
  const auto begin = RunTimes::Clock::now();
  Owners owners;
  CallStream stream;
  Scratch scratch;
  py::list outputs;
  try {
    outputs = PrepareForward(inputs, &stream, &owners, &scratch);
  } catch (py::error_already_set& error) {
    if (!error.matches(PyExc_Exception)) throw;
    try {
      ExecuteOrRefuse(StatusOf(error), scratch);
    } catch (py::error_already_set& refused) {
      if (!refused.matches(PyExc_Exception)) throw;
    }
    throw;
  }
  ExecuteOrRefuse(Ok(), scratch);
  RunTimes::OfThread().Add(name_, RunTimes::Clock::now() - begin);
  return outputs;
}

// Runs the call, or tells the ranks that wait in it why this one does not.
void BoundOperation::ExecuteOrRefuse(const Status& status, const Scratch& scratch) {
  const UserCall number(collective().communicator().CallOfUser());
  RunWithoutGil([&]() -> Status {
    if (status.ok()) {
      return operation_->Execute(pack_, scratch.workspace, scratch.bytes, scratch.stream);
    }
    static_cast<void>(operation_->Refuse(status));  // the error of the call matters more
    return status;
  });
}

void BoundOperation::Execute(const py::object& inputs, const py::object& outputs,
                             const py::object& workspace, const py::object& stream) {
  const Use use(&busy_, name_);
  const py::tuple in = Hold(inputs, name_, "input");
  const py::tuple out = Hold(outputs, name_, "output");
  Owners owners;
  Scratch scratch;
  CallStream call_stream(stream);
  Status status = ReadInputs(in, &call_stream, &owners);
  if (status.ok()) status = ReadOutputs(out, &call_stream, &owners);
  if (status.ok()) status = ToScratch(workspace, &call_stream, pack_, name_, &scratch);
  ExecuteOrRefuse(status, scratch);
}

void BoundOperation::Refuse(int code, const std::string& message) {
  const Use use(&busy_, name_);
  const UserCall number(collective().communicator().CallOfUser());
  RunWithoutGil([&] { return operation_->Refuse(Status(static_cast<ErrorCode>(code), message)); });
}

void BoundOperation::Prepack(const py::object& weight) {
  const Use use(&busy_, name_);
  auto* prepackable = dynamic_cast<Prepackable*>(operation_.get());
  if (prepackable == nullptr) {
    Throw(ERROR_INVALID_PARAM, name_,
          ": prepack() is for operators with a weight, such as LinearParallel");
  }
  Tensor tensor;
  ThrowIfError(ToTensor(weight.ptr(), {name_, "input", 1, "weight"}, &tensor));
  RunWithoutGil([&] { return prepackable->Prepack(tensor.view); });
}

std::string BoundOperation::PlannedEngine() const {
  const auto* const linear = dynamic_cast<const LinearOperation*>(operation_.get());
  return linear == nullptr ? "" : linear->planned_engine();
}

// Each engine of LinearParallel and why it would not run between two ranks of a backend, on one
// host, or "".
std::vector<std::pair<std::string, std::string>> LinearEngines(const std::string& backend) {
  const Backend* const row = FindBackend(backend);
  EnginePlace place;
  place.backend = backend;
  place.rank_size = 2;
  place.gather_ranks = 2;
  place.on_device = row != nullptr && std::string(row->memory) != "cpu";
  place.has_windows = !place.on_device;
  Env env;
  place.windows_wanted = Env::Read(&env).ok() && env.fused;
  std::vector<std::pair<std::string, std::string>> rows;
  for (const auto& [name, why] : AskEngines(place)) rows.emplace_back(name, why.message());
  return rows;
}

}  // namespace

void BindOperation(py::module_& module) {
  module.def("normal_json", &NormalJson, py::arg("param"), py::arg("json"));
  module.def(
      "run_times", [](const std::string& name) { return RunTimes::OfThread().Get(name); },
      py::arg("name"));
  module.def("linear_engines", &LinearEngines, py::arg("backend") = "shm");
  py::class_<BoundOperation>(module, "Operation")
      .def(py::init<const std::string&, const std::string&, uintptr_t, const std::string&, bool>(),
           py::arg("param"), py::arg("json"), py::arg("hccl_comm"), py::arg("engine"),
           py::arg("averages") = false)
      .def_property_readonly("name", &BoundOperation::Name)
      .def_property_readonly("engine", &BoundOperation::PlannedEngine)
      .def_property_readonly("num_inputs", &BoundOperation::NumInputs)
      .def_property_readonly("num_outputs", &BoundOperation::NumOutputs)
      .def("update", &BoundOperation::Update, py::arg("param"), py::arg("json"),
           py::arg("hccl_comm"))
      .def("infer_shape", &BoundOperation::InferShape, py::arg("inputs"))
      .def("get_workspace_size", &BoundOperation::GetWorkspaceSize, py::arg("inputs"),
           py::arg("outputs"))
      .def("forward", &BoundOperation::Forward, py::arg("inputs"))
      .def("execute", &BoundOperation::Execute, py::arg("inputs"), py::arg("outputs"),
           py::arg("workspace"), py::arg("stream"))
      .def("refuse", &BoundOperation::Refuse, py::arg("code"), py::arg("message"))
      .def("prepack", &BoundOperation::Prepack, py::arg("weight"));
}

}  // namespace collops::bindings
