#include "plain/plain_level.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <utility>

#include "plain/plain_call.h"
#include "plain/started.h"
#include "status.h"
#include "workspace.h"

namespace collops::bindings {
namespace {

namespace py = pybind11;

// A list that the caller may change until the call's turn comes.
py::object CopyOf(const py::object& value) {
  return PyList_CheckExact(value.ptr()) != 0 ? py::object(py::list(value[py::slice()])) : value;
}

// The outs of a list of tensors.
std::vector<py::object> OutsOf(const char* method, const py::object& out, size_t count) {
  if (out.is_none()) return std::vector<py::object>(count, py::none());
  if (!IsList(out) || py::len(out) != count) {
    ThrowIfError(Error(ERROR_INVALID_PARAM, method, ": out must be a list of ", count,
                       " tensors as x, got ",
                       IsList(out) ? std::to_string(py::len(out)) : "a " + TypeNameOf(out)));
  }
  std::vector<py::object> outs;
  for (const py::handle item : out) outs.push_back(py::reinterpret_borrow<py::object>(item));
  return outs;
}

// The rows of every rank, of an answer of `count` numbers per rank.
Rows EveryNth(const Rows& all, size_t first, size_t count) {
  Rows found;
  for (size_t i = first; i < all.size(); i += count) found.push_back(all[i]);
  return found;
}

// Texts and prototypes of rows that a root tells; see collops.collectives.told_rows. Never
// destroyed, guarded by the GIL.
py::object Known(py::dict* known, const py::object& key, const std::function<py::object()>& make) {
  if (!known->contains(key)) {
    if (known->size() >= 64) known->clear();
    (*known)[key] = make();
  }
  return (*known)[key];
}

// What the root says of its rows: their library, element type and shape.
std::string RowsInWords(const Operand& x) {
  static auto* const known = new py::dict;
  py::tuple row(x.sizes.size() - 1);
  for (size_t i = 0; i < row.size(); ++i) row[i] = x.sizes[i + 1];
  const auto describe = [&] {
    const auto module = py::module_::import("collops.collectives.told_rows");
    return module.attr("describe")(x.object, Name(x.tensor.view.desc.dtype), row);
  };
  if (x.made_by == Operand::kOther) return py::str(describe());
  const py::tuple key = py::make_tuple(py::type::of(x.object), x.object.attr("dtype"), row);
  return py::str(Known(known, key, describe));
}

// New memory for rows of what the root has said.
Operand RowsOfWords(const char* method, const std::string& words, int64_t rows,
                    const std::string& device, CallStream* stream) {
  static auto* const known = new py::dict;
  const py::object none = Known(known, py::make_tuple(words, device), [&] {
    const auto module = py::module_::import("collops.collectives.told_rows");
    return module.attr("no_rows")(method, words, device);
  });
  CallStream unused;
  unused.OnlyLook();
  const Operand like = ReadOutput({method, "out"}, none, &unused);
  Rows shape = like.sizes;
  shape[0] = rows;
  return ReadOutput({method, "out"}, MakeLike(method, like, shape), stream);
}

}  // namespace

PlainLevel::PlainLevel(std::shared_ptr<Communicator> communicator, py::object make_part)
    : calls_(std::make_shared<PlainCalls>(std::move(communicator))),
      make_part_(std::move(make_part)) {}

std::shared_ptr<PlainLevel> PlainLevel::Starting() {
  auto starting = std::make_shared<PlainLevel>(*this);
  starting->now_ = shared_from_this();
  return starting;
}

void PlainLevel::Refuse(const char* name, const Status& reason) const {
  const auto refuse = [name, reason](Communicator& group) { return group.Refuse(name, reason); };
  try {
    if (starts()) {
      QueuedSteps steps(calls_->communicator());
      steps.Add(name, refuse);
      steps.Commit();
    } else {
      RunNumbered(communicator(), [&] { return refuse(communicator()); });
    }
  } catch (py::error_already_set& error) {
    // The communicator has ended; the caller raises the first error.
    if (!error.matches(py::module_::import("collops.errors").attr("Error"))) throw;
  }
}

std::shared_ptr<PlainCalls::Kept> PlainLevel::Plan(const PlainCall& call) {
  std::shared_ptr<PlainCalls::Kept> kept = calls_->Find(call);
  if (kept == nullptr) {
    RunWithoutGil([&] { return calls_->Make(call, &kept); });
  }
  return kept;
}

Operand PlainLevel::ReadX(PlainCall* call, const char* label, const py::object& value,
                          const py::object& dim, CallStream* stream) const {
  Operand x = ReadInput({call->name(), label}, value, stream);
  call->dtype = x.tensor.view.desc.dtype;
  call->device = x.tensor.view.device;
  call->x.sizes = x.sizes;
  if (dim) {
    if (!x.sizes.empty()) {
      const int64_t number = ReadWhole(call->name(), "dim", dim);
      constexpr int64_t kMost = std::numeric_limits<int>::max();
      call->x.dim = static_cast<int>(std::clamp(number, -kMost, kMost));
    }
    ThrowIfError(call->Normalise(label));
  }
  return x;
}

Operand PlainLevel::OutOf(const PlainCall& call, const char* label, const Operand& x,
                          const py::object& out, PlainCalls::Kept* kept, CallStream* stream) const {
  if (!out.is_none()) return ReadOutput({call.name(), label}, out, kept->result, stream);
  return ReadOutput({call.name(), label}, MakeResult(call.name(), x, kept), stream);
}

PlainLevel::Step PlainLevel::Ready(const PlainCall& call, std::shared_ptr<PlainCalls::Kept> kept,
                                   const Operand& x, const Operand& out, CallStream* stream,
                                   Step step) const {
  step.tensors.x = x.tensor;
  step.tensors.out = out.tensor;
  step.keep.reserve(4);
  step.keep.push_back(x.object);
  step.keep.push_back(out.object);
  for (const Operand* operand : {&x, &out}) {
    ThrowIfError(operand->problem);
    if (operand->tensor.owner) step.keep.push_back(operand->tensor.owner);
  }
  ThrowIfError(stream->Find(call.name(), &step.tensors.stream));
  step.kept = std::move(kept);
  const PlainPlan& plan = *step.kept->plan;
  if (starts() || x.tensor.view.desc.dtype == DType::kUndefined ||
      out.tensor.view.desc.dtype == DType::kUndefined) {
    const bool is_x = x.tensor.view.desc.dtype == DType::kUndefined;
    ThrowIfError(NameElementType(Check(step), is_x ? x.object : out.object));
  }
  if (step.tensors.stream == nullptr) return step;
  // The library that made x keeps the workspace for what is on the call's stream.
  const uint64_t bytes = plan.DeviceWorkspace(communicator(), step.tensors);
  if (bytes == 0) return step;
  py::object memory;
  ThrowIfError(DeviceMemory(x.object, x.tensor.view.device, bytes, call.name(), step.tensors.stream,
                            &memory));
  Tensor workspace;
  ThrowIfError(ToTensor(memory, {call.name(), "workspace", -1, nullptr}, &workspace, stream));
  step.tensors.workspace = workspace.view.data;
  step.keep.push_back(memory);
  if (workspace.owner) step.keep.push_back(workspace.owner);
  return step;
}

Status PlainLevel::Check(const Step& step) const {
  return step.kept->plan->Check(communicator(), step.tensors);
}

void PlainLevel::RunNow(const Step& step) {
  RunNumbered(communicator(), [&] { return step.kept->plan->Run(&communicator(), step.tensors); });
  if (step.after) step.after();
}

py::object PlainLevel::Run(Step step, const py::object& result) {
  if (!starts()) {
    RunNow(step);
    return result;
  }
  std::vector<Step> steps;
  steps.push_back(std::move(step));
  return RunAll(std::move(steps), result);
}

py::object PlainLevel::RunAll(std::vector<Step> steps, const py::object& result) {
  if (!starts()) {
    for (const Step& step : steps) RunNow(step);
    return result;
  }
  QueuedSteps queued(calls_->communicator());
  std::vector<std::function<void()>> afters;
  for (Step& step : steps) {
    const auto& plan = step.kept->plan;
    queued.Add(plan->method(), [plan, tensors = std::move(step.tensors)](Communicator& group) {
      return plan->Run(&group, tensors);
    });
    queued.Keep(std::move(step.keep));
    if (step.after) afters.push_back(std::move(step.after));
  }
  MakeResultOf make = [result](const std::vector<int>& /*sources*/) { return result; };
  if (!afters.empty()) {
    make = InThisMode([result, afters](const std::vector<int>& /*sources*/) {
      for (const auto& after : afters) after();
      return result;
    });
  }
  return py::cast(
      std::make_unique<StartedCall>(calls_->communicator(), queued.Commit(), std::move(make)));
}

py::object PlainLevel::InTurn(const char* name, std::function<py::object(PlainLevel&)> call) {
  return py::cast(StartInTurn(calls_->communicator(), name,
                              [now = now_, call = std::move(call)] { return call(*now); }));
}

Rows PlainLevel::Ask(const std::vector<PlainCall>& tensors, const Rows& mine) {
  Rows all;
  RunNumbered(communicator(), [&] { return calls_->Ask(tensors, mine, &all); });
  ContinueCall(communicator());
  return all;
}

// With dim 0 nothing is copied. With another dim any strides are allowed, for one copy.
PlainLevel::Step PlainLevel::GatherStep(const PlainCall& call, const Operand& x, const char* label,
                                        const py::object& out, CallStream* stream,
                                        py::object* result) {
  const std::shared_ptr<PlainCalls::Kept> kept = Plan(call);
  const Operand whole = OutOf(call, label, x, out, kept.get(), stream);
  *result = whole.object;
  const bool copies =
      call.x.dim != 0 && !(IsInOrder(call.x, communicator().size()) && x.tensor.view.contiguous &&
                           whole.tensor.view.contiguous);
  if (!copies && call.x.type.empty()) return Ready(call, kept, x, whole, stream);
  Operand source = copies ? InOrder({call.name(), "x"}, x, stream) : x;
  Operand target = copies ? StagingFor({call.name(), label}, whole, stream) : whole;
  if (!call.x.type.empty()) {
    CheckSameElements(call.name(), source, target);
    MoveAsBytes(&source);
    MoveAsBytes(&target);
  }
  Step step = Ready(call, kept, source, target, stream);
  if (copies) {
    step.after = [staged = target.object, out = whole.object, rows = kept->rows, dim = call.x.dim] {
      UnpackBlocks(staged, BlocksOf(out, rows, dim));
    };
  }
  return step;
}

py::object PlainLevel::AllGather(const py::object& x, const py::object& out) {
  PlainCall call(PlainCall::kAllGather);
  Step step;
  py::object result;
  Refusing(call.name(), [&] {
    CallStream stream;
    const Operand source = ReadX(&call, "x", x, py::int_(0), &stream);
    NameElements({call.name(), "x"}, source, &call.x);
    step = GatherStep(call, source, "out", out, &stream, &result);
  });
  return Run(std::move(step), result);
}

py::object PlainLevel::AllGatherV(const py::object& x, const py::object& sizes,
                                  const py::object& dim, const py::object& out) {
  PlainCall call(PlainCall::kAllGatherV);
  const bool asks = sizes.is_none();
  if (asks && starts()) {
    return InTurn(call.name(), [x = CopyOf(x), sizes, dim, out = CopyOf(out)](PlainLevel& now) {
      return now.AllGatherV(x, sizes, dim, out);
    });
  }
  if (IsList(x)) return GatherList(x, sizes, dim, out);
  CallStream stream;
  Operand source;
  Refusing(asks ? call.asking_name() : call.name(), [&] {
    source = ReadX(&call, "x", x, dim, &stream);
    NameElements({call.name(), "x"}, source, &call.x);
  });
  if (asks) call.sizes = Ask({call}, {call.x.rows()});
  Step step;
  py::object result;
  Refusing(call.name(), [&] {
    if (!asks) call.sizes = ReadSizes(call.name(), "sizes", sizes);
    step = GatherStep(call, source, "out", out, &stream, &result);
  });
  return Run(std::move(step), result);
}

// All tensors are checked before the first one moves.
py::object PlainLevel::GatherList(const py::object& x, const py::object& sizes,
                                  const py::object& dim, const py::object& out) {
  std::vector<PlainCall> calls;
  std::vector<Operand> sources;
  std::vector<py::object> outs;
  const PlainCall empty(PlainCall::kAllGatherV);
  const char* const name = empty.name();
  const bool asks = sizes.is_none();
  std::deque<CallStream> streams;
  Refusing(asks ? empty.asking_name() : name, [&] {
    const std::vector<py::object> tensors = TensorsOf(name, x);
    for (size_t i = 0; i < tensors.size(); ++i) {
      PlainCall& call = calls.emplace_back(empty);
      call.num_tensors = static_cast<int>(tensors.size());
      sources.push_back(
          ReadX(&call, ItemOf("x", i).c_str(), tensors[i], dim, &streams.emplace_back()));
      NameElements({name, "x"}, sources[i], &call.x);
    }
    for (size_t i = 0; i < calls.size(); ++i) {
      if (calls[i].x.rows() == calls[0].x.rows()) continue;
      ThrowIfError(Error(ERROR_INVALID_PARAM, name, ": x[", i, "] has ", calls[i].x.rows(),
                         " rows along dim ", calls[i].x.dim, ", but x[0] has ", calls[0].x.rows(),
                         ": the tensors of a list share their sizes"));
    }
    outs = OutsOf(name, out, calls.size());
  });
  const Rows told = asks ? Ask(calls, {calls[0].x.rows()}) : Rows();
  std::vector<Step> steps;
  py::list results;
  Refusing(name, [&] {
    const Rows rows = asks ? told : ReadSizes(name, "sizes", sizes);
    for (size_t i = 0; i < calls.size(); ++i) {
      py::object result;
      calls[i].sizes = rows;
      steps.push_back(GatherStep(calls[i], sources[i], ItemOf("out", i).c_str(), outs[i],
                                 &streams[i], &result));
      results.append(result);
    }
    for (size_t i = 0; i < steps.size(); ++i) {
      const Status status = Check(steps[i]);
      if (status.ok()) continue;
      ThrowIfError(Error(status.code(), status.message(), " (tensor ", i, " of the list)"));
    }
  });
  BeginParts(communicator(), static_cast<int>(steps.size()));
  return RunAll(std::move(steps), results);
}

py::object PlainLevel::AllToAllV(const py::object& x, const py::object& send_sizes,
                                 const py::object& recv_sizes, const py::object& out) {
  PlainCall call(PlainCall::kAllToAllV);
  const bool asks = recv_sizes.is_none();
  if (asks && starts()) {
    return InTurn(call.name(), [x, sends = CopyOf(send_sizes), recv_sizes, out](PlainLevel& now) {
      return now.AllToAllV(x, sends, recv_sizes, out);
    });
  }
  CallStream stream;
  Operand source;
  Refusing(asks ? call.asking_name() : call.name(), [&] {
    source = ReadX(&call, "x", x, py::int_(0), &stream);
    NameElements({call.name(), "x"}, source, &call.x);
    call.sizes = ReadSizes(call.name(), "send_sizes", send_sizes);
  });
  if (asks) {
    const auto count = static_cast<size_t>(communicator().size());
    call.receives =
        EveryNth(Ask({call}, *call.sizes), static_cast<size_t>(communicator().rank()), count);
  }
  Step step;
  py::object result;
  Refusing(call.name(), [&] {
    if (!asks) call.receives = ReadSizes(call.name(), "recv_sizes", recv_sizes);
    const std::shared_ptr<PlainCalls::Kept> kept = Plan(call);
    Operand target = OutOf(call, "out", source, out, kept.get(), &stream);
    result = target.object;
    if (!call.x.type.empty()) {
      CheckSameElements(call.name(), source, target);
      MoveAsBytes(&source);
      MoveAsBytes(&target);
    }
    step = Ready(call, kept, source, target, &stream);
  });
  return Run(std::move(step), result);
}

py::object PlainLevel::Broadcast(const py::object& x, const py::object& root) {
  PlainCall call(PlainCall::kBroadcast);
  Step step;
  Refusing(call.name(), [&] {
    CallStream stream;
    call.root = ReadWhole(call.name(), "root", root);
    Operand data = ReadX(&call, "x", x, py::object(), &stream);
    NameElements({call.name(), "x"}, data, &call.x);
    if (!call.x.type.empty()) MoveAsBytes(&data);
    step = Ready(call, Plan(call), data, data, &stream);
  });
  return Run(std::move(step), x);
}

py::object PlainLevel::GatherV(const py::object& x, const py::object& sizes,
                               const py::object& root) {
  PlainCall call(PlainCall::kGatherV);
  const bool asks = sizes.is_none();
  if (asks && starts()) {
    return InTurn(call.name(),
                  [x, sizes, root](PlainLevel& now) { return now.GatherV(x, sizes, root); });
  }
  CallStream stream;
  Operand source;
  Refusing(asks ? call.asking_name() : call.name(), [&] {
    call.root = ReadWhole(call.name(), "root", root);
    source = ReadX(&call, "x", x, py::int_(0), &stream);
    NameElements({call.name(), "x"}, source, &call.x);
  });
  if (asks) call.sizes = Ask({call}, {call.x.rows()});
  Step step;
  py::object result = py::none();
  Refusing(call.name(), [&] {
    if (!asks) call.sizes = ReadSizes(call.name(), "sizes", sizes);
    const std::shared_ptr<PlainCalls::Kept> kept = Plan(call);
    Operand target = OutOf(call, "out", source, py::none(), kept.get(), &stream);
    if (call.root == communicator().rank()) result = target.object;
    if (!call.x.type.empty()) {
      MoveAsBytes(&source);
      MoveAsBytes(&target);
    }
    step = Ready(call, kept, source, target, &stream);
  });
  return Run(std::move(step), result);
}

// The root first tells the others what its rows are.
py::object PlainLevel::ScatterV(const py::object& x, const py::object& sizes,
                                const py::object& root) {
  PlainCall call(PlainCall::kScatterV);
  if (starts()) {
    return InTurn(call.name(), [x, sizes = CopyOf(sizes), root](PlainLevel& now) {
      return now.ScatterV(x, sizes, root);
    });
  }
  CallStream stream;
  Operand source;
  std::string text;
  Refusing(call.asking_name(), [&] {
    call.root = ReadWhole(call.name(), "root", root);
    call.sizes = ReadSizes(call.name(), "sizes", sizes);
    if (call.root == communicator().rank()) {
      source = ReadX(&call, "x", x, py::int_(0), &stream);
      RowShape elements;
      NameElements({call.name(), "x"}, source, &elements);  // refuses references
      text = RowsInWords(source);
    }
  });
  std::string told;
  RunNumbered(communicator(), [&] { return calls_->Tell(call, text, &told); });
  ContinueCall(communicator());
  Step step;
  py::object result;
  Refusing(call.name(), [&] {
    const int64_t own = (*call.sizes)[static_cast<size_t>(communicator().rank())];
    Operand target =
        RowsOfWords(call.name(), told, own, ToString(communicator().device()), &stream);
    result = target.object;
    NameElements({call.name(), "x"}, target, &call.x);
    call.dtype = target.tensor.view.desc.dtype;
    call.x.sizes = target.sizes;
    if (call.root != communicator().rank()) {
      source = target;
      source.tensor.numel = 0;
      if (!source.sizes.empty()) source.tensor.view.desc.shape.dims[0] = 0;
    }
    if (!call.x.type.empty()) {
      MoveAsBytes(&source);
      MoveAsBytes(&target);
    }
    step = Ready(call, Plan(call), source, target, &stream);
  });
  return Run(std::move(step), result);
}

py::object PlainLevel::Multiply(PlainCall::Method method, const py::object& x,
                                const py::object& weight, const py::object& out,
                                const ProductArguments& arguments) {
  PlainCall call(method);
  const char* const name = call.name();
  if (starts()) {
    ProductArguments copy = arguments;
    copy.gather_rows = CopyOf(arguments.gather_rows);
    copy.scatter_rows = CopyOf(arguments.scatter_rows);
    return InTurn(name, [method, x, weight, out, copy](PlainLevel& now) {
      return now.Multiply(method, x, weight, out, copy);
    });
  }
  Step step;
  py::object result;
  Refusing(name, [&] {
    CallStream stream;
    ProductSpec& product = call.product;
    product.method = name;
    product.averages = ReadReduction(name, arguments.op, true) == ReduceOp::kAvg;
    std::vector<Operand> inputs = {ReadX(&call, "x", x, py::object(), &stream)};
    inputs.push_back(ReadInput({name, "weight"}, weight, &stream));
    if (!arguments.residual.is_none()) {
      inputs.push_back(ReadInput({name, "residual"}, arguments.residual, &stream));
    }
    product.ag_dim = ReadWhole(name, "ag_dim", arguments.ag_dim);
    product.rs_dim = ReadWhole(name, "rs_dim", arguments.rs_dim);
    product.inner_dim_is_ag = arguments.inner_dim_is_ag.cast<bool>();
    product.gather_rows = ReadMembers(name, "gather_rows", arguments.gather_rows);
    product.scatter_rows = ReadMembers(name, "scatter_rows", arguments.scatter_rows);
    product.trans_weight = PyObject_IsTrue(arguments.trans_weight.ptr()) == 1;
    for (const Operand& input : inputs) {
      ThrowIfError(input.problem);
      call.inputs.push_back(input.tensor.view.desc);
    }
    step = ProductStep(call, inputs, out, &stream, &result);
  });
  return Run(std::move(step), result);
}

PlainLevel::Step PlainLevel::ProductStep(const PlainCall& call, const std::vector<Operand>& inputs,
                                         const py::object& out, CallStream* stream,
                                         py::object* result) {
  std::shared_ptr<PlainCalls::Kept> kept = calls_->Find(call);
  if (kept == nullptr) {
    Status status;
    RunWithoutGil([&] {
      status = calls_->Make(call, &kept);
      return Ok();
    });
    for (const Operand& input : inputs) {
      if (input.tensor.view.desc.dtype != DType::kUndefined) continue;
      status = NameElementType(status, input.object);
      break;
    }
    ThrowIfError(status);
  }
  *result = out.is_none() ? MakeResult(call.name(), inputs[0], kept.get()) : out;
  Operand target;
  target.object = *result;
  ThrowIfError(ToTensor(*result, {call.name(), "out", -1, nullptr}, &target.tensor, stream));
  Step step;
  for (size_t i = 1; i < inputs.size(); ++i) {
    step.tensors.others.push_back(inputs[i].tensor);
    step.keep.push_back(inputs[i].object);
    if (inputs[i].tensor.owner) step.keep.push_back(inputs[i].tensor.owner);
  }
  return Ready(call, kept, inputs[0], target, stream, std::move(step));
}

py::object PlainLevel::Barrier() {
  void* stream = nullptr;
  ThrowIfError(CurrentStream(communicator().device(), "barrier", &stream));
  if (!starts()) {
    RunNumbered(communicator(), [&] { return communicator().Barrier(stream); });
    return py::none();
  }
  QueuedSteps steps(calls_->communicator());
  steps.Add("barrier", [stream](Communicator& group) { return group.Barrier(stream); });
  const auto make = [](const std::vector<int>& /*sources*/) -> py::object { return py::none(); };
  return py::cast(std::make_unique<StartedCall>(calls_->communicator(), steps.Commit(), make));
}

// None for a rank that joins no part. Returns once every rank of the part is there.
py::object PlainLevel::Split(const py::object& color, const py::object& key) {
  constexpr const char* kName = "split";
  if (starts()) {
    return InTurn(kName, [color, key](PlainLevel& now) { return now.Split(color, key); });
  }
  constexpr int64_t kMost = std::numeric_limits<int>::max();
  int64_t own_color = -1;
  int64_t own_key = 0;
  Refusing(kName, [&] {
    if (!color.is_none()) {
      own_color = std::max<int64_t>(ReadWhole(kName, "color", color), -1);
    }
    own_key = ReadWhole(kName, "key", key);
    if (own_color > kMost) {
      ThrowIfError(Error(ERROR_INVALID_PARAM, "split: color must be from 0 to ", kMost, ", got ",
                         own_color));
    }
    if (std::abs(own_key) > kMost) {
      ThrowIfError(Error(ERROR_INVALID_PARAM, "split: key must be from ", -kMost, " to ", kMost,
                         ", got ", own_key));
    }
  });
  std::shared_ptr<Communicator> part;
  RunNumbered(communicator(), [&] {
    COLLOPS_RETURN_IF_ERROR(
        communicator().Split(static_cast<int>(own_color), static_cast<int>(own_key), &part));
    return part == nullptr ? Ok() : part->Connect();
  });
  return part == nullptr ? py::object(py::none()) : make_part_(part);
}

}  // namespace collops::bindings
