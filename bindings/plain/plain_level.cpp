#include "plain/plain_level.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "module.h"
#include "plain/started.h"

namespace collops::bindings {
namespace {

bool IsGiven(const py::object& argument) {
  return argument && !argument.is_none();
}

bool IsTrue(const py::object& argument) {
  return IsGiven(argument) && PyObject_IsTrue(argument.ptr()) == 1;
}

py::object CopyOf(const py::object& value) {
  if (!value || PyList_CheckExact(value.ptr()) == 0) return value;
  py::list copy;
  for (const py::handle item : value) copy.append(CopyOf(py::reinterpret_borrow<py::object>(item)));
  return std::move(copy);
}

// Whether an argument is a list of these numbers; of an empty one, whether it is not given.
bool AreTheSizes(const py::object& given, const Rows& sizes) {
  if (sizes.empty()) return !IsGiven(given);
  if (!given || PyList_CheckExact(given.ptr()) == 0) return false;
  if (static_cast<size_t>(PyList_GET_SIZE(given.ptr())) != sizes.size()) return false;
  for (size_t i = 0; i < sizes.size(); ++i) {
    PyObject* const item = PyList_GET_ITEM(given.ptr(), static_cast<Py_ssize_t>(i));
    if (PyLong_CheckExact(item) == 0 || PyLong_AsLongLong(item) != sizes[i]) {
      PyErr_Clear();
      return false;
    }
  }
  return true;
}

// Whether the call is one that CallAtOnce() makes: every rank gives x, and the result's memory.
bool MayBeLikeEarlier(PlainCall::Method method, const PlainLevel::Arguments& given) {
  switch (method) {
    case PlainCall::kAllGather:
    case PlainCall::kAllGatherV:
    case PlainCall::kAllReduce:
    case PlainCall::kAllToAllV:
    case PlainCall::kReduceScatter:
    case PlainCall::kReduceScatterV:
      return IsGiven(given.out);
    case PlainCall::kBroadcast:
      return true;
    default:
      return false;
  }
}

// Whether an argument always has the value that it has now; others are objects of the caller's.
bool IsFixed(const py::object& argument) {
  return !IsGiven(argument) || PyLong_CheckExact(argument.ptr()) != 0 ||
         PyUnicode_CheckExact(argument.ptr()) != 0;
}

// Whether x is cut into rows.
bool HasRows(PlainCall::Method method) {
  return method != PlainCall::kAllReduce && method != PlainCall::kAllReducePartials &&
         method != PlainCall::kBroadcast && method != PlainCall::kReduce &&
         method < PlainCall::kAllGatherMatmul;
}

// Whether the ranks first tell each other their rows.
bool Asks(PlainCall::Method method, const PlainLevel::Arguments& given) {
  if (given.recv_sizes) return given.recv_sizes.is_none();
  if (given.leaf_begin) return !given.leaf_begin.is_none();
  if (PlainCall::GathersRows(method)) return given.gather_rows.is_none();
  return (method == PlainCall::kAllGatherV || method == PlainCall::kGatherV) &&
         given.sizes.is_none();
}

// Whether the ranks' blocks along x's dim lie one after the other in row-major memory.
bool IsInOrder(const RowShape& x, int rank_size) {
  const auto dim = x.sizes.begin() + x.dim;
  return rank_size == 1 ||
         std::all_of(x.sizes.begin(), dim, [](int64_t size) { return size == 1; });
}

// The outs of a list of tensors.
std::vector<py::object> OutsOf(const char* method, const py::object& out, size_t count) {
  if (out.is_none()) return std::vector<py::object>(count);
  if (!IsList(out) || py::len(out) != count) {
    Throw(ERROR_INVALID_PARAM, method, ": out must be a list of ", count, " tensors as x, got ",
          IsList(out) ? std::to_string(py::len(out)) : "a " + TypeNameOf(out));
  }
  std::vector<py::object> outs;
  for (const py::handle item : out) outs.push_back(py::reinterpret_borrow<py::object>(item));
  return outs;
}

// Texts and prototypes of rows that a root tells; see collops.collectives.told_rows. Never
// destroyed, guarded by the GIL.
template <typename Make>
py::object Known(py::dict* known, const py::object& key, const Make& make) {
  if (!known->contains(key)) {
    if (known->size() >= 64) known->clear();
    (*known)[key] = make(py::module_::import("collops.collectives.told_rows"));
  }
  return (*known)[key];
}

// Behind the number of the root's rows.
constexpr char kAfterRows = ' ';

// What the root says of its rows: their library, element type and shape.
std::string RowsInWords(const Operand& x) {
  static auto* const known = new py::dict;
  const py::tuple row = ToTuple({x.sizes.begin() + 1, x.sizes.end()});
  const auto describe = [&](const py::module_& module) -> py::object {
    return module.attr("describe")(x.object, Name(x.tensor.view.desc.dtype), row);
  };
  py::object type = py::str(Name(x.tensor.view.desc.dtype));
  if (x.made_by != Operand::kOther) type = x.object.attr("dtype");
  return py::str(Known(known, py::make_tuple(py::type::of(x.object), type, row), describe));
}

// New memory for rows of what the root has said.
py::object RowsOfWords(const char* method, const std::string& words, int64_t rows,
                       const Device& device) {
  static auto* const known = new py::dict;
  const std::string place = ToString(device);
  const py::object none =
      Known(known, py::make_tuple(words, place), [&](const py::module_& module) -> py::object {
        return module.attr("no_rows")(method, words, place);
      });
  CallStream unused;
  unused.OnlyLook();
  Rows shape = ReadOutput({method, "out"}, none, &unused).sizes;
  shape[0] = rows;
  return MakeLike(method, none, shape);
}

}  // namespace

PlainLevel::Arguments PlainLevel::Arguments::Copied() const {
  Arguments copy = *this;
  for (Object* list : {&copy.x, &copy.sizes, &copy.recv_sizes, &copy.partials, &copy.out,
                       &copy.gather_rows, &copy.scatter_rows, &copy.sum_columns}) {
    *list = CopyOf(*list);
  }
  return copy;
}

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
  const UserCall number(communicator().CallOfUser());
  try {
    if (starts()) {
      StartSteps(calls_->communicator(), name, {refuse}, {});
    } else {
      RunWithoutGil([&] { return refuse(communicator()); });
    }
  } catch (py::error_already_set& error) {
    // The communicator has ended; the caller raises the first error.
    if (!error.matches(py::module_::import("collops.errors").attr("Error"))) throw;
  }
}

bool PlainLevel::Earlier::IsLike(PlainCall::Method of, const Arguments& given) const {
  return kept != nullptr && method == of && given.op.is(op) && given.dim.is(dim) &&
         given.root.is(root) && AreTheSizes(given.sizes, sizes) &&
         AreTheSizes(given.recv_sizes, recv_sizes);
}

bool PlainLevel::CallAtOnce(PlainCall::Method method, const Arguments& given) {
  const py::object& x = given.x;
  const py::object& out = method == PlainCall::kBroadcast ? x : given.out;
  Tensor source;
  Tensor target;
  if (starts() || !ReadInOrder(x, &source) || !(out.is(x) || ReadInOrder(out, &target)))
    return false;
  const Earlier& earlier = EarlierOf(method, source);
  const TensorDesc& desc = source.view.desc;
  const bool is_like = earlier.IsLike(method, given) && desc == earlier.x &&
                       (out.is(x) ? desc : target.view.desc) == earlier.out &&
                       communicator().compares_shapes() == earlier.compares_shapes;
  if (!is_like) return false;
  const UserCall number(communicator().CallOfUser());
  const std::shared_ptr<PlainCalls::Kept> kept = earlier.kept;  // another thread may replace it
  PlainTensors tensors;
  tensors.x = source;
  tensors.out = out.is(x) ? source : target;
  RunWithoutGil([&] { return kept->plan->Run(&communicator(), tensors); });
  return true;
}

py::object PlainLevel::Call(PlainCall::Method method, const Arguments& given) {
  const bool is_in_place = method == PlainCall::kBroadcast;
  if (MayBeLikeEarlier(method, given) && CallAtOnce(method, given)) {
    return is_in_place ? given.x : given.out;
  }
  // The ranks count alike the calls that they make together.
  const bool is_alone = method == PlainCall::kMatmul;
  const UserCall number(is_alone ? UserCall::Number() : communicator().CallOfUser());
  const bool waits = given.weight || method == PlainCall::kScatterV || Asks(method, given);
  if (starts() && waits) {
    return InTurn(PlainCall(method).name(), [method, copy = given.Copied()](PlainLevel& now) {
      return now.Call(method, copy);
    });
  }
  if (PlainCall::IsGrouped(method)) return MultiplyGrouped(method, given);
  if (given.weight) return Multiply(method, given);
  if (given.partials) return AddPartials(method, given);
  return method == PlainCall::kScatterV ? ScatterV(given) : Collective(method, given);
}

py::object PlainLevel::Collective(PlainCall::Method method, const Arguments& given) {
  if (method == PlainCall::kAllGatherV && IsList(given.x)) return GatherList(given);
  Part part(method);
  const PlainCall& call = part.call;
  const bool asks = Asks(method, given);
  if (asks) {
    Refusing(call.asking_name(), [&] { ReadOne(given, &part); });
    Ask(&part, 1);
  }
  Step step;
  Refusing(call.name(), [&] {
    if (!asks) ReadOne(given, &part);
    ReadNumbers(given, &part, 1);
    step = StepOf(&part);
  });
  const bool is_plain = !asks && !IsList(given.x) && call.x.type.empty() && call.x.dim == 0;
  if (is_plain && MayBeLikeEarlier(method, given)) Remember(given, call, step);
  return Run(&step, 1, part.result);
}

void PlainLevel::Remember(const Arguments& given, const PlainCall& call, const Step& step) {
  if (!IsFixed(given.op) || !IsFixed(given.dim) || !IsFixed(given.root)) return;
  const PlainTensors& tensors = step.tensors;
  Earlier earlier = {call.method,
                     given.op,
                     given.dim,
                     given.root,
                     {},
                     {},
                     tensors.x.view.desc,
                     tensors.out.view.desc,
                     communicator().compares_shapes(),
                     step.kept};
  if (IsGiven(given.sizes)) earlier.sizes = *call.sizes;
  if (IsGiven(given.recv_sizes)) earlier.recv_sizes = call.receives;
  EarlierOf(call.method, tensors.x) = std::move(earlier);
}

// All tensors are checked before the first one moves.
py::object PlainLevel::GatherList(const Arguments& given) {
  const PlainCall call(PlainCall::kAllGatherV);
  const bool asks = Asks(call.method, given);
  std::vector<Part> parts;
  if (asks) {
    Refusing(call.asking_name(), [&] { ReadList(given, &parts); });
    Ask(parts.data(), parts.size());
  }
  std::vector<Step> steps;
  py::list results;
  Refusing(call.name(), [&] {
    if (!asks) ReadList(given, &parts);
    ReadNumbers(given, parts.data(), parts.size());
    for (Part& part : parts) {
      steps.push_back(StepOf(&part));
      results.append(part.result);
    }
    for (size_t i = 0; i < steps.size(); ++i) {
      const Status status = steps[i].kept->plan->Check(communicator(), steps[i].tensors);
      if (!status.ok()) Throw(status.code(), status.message(), " (tensor ", i, " of the list)");
    }
  });
  return Run(steps.data(), steps.size(), results);
}

// The root first tells the others what its rows are, and how many.
py::object PlainLevel::ScatterV(const Arguments& given) {
  Part part(PlainCall::kScatterV);
  PlainCall& call = part.call;
  std::string text;
  std::string told;
  Refusing(call.asking_name(), [&] {
    call.root = ReadWhole(call.name(), "root", given.root);
    if (IsGiven(given.sizes)) call.sizes = ReadSizes(call.name(), "sizes", given.sizes);
    if (call.root != communicator().rank()) return;
    ReadX("x", given.x, Object(), &part);
    NameElements({call.name(), "x"}, part.x, &call.x);  // refuses references
    text = Concat(call.x.rows(), kAfterRows, RowsInWords(part.x));
  });
  RunWithoutGil([&] { return calls_->Tell(call, text, &told); });
  Step step;
  Refusing(call.name(), [&] {
    const int64_t rows = std::strtoll(told.c_str(), nullptr, 10);
    if (!call.sizes) call.sizes = SplitEvenly(rows, communicator().size());
    told.erase(0, told.find(kAfterRows) + 1);
    const int64_t own = (*call.sizes)[static_cast<size_t>(communicator().rank())];
    part.out = RowsOfWords(call.name(), told, own, communicator().device());
    const Operand out = ReadOutput({call.name(), "out"}, part.out, &part.stream);
    if (call.root != communicator().rank()) {
      part.x = out;
      part.x.tensor.numel = 0;
      part.x.tensor.view.desc.shape.dims[0] = 0;
      NameElements({call.name(), "x"}, out, &call.x);
    }
    call.dtype = out.tensor.view.desc.dtype;
    call.x.sizes = out.sizes;
    step = StepOf(&part);
  });
  return Run(&step, 1, part.result);
}

// What a product reads besides x and the weight.
void PlainLevel::ReadAddends(const Arguments& given, std::vector<Operand>* inputs,
                             Part* part) const {
  const char* const name = part->call.name();
  ProductSpec& product = part->call.product;
  const auto read = [&](const char* label, const py::object& value) {
    inputs->push_back(ReadInput({name, label}, value, &part->stream));
  };
  py::object x_scale;
  if (given.quant) {
    const auto quant = given.quant.cast<py::tuple>();
    const py::object scale = quant[0];
    const py::object bias = quant[1];
    x_scale = quant[2];
    product.has_scale = IsGiven(scale);
    product.group_size = ReadWhole(name, "group_size", quant[3]);
    if (IsGiven(quant[4])) product.out_dtype = ReadDType(name, "out_dtype", quant[4]);
    if (!product.has_scale && (IsGiven(bias) || IsGiven(x_scale))) {
      Throw(ERROR_INVALID_PARAM, name, ": ", IsGiven(bias) ? "bias" : "x_scale",
            "= needs scale=: it is for a weight of int8");
    }
    if (product.has_scale) {
      if (IsGiven(bias)) {
        read("bias", bias);
      } else if (!part->call.is_grouped()) {
        Operand none;  // as the operator takes a missing one
        none.tensor.view.desc = {DType::kFloat32, Format::kND, {0}};
        none.tensor.view.device = part->x.tensor.view.device;
        inputs->push_back(none);
      }
      read("scale", scale);
    }
  }
  product.has_residual = IsGiven(given.residual);
  if (product.has_residual) read("residual", given.residual);
  product.has_x_scale = IsGiven(x_scale);
  if (product.has_x_scale) read("x_scale", x_scale);
}

// Where the caller says which leaves they are, the ranks first tell each other.
py::object PlainLevel::AddPartials(PlainCall::Method method, const Arguments& given) {
  Part part(method);
  PlainCall& call = part.call;
  const char* const name = call.name();
  Step step;
  const bool asks = Asks(method, given);
  if (asks) {
    int64_t begin = 0;
    Refusing(call.asking_name(), [&] {
      ReadPartials(given, &part, &step);
      begin = ReadWhole(name, "leaf_begin", given.leaf_begin);
    });
    RunWithoutGil([&] { return calls_->AskLeaves(call, begin, &call.leaf_begins); });
  }
  Refusing(name, [&] {
    if (!asks) ReadPartials(given, &part, &step);
    const std::shared_ptr<PlainCalls::Kept> kept = Plan(call);
    const bool is_given = IsGiven(given.out);
    part.result = is_given ? given.out : ResultOf(call, part.x, *kept);
    const TensorName label{name, "out"};
    const Operand out = is_given ? ReadOutput(label, part.result, kept->result, &part.stream)
                                 : ReadOutput(label, part.result, &part.stream);
    Ready(&part, kept, part.x, out, &step);
  });
  return Run(&step, 1, part.result);
}

// A rank without any is told what they are by its result.
void PlainLevel::ReadPartials(const Arguments& given, Part* part, Step* step) const {
  PlainCall& call = part->call;
  const char* const name = call.name();
  if (!IsGiven(given.partials)) {
    Throw(ERROR_INVALID_PARAM, name, ": leaves= and leaf_begin= need partials=");
  }
  if (IsGiven(given.x)) {
    Throw(ERROR_INVALID_PARAM, name, ": partials= takes the place of x: pass one of them");
  }
  if (!IsList(given.partials)) {
    Throw(ERROR_INVALID_PARAM, name, ": partials must be a list of tensors, got ",
          TypeNameOf(given.partials));
  }
  if (!IsGiven(given.leaves)) {
    Throw(ERROR_INVALID_PARAM, name, ": partials= needs leaves=, the partials of all ranks");
  }
  if (given.dim && ReadWhole(name, "dim", given.dim) != 0) {
    Throw(ERROR_INVALID_PARAM, name, ": dim of partials= must be 0, got ",
          std::string(py::str(given.dim)));
  }
  call.op = ReadReduction(name, given.op);
  call.leaves = ReadWhole(name, "leaves", given.leaves);
  if (given.sizes && IsGiven(given.sizes)) call.sizes = ReadSizes(name, "sizes", given.sizes);
  const auto partials = given.partials.cast<py::list>();
  call.num_tensors = static_cast<int>(partials.size());
  if (partials.empty()) {
    if (!IsGiven(given.out) || (given.sizes && !call.sizes)) {
      Throw(ERROR_INVALID_PARAM, name, ": partials is empty, so pass ",
            IsGiven(given.out) ? "sizes=" : "out=", ": nothing else tells the result's shape");
    }
    part->x = ReadOutput({name, "out"}, given.out, &part->stream);
    call.dtype = part->x.tensor.view.desc.dtype;
    call.device = part->x.tensor.view.device;
    call.x.sizes = part->x.sizes;
    if (given.sizes) {
      ThrowIfError(call.Normalise("out"));
      call.x.sizes[0] = SumOf(*call.sizes);
    }
  }
  for (size_t i = 0; i < partials.size(); ++i) {
    const std::string label = Concat("partials[", i, "]");
    const py::object partial = partials[i];
    if (i == 0) {
      ReadX(label.c_str(), partial, Object(), part);
      continue;
    }
    const Operand other = ReadInput({name, label.c_str()}, partial, &part->stream);
    CheckLikeFirst({name, "partials"}, part->x, other, i);
    ThrowIfError(other.problem);
    step->tensors.others.push_back(other.tensor);
    step->keep.push_back(other.object);
    step->keep.push_back(other.tensor.owner);
  }
  call.inputs = {part->x.tensor.view.desc};
}

py::object PlainLevel::Multiply(PlainCall::Method method, const Arguments& given) {
  Part part(method);
  PlainCall& call = part.call;
  const char* const name = call.name();
  Step step;
  py::object rows;
  const auto read = [&] {
    ProductSpec& product = call.product;
    product.averages = given.op && ReadReduction(name, given.op, true) == ReduceOp::kAvg;
    ReadFactors(given, &part, &step);
    if (given.grid) {
      const auto grid = given.grid.cast<py::tuple>();
      product.ag_dim = ReadWhole(name, "ag_dim", grid[0]);
      product.rs_dim = ReadWhole(name, "rs_dim", grid[1]);
      product.inner_dim_is_ag = grid[2].cast<bool>();
    }
    if (IsGiven(given.gather_rows)) {
      product.gather_rows =
          ReadMembers(name, given.grid ? "gather_rows" : "sizes", given.gather_rows);
    }
    if (IsGiven(given.scatter_rows)) {
      product.scatter_rows =
          ReadMembers(name, given.grid ? "scatter_rows" : "sizes", given.scatter_rows);
    }
    if (given.leaves) product.leaves = ReadWhole(name, "leaves", given.leaves);
    if (IsGiven(given.sum_columns)) {
      product.sum_columns = ReadMembers(name, "sum_columns", given.sum_columns);
    }
  };
  const auto prepare = [&] {
    const std::shared_ptr<PlainCalls::Kept> kept = Plan(call);
    Operand target;
    target.object = IsGiven(given.out) ? given.out : ResultOf(call, part.x, *kept);
    ThrowIfError(ToTensor(target.object, {name, "out"}, &target.tensor, &part.stream));
    part.result = target.object;
    if (IsTrue(given.return_rows)) {
      rows = RowsBeside({kept->result[0], call.x.sizes[1] * communicator().size()}, &part, &step);
    }
    Ready(&part, kept, part.x, target, &step);
  };
  if (method == PlainCall::kMatmul) {
    read();  // nobody waits for this rank
    prepare();
  } else if (Asks(method, given)) {
    Refusing(call.asking_name(), read);
    Ask(&part, 1);
    Refusing(name, prepare);
  } else {
    Refusing(name, [&] { read(), prepare(); });
  }
  return Run(&step, 1, rows ? py::object(py::make_tuple(part.result, rows)) : part.result);
}

// The counts of a grouped product are read anew with every call, and so is its plan.
py::object PlainLevel::MultiplyGrouped(PlainCall::Method method, const Arguments& given) {
  Part part(method);
  PlainCall& call = part.call;
  const char* const name = call.name();
  Step step;
  const auto read = [&] {
    ReadFactors(given, &part, &step);
    call.sizes = ReadTable(name, "send_sizes", given.sizes);
    if (IsGiven(given.max_rows)) {
      call.product.max_rows = ReadWhole(name, "max_rows", given.max_rows);
    }
    call.product.returns_rows = IsTrue(given.return_rows);
  };
  const bool asks = Asks(method, given);
  if (asks) {
    Refusing(call.asking_name(), read);
    Ask(&part, 1);
  }
  py::object rows;
  Refusing(name, [&] {
    if (!asks) {
      read();
      call.receives = ReadTable(name, "recv_sizes", given.recv_sizes);
    }
    std::shared_ptr<PlainCalls::Kept> kept;
    ThrowIfError(calls_->MakeOnce(call, &kept));
    Operand target;
    const bool is_like = kept->result_dtype == DType::kUndefined;
    target.object = IsGiven(given.out) ? given.out
                                       : MakeLike(name, part.x.object, kept->result,
                                                  is_like ? nullptr : Name(kept->result_dtype));
    ThrowIfError(ToTensor(target.object, {name, "out"}, &target.tensor, &part.stream));
    part.result = target.object;
    if (call.product.returns_rows) {
      rows = RowsBeside({kept->result[0], call.x.sizes[1]}, &part, &step);
    }
    Ready(&part, std::move(kept), part.x, target, &step);
  });
  const py::object result = rows ? py::object(py::make_tuple(part.result, rows)) : part.result;
  return Run(&step, 1, result);
}

// Memory for the rows that a product returns beside its result.
py::object PlainLevel::RowsBeside(const Rows& sizes, Part* part, Step* step) {
  const char* const name = part->call.name();
  const py::object rows = MakeLike(name, part->x.object, sizes);
  Tensor tensor;
  ThrowIfError(ToTensor(rows, {name, "the rows"}, &tensor, &part->stream));
  step->tensors.rows = tensor;
  step->keep.push_back(rows);
  step->keep.push_back(tensor.owner);
  return rows;
}

// The tensors that a product reads.
void PlainLevel::ReadFactors(const Arguments& given, Part* part, Step* step) const {
  PlainCall& call = part->call;
  const char* const name = call.name();
  ReadX("x", given.x, Object(), part);
  std::vector<Operand> inputs = {part->x, ReadInput({name, "weight"}, given.weight, &part->stream)};
  ReadAddends(given, &inputs, part);
  call.product.trans_weight = PyObject_IsTrue(given.trans_weight.ptr()) == 1;
  for (const Operand& input : inputs) {
    ThrowIfError(input.problem);
    call.inputs.push_back(input.tensor.view.desc);
    if (call.inputs.size() == 1) continue;
    step->tensors.others.push_back(input.tensor);
    if (input.object) step->keep.push_back(input.object);
    step->keep.push_back(input.tensor.owner);
  }
}

void PlainLevel::ReadX(const char* label, const py::object& value, const py::object& dim,
                       Part* part) const {
  PlainCall& call = part->call;
  part->x = ReadInput({call.name(), label}, value, &part->stream);
  call.dtype = part->x.tensor.view.desc.dtype;
  call.device = part->x.tensor.view.device;
  call.x.sizes = part->x.sizes;
  if (!HasRows(call.method)) return;
  if (dim && !call.x.sizes.empty()) {
    constexpr int64_t kMost = std::numeric_limits<int>::max();
    const int64_t number = ReadWhole(call.name(), "dim", dim);
    call.x.dim = static_cast<int>(std::clamp(number, -kMost, kMost));
  }
  ThrowIfError(call.Normalise(label));
}

void PlainLevel::ReadOne(const Arguments& given, Part* part) const {
  PlainCall& call = part->call;
  const char* const name = call.name();
  if (given.root) call.root = ReadWhole(name, "root", given.root);
  if (given.op) call.op = ReadReduction(name, given.op);
  if (call.method == PlainCall::kReduceScatterV && IsList(given.x)) {
    part->x = Join(given, part);
  } else {
    ReadX("x", given.x, given.dim, part);
  }
  if (!given.op) NameElements({name, "x"}, part->x, &call.x);
  if (call.method == PlainCall::kAllToAllV) {
    call.sizes = ReadSizes(name, "send_sizes", given.sizes);
  }
  part->out = given.out;
}

// One block per rank, in one tensor.
Operand PlainLevel::Join(const Arguments& given, Part* part) const {
  const char* const name = part->call.name();
  const std::vector<py::object> blocks = TensorsOf(name, given.x);
  ReadX("x[0]", blocks[0], given.dim, part);
  const auto size = static_cast<size_t>(communicator().size());
  if (blocks.size() != size) {
    Throw(ERROR_INVALID_PARAM, name, ": x must have length ", size, ", one block per rank, got ",
          blocks.size());
  }
  std::vector<Operand> operands = {part->x};
  for (size_t i = 1; i < size; ++i) {
    operands.push_back(ReadInput({name, Concat("x[", i, "]").c_str()}, blocks[i], &part->stream));
  }
  return Joined(operands, &part->call, &part->stream);
}

void PlainLevel::ReadList(const Arguments& given, std::vector<Part>* parts) const {
  const char* const name = PlainCall(PlainCall::kAllGatherV).name();
  const std::vector<py::object> tensors = TensorsOf(name, given.x);
  for (size_t i = 0; i < tensors.size(); ++i) {
    Part& part = parts->emplace_back(PlainCall::kAllGatherV);
    part.call.num_tensors = static_cast<int>(tensors.size());
    part.item = Concat("out[", i, "]");
    ReadX(Concat("x[", i, "]").c_str(), tensors[i], given.dim, &part);
    NameElements({name, "x"}, part.x, &part.call.x);
  }
  const int64_t rows = parts->front().call.x.rows();
  for (size_t i = 0; i < parts->size(); ++i) {
    const RowShape& x = (*parts)[i].call.x;
    if (x.rows() == rows) continue;
    Throw(ERROR_INVALID_PARAM, name, ": x[", i, "] has ", x.rows(), " rows along dim ", x.dim,
          ", but x[0] has ", rows, ": the tensors of a list share their sizes");
  }
  const std::vector<py::object> outs = OutsOf(name, given.out, parts->size());
  for (size_t i = 0; i < outs.size(); ++i) (*parts)[i].out = outs[i];
}

// The numbers that the ranks have not told each other.
void PlainLevel::ReadNumbers(const Arguments& given, Part* parts, size_t count) const {
  PlainCall& call = parts->call;
  const char* const name = call.name();
  if (call.method == PlainCall::kAllToAllV) {
    if (IsGiven(given.recv_sizes)) {
      call.receives = ReadSizes(name, "recv_sizes", given.recv_sizes);
    }
    return;
  }
  if (!IsGiven(given.sizes)) return;
  Rows rows = ReadSizes(name, "sizes", given.sizes);
  if (call.sizes && rows != *call.sizes) {
    Throw(ERROR_INVALID_PARAM, name, ": sizes ", Repr(py::list(given.sizes)),
          " are not the blocks' ", Repr(py::list(ToTuple(*call.sizes))));
  }
  for (size_t i = 1; i < count; ++i) parts[i].call.sizes = rows;
  call.sizes = std::move(rows);
}

// The ranks tell each other their rows.
void PlainLevel::Ask(Part* parts, size_t count) {
  std::vector<const PlainCall*> tensors;
  for (size_t i = 0; i < count; ++i) tensors.push_back(&parts[i].call);
  PlainCall& call = parts->call;
  const bool to_each = call.method == PlainCall::kAllToAllV || call.is_grouped();
  const Rows mine = to_each ? *call.sizes : Rows{call.x.rows()};
  Rows all;
  RunWithoutGil([&] { return calls_->Ask(tensors, mine, &all); });
  if (PlainCall::GathersRows(call.method)) {
    call.product.gather_rows = RowsToGather(call, communicator().rank(), all);
    return;
  }
  if (!to_each) {
    for (size_t i = 0; i < count; ++i) parts[i].call.sizes = all;
    return;
  }
  // Each rank's numbers for this one.
  const size_t each = mine.size() / static_cast<size_t>(communicator().size());
  const size_t first = each * static_cast<size_t>(communicator().rank());
  for (size_t i = first; i < all.size(); i += mine.size()) {
    for (size_t j = i; j < i + each; ++j) call.receives.push_back(all[j]);
  }
}

std::shared_ptr<PlainCalls::Kept> PlainLevel::Plan(const PlainCall& call) {
  std::shared_ptr<PlainCalls::Kept> kept = calls_->Find(call);
  if (kept == nullptr) {
    RunWithoutGil([&] { return calls_->Make(call, &kept); });
    kept->beside = DestroyedWithGil(std::make_unique<ResultMaker>());
  }
  return kept;
}

// Memory for the call's result.
py::object PlainLevel::ResultOf(const PlainCall& call, const Operand& like,
                                const PlainCalls::Kept& kept) {
  auto* const maker = static_cast<ResultMaker*>(kept.beside.get());
  const bool is_like = kept.result_dtype == DType::kUndefined;
  return maker->Make(call.name(), like.object, kept.result,
                     is_like ? nullptr : Name(kept.result_dtype));
}

PlainLevel::Step PlainLevel::StepOf(Part* part) {
  const PlainCall& call = part->call;
  const char* const name = call.name();
  const std::shared_ptr<PlainCalls::Kept> kept = Plan(call);
  const bool is_rooted = call.method == PlainCall::kReduce || call.method == PlainCall::kGatherV;
  const bool has_result = !is_rooted || call.root == communicator().rank();
  Operand* source = &part->x;
  Operand* target = source;  // of broadcast
  Operand out;
  if (call.method != PlainCall::kBroadcast) {
    const bool is_given = has_result && IsGiven(part->out);
    const py::object memory = is_given ? part->out : ResultOf(call, *source, *kept);
    const TensorName label{name, part->label()};
    out = is_given ? ReadOutput(label, memory, kept->result, &part->stream)
                   : ReadOutput(label, memory, &part->stream);
    target = &out;
  }
  part->result = has_result ? target->object : py::none();
  Step step;
  if (call.x.dim != 0) step.after = Arrange(*part, kept->rows, source, target, &part->stream);
  if (!call.x.type.empty()) {
    CheckSameElements(name, *source, *target);
    if (target != source) MoveAsBytes(source);
    MoveAsBytes(target);
  }
  Ready(part, kept, *source, *target, &step);
  return step;
}

// Puts blocks that do not lie one after the other into other memory, or lets them arrive there;
// returns what brings them to their places. Any strides are allowed, for one copy.
std::function<void()> PlainLevel::Arrange(const Part& part, const Rows& rows, Operand* source,
                                          Operand* target, CallStream* stream) const {
  const PlainCall& call = part.call;
  const TensorName label{call.name(), part.label()};
  const bool in_order = IsInOrder(call.x, communicator().size());
  const py::object out = target->object;
  if (call.method == PlainCall::kReduceScatterV) {
    const bool is_ready = source->is_packed || (in_order && source->tensor.view.contiguous);
    if (!is_ready) *source = Packed(call, *source, rows, stream);
    if (target->tensor.view.contiguous) return {};
    *target = StagingFor(label, *target, stream);
    return [staged = target->object, out] { UnpackBlocks(staged, {out}); };
  }
  if (in_order && source->tensor.view.contiguous && target->tensor.view.contiguous) return {};
  *source = InOrder({call.name(), "x"}, *source, stream);
  *target = StagingFor(label, *target, stream);
  return [staged = target->object, out, rows, dim = call.x.dim] {
    UnpackBlocks(staged, BlocksOf(out, rows, dim));
  };
}

void PlainLevel::Ready(Part* part, std::shared_ptr<PlainCalls::Kept> kept, const Operand& source,
                       const Operand& target, Step* step) const {
  const char* const name = part->call.name();
  step->kept = std::move(kept);
  step->tensors.x = source.tensor;
  step->tensors.out = target.tensor;
  step->keep.reserve(step->keep.size() + 4);
  for (const Operand* operand : {&source, &target}) {
    ThrowIfError(operand->problem);
    step->keep.push_back(operand->object);
    if (operand->tensor.owner) step->keep.push_back(operand->tensor.owner);
  }
  ThrowIfError(part->stream.Find(name, &step->tensors.stream));
  const PlainPlan& plan = *step->kept->plan;
  if (starts()) ThrowIfError(plan.Check(communicator(), step->tensors));
  if (step->tensors.stream == nullptr) return;
  // The library that made x keeps the workspace for what is on the call's stream.
  const uint64_t bytes = plan.DeviceWorkspace(communicator(), step->tensors);
  if (bytes == 0) return;
  const py::object memory =
      MakeWorkspace(source.object, source.tensor.view.device, bytes, name, step->tensors.stream);
  Tensor workspace;
  ThrowIfError(ToTensor(memory, {name, "workspace"}, &workspace, &part->stream));
  step->tensors.workspace = workspace.view.data;
  step->keep.push_back(memory);
  step->keep.push_back(workspace.owner);
}

py::object PlainLevel::Run(Step* steps, size_t count, const py::object& result) {
  if (!starts()) {
    for (Step* step = steps; step != steps + count; ++step) {
      RunWithoutGil([&] { return step->kept->plan->Run(&communicator(), step->tensors); });
      if (step->after) step->after();
    }
    return result;
  }
  const char* const name = steps->kept->plan->method();
  std::vector<CoreStep> queued;
  std::vector<Object> keep;
  std::vector<std::function<void()>> afters;
  for (Step* step = steps; step != steps + count; ++step) {
    const auto& plan = step->kept->plan;
    queued.push_back([plan, tensors = std::move(step->tensors)](Communicator& group) {
      return plan->Run(&group, tensors);
    });
    keep.insert(keep.end(), step->keep.begin(), step->keep.end());
    if (step->after) afters.push_back(std::move(step->after));
  }
  MakeResultOf make = [result](const std::vector<int>& /*sources*/) { return result; };
  if (!afters.empty()) {
    make = InThisMode([result, afters](const std::vector<int>& /*sources*/) {
      for (const auto& after : afters) after();
      return result;
    });
  }
  const auto& communicator = calls_->communicator();
  return StartedCallOf(communicator,
                       StartSteps(communicator, name, std::move(queued), std::move(keep)), make);
}

py::object PlainLevel::InTurn(const char* name, std::function<py::object(PlainLevel&)> call) {
  return StartInTurn(calls_->communicator(), name,
                     [now = now_, call = std::move(call)] { return call(*now); });
}

py::object PlainLevel::Barrier() {
  const UserCall number(communicator().CallOfUser());
  void* stream = nullptr;
  ThrowIfError(CurrentStream(communicator().device(), "barrier", &stream));
  if (!starts()) {
    RunWithoutGil([&] { return communicator().Barrier(stream); });
    return py::none();
  }
  const auto barrier = [stream](Communicator& group) { return group.Barrier(stream); };
  return StartedCallOf(
      calls_->communicator(), StartSteps(calls_->communicator(), "barrier", {barrier}, {}),
      [](const std::vector<int>& /*sources*/) -> py::object { return py::none(); });
}

// None for a rank that joins no part. Returns once every rank of the part is there.
py::object PlainLevel::Split(const py::object& color, const py::object& key) {
  constexpr const char* kName = "split";
  constexpr int64_t kMost = std::numeric_limits<int>::max();
  const UserCall number(communicator().CallOfUser());
  if (starts()) {
    return InTurn(kName, [color, key](PlainLevel& now) { return now.Split(color, key); });
  }
  int64_t own_color = -1;
  int64_t own_key = 0;
  Refusing(kName, [&] {
    if (!color.is_none()) {
      own_color = std::max<int64_t>(ReadWhole(kName, "color", color), -1);
    }
    own_key = ReadWhole(kName, "key", key);
    if (own_color > kMost) {
      Throw(ERROR_INVALID_PARAM, "split: color must be from 0 to ", kMost, ", got ", own_color);
    }
    if (std::abs(own_key) > kMost) {
      Throw(ERROR_INVALID_PARAM, "split: key must be from ", -kMost, " to ", kMost, ", got ",
            own_key);
    }
  });
  std::shared_ptr<Communicator> part;
  RunWithoutGil([&] {
    COLLOPS_RETURN_IF_ERROR(
        communicator().Split(static_cast<int>(own_color), static_cast<int>(own_key), &part));
    return part == nullptr ? Ok() : part->Connect();
  });
  return part == nullptr ? py::object(py::none()) : make_part_(part);
}

py::object PlainLevel::Shrink(const py::object& exclude, double timeout_s) {
  constexpr const char* kName = "shrink";
  std::vector<int> ranks;
  if (!exclude.is_none()) {
    for (const int64_t rank : ReadRanks(kName, "exclude", exclude)) {
      constexpr int64_t kLeast = std::numeric_limits<int>::min();
      constexpr int64_t kMost = std::numeric_limits<int>::max();
      ranks.push_back(static_cast<int>(std::clamp(rank, kLeast, kMost)));
    }
  }
  std::shared_ptr<Communicator> shrunk;
  RunWithoutGil([&] { return communicator().Shrink(ranks, timeout_s, &shrunk); });
  return make_part_(shrunk);
}

py::object PlainLevel::Grow(const py::object& count, double timeout_s) {
  constexpr const char* kName = "grow";
  const UserCall number(communicator().CallOfUser());
  int64_t wanted = 0;
  Refusing(kName, [&] { wanted = ReadWhole(kName, "n", count); });
  constexpr int64_t kMost = std::numeric_limits<int>::max();
  wanted = std::clamp<int64_t>(wanted, -kMost, kMost);
  std::shared_ptr<Communicator> grown;
  RunWithoutGil([&] { return communicator().Grow(static_cast<int>(wanted), timeout_s, &grown); });
  return make_part_(grown);
}

}  // namespace collops::bindings
