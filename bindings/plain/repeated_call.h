#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "collops/comm/communicator.h"
#include "collops/operators/plain/plain_plan.h"
#include "tensors/call_stream.h"

namespace collops::bindings {

// The last calls of one method of the plain level, so that a call like one of them need not be
// prepared in Python again: the plan is known, and the core checks the tensors in every call.
// Needs the GIL; waits where the call does.
class RepeatedCall {
 public:
  static constexpr size_t kMostKept = 8;

  explicit RepeatedCall(std::shared_ptr<Communicator> communicator)
      : communicator_(std::move(communicator)) {}

  // Makes the call if it was kept, and returns its result; else returns None, and nothing has
  // happened. `out`: the result's memory; None: new memory.
  pybind11::object Run(const pybind11::object& x, const pybind11::object& out,
                       const pybind11::args& arguments);
  // Keeps a call whose tensors the core reads as they are. `make` makes the memory of its result;
  // None: the caller has to. Calls with other tensors or arguments than numbers, lists of numbers
  // and texts are not kept.
  void Keep(std::shared_ptr<const PlainPlan> plan, const pybind11::object& x,
            const pybind11::object& out, const pybind11::object& make,
            const pybind11::args& arguments);

 private:
  // One argument: a list of numbers by its values, which the caller may change; all others are the
  // same object.
  struct Argument {
    pybind11::object value;
    std::vector<int64_t> numbers;
    bool is_list = false;
    bool Equals(pybind11::handle given) const;
  };
  struct Side {
    pybind11::object type;  // of the tensor
    TensorDesc desc;
  };
  struct Kept {
    std::shared_ptr<const PlainPlan> plan;
    Side x;
    Side out;
    pybind11::object make;
    std::vector<Argument> arguments;
  };

  // The owners of the memory of tensors that were read through DLPack.
  using Owners = std::vector<pybind11::object>;

  static bool Read(pybind11::handle object, CallStream* stream, Owners* owners,
                   PlainTensor* tensor);
  static bool IsLike(const Side& side, pybind11::handle object, const PlainTensor& tensor);
  const Kept* Find(const pybind11::object& x, const PlainTensor& x_tensor,
                   const pybind11::args& arguments);

  std::shared_ptr<Communicator> communicator_;
  std::vector<std::shared_ptr<const Kept>> kept_;  // the latest first
};

void BindRepeatedCall(pybind11::module_& module);

}  // namespace collops::bindings
