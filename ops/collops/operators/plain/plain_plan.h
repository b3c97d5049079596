#pragma once

#include <cstdint>
#include <mutex>
#include <type_traits>
#include <vector>

#include "collops/comm/agreement.h"
#include "collops/comm/communicator.h"
#include "collops/core/status.h"
#include "collops/operators/plain/plain_tensors.h"
#include "collops/operators/plain/row_blocks.h"

namespace collops {

// All that is known of a call of the plain level before the memory of its tensors is: made once for
// tensors of one type and shape and the call's arguments, and used by every call that has them.
// Any thread may use it; waits in Run() alone.
class PlainPlan {
 public:
  // `method` is for messages, `operation` the name by which the ranks know the call; both live as
  // long as the process.
  PlainPlan(const char* method, const char* operation) : method_(method), operation_(operation) {}
  PlainPlan(const PlainPlan&) = delete;
  PlainPlan& operator=(const PlainPlan&) = delete;
  virtual ~PlainPlan() = default;

  const char* method() const { return method_; }
  const char* operation() const { return operation_; }

  // Rows of every rank, where the call has any.
  virtual Rows rows() const { return {}; }

  // The result's shape, where it is not x's with other rows.
  virtual std::vector<int64_t> output_shape() const { return {}; }

  // Whether the tensors are what the call takes. Asks no other rank.
  virtual Status Check(const Communicator& communicator, const PlainTensors& tensors) const = 0;

  // Bytes of workspace that the caller has to pass for tensors of a device; 0 for what Check()
  // refuses. On the CPU a plan has its own memory.
  virtual uint64_t DeviceWorkspace(const Communicator& /*communicator*/,
                                   const PlainTensors& /*tensors*/) const {
    return 0;
  }

  // The call. What Check() refuses is told to the ranks that wait in it, too.
  virtual Status Run(Communicator* communicator, const PlainTensors& tensors) const = 0;

 private:
  const char* method_;
  const char* operation_;
};

// Whether a call takes scratch memory.
template <typename Call, typename = void>
struct HasScratch : std::false_type {};
template <typename Call>
struct HasScratch<Call, std::void_t<decltype(Call::scratch)>> : std::true_type {};

// A plan whose call is one of the communicator's.
template <typename Call>
class PlanOf : public PlainPlan {
 public:
  using Method = Status (Communicator::*)(const Call&);

  PlanOf(const char* method, const char* operation, Method call)
      : PlainPlan(method, operation), call_(call), agreement_(operation) {}

  Status Check(const Communicator& communicator, const PlainTensors& tensors) const final {
    Call call;
    return Prepare(communicator, tensors, &call);
  }

  Status Run(Communicator* communicator, const PlainTensors& tensors) const final {
    Call call;
    const Status status = Prepare(*communicator, tensors, &call);
    if (!status.ok()) {
      // The caller's own fault is what it hears of, whatever becomes of the refusal.
      static_cast<void>(communicator->Refuse(method(), status));
      return status;
    }
    std::call_once(agreed_, [&] { AgreeOn(*communicator, tensors.x, &agreement_); });
    call.agreement = &agreement_;
    call.stream = tensors.stream;
    if constexpr (HasScratch<Call>::value) call.scratch = tensors.workspace;
    return (communicator->*call_)(call);
  }

 protected:
  // Checks the tensors, and fills in the call.
  virtual Status Prepare(const Communicator& communicator, const PlainTensors& tensors,
                         Call* call) const = 0;
  // What the ranks agree on; the same in every call of the plan.
  virtual void AgreeOn(const Communicator& communicator, const PlainTensor& x,
                       Agreement* agreement) const = 0;

 private:
  Method call_;
  mutable std::once_flag agreed_;
  mutable Agreement agreement_;
};

}  // namespace collops
