// all_to_all_matmul and matmul_all_to_all of the plain level, on the CPU: one exchange before or
// after a product of this rank alone.
#include <algorithm>
#include <memory>
#include <utility>

#include "collops/kernels/reduce/reduce.h"
#include "collops/kernels/rows.h"
#include "collops/operators/linear_parallel/product.h"
#include "collops/operators/plain/plans.h"

namespace collops {
namespace {

using kernels::GemmPlan;

// What is known of a call by the shapes of its tensors.
struct ExchangedShapes {
  bool exchanges_first = true;  // rows of x; else columns of the product
  int rank_size = 1;
  DType dtype = DType::kUndefined;
  bool has_residual = false;
  int64_t x_rows = 0;
  int64_t x_columns = 0;
  int64_t k = 0;  // of the product
  int64_t n = 0;
  int64_t product_rows = 0;
  int64_t out_rows = 0;
  int64_t out_columns = 0;

  // What goes to each rank, and comes from each.
  int64_t block() const {
    return exchanges_first ? product_rows * x_columns : x_rows * out_columns;
  }
  // Products are sent unrounded where something is still to be added to them.
  DType moved_dtype() const { return !exchanges_first && has_residual ? DType::kFloat32 : dtype; }
};

Status CheckSame(const char* name, const char* label, const TensorDesc& x,
                 const TensorDesc& other) {
  COLLOPS_CHECK_ARG(other.dtype == x.dtype, ERROR_INVALID_TENSOR_INI_MATCH, name, ": ", label,
                    " must be ", NameOfType(x), " as x, got ", NameOfType(other));
  return Ok();
}

Status FindShapes(const PlainCall& call, const Communicator& group, ExchangedShapes* found) {
  const char* const name = call.name();
  const int rank_size = group.size();
  const TensorDesc& x = call.inputs[0];
  const TensorDesc& weight = call.inputs[1];
  const bool trans = call.product.trans_weight;
  COLLOPS_CHECK_ARG(group.device().kind == DeviceKind::kCpu, ERROR_UNSUPPORTED, name, ": backend ",
                    group.spec().backend,
                    " does not run it: use shm or ucx, and tensors of the CPU");
  COLLOPS_CHECK_ARG(x.dtype != DType::kInt8 && kernels::CanMultiply(x.dtype),
                    ERROR_INVALID_TENSOR_INI_MATCH, name, ": x is ", NameOfType(x),
                    "; pass one of float32, float16, bfloat16");
  COLLOPS_RETURN_IF_ERROR(CheckSame(name, "weight", x, weight));
  COLLOPS_CHECK_ARG(x.shape.num_dims == 2 && weight.shape.num_dims == 2, ERROR_INVALID_TENSOR_DIM,
                    name, ": x and weight must have 2 dims, got ", ToString(x.shape), " and ",
                    ToString(weight.shape));
  ExchangedShapes& shapes = *found;
  shapes.exchanges_first = call.method == PlainCall::kAllToAllMatmul;
  shapes.rank_size = rank_size;
  shapes.dtype = x.dtype;
  shapes.x_rows = x.shape[0];
  shapes.x_columns = x.shape[1];
  shapes.k = weight.shape[trans ? 1 : 0];
  shapes.n = weight.shape[trans ? 0 : 1];
  const int64_t joined = shapes.exchanges_first ? rank_size : 1;
  COLLOPS_CHECK_ARG(shapes.k > 0 && shapes.n > 0 && shapes.k % joined == 0 &&
                        shapes.k / joined == shapes.x_columns,
                    ERROR_INVALID_TENSOR_DIM, name, ": weight must be ",
                    trans ? "[n, k] with k = " : "[k, n] with k = ", joined, " * ",
                    shapes.x_columns, " columns of x, got ", ToString(weight.shape));
  const int64_t shared = shapes.exchanges_first ? shapes.x_rows : shapes.n;
  COLLOPS_CHECK_ARG(shared % rank_size == 0, ERROR_INVALID_TENSOR_DIM, name, ": ",
                    shapes.exchanges_first ? "rows of x" : "n of the weight",
                    " must be a multiple of the ", rank_size, " ranks, got ", shared);
  shapes.product_rows = shapes.exchanges_first ? shared / rank_size : shapes.x_rows;
  shapes.out_columns = shapes.exchanges_first ? shapes.n : shared / rank_size;
  shapes.out_rows = shapes.exchanges_first ? shapes.product_rows : rank_size * shapes.x_rows;
  shapes.has_residual = call.inputs.size() > 2;
  if (!shapes.has_residual) return Ok();
  const TensorDesc& residual = call.inputs[2];
  COLLOPS_RETURN_IF_ERROR(CheckSame(name, "residual", x, residual));
  return CheckResidualShape(name, shapes.out_columns, residual.shape);
}

class ExchangedProduct : public PlainPlan {
 public:
  ExchangedProduct(const PlainCall& call, const Communicator& group, const ExchangedShapes& shapes)
      : PlainPlan(call.name(), call.operation()),
        shapes_(shapes),
        gemm_(kernels::PlanGemm(shapes.dtype, shapes.k, shapes.n, call.product.trans_weight)),
        blocks_(static_cast<size_t>(shapes.rank_size), shapes.block()),
        agreement_(call.operation()) {
    for (int q = 0; q < shapes.rank_size; ++q) displs_.push_back(q * shapes.block());
    rows_at_once_ = std::min(shapes.product_rows, kMostRowsAtOnce);
    const int64_t whole =
        shapes.block() * shapes.rank_size * static_cast<int64_t>(SizeOf(shapes.moved_dtype()));
    Places places(kernels::kGemmAlignment);
    first_ = places.Take(whole);
    second_ = places.Take(shapes.exchanges_first || shapes.has_residual ? whole : 0);
    panels_ = places.Take(kernels::PackedRowsBytes(gemm_, rows_at_once_));
    weight_block_ = places.Take(kernels::WeightBlockBytes(gemm_));
    tile_ = places.Take(rows_at_once_ * gemm_.StripColumns(0) * int64_t{sizeof(float)});
    bytes_ = places.bytes();
    agreement_.EqualText("dtype", Name(shapes.dtype)).Equal("the number of rows", shapes.x_rows);
    if (shapes.exchanges_first) {
      agreement_.Equal("the number of columns", shapes.x_columns);
    } else {
      agreement_.Equal("n of the weight", shapes.n)
          .EqualText("residual", shapes.has_residual ? "given" : "None");
    }
    agreement_
        .Pairwise("send_sizes", blocks_.data(), "recv_sizes", blocks_.data(), group.rank(),
                  shapes.rank_size)
        .InPlainWords(method(), 1);
  }

  std::vector<int64_t> output_shape() const override {
    return {shapes_.out_rows, shapes_.out_columns};
  }

  Status Check(const Communicator& communicator, const PlainTensors& tensors) const override {
    const Device device = communicator.device();
    const Shape out{shapes_.out_rows, shapes_.out_columns};
    COLLOPS_CHECK_ARG(tensors.out.view.desc.shape == out, ERROR_INVALID_TENSOR_DIM, method(),
                      ": out must have shape ", ToString(out), ", got ",
                      ToString(tensors.out.view.desc.shape));
    COLLOPS_RETURN_IF_ERROR(CheckPair(tensors, method(), shapes_.x_rows * shapes_.x_columns,
                                      shapes_.out_rows * shapes_.out_columns, device));
    for (const PlainTensor& other : tensors.others) {
      const char* const label = &other == tensors.others.data() ? "weight" : "residual";
      COLLOPS_RETURN_IF_ERROR(CheckWhole(other, method(), label, other.numel, device));
      COLLOPS_CHECK_ARG(!Overlap(other.view.data, NumBytes(other.view.desc), tensors.out.view.data,
                                 NumBytes(tensors.out.view.desc)),
                        ERROR_INVALID_TENSOR_ADDR, method(), ": out overlaps ", label,
                        " in memory: give it memory of its own");
    }
    COLLOPS_RETURN_IF_ERROR(CheckApart(tensors, method(), std::nullopt, ""));
    return communicator.Supports(Primitive::kExchange, shapes_.moved_dtype(), ReduceOp::kSum);
  }

  Status Run(Communicator* communicator, const PlainTensors& tensors) const override {
    Status status = Check(*communicator, tensors);
    auto* const memory = status.ok()
                             ? static_cast<std::byte*>(PlainScratch(static_cast<uint64_t>(bytes_)))
                             : nullptr;
    if (status.ok() && memory == nullptr) {
      status = Error(ERROR_OUT_OF_HOST_MEMORY, method(), ": no memory for ", bytes_,
                     " bytes of workspace");
    }
    if (!status.ok()) {
      static_cast<void>(communicator->Refuse(method(), status));
      return status;
    }
    return shapes_.exchanges_first ? ExchangeAndMultiply(communicator, tensors, memory)
                                   : MultiplyAndExchange(communicator, tensors, memory);
  }

 private:
  Status Exchange(Communicator* communicator, const void* x, void* output) const {
    ExchangeVCall call;
    call.agreement = &agreement_;
    call.dtype = shapes_.moved_dtype();
    call.x = x;
    call.send_counts = blocks_.data();
    call.sdispls = displs_.data();
    call.output = output;
    call.recv_counts = blocks_.data();
    call.rdispls = displs_.data();
    return communicator->ExchangeV(call);
  }

  Status ExchangeAndMultiply(Communicator* communicator, const PlainTensors& tensors,
                             std::byte* memory) const {
    COLLOPS_RETURN_IF_ERROR(Exchange(communicator, tensors.x.view.data, memory + first_));
    void* const joined =
        tensors.rows.view.data != nullptr ? tensors.rows.view.data : memory + second_;
    std::vector<kernels::RowRange> parts;
    for (int q = 0; q < shapes_.rank_size; ++q) {
      for (int64_t row = 0; row < shapes_.product_rows; ++row) {
        parts.push_back({row * shapes_.rank_size + q, q * shapes_.product_rows + row, 1});
      }
    }
    kernels::CopyRows(parts, memory + first_, shapes_.x_columns * SizeOf(shapes_.dtype), joined,
                      nullptr);
    Multiply(joined, tensors.others[0].view.data, memory,
             [&](int64_t first, int64_t rows, int64_t begin, int64_t columns, const float* tile) {
               Store(&tile, columns, shapes_.dtype, Residual(tensors), begin, rows, columns,
                     tensors.out.view.data, first * shapes_.n + begin, shapes_.n);
             });
    return Ok();
  }

  Status MultiplyAndExchange(Communicator* communicator, const PlainTensors& tensors,
                             std::byte* memory) const {
    const DType moved = shapes_.moved_dtype();
    const int64_t width = shapes_.out_columns;
    Multiply(tensors.x.view.data, tensors.others[0].view.data, memory,
             [&](int64_t first, int64_t rows, int64_t begin, int64_t columns, const float* tile) {
               // Of the strip, the columns of each rank that has some.
               for (int64_t at = begin; at < begin + columns;) {
                 const int64_t rank = at / width;
                 const int64_t end = std::min(begin + columns, (rank + 1) * width);
                 const float* const part = tile + (at - begin);
                 Store(&part, columns, moved, nullptr, 0, rows, end - at, memory + first_,
                       rank * shapes_.block() + first * width + at - rank * width, width);
                 at = end;
               }
             });
    if (!shapes_.has_residual)
      return Exchange(communicator, memory + first_, tensors.out.view.data);
    COLLOPS_RETURN_IF_ERROR(Exchange(communicator, memory + first_, memory + second_));
    const auto* const sums = reinterpret_cast<const float*>(memory + second_);
    Store(&sums, width, shapes_.dtype, Residual(tensors), 0, shapes_.out_rows, width,
          tensors.out.view.data, 0, width);
    return Ok();
  }

  const void* Residual(const PlainTensors& tensors) const {
    return shapes_.has_residual ? tensors.others[1].view.data : nullptr;
  }

  // StoreSum() of one tile into `out`, from its element `at` on; the residual from `begin` on.
  static void Store(const float* const* tile, int64_t ld_tile, DType dtype, const void* residual,
                    int64_t begin, int64_t rows, int64_t columns, void* out, int64_t at,
                    int64_t ld_out) {
    const auto* const added = static_cast<const std::byte*>(residual);
    kernels::StoreSum(dtype, tile, 1, ld_tile,
                      added == nullptr ? nullptr : added + begin * SizeOf(dtype), rows, columns,
                      static_cast<std::byte*>(out) + at * SizeOf(dtype), ld_out);
  }

  // Calls store(first row, rows, first column, columns, tile) for each strip of some rows of the
  // product, whose rows lie `columns` floats apart.
  template <typename StoreStrip>
  void Multiply(const void* x, const void* weight, std::byte* memory,
                const StoreStrip& store) const {
    auto* const tile = reinterpret_cast<float*>(memory + tile_);
    for (int64_t first = 0; first < shapes_.product_rows; first += rows_at_once_) {
      const int64_t rows = std::min(rows_at_once_, shapes_.product_rows - first);
      const auto* const from =
          static_cast<const std::byte*>(x) + first * gemm_.k * SizeOf(gemm_.dtype);
      kernels::PackRows(gemm_, from, gemm_.k, 0, rows, 0, gemm_.k, rows, memory + panels_);
      for (int64_t strip = 0; strip < gemm_.num_strips(); ++strip) {
        MultiplyStrip(gemm_, memory + panels_, rows, weight, strip, memory + weight_block_, tile);
        store(first, rows, gemm_.StripBegin(strip), gemm_.StripColumns(strip), tile);
      }
    }
  }

  const ExchangedShapes shapes_;
  const GemmPlan gemm_;
  const Rows blocks_;  // elements for each rank, and from each
  Rows displs_;
  int64_t rows_at_once_ = 0;
  int64_t bytes_ = 0;   // of scratch memory; the next are places in it
  int64_t first_ = 0;   // what has arrived by ranks, or products that wait to be sent
  int64_t second_ = 0;  // what has arrived in the order of rows, or products to be added to
  int64_t panels_ = 0;
  int64_t weight_block_ = 0;
  int64_t tile_ = 0;
  Agreement agreement_;
};

}  // namespace

Status PlanExchangedProduct(const PlainCall& call, const Communicator& group, PlanPointer* plan) {
  ExchangedShapes shapes;
  COLLOPS_RETURN_IF_ERROR(FindShapes(call, group, &shapes));
  *plan = std::make_shared<ExchangedProduct>(call, group, shapes);
  return Ok();
}

}  // namespace collops
