#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <utility>

#include "blocks.h"
#include "comm/communicator.h"
#include "started.h"
#include "status.h"
#include "tensor.h"

namespace collops::bindings {

// The two tensors of a call of the plain level, as they lie in memory.
struct PlainTensors {
  Tensor x;
  Tensor out;
};

// The tensor is contiguous, on the CPU, in this machine's byte order, and has `count` elements.
Status CheckWhole(const Tensor& tensor, const TensorName& name, int64_t count);

Status CheckWritable(const Tensor& tensor, const TensorName& name);

// What the operators of the plain level have in common: both tensors are whole, on the CPU and
// of one dtype, `out` may be written, and they have exactly x_count and out_count elements.
Status ToPlainTensors(pybind11::handle x, pybind11::handle out, const char* operation,
                      int64_t x_count, int64_t out_count, PlainTensors* tensors);

// `out` must not share memory with `x`, except that x may be `out`'s elements from `own_begin` on
// (-1: nowhere). `exception` says so at the end of the message, where there is one.
Status CheckApart(const PlainTensors& tensors, const char* operation, int64_t own_begin,
                  const char* exception);

// x's shape as the ranks compare it: of more than eight dimensions the last ones count as one.
Shape ComparedShape(const Tensor& x);

// There is such a reduction of such elements.
Status CheckReducible(DType dtype, ReduceOp op, const char* operation);

// One call of the communicator, and what it points at.
template <typename Call>
struct PlainCall {
  explicit PlainCall(const char* operation) : agreement(operation) {}

  PlainTensors tensors;
  Agreement agreement;
  Call call;
};

// The number of a user's call that comes now. In a call that runs in its turn it is that one's.
inline uint64_t NextCall(Communicator& communicator) {
  const uint64_t own = UserCall::Number();
  return own != 0 ? own : communicator.user_calls().Next();
}

// The call that was numbered last goes on: `parts` steps from here on are one, or one more step.
inline void BeginParts(Communicator& communicator, int parts) {
  if (UserCall::Number() == 0) communicator.user_calls().Begin(parts);
}
inline void ContinueCall(Communicator& communicator) {
  if (UserCall::Number() == 0) communicator.user_calls().Continue();
}

// Runs a call of the user's, under its number.
template <typename Call>
void RunNumbered(Communicator& communicator, const Call& call) {
  const UserCall number(NextCall(communicator));
  try {
    RunWithoutGil(call);
  } catch (...) {
    communicator.user_calls().Forget();
    throw;
  }
}

// Runs a call whose checks have passed; otherwise tells the waiting ranks why this one does not.
template <typename Call>
void RunOrRefuse(Communicator& communicator, const char* name, const Status& check,
                 const Call& call) {
  RunNumbered(communicator, [&]() -> Status {
    if (check.ok()) return call();
    const Status ignored = communicator.Refuse(name, check);
    static_cast<void>(ignored);  // of less use than what is wrong with the call
    return check;
  });
}

// The same of a call by its method, which the second only starts.
template <typename Call>
void MakeOrRefuse(Communicator& communicator, const char* name, const Status& check,
                  PlainCall<Call>* prepared, Status (Communicator::*method)(const Call&)) {
  RunOrRefuse(communicator, name, check, [&] {
    prepared->call.agreement = &prepared->agreement;
    return (communicator.*method)(prepared->call);
  });
}
template <typename Call>
void MakeOrRefuse(Starter& starter, const char* name, const Status& check,
                  PlainCall<Call>* prepared, Status (Communicator::*method)(const Call&)) {
  if (!check.ok()) {
    starter.Refuse(name, check);
    ThrowIfError(check);
  }
  const auto kept = std::make_shared<PlainCall<Call>>(std::move(*prepared));
  starter.Add(name, [kept, method](Communicator& communicator) {
    kept->call.agreement = &kept->agreement;
    return (communicator.*method)(kept->call);
  });
}

// What a function for both is about.
inline Communicator& CommunicatorOf(Communicator& communicator) {
  return communicator;
}
inline Communicator& CommunicatorOf(Starter& starter) {
  return starter.communicator();
}

}  // namespace collops::bindings
