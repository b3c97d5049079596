#pragma once

#include <pybind11/pybind11.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "collops/comm/communicator.h"
#include "gil.h"

namespace collops::bindings {

// Something that is destroyed with the GIL, by whatever thread.
template <typename T>
std::shared_ptr<T> DestroyedWithGil(std::unique_ptr<T> owned) {
  return std::shared_ptr<T>(owned.release(), [](T* object) {
    if (Py_IsInitialized() == 0) return;  // too late to give anything back
    const HeldGil held;
    NotUnwound([&] { delete object; });
  });
}

// Makes the result of a call that has ended, with the GIL; of messages from the ranks that sent
// them.
using MakeResultOf = std::function<pybind11::object(const std::vector<int>& sources)>;

// A started call as Python holds it. Any thread may wait for it, any number of times.
class StartedCall {
 public:
  StartedCall(std::shared_ptr<Communicator> communicator, Communicator::Handle handle,
              MakeResultOf make);

  // What the call returns, or its error.
  pybind11::object Wait(double timeout_s);
  // Whether it has ended; its result is in place then.
  bool Done();

 private:
  pybind11::object Settle(const std::vector<int>& sources);

  std::shared_ptr<Communicator> communicator_;
  Communicator::Handle handle_;  // null: nothing was started
  std::mutex mutex_;             // guards the members below
  MakeResultOf make_;            // null once the result is there
  pybind11::object value_;
  pybind11::object error_;  // of making it
};

// The steps of a call that is put into the queue.
class QueuedSteps {
 public:
  explicit QueuedSteps(std::shared_ptr<Communicator> communicator)
      : communicator_(std::move(communicator)) {}

  // `name` lives as long as the process. A step that fails is the last one.
  void Add(const char* name, std::function<Status(Communicator&)> step);
  // What the steps use stays alive until they have ended.
  void Keep(std::vector<pybind11::object> kept);

  Communicator::Handle Commit();

 private:
  std::shared_ptr<Communicator> communicator_;
  const char* name_ = "";
  std::vector<std::function<Status(Communicator&)>> steps_;
  std::vector<pybind11::object> kept_;
};

// Starts a call that runs as a whole when the queue reaches it, in any thread, as it would run
// without start().
std::unique_ptr<StartedCall> StartInTurn(const std::shared_ptr<Communicator>& communicator,
                                         const char* name, std::function<pybind11::object()> run);

// `make`, in torch's mode of this moment (inference_mode, no_grad), whichever thread waits.
MakeResultOf InThisMode(MakeResultOf make);

void BindStartedCall(pybind11::module_& module);

}  // namespace collops::bindings
