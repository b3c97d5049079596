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
#include "module.h"
#include "params.h"
#include "plain/plain_call.h"
#include "status.h"
#include "tensors/tensor.h"
#include "workspace.h"

namespace collops::bindings {

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

// An operation as Python sees it. It waits with the GIL released, so a second Python thread may
// call it meanwhile; that thread gets an error instead of a data race.
class BoundOperation {
 public:
  BoundOperation(const ParamRow& row, std::string struct_text, std::unique_ptr<Operation> operation)
      : row_(row),
        struct_text_(std::move(struct_text)),
        operation_(std::move(operation)),
        name_(operation_->Name()) {}

  const char* Name() const { return name_; }
  std::string PlannedEngine() const;
  int NumInputs() const { return operation_->NumInputs(); }
  int NumOutputs() const { return operation_->NumOutputs(); }
  void Update(const std::string& param, const std::string& json, uintptr_t hccl_comm);
  pybind11::list InferShape(const pybind11::object& inputs);
  uint64_t GetWorkspaceSize(const pybind11::object& inputs, const pybind11::object& outputs);
  // How memory like the outputs of the last InferShape() is made, if its first input was of the
  // class `like`. For ForwardAgain(), until the next InferShape().
  void KeepMakers(const pybind11::list& makers, const pybind11::object& like);
  // Begins a call of the user's forward(). Forward() with outputs of its own, if the inputs are
  // like the last ones of InferShape(); the outputs and the bytes. Else None and 0, and nothing has
  // run.
  pybind11::tuple ForwardAgain(const pybind11::object& inputs);
  // Both phases. If they need a workspace, returns its bytes, and nothing has run.
  uint64_t Forward(const pybind11::object& inputs, const pybind11::object& outputs);
  // Ends the user's forward(), unless ForwardAgain() has run it: its time is kept.
  void EndForward() { RunTimes::OfThread().Add(name_, RunTimes::Clock::now() - forward_begin_); }
  void Execute(const pybind11::object& inputs, const pybind11::object& outputs,
               const pybind11::object& workspace, const pybind11::object& stream);
  void Refuse(int code, const std::string& message);
  void Prepack(const pybind11::object& weight);

 private:
  // Every operator is one.
  CollectiveOperation& collective() const { return static_cast<CollectiveOperation&>(*operation_); }

  // The owners of the memory of tensors that were read through DLPack.
  using Owners = std::vector<pybind11::object>;

  bool AreAsInferred() const;
  pybind11::list MakeOutputs() const;
  uint64_t RunBothPhases(Status status, const pybind11::tuple& inputs, CallStream* stream);
  void ExecuteOrRefuse(const Status& status, const Scratch& scratch);
  Status ToPack(const pybind11::tuple& inputs, const pybind11::tuple& outputs, CallStream* stream,
                Owners* owners);
  // `rules` know the tensors' names.
  Status ToViews(const pybind11::tuple& tensors, const char* label,
                 const std::vector<InputRule>& rules, CallStream* stream,
                 std::vector<TensorView>* views, Owners* owners);

  const ParamRow& row_;
  std::string struct_text_;  // the struct in its normal form, to recognise an equal one
  std::unique_ptr<Operation> operation_;
  const char* const name_;            // of the operation, also after an update
  std::vector<TensorDesc> inferred_;  // the inputs of the last InferShape() that succeeded
  Device inferred_device_;
  pybind11::list makers_;  // of the outputs that were inferred; may be empty
  pybind11::object like_;
  VariantPack pack_;  // reused, so that a call allocates nothing
  RunTimes::Clock::time_point forward_begin_;
  std::atomic<bool> busy_{false};
};

namespace {

// Marks the operation as in use by this thread; without it a second thread could change the plan
// that the first one reads.
class Use {
 public:
  Use(std::atomic<bool>* busy, const char* operation) : busy_(busy) {
    if (busy_->exchange(true)) {
      ThrowIfError(Error(ERROR_INVALID_PARAM, operation,
                         ": another thread is inside this operation; one thread at a time"));
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
    ThrowIfError(Error(ERROR_INVALID_PARAM, operation, ": ", label,
                       "s must be a list of tensors, got one ", Py_TYPE(tensors.ptr())->tp_name,
                       " of shape ", std::string(py::str(py::tuple(tensors.attr("shape")))),
                       ": pass [x]"));
  }
  PyObject* tuple =
      PySequence_Check(tensors.ptr()) != 0 ? PySequence_Tuple(tensors.ptr()) : nullptr;
  if (tuple == nullptr) {
    PyErr_Clear();
    ThrowIfError(Error(ERROR_INVALID_PARAM, operation, ": ", label,
                       "s must be a list of tensors, got ", Py_TYPE(tensors.ptr())->tp_name));
  }
  return py::reinterpret_steal<py::tuple>(tuple);
}

// The struct with all its fields, as text.
Status StructText(const ParamRow& row, const std::string& json, uintptr_t hccl_comm,
                  std::string* text) {
  COLLOPS_RETURN_IF_ERROR(row.normalise(json, text));
  *text += Concat(" hcclComm ", hccl_comm);
  return Ok();
}

std::unique_ptr<BoundOperation> CreateBound(const std::string& param, const std::string& json,
                                            uintptr_t hccl_comm, const std::string& engine,
                                            bool averages) {
  const ParamRow& row = FindParam(param);
  std::string text;
  ThrowIfError(StructText(row, json, hccl_comm, &text));
  std::unique_ptr<Operation> operation;
  RunWithoutGil([&] { return row.create(json, hccl_comm, {engine, averages}, &operation); });
  return std::make_unique<BoundOperation>(row, std::move(text), std::move(operation));
}

// The checks go through the tensors in order, so the first without a type is the one they mean.
Status NameElementTypes(const Status& status, const py::tuple& tensors,
                        const std::vector<TensorView>& views) {
  for (size_t i = 0; i < views.size(); ++i) {
    if (views[i].desc.dtype == DType::kUndefined) return NameElementType(status, tensors[i]);
  }
  return status;
}

}  // namespace

Status BoundOperation::ToViews(const py::tuple& tensors, const char* label,
                               const std::vector<InputRule>& rules, CallStream* stream,
                               std::vector<TensorView>* views, Owners* owners) {
  views->clear();
  Tensor tensor;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const char* const own_name = i < rules.size() ? rules[i].name : nullptr;
    const TensorName tensor_name{name_, label, static_cast<int>(i), own_name};
    COLLOPS_RETURN_IF_ERROR(
        ToTensor(PyTuple_GET_ITEM(tensors.ptr(), i), tensor_name, &tensor, stream));
    views->push_back(tensor.view);
    if (tensor.owner) owners->push_back(tensor.owner);
  }
  return Ok();
}

Status BoundOperation::ToPack(const py::tuple& inputs, const py::tuple& outputs, CallStream* stream,
                              Owners* owners) {
  const std::vector<InputRule>& rules = collective().signature().inputs;
  COLLOPS_RETURN_IF_ERROR(ToViews(inputs, "input", rules, stream, &pack_.inputs, owners));
  return ToViews(outputs, "output", {}, stream, &pack_.outputs, owners);
}

// If the struct is equal, nothing changes, and the plans stay.
void BoundOperation::Update(const std::string& param, const std::string& json,
                            uintptr_t hccl_comm) {
  const Use use(&busy_, name_);
  if (param != row_.name) {
    ThrowIfError(
        Error(ERROR_INVALID_PARAM, name_, ": update() needs another ", row_.name, ", got ", param));
  }
  std::string text;
  ThrowIfError(StructText(row_, json, hccl_comm, &text));
  if (text == struct_text_) return;
  RunWithoutGil([&] { return row_.update(json, hccl_comm, &operation_); });
  struct_text_ = std::move(text);
  inferred_.clear();  // another struct may have other outputs
  makers_ = py::list();
}

py::list BoundOperation::InferShape(const py::object& inputs) {
  const Use use(&busy_, name_);
  makers_ = py::list();
  Owners owners;
  CallStream stream;
  stream.OnlyLook();
  const py::tuple in = Hold(inputs, name_, "input");
  const std::vector<InputRule>& rules = collective().signature().inputs;
  ThrowIfError(ToViews(in, "input", rules, &stream, &pack_.inputs, &owners));
  std::vector<TensorDesc> descs;
  for (const TensorView& view : pack_.inputs) descs.push_back(view.desc);
  std::vector<TensorDesc> outputs;
  ThrowIfError(NameElementTypes(operation_->InferShape(descs, &outputs), in, pack_.inputs));
  inferred_device_ = pack_.inputs[0].device;
  inferred_ = std::move(descs);
  py::list result;
  for (const TensorDesc& desc : outputs) result.append(ToPython(desc));
  return result;
}

uint64_t BoundOperation::GetWorkspaceSize(const py::object& inputs, const py::object& outputs) {
  const Use use(&busy_, name_);
  const py::tuple in = Hold(inputs, name_, "input");
  const py::tuple out = Hold(outputs, name_, "output");
  Owners owners;
  CallStream stream;
  stream.OnlyLook();
  ThrowIfError(ToPack(in, out, &stream, &owners));
  uint64_t bytes = 0;
  const Status status =
      NameElementTypes(operation_->GetWorkspaceSize(pack_, &bytes), in, pack_.inputs);
  ThrowIfError(NameElementTypes(status, out, pack_.outputs));
  return bytes;
}

void BoundOperation::KeepMakers(const py::list& makers, const py::object& like) {
  const Use use(&busy_, name_);
  makers_ = makers;
  like_ = like;
}

// Whether the inputs in pack_ have the shapes and types of the last inputs of InferShape(), and the
// first is on the same device.
bool BoundOperation::AreAsInferred() const {
  const auto is_equal = [](const TensorView& view, const TensorDesc& desc) {
    return view.desc == desc;
  };
  return pack_.inputs[0].device == inferred_device_ &&
         std::equal(pack_.inputs.begin(), pack_.inputs.end(), inferred_.begin(), inferred_.end(),
                    is_equal);
}

// Empty if a maker fails: it fails again where its message reaches the other ranks.
py::list BoundOperation::MakeOutputs() const {
  py::list outputs(makers_.size());
  for (size_t i = 0; i < makers_.size(); ++i) {
    PyObject* const made = PyObject_CallNoArgs(PyList_GET_ITEM(makers_.ptr(), i));
    if (made == nullptr) {
      if (PyErr_ExceptionMatches(PyExc_Exception) == 0) throw py::error_already_set();
      PyErr_Clear();
      return py::list();
    }
    PyList_SET_ITEM(outputs.ptr(), i, made);
  }
  return outputs;
}

py::tuple BoundOperation::ForwardAgain(const py::object& inputs) {
  const Use use(&busy_, name_);
  forward_begin_ = RunTimes::Clock::now();
  const auto nothing = [] { return py::make_tuple(py::none(), 0); };
  const bool holds = PyList_CheckExact(inputs.ptr()) != 0 || PyTuple_CheckExact(inputs.ptr()) != 0;
  if (makers_.empty() || !holds) return nothing();
  Owners owners;
  const py::tuple in = Hold(inputs, name_, "input");
  if (in.empty() || py::type::handle_of(in[0]).ptr() != like_.ptr()) return nothing();
  const std::vector<InputRule>& rules = collective().signature().inputs;
  CallStream stream;
  if (!ToViews(in, "input", rules, &stream, &pack_.inputs, &owners).ok()) return nothing();
  if (!AreAsInferred()) return nothing();
  py::list outputs = MakeOutputs();
  if (outputs.empty()) return nothing();
  Status status = ToViews(py::tuple(outputs), "output", {}, &stream, &pack_.outputs, &owners);
  const uint64_t bytes = RunBothPhases(std::move(status), in, &stream);
  if (bytes == 0) EndForward();
  return py::make_tuple(std::move(outputs), bytes);
}

uint64_t BoundOperation::Forward(const py::object& inputs, const py::object& outputs) {
  const Use use(&busy_, name_);
  const py::tuple in = Hold(inputs, name_, "input");
  const py::tuple out = Hold(outputs, name_, "output");
  Owners owners;
  CallStream stream;
  Status status = ToPack(in, out, &stream, &owners);
  return RunBothPhases(std::move(status), in, &stream);
}

// If pack_ needs a workspace, returns its bytes, and nothing has run.
uint64_t BoundOperation::RunBothPhases(Status status, const py::tuple& inputs, CallStream* stream) {
  Scratch scratch;
  uint64_t bytes = 0;
  if (status.ok()) {
    status = NameElementTypes(operation_->GetWorkspaceSize(pack_, &bytes), inputs, pack_.inputs);
  }
  if (status.ok() && bytes > 0) return bytes;
  if (status.ok()) status = ToScratch(py::none(), stream, pack_, name_, &scratch);
  ExecuteOrRefuse(status, scratch);
  return 0;
}

// Runs the call, or tells the ranks that wait in it why this one does not.
void BoundOperation::ExecuteOrRefuse(const Status& status, const Scratch& scratch) {
  RunNumbered(collective().communicator(), [&]() -> Status {
    if (status.ok()) {
      return operation_->Execute(pack_, scratch.workspace, scratch.bytes, scratch.stream);
    }
    const Status ignored = operation_->Refuse(status);
    static_cast<void>(ignored);  // the error of the call matters more
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
  Status status = ToPack(in, out, &call_stream, &owners);
  if (status.ok()) status = ToScratch(workspace, &call_stream, pack_, name_, &scratch);
  ExecuteOrRefuse(status, scratch);
}

void BoundOperation::Refuse(int code, const std::string& message) {
  const Use use(&busy_, name_);
  RunNumbered(collective().communicator(),
              [&] { return operation_->Refuse(Status(static_cast<ErrorCode>(code), message)); });
}

void BoundOperation::Prepack(const py::object& weight) {
  const Use use(&busy_, name_);
  auto* prepackable = dynamic_cast<Prepackable*>(operation_.get());
  if (prepackable == nullptr) {
    ThrowIfError(Error(ERROR_INVALID_PARAM, name_,
                       ": prepack() is for operators with a weight, such as LinearParallel"));
  }
  Tensor tensor;
  ThrowIfError(ToTensor(weight.ptr(), {name_, "input", 1, "weight"}, &tensor));
  Status status;
  RunWithoutGil([&] {
    status = prepackable->Prepack(tensor.view);
    return Ok();
  });
  ThrowIfError(NameElementTypes(status, py::make_tuple(weight), {tensor.view}));
}

std::string BoundOperation::PlannedEngine() const {
  const auto* const linear = dynamic_cast<const LinearParallel*>(operation_.get());
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

void BindOperation(py::module_& module) {
  module.def(
      "run_times", [](const std::string& name) { return RunTimes::OfThread().Get(name); },
      py::arg("name"));
  module.def("linear_engines", &LinearEngines, py::arg("backend") = "shm");
  py::class_<BoundOperation>(module, "Operation")
      .def(py::init(&CreateBound), py::arg("param"), py::arg("json"), py::arg("hccl_comm"),
           py::arg("engine"), py::arg("averages") = false)
      .def_property_readonly("name", &BoundOperation::Name)
      .def_property_readonly("engine", &BoundOperation::PlannedEngine)
      .def_property_readonly("num_inputs", &BoundOperation::NumInputs)
      .def_property_readonly("num_outputs", &BoundOperation::NumOutputs)
      .def("update", &BoundOperation::Update, py::arg("param"), py::arg("json"),
           py::arg("hccl_comm"))
      .def("infer_shape", &BoundOperation::InferShape, py::arg("inputs"))
      .def("get_workspace_size", &BoundOperation::GetWorkspaceSize, py::arg("inputs"),
           py::arg("outputs"))
      .def("keep_makers", &BoundOperation::KeepMakers, py::arg("makers"), py::arg("like"))
      .def("forward_again", &BoundOperation::ForwardAgain, py::arg("inputs"))
      .def("forward", &BoundOperation::Forward, py::arg("inputs"), py::arg("outputs"))
      .def("end_forward", &BoundOperation::EndForward)
      .def("execute", &BoundOperation::Execute, py::arg("inputs"), py::arg("outputs"),
           py::arg("workspace"), py::arg("stream"))
      .def("refuse", &BoundOperation::Refuse, py::arg("code"), py::arg("message"))
      .def("prepack", &BoundOperation::Prepack, py::arg("weight"));
}

}  // namespace collops::bindings
