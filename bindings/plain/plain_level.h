#pragma once

#include <pybind11/pybind11.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "collops/operators/plain/plain_calls.h"
#include "plain/arguments.h"
#include "plain/operand.h"

namespace collops::bindings {

// The plain level of one communicator: reads the arguments of each method, makes the memory of its
// result, and makes the call or starts it. What is wrong with a call is told to the ranks that wait
// in it. Needs the GIL, which it releases where the call waits.
class PlainLevel : public std::enable_shared_from_this<PlainLevel> {
 public:
  using Object = pybind11::object;

  // `make_part` makes what split() returns of a communicator.
  PlainLevel(std::shared_ptr<Communicator> communicator, Object make_part);
  // The same methods, which start their calls and return a StartedCall.
  std::shared_ptr<PlainLevel> Starting();

  Communicator& communicator() const { return *calls_->communicator(); }
  bool starts() const { return now_ != nullptr; }

  Object AllGather(const Object& x, const Object& out);
  Object AllGatherV(const Object& x, const Object& sizes, const Object& dim, const Object& out);
  Object AllReduce(const Object& x, const Object& op, const Object& out);
  Object AllToAllV(const Object& x, const Object& send_sizes, const Object& recv_sizes,
                   const Object& out);
  Object Broadcast(const Object& x, const Object& root);
  Object GatherV(const Object& x, const Object& sizes, const Object& root);
  Object Reduce(const Object& x, const Object& op, const Object& root, const Object& out);
  Object ReduceScatter(const Object& x, const Object& op, const Object& out);
  Object ReduceScatterV(const Object& x, const Object& sizes, const Object& dim, const Object& op,
                        const Object& out);
  Object ScatterV(const Object& x, const Object& sizes, const Object& root);

  // The arguments of a product besides x, the weight and the result's memory.
  struct ProductArguments {
    Object residual = pybind11::none();
    Object ag_dim = pybind11::int_(0);
    Object rs_dim = pybind11::int_(0);
    Object inner_dim_is_ag = pybind11::bool_(true);
    Object gather_rows = pybind11::none();
    Object scatter_rows = pybind11::none();
    Object trans_weight = pybind11::bool_(false);
    Object op = pybind11::str("sum");
  };
  Object Multiply(PlainCall::Method method, const Object& x, const Object& weight,
                  const Object& out, const ProductArguments& arguments);

  // messages.cpp
  Object Send(const Object& x, const Object& to, const Object& tag);
  Object Recv(const Object& out, const Object& from, const Object& tag, bool return_source);
  Object Exchange(const Object& messages);

  Object Barrier();
  Object Split(const Object& color, const Object& key);

  // Sends an error of this rank to the ranks that wait in a call; nothing if the communicator has
  // ended.
  void Refuse(const char* name, const Status& reason) const;
  // Runs `work`, whose Python errors are told to the ranks that wait in the call.
  template <typename Work>
  auto Refusing(const char* name, const Work& work) const -> decltype(work());

 private:
  // A call of the core that is ready: its plan and its tensors; what these point at; and what
  // follows it, if anything.
  struct Step {
    std::shared_ptr<PlainCalls::Kept> kept;
    PlainTensors tensors;
    std::vector<Object> keep;
    std::function<void()> after;
  };

  std::shared_ptr<PlainCalls::Kept> Plan(const PlainCall& call);
  Operand ReadX(PlainCall* call, const char* label, const Object& value, const Object& dim,
                CallStream* stream) const;
  Operand OutOf(const PlainCall& call, const char* label, const Operand& x, const Object& out,
                PlainCalls::Kept* kept, CallStream* stream) const;
  Step Ready(const PlainCall& call, std::shared_ptr<PlainCalls::Kept> kept, const Operand& x,
             const Operand& out, CallStream* stream, Step step = {}) const;
  Step ProductStep(const PlainCall& call, const std::vector<Operand>& inputs, const Object& out,
                   CallStream* stream, Object* result);
  Step GatherStep(const PlainCall& call, const Operand& x, const char* label, const Object& out,
                  CallStream* stream, Object* result);
  Object GatherList(const Object& x, const Object& sizes, const Object& dim, const Object& out);
  Operand JoinBlocks(PlainCall* call, const Object& x, const Object& dim, CallStream* stream) const;
  Operand ScatterSource(const PlainCall& call, const Operand& x, const PlainCalls::Kept& kept,
                        CallStream* stream) const;
  Object ReduceScatterLike(PlainCall call, const Object& x, const Object& op, const Object& out);
  Rows Ask(const std::vector<PlainCall>& tensors, const Rows& mine);
  Status Check(const Step& step) const;
  void RunNow(const Step& step);
  Object Run(Step step, const Object& result);
  Object RunAll(std::vector<Step> steps, const Object& result);
  Object InTurn(const char* name, std::function<Object(PlainLevel&)> call);

  std::shared_ptr<PlainCalls> calls_;
  Object make_part_;
  std::shared_ptr<PlainLevel> now_;  // what makes the calls that start in their turn; else null
};

template <typename Work>
auto PlainLevel::Refusing(const char* name, const Work& work) const -> decltype(work()) {
  try {
    return work();
  } catch (pybind11::error_already_set& error) {
    if (error.matches(PyExc_Exception)) Refuse(name, StatusOf(error));
    throw;
  }
}

}  // namespace collops::bindings
