#include <utility>
#include <vector>

#include "plain/operand.h"
#include "plain/plain_level.h"
#include "status.h"

namespace collops::bindings {
namespace {

namespace py = pybind11;

std::string LibraryOf(const Operand& x) {
  if (x.made_by == Operand::kOther) return ToString(x.tensor.view.device);
  return x.made_by == Operand::kTorch ? "torch" : x.made_by == Operand::kCupy ? "CuPy" : "numpy";
}

std::string KindOf(const Operand& x) {
  const std::string dtype = x.made_by == Operand::kOther ? Name(x.tensor.view.desc.dtype)
                                                         : py::str(x.object.attr("dtype"));
  return x.made_by == Operand::kTorch ? dtype : Concat(LibraryOf(x), "'s ", dtype);
}

// Blocks may differ in `dim` alone.
void CheckBlock(const char* method, const Operand& first, const Operand& block, size_t i, int dim) {
  const bool is_like = block.made_by == first.made_by &&
                       (first.made_by == Operand::kOther
                            ? KindOf(block) == KindOf(first)
                            : block.object.attr("dtype").equal(first.object.attr("dtype")));
  if (!is_like) {
    ThrowIfError(Error(ERROR_INVALID_TENSOR_INI_MATCH, method, ": x[", i, "] must be ",
                       KindOf(first), " as x[0], got ", KindOf(block)));
  }
  Rows sizes = block.sizes;
  if (sizes.size() == first.sizes.size()) {
    sizes[static_cast<size_t>(dim)] = first.sizes[static_cast<size_t>(dim)];
  }
  if (sizes != first.sizes) {
    const auto shown = [](const Rows& rows) {
      return ToString(Shape::From(rows.data(), static_cast<int>(rows.size())));
    };
    ThrowIfError(Error(ERROR_INVALID_TENSOR_DIM, method, ": x[", i, "] has shape ",
                       shown(block.sizes), ", x[0] ", shown(first.sizes),
                       ": blocks may differ in dim ", dim, " alone"));
  }
}

}  // namespace

py::object PlainLevel::AllReduce(const py::object& x, const py::object& op, const py::object& out) {
  return ReduceScatterLike(PlainCall(PlainCall::kAllReduce), x, op, out);
}

py::object PlainLevel::ReduceScatter(const py::object& x, const py::object& op,
                                     const py::object& out) {
  return ReduceScatterLike(PlainCall(PlainCall::kReduceScatter), x, op, out);
}

// A reduction whose result every rank gets, or an equal part of it.
py::object PlainLevel::ReduceScatterLike(PlainCall call, const py::object& x, const py::object& op,
                                         const py::object& out) {
  Step step;
  py::object result;
  Refusing(call.name(), [&] {
    CallStream stream;
    call.op = ReadReduction(call.name(), op);
    const bool has_rows = call.method != PlainCall::kAllReduce;
    const py::object dim = has_rows ? py::object(py::int_(0)) : py::object();
    const Operand source = ReadX(&call, "x", x, dim, &stream);
    const std::shared_ptr<PlainCalls::Kept> kept = Plan(call);
    const Operand target = OutOf(call, "out", source, out, kept.get(), &stream);
    result = target.object;
    step = Ready(call, kept, source, target, &stream);
  });
  return Run(std::move(step), result);
}

py::object PlainLevel::Reduce(const py::object& x, const py::object& op, const py::object& root,
                              const py::object& out) {
  PlainCall call(PlainCall::kReduce);
  Step step;
  py::object result = py::none();
  Refusing(call.name(), [&] {
    CallStream stream;
    call.root = ReadWhole(call.name(), "root", root);
    call.op = ReadReduction(call.name(), op);
    const Operand source = ReadX(&call, "x", x, py::object(), &stream);
    const std::shared_ptr<PlainCalls::Kept> kept = Plan(call);
    const bool is_root = call.root == communicator().rank();
    const Operand target =
        OutOf(call, "out", source, is_root ? out : py::object(py::none()), kept.get(), &stream);
    if (is_root) result = target.object;
    step = Ready(call, kept, source, target, &stream);
  });
  return Run(std::move(step), result);
}

py::object PlainLevel::ReduceScatterV(const py::object& x, const py::object& sizes,
                                      const py::object& dim, const py::object& op,
                                      const py::object& out) {
  PlainCall call(PlainCall::kReduceScatterV);
  Step step;
  py::object result;
  Refusing(call.name(), [&] {
    CallStream stream;
    call.op = ReadReduction(call.name(), op);
    const bool of_blocks = IsList(x);
    Operand source =
        of_blocks ? JoinBlocks(&call, x, dim, &stream) : ReadX(&call, "x", x, dim, &stream);
    if (!sizes.is_none()) {
      const Rows rows = ReadSizes(call.name(), "sizes", sizes);
      if (of_blocks && rows != *call.sizes) {
        ThrowIfError(Error(ERROR_INVALID_PARAM, call.name(), ": sizes ", Repr(py::list(sizes)),
                           " are not the blocks' ", Repr(py::cast(*call.sizes))));
      }
      call.sizes = rows;
    }
    const std::shared_ptr<PlainCalls::Kept> kept = Plan(call);
    if (!of_blocks) source = ScatterSource(call, source, *kept, &stream);
    const Operand own = OutOf(call, "out", source, out, kept.get(), &stream);
    const bool copies = call.x.dim != 0 && !own.tensor.view.contiguous;
    const Operand target = copies ? StagingFor({call.name(), "out"}, own, &stream) : own;
    result = own.object;
    step = Ready(call, kept, source, target, &stream);
    if (copies) {
      step.after = [staged = target.object, result] { UnpackBlocks(staged, {result}); };
    }
  });
  return Run(std::move(step), result);
}

// One block per rank, copied one after the other into one tensor.
Operand PlainLevel::JoinBlocks(PlainCall* call, const py::object& x, const py::object& dim,
                               CallStream* stream) const {
  const char* const name = call->name();
  const std::vector<py::object> blocks = TensorsOf(name, x);
  Operand joined = ReadX(call, "x[0]", blocks[0], dim, stream);
  const auto size = static_cast<size_t>(communicator().size());
  if (blocks.size() != size) {
    ThrowIfError(Error(ERROR_INVALID_PARAM, name, ": x must have length ", size,
                       ", one block per rank, got ", blocks.size()));
  }
  const auto along = static_cast<size_t>(call->x.dim);
  const Operand first = joined;
  std::vector<py::object> parts;
  Rows rows;
  for (size_t i = 0; i < size; ++i) {
    const Operand block =
        i == 0 ? first : ReadInput({name, ItemOf("x", i).c_str()}, blocks[i], stream);
    CheckBlock(name, first, block, i, call->x.dim);
    rows.push_back(block.sizes[along]);
    parts.push_back(block.object);
  }
  if (first.made_by == Operand::kOther) RefuseCopy({name, "x"}, first);
  call->x.sizes[along] = SumOf(rows);
  call->sizes = std::move(rows);
  int64_t elements = 1;
  for (const int64_t length : call->x.sizes) elements *= length;
  const py::object packed = MakeLike(name, first, {elements});
  PackBlocks(parts, packed);
  joined = ReadInput({name, "x"}, packed, stream);
  joined.tensor.view.desc.shape =
      Shape::From(call->x.sizes.data(), static_cast<int>(call->x.sizes.size()));
  return joined;
}

// x itself, or one copy in which the ranks' blocks lie one after the other.
Operand PlainLevel::ScatterSource(const PlainCall& call, const Operand& x,
                                  const PlainCalls::Kept& kept, CallStream* stream) const {
  const bool is_ready = IsInOrder(call.x, communicator().size()) && x.tensor.view.contiguous;
  if (call.x.dim == 0 || is_ready) return x;
  if (x.made_by == Operand::kOther) RefuseCopy({call.name(), "x"}, x);
  const py::object packed = MakeLike(call.name(), x, {x.tensor.numel});
  PackBlocks(BlocksOf(x.object, kept.rows, call.x.dim), packed);
  Operand source = ReadInput({call.name(), "x"}, packed, stream);
  source.tensor.view.desc.shape = x.tensor.view.desc.shape;
  return source;
}

}  // namespace collops::bindings
