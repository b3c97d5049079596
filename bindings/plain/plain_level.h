#pragma once

#include <pybind11/pybind11.h>

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "collops/operators/moe_routing.h"
#include "collops/operators/plain/plain_calls.h"
#include "plain/arguments.h"
#include "plain/operand.h"
#include "status.h"

namespace collops::bindings {

// The plain level of one communicator: reads the arguments of each method, makes the memory of its
// result, and makes the call or starts it. What is wrong with a call is told to the ranks that wait
// in it. Needs the GIL, which it releases where the call waits.
class PlainLevel : public std::enable_shared_from_this<PlainLevel> {
 public:
  using Object = pybind11::object;

  // What Python passes to a collective or a product; null: the method has no such argument.
  struct Arguments {
    Object x;
    Object sizes;  // of all_to_allv: send_sizes; of a grouped product as well
    Object recv_sizes;
    Object partials;  // in the place of x, with `leaves`
    Object leaf_begin;
    Object dim;
    Object op;
    Object root;
    Object out;
    Object weight;
    Object residual;
    Object trans_weight;
    Object quant;  // scale, bias, x_scale, group_size, out_dtype; None: none of them
    Object grid;   // ag_dim, rs_dim, inner_dim_is_ag
    Object gather_rows;
    Object scatter_rows;
    Object leaves;
    Object sum_columns;
    Object max_rows;  // of a grouped product, as the next one
    Object return_rows;

    // With copies of lists, which the caller may change until the call's turn comes.
    Arguments Copied() const;
  };

  // `make_part` makes what split() returns of a communicator.
  PlainLevel(std::shared_ptr<Communicator> communicator, Object make_part);
  // The same methods, which start their calls and return a StartedCall.
  std::shared_ptr<PlainLevel> Starting();

  Communicator& communicator() const { return *calls_->communicator(); }
  bool starts() const { return now_ != nullptr; }

  Object Call(PlainCall::Method method, const Arguments& given);
  // Makes a collective that is like an earlier one, of which there is nothing to find out; that
  // would be most of the time of a small call. False: it is none, or not of tensors in order.
  bool CallAtOnce(PlainCall::Method method, const Arguments& given);
  Object Barrier();
  Object Split(const Object& color, const Object& key);
  // A new communicator of the ranks that are left; `timeout_s` 0: the group's.
  Object Shrink(const Object& exclude, double timeout_s);
  // One with `count` new ranks.
  Object Grow(const Object& count, double timeout_s);

  // messages.cpp
  Object Send(const Object& x, const Object& to, const Object& tag);
  Object Recv(const Object& out, const Object& from, const Object& tag, bool return_source);
  Object Exchange(const Object& messages);

  // moe.cpp; None: not given.
  struct MoeArguments {
    Object x;  // of a combine: rows
    Object topk_ids;
    Object num_experts;
    Object topk_weights;
    Object quantize;
    Object scales;
    Object handle;
    Object out;
  };
  Object DispatchToExperts(const MoeArguments& given);
  Object CombineFromExperts(const MoeArguments& given);

  // Sends an error of this rank to the ranks that wait in a call; nothing if the communicator has
  // ended.
  void Refuse(const char* name, const Status& reason) const;

 private:
  // One tensor of a call as it was read, and where its result goes.
  struct Part {
    explicit Part(PlainCall::Method method) : call(method) {}

    PlainCall call;
    Operand x;
    std::string item;  // what messages call the result of a list's tensor
    Object out;        // null or None: new memory
    CallStream stream;
    Object result;

    const char* label() const { return item.empty() ? "out" : item.c_str(); }
  };
  // A call of the core that is ready: its plan and its tensors; what these point at; and what
  // follows it, if anything.
  struct Step {
    std::shared_ptr<PlainCalls::Kept> kept;
    PlainTensors tensors;
    std::vector<Object> keep;
    std::function<void()> after;
  };

  // A collective with one x and one given out (of broadcast, x); of its tensors, their type and
  // shape.
  struct Earlier {
    PlainCall::Method method = PlainCall::kAllGather;
    Object op;
    Object dim;
    Object root;
    Rows sizes;  // those that were given, as the next ones
    Rows recv_sizes;
    TensorDesc x;
    TensorDesc out;
    bool compares_shapes = false;
    std::shared_ptr<PlainCalls::Kept> kept;

    // Whether a call has the same arguments but for its tensors.
    bool IsLike(PlainCall::Method of, const Arguments& given) const;
  };

  // Runs `work`, whose Python errors are told to the ranks that wait in the call.
  template <typename Work>
  void Refusing(const char* name, const Work& work) const;

  Object Collective(PlainCall::Method method, const Arguments& given);
  Object GatherList(const Arguments& given);
  Object ScatterV(const Arguments& given);
  Object AddPartials(PlainCall::Method method, const Arguments& given);
  Object Multiply(PlainCall::Method method, const Arguments& given);
  Object MultiplyGrouped(PlainCall::Method method, const Arguments& given);

  static Object RowsBeside(const Rows& sizes, Part* part, Step* step);
  void ReadX(const char* label, const Object& value, const Object& dim, Part* part) const;
  void ReadOne(const Arguments& given, Part* part) const;
  void ReadPartials(const Arguments& given, Part* part, Step* step) const;
  void ReadFactors(const Arguments& given, Part* part, Step* step) const;
  void ReadAddends(const Arguments& given, std::vector<Operand>* inputs, Part* part) const;
  void ReadList(const Arguments& given, std::vector<Part>* parts) const;
  void ReadNumbers(const Arguments& given, Part* parts, size_t count) const;
  void Ask(Part* parts, size_t count);
  Operand Join(const Arguments& given, Part* part) const;
  std::shared_ptr<PlainCalls::Kept> Plan(const PlainCall& call);
  static Object ResultOf(const PlainCall& call, const Operand& like, const PlainCalls::Kept& kept);
  Step StepOf(Part* part);
  std::function<void()> Arrange(const Part& part, const Rows& rows, Operand* source,
                                Operand* target, CallStream* stream) const;
  // Fills in the step, but for what a product adds before.
  void Ready(Part* part, std::shared_ptr<PlainCalls::Kept> kept, const Operand& source,
             const Operand& target, Step* step) const;
  Object Run(Step* steps, size_t count, const Object& result);
  Object InTurn(const char* name, std::function<Object(PlainLevel&)> call);

  // Remembers a call that CallAtOnce() could have made.
  void Remember(const Arguments& given, const PlainCall& call, const Step& step);
  Earlier& EarlierOf(PlainCall::Method method, const PlainTensor& x) {
    const auto numel = static_cast<size_t>(x.numel);
    return earlier_[(numel + 5 * static_cast<size_t>(method)) % earlier_.size()];
  }

  std::shared_ptr<PlainCalls> calls_;
  std::shared_ptr<SentRows> sent_rows_ = std::make_shared<SentRows>();  // of moe.cpp
  std::array<Earlier, 32> earlier_;  // the last one of a method with so many elements
  Object make_part_;
  std::shared_ptr<PlainLevel> now_;  // what makes the calls that start in their turn; else null
};

template <typename Work>
void PlainLevel::Refusing(const char* name, const Work& work) const {
  try {
    work();
  } catch (pybind11::error_already_set& error) {
    if (error.matches(PyExc_Exception)) Refuse(name, StatusOf(error));
    throw;
  }
}

}  // namespace collops::bindings
