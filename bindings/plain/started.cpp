#include "plain/started.h"

#include <mutex>
#include <utility>

#include "module.h"
#include "status.h"

namespace collops::bindings {
namespace {

// A started call as Python holds it. Any thread may wait for it, any number of times.
class PendingCall {
 public:
  PendingCall(std::shared_ptr<Communicator> communicator, Communicator::Handle handle,
              MakeResultOf make)
      : communicator_(std::move(communicator)),
        handle_(std::move(handle)),
        make_(std::move(make)) {}

  // What the call returns, or its error.
  py::object Wait(double timeout_s);
  // Whether it has ended; its result is in place then.
  bool Done();

 private:
  py::object Settle(const std::vector<int>& sources);

  std::shared_ptr<Communicator> communicator_;
  Communicator::Handle handle_;  // null: nothing was started
  std::mutex mutex_;             // guards the members below
  MakeResultOf make_;            // null once the result is there
  py::object value_;
  py::object error_;  // of making it
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

py::object PendingCall::Wait(double timeout_s) {
  std::vector<int> sources;
  if (handle_ != nullptr) {
    RunWithoutGil([&] { return communicator_->Wait(handle_, timeout_s, &sources); });
  }
  return Settle(sources);
}

bool PendingCall::Done() {
  if (handle_ != nullptr && !communicator_->Test(handle_)) return false;
  try {
    static_cast<void>(Wait(0));
  } catch (py::error_already_set& error) {
    if (!error.matches(PyExc_Exception)) throw;  // Wait() raises it again
  }
  return true;
}

// The first thread to return makes the result, which may release the GIL.
py::object PendingCall::Settle(const std::vector<int>& sources) {
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

// What was started in one go, until its end.
struct Body {
  std::vector<CoreStep> steps;
  std::vector<py::object> kept;
};

}  // namespace

py::object StartedCallOf(std::shared_ptr<Communicator> communicator, Communicator::Handle handle,
                         MakeResultOf make) {
  return py::cast(
      std::make_unique<PendingCall>(std::move(communicator), std::move(handle), std::move(make)));
}

Communicator::Handle StartSteps(const std::shared_ptr<Communicator>& communicator, const char* name,
                                std::vector<CoreStep> steps, std::vector<py::object> kept) {
  auto body = std::make_unique<Body>(Body{std::move(steps), std::move(kept)});
  const auto run = [body = DestroyedWithGil(std::move(body)), group = communicator.get(),
                    number = communicator->CallOfUser()]() -> Status {
    const UserCall numbered(number);
    for (const CoreStep& step : body->steps) COLLOPS_RETURN_IF_ERROR(step(*group));
    return Ok();
  };
  Communicator::Handle handle;
  RunWithoutGil([&] { return communicator->Start(name, run, &handle); });
  return handle;
}

py::object StartInTurn(const std::shared_ptr<Communicator>& communicator, const char* name,
                       std::function<py::object()> run) {
  auto made = std::make_unique<Outcome>();
  made->run = std::move(run);
  made->mode = ModeOfTorch();
  const std::shared_ptr<Outcome> outcome = DestroyedWithGil(std::move(made));
  const auto in_turn = [name, outcome](Communicator& /*group*/) {
    return RunInTurn(name, outcome.get());
  };
  const auto take = [outcome](const std::vector<int>& /*sources*/) {
    if (outcome->error) Raise(outcome->error);
    return outcome->value;
  };
  return StartedCallOf(communicator, StartSteps(communicator, name, {in_turn}, {}), take);
}

MakeResultOf InThisMode(MakeResultOf make) {
  const py::object mode = ModeOfTorch();
  if (!mode) return make;
  return [mode, make = std::move(make)](const std::vector<int>& sources) {
    return InMode(mode, [&] { return make(sources); });
  };
}

void BindStartedCall(py::module_& module) {
  py::class_<PendingCall>(module, "StartedCall")
      .def("wait", &PendingCall::Wait, py::arg("timeout_s"))
      .def("done", &PendingCall::Done);
}

}  // namespace collops::bindings
