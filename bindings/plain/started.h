#pragma once

#include <pybind11/pybind11.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "collops/comm/communicator.h"
#include "gil.h"

namespace collops::bindings {

// Stands for a communicator whose calls are started: takes the calls of one method of the plain
// level and puts them into the queue as one. Thread-safety as Python's own objects; waits for no
// one.
class Starter {
 public:
  explicit Starter(std::shared_ptr<Communicator> communicator)
      : communicator_(std::move(communicator)) {}

  Communicator& communicator() const { return *communicator_; }
  const std::shared_ptr<Communicator>& shared() const { return communicator_; }

  // `name` lives as long as the process. A call that fails is the last of its method.
  void Add(const char* name, std::function<Status(Communicator&)> call);
  void Refuse(const char* name, const Status& reason);
  // A method that runs in its turn as it would without start(); it raises interrupts alone.
  void AddPython(const std::string& name, const pybind11::object& method);
  // Messages begin at once. `keep` goes with the GIL.
  void StartMessages(const CallName& name, const std::vector<Transfer>& list, void* stream,
                     std::shared_ptr<const void> keep);
  // What the calls use stays alive until they have ended.
  template <typename... Objects>
  void Keep(const Objects&... objects) {
    (kept_.push_back(objects), ...);
  }

  // Puts what was added since the last time into the queue; null if that is nothing.
  Communicator::Handle Commit();

 private:
  std::shared_ptr<Communicator> communicator_;
  const char* name_ = "";
  std::vector<std::function<Status(Communicator&)>> calls_;
  std::vector<pybind11::object> kept_;
  Communicator::Handle messages_;
};

// Something that is destroyed with the GIL, by whatever thread.
template <typename T>
std::shared_ptr<T> DestroyedWithGil(std::unique_ptr<T> owned) {
  return std::shared_ptr<T>(owned.release(), [](T* object) {
    if (Py_IsInitialized() == 0) return;  // too late to give anything back
    const HeldGil held;
    NotUnwound([&] { delete object; });
  });
}

// The calls that are started from Python; those of the plain level are added by their own files.
void BindStarted(pybind11::module_& module, pybind11::class_<Starter>& starter);

}  // namespace collops::bindings
