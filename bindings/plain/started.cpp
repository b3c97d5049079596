#include "plain/started.h"

#include <pybind11/stl.h>

#include <utility>

#include "plain/plain_call.h"
#include "status.h"

namespace collops::bindings {
namespace {

namespace py = pybind11;

// What was started in one go, until its end.
struct Body {
  std::vector<std::function<Status(Communicator&)>> calls;
  std::vector<py::object> kept;
};

// A started call as Python holds it. Done() and Wait() from any thread.
class BoundHandle {
 public:
  BoundHandle(std::shared_ptr<Communicator> communicator, Communicator::Handle handle)
      : communicator_(std::move(communicator)), handle_(std::move(handle)) {}

  // The sources of its messages.
  std::vector<int> Wait(double timeout_s) const {
    std::vector<int> sources;
    if (handle_ == nullptr) return sources;
    RunWithoutGil([&] { return communicator_->Wait(handle_, timeout_s, &sources); });
    return sources;
  }
  bool Done() const { return handle_ == nullptr || communicator_->Test(handle_); }

 private:
  std::shared_ptr<Communicator> communicator_;
  Communicator::Handle handle_;
};

}  // namespace

void Starter::Add(const char* name, std::function<Status(Communicator&)> call) {
  if (calls_.empty()) name_ = name;
  // Its number is that of the order in which calls are started.
  const uint64_t number = NextCall(*communicator_);
  calls_.push_back([number, call = std::move(call)](Communicator& communicator) {
    const UserCall numbered(number);
    return call(communicator);
  });
}

void Starter::Refuse(const char* name, const Status& reason) {
  Add(name,
      [name, reason](Communicator& communicator) { return communicator.Refuse(name, reason); });
}

void Starter::AddPython(const std::string& name, const py::object& method) {
  const py::handle borrowed = method;
  Keep(method);
  Add(LastingName(name), [borrowed](Communicator&) -> Status {
    COLLOPS_CHECK_ARG(Py_IsInitialized() != 0, ERROR_ABORTED, "the interpreter has ended");
    const HeldGil held;
    // This thread's own call ends with an interrupt, in which no Python may run.
    COLLOPS_CHECK_ARG(PyErr_Occurred() == nullptr, ERROR_ABORTED, "a started call was interrupted");
    try {
      NotUnwound([&] { borrowed(); });
    } catch (py::error_already_set& error) {
      error.restore();  // an interrupt, which ends the call that this thread itself is in
    }
    return Ok();
  });
}

void Starter::StartMessages(const CallName& name, const std::vector<Transfer>& list, void* stream,
                            std::shared_ptr<const void> keep) {
  RunWithoutGil([&] {
    return communicator_->StartMessages(name, list.data(), static_cast<int>(list.size()),
                                        &messages_, std::move(keep), stream);
  });
}

Communicator::Handle Starter::Commit() {
  auto body = std::make_unique<Body>();
  body->calls = std::exchange(calls_, {});
  body->kept = std::exchange(kept_, {});
  if (body->calls.empty()) return std::exchange(messages_, nullptr);
  Communicator::Handle handle;
  const auto run = [shared = DestroyedWithGil(std::move(body)),
                    communicator = communicator_.get()]() -> Status {
    for (const auto& call : shared->calls) COLLOPS_RETURN_IF_ERROR(call(*communicator));
    return Ok();
  };
  RunWithoutGil([&] { return communicator_->Start(name_, run, &handle); });
  return handle;
}

void BindStarted(py::module_& module, py::class_<Starter>& starter) {
  py::class_<BoundHandle>(module, "StartedCall")
      .def("wait", &BoundHandle::Wait, py::arg("timeout_s"))
      .def("done", &BoundHandle::Done);
  starter.def(py::init<std::shared_ptr<Communicator>>(), py::arg("communicator"))
      .def("add", &Starter::AddPython, py::arg("name"), py::arg("method"))
      .def("commit", [](Starter& self) { return BoundHandle(self.shared(), self.Commit()); });
}

}  // namespace collops::bindings
