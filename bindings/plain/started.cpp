#include "plain/started.h"

#include <mutex>
#include <utility>

#include "plain/plain_call.h"
#include "status.h"

namespace collops::bindings {
namespace {

namespace py = pybind11;

// What was started in one go, until its end.
struct Body {
  std::vector<std::function<Status(Communicator&)>> steps;
  std::vector<py::object> kept;
};

// A call that runs as a whole in its turn, and what has come of it.
struct Outcome {
  std::function<py::object()> run;
  py::object mode;
  py::object value;
  py::object error;
};

// collops.tensors.torch_mode() where torch records no gradients; else null.
py::object ModeOfTorch() {
  const py::object torch = py::module_::import("sys").attr("modules").attr("get")("torch");
  if (torch.is_none() || torch.attr("is_grad_enabled")().cast<bool>()) return py::object();
  return py::module_::import("collops.tensors").attr("torch_mode")();
}

template <typename Work>
py::object InMode(const py::object& mode, const Work& work) {
  if (!mode) return work();
  const py::object entered = mode();
  entered.attr("__enter__")();
  try {
    py::object value = work();
    entered.attr("__exit__")(py::none(), py::none(), py::none());
    return value;
  } catch (py::error_already_set&) {
    entered.attr("__exit__")(py::none(), py::none(), py::none());
    throw;
  }
}

[[noreturn]] void Raise(const py::object& error) {
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
  throw py::error_already_set();
}

// Runs it in whatever thread; raises interrupts alone, which end the call that this thread is in.
Status RunInTurn(const char* name, Outcome* outcome) {
  COLLOPS_CHECK_ARG(Py_IsInitialized() != 0, ERROR_ABORTED, "the interpreter has ended");
  const HeldGil held;
  // This thread's own call ends with an interrupt, in which no Python may run.
  COLLOPS_CHECK_ARG(PyErr_Occurred() == nullptr, ERROR_ABORTED, "a started call was interrupted");
  const auto run = std::exchange(outcome->run, nullptr);
  try {
    NotUnwound([&] { outcome->value = InMode(outcome->mode, run); });
  } catch (py::error_already_set& error) {
    outcome->error = error.value();
    if (error.matches(PyExc_Exception)) return Ok();
    outcome->error = py::module_::import("collops.errors")
                         .attr("status_error")(static_cast<int>(ERROR_ABORTED),
                                               Concat(name, " was interrupted"));
    error.restore();
  }
  return Ok();
}

}  // namespace

StartedCall::StartedCall(std::shared_ptr<Communicator> communicator, Communicator::Handle handle,
                         MakeResultOf make)
    : communicator_(std::move(communicator)), handle_(std::move(handle)), make_(std::move(make)) {}

py::object StartedCall::Wait(double timeout_s) {
  std::vector<int> sources;
  if (handle_ != nullptr) {
    RunWithoutGil([&] { return communicator_->Wait(handle_, timeout_s, &sources); });
  }
  return Settle(sources);
}

bool StartedCall::Done() {
  if (handle_ != nullptr && !communicator_->Test(handle_)) return false;
  try {
    static_cast<void>(Wait(0));
  } catch (py::error_already_set& error) {
    if (!error.matches(PyExc_Exception)) throw;  // Wait() raises it again
  }
  return true;
}

// The first thread to return makes the result, which may release the GIL.
py::object StartedCall::Settle(const std::vector<int>& sources) {
  std::unique_lock alone(mutex_, std::defer_lock);
  if (!alone.try_lock()) {
    const ReleasedGil released;
    alone.lock();
  }
  if (const MakeResultOf make = std::exchange(make_, nullptr)) {
    try {
      value_ = make(sources);
    } catch (py::error_already_set& error) {
      error_ = error.value();
    }
  }
  if (error_) Raise(error_);
  return value_;
}

void QueuedSteps::Add(const char* name, std::function<Status(Communicator&)> step) {
  if (steps_.empty()) name_ = name;
  // Its number is that of the order in which calls are started.
  const uint64_t number = NextCall(*communicator_);
  steps_.push_back([number, step = std::move(step)](Communicator& communicator) {
    const UserCall numbered(number);
    return step(communicator);
  });
}

void QueuedSteps::Keep(std::vector<py::object> kept) {
  for (py::object& object : kept) kept_.push_back(std::move(object));
}

Communicator::Handle QueuedSteps::Commit() {
  auto body = std::make_unique<Body>();
  body->steps = std::move(steps_);
  body->kept = std::move(kept_);
  Communicator::Handle handle;
  const auto run = [shared = DestroyedWithGil(std::move(body)),
                    communicator = communicator_.get()]() -> Status {
    for (const auto& step : shared->steps) COLLOPS_RETURN_IF_ERROR(step(*communicator));
    return Ok();
  };
  RunWithoutGil([&] { return communicator_->Start(name_, run, &handle); });
  return handle;
}

std::unique_ptr<StartedCall> StartInTurn(const std::shared_ptr<Communicator>& communicator,
                                         const char* name, std::function<py::object()> run) {
  auto made = std::make_unique<Outcome>();
  made->run = std::move(run);
  made->mode = ModeOfTorch();
  const std::shared_ptr<Outcome> outcome = DestroyedWithGil(std::move(made));
  QueuedSteps steps(communicator);
  steps.Add(name, [name, outcome](Communicator&) { return RunInTurn(name, outcome.get()); });
  const auto take = [outcome](const std::vector<int>& /*sources*/) {
    if (outcome->error) Raise(outcome->error);
    return outcome->value;
  };
  return std::make_unique<StartedCall>(communicator, steps.Commit(), take);
}

MakeResultOf InThisMode(MakeResultOf make) {
  const py::object mode = ModeOfTorch();
  if (!mode) return make;
  return [mode, make = std::move(make)](const std::vector<int>& sources) {
    return InMode(mode, [&] { return make(sources); });
  };
}

void BindStartedCall(py::module_& module) {
  py::class_<StartedCall>(module, "StartedCall")
      .def("wait", &StartedCall::Wait, py::arg("timeout_s"))
      .def("done", &StartedCall::Done);
}

}  // namespace collops::bindings
