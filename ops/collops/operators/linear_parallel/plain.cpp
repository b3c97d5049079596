#include "collops/operators/plain/plans.h"

#include <limits>
#include <mutex>
#include <utility>
#include <vector>

#include "collops/comm/registry.h"
#include "collops/operators/linear_parallel/operator.h"

namespace collops {

namespace {

using P = LinearParallelParam;

constexpr const char* kOperation = "LinearParallel";  // by which the ranks know the call

P::ParallelType TypeOf(PlainCall::Method method) {
  if (method == PlainCall::kMatmulAllReduce) return P::LINEAR_ALL_REDUCE;
  if (method == PlainCall::kMatmulReduceScatter) return P::LINEAR_REDUCE_SCATTER;
  if (method == PlainCall::kAllGatherMatmul) return P::ALL_GATHER_LINEAR;
  return method == PlainCall::kMatmul ? P::PURE_LINEAR : P::ALL_GATHER_LINEAR_REDUCE_SCATTER;
}

class ProductPlan : public PlainPlan {
 public:
  ProductPlan(const char* method, const LinearSettings& settings,
              std::shared_ptr<Communicator> communicator)
      : PlainPlan(method, kOperation),
        settings_(settings),
        communicator_(std::move(communicator)) {}

  Status Infer(const std::vector<TensorDesc>& inputs) {
    std::vector<TensorDesc> outputs;
    COLLOPS_RETURN_IF_ERROR(Taken(*this)->operation.InferShape(inputs, &outputs));
    const Shape& shape = outputs[0].shape;
    output_shape_.assign(shape.dims, shape.dims + shape.num_dims);
    if (outputs[0].dtype != inputs[0].dtype) output_dtype_ = outputs[0].dtype;
    return Ok();
  }

  std::vector<int64_t> output_shape() const override { return output_shape_; }
  DType output_dtype() const override { return output_dtype_; }

  Status Check(const Communicator& /*communicator*/, const PlainTensors& tensors) const override {
    uint64_t bytes = 0;
    return Taken(*this)->Prepare(tensors, &bytes);
  }

  uint64_t DeviceWorkspace(const Communicator& /*communicator*/,
                           const PlainTensors& tensors) const override {
    uint64_t bytes = 0;
    return Taken(*this)->Prepare(tensors, &bytes).ok() ? bytes : 0;
  }

  Status Run(Communicator* communicator, const PlainTensors& tensors) const override {
    if (communicator->failed()) return communicator->Barrier();  // says why, and waits for no one
    const Taken product(*this);
    uint64_t bytes = 0;
    Status status = product->Prepare(tensors, &bytes);
    const bool on_cpu = communicator->device().kind == DeviceKind::kCpu;
    void* const memory = !on_cpu ? tensors.workspace : status.ok() ? PlainScratch(bytes) : nullptr;
    if (status.ok() && memory == nullptr && bytes > 0) {
      status = Error(ERROR_OUT_OF_HOST_MEMORY, method(), ": no memory for ", bytes,
                     " bytes of workspace");
    }
    if (status.ok())
      return product->operation.Execute(product->pack, memory, bytes, tensors.stream);
    // Nobody waits in a product of this rank alone.
    if (settings_.param.type == P::PURE_LINEAR) return status;
    static_cast<void>(communicator->Refuse(method(), status));
    return status;
  }

 private:
  // An operation, which one call at a time may use, and the tensors of that call.
  struct Product {
    explicit Product(const LinearSettings& settings) : operation(settings) {}

    // Only a call whose shapes are new is planned.
    Status Prepare(const PlainTensors& tensors, uint64_t* bytes) {
      pack.inputs.assign(1, tensors.x.view);
      for (const PlainTensor& tensor : tensors.others) pack.inputs.push_back(tensor.view);
      pack.outputs.assign(1, tensors.out.view);
      return operation.GetWorkspaceSize(pack, bytes);
    }

    LinearParallel operation;
    VariantPack pack;  // kept, so that a call allocates nothing
  };

  // A product for one use. A started call may be inside one when the next call of the same shapes
  // comes, or is checked: that takes another one.
  class Taken {
   public:
    explicit Taken(const ProductPlan& from) : from_(from) {
      const std::lock_guard lock(from_.mutex_);
      if (from_.idle_.empty()) {
        product_ = std::make_unique<Product>(from_.settings_);
        product_->operation.Join(from_.communicator_);
        return;
      }
      product_ = std::move(from_.idle_.back());
      from_.idle_.pop_back();
    }
    ~Taken() {
      const std::lock_guard lock(from_.mutex_);
      from_.idle_.push_back(std::move(product_));
    }
    Taken(const Taken&) = delete;
    Taken& operator=(const Taken&) = delete;

    Product* operator->() const { return product_.get(); }

   private:
    const ProductPlan& from_;
    std::unique_ptr<Product> product_;
  };

  const LinearSettings settings_;
  const std::shared_ptr<Communicator> communicator_;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Product>> idle_;
  std::vector<int64_t> output_shape_;
  DType output_dtype_ = DType::kUndefined;
};

Status CheckGrid(const PlainCall& call, int rank_size) {
  const ProductSpec& spec = call.product;
  COLLOPS_CHECK_ARG(spec.ag_dim >= 1 && spec.rs_dim >= 1, ERROR_INVALID_PARAM, call.name(),
                    ": ag_dim and rs_dim must be >= 1, got ", spec.ag_dim, " and ", spec.rs_dim);
  COLLOPS_CHECK_ARG(rank_size % spec.ag_dim == 0 && rank_size / spec.ag_dim == spec.rs_dim,
                    ERROR_INVALID_PARAM, call.name(), ": ag_dim ", spec.ag_dim, " times rs_dim ",
                    spec.rs_dim, " is not the ", rank_size, " ranks");
  return Ok();
}

bool HasOneList(const PlainCall& call) {
  return call.method != PlainCall::kAllGatherMatmulReduceScatter;
}

Status CheckLength(const PlainCall& call, const char* label, const std::optional<Rows>& rows,
                   int64_t members) {
  COLLOPS_CHECK_ARG(!rows || static_cast<int64_t>(rows->size()) == members, ERROR_INVALID_PARAM,
                    call.name(), ": ", label, " must have length ", members,
                    ", one per rank of the group, got ", rows->size());
  return Ok();
}

// Numbers of int8 have a scale, and only they.
Status FindQuantType(const PlainCall& call, P* param) {
  const ProductSpec& spec = call.product;
  const DType x = call.inputs[0].dtype;
  const DType weight = call.inputs[1].dtype;
  const bool is_int8 = weight == DType::kInt8;
  COLLOPS_CHECK_ARG(is_int8 || x != DType::kInt8, ERROR_INVALID_TENSOR_INI_MATCH, call.name(),
                    ": x is int8 but weight is ", Name(weight),
                    ": both or the weight alone may be");
  COLLOPS_CHECK_ARG(
      is_int8 == spec.has_scale, ERROR_INVALID_PARAM, call.name(),
      is_int8 ? ": weight is int8: pass its scale=" : ": scale= is for a weight of int8, got ",
      is_int8 ? "" : Name(weight));
  COLLOPS_CHECK_ARG(spec.group_size >= 0 && spec.group_size <= std::numeric_limits<int32_t>::max(),
                    ERROR_INVALID_PARAM, call.name(),
                    ": group_size must be >= 0 and fit into an int32, got ", spec.group_size);
  if (!spec.has_scale) return Ok();
  const Shape& scale = call.inputs[3].shape;
  param->quantType = P::QUANT_TYPE_PER_CHANNEL;
  if (scale.num_dims > 0 && scale[scale.num_dims - 1] == 1) {
    param->quantType = P::QUANT_TYPE_PER_TENSOR;
  }
  if (spec.group_size > 0) param->quantType = P::QUANT_TYPE_PER_GROUP;
  param->quantGroupSize = static_cast<int32_t>(spec.group_size);
  return Ok();
}

// The struct of a product.
Status FillIn(const PlainCall& call, int rank_size, P* param) {
  const ProductSpec& spec = call.product;
  const int num_dims = call.inputs[0].shape.num_dims;
  param->type = TypeOf(call.method);
  param->hasResidual = spec.has_residual;
  param->outDataType = spec.out_dtype;
  COLLOPS_RETURN_IF_ERROR(FindQuantType(call, param));
  COLLOPS_CHECK_ARG(num_dims == 2 || num_dims == 3, ERROR_INVALID_TENSOR_DIM, call.name(),
                    ": x must be [rows, k] or [matrices, rows, k], got ", num_dims,
                    " dims: pass x.reshape(-1, x.shape[-1])");
  int64_t gathering = rank_size;
  int64_t scattering = rank_size;
  if (param->type == P::ALL_GATHER_LINEAR_REDUCE_SCATTER) {
    COLLOPS_RETURN_IF_ERROR(CheckGrid(call, rank_size));
    gathering = spec.ag_dim;
    scattering = spec.rs_dim;
    param->twoDimTPInfo.agDim = static_cast<uint16_t>(gathering);
    param->twoDimTPInfo.rsDim = static_cast<uint16_t>(scattering);
    param->twoDimTPInfo.innerDimIsAg = spec.inner_dim_is_ag ? 1 : 0;
  }
  LinearVoice voice;
  voice.method = call.name();
  voice.has_one_list = HasOneList(call);
  COLLOPS_RETURN_IF_ERROR(CheckLength(call, voice.gather_rows(), spec.gather_rows, gathering));
  COLLOPS_RETURN_IF_ERROR(CheckLength(call, voice.scatter_rows(), spec.scatter_rows, scattering));
  param->transWeight = spec.trans_weight;
  param->gatherRows = spec.gather_rows.value_or(Rows());
  param->scatterRows = spec.scatter_rows.value_or(Rows());
  COLLOPS_CHECK_ARG(spec.leaves >= 0 && spec.leaves <= kernels::kMostLeaves, ERROR_INVALID_PARAM,
                    call.name(), ": leaves must be in [0, ", kernels::kMostLeaves, "], got ",
                    spec.leaves);
  COLLOPS_CHECK_ARG(spec.leaves > 0 || !spec.sum_columns, ERROR_INVALID_PARAM, call.name(),
                    ": sum_columns is for leaves > 0");
  param->sumLeaves = static_cast<int32_t>(spec.leaves);
  param->sumColumns = spec.sum_columns.value_or(Rows());
  return Ok();
}

}  // namespace

Status CheckGathering(const PlainCall& call, const Communicator& group) {
  return HasOneList(call) ? Ok() : CheckGrid(call, group.size());
}

Rows RowsToGather(const PlainCall& call, int rank, const Rows& all) {
  if (HasOneList(call)) return all;
  const ProductSpec& spec = call.product;
  const int64_t first =
      spec.inner_dim_is_ag ? rank / spec.ag_dim * spec.ag_dim : rank % spec.rs_dim;
  const int64_t step = spec.inner_dim_is_ag ? 1 : spec.rs_dim;
  Rows rows;
  for (int64_t i = 0; i < spec.ag_dim; ++i) {
    rows.push_back(all[static_cast<size_t>(first + i * step)]);
  }
  return rows;
}

Status PlanProduct(const PlainCall& call, std::shared_ptr<Communicator> communicator,
                   PlanPointer* plan) {
  const ProductSpec& spec = call.product;
  if (communicator->failed()) return communicator->Barrier();  // says why, and waits for no one
  std::shared_ptr<Communicator> live;                          // not so in the child of a fork
  COLLOPS_RETURN_IF_ERROR(Registry::Instance().FromHandle(communicator.get(), &live));
  P param;
  COLLOPS_RETURN_IF_ERROR(FillIn(call, communicator->size(), &param));
  LinearSettings settings = param;
  settings.averages = spec.averages;
  settings.scales_tokens = spec.has_x_scale;
  settings.splits_unevenly = !spec.scatter_rows;
  settings.voice.method = call.name();
  settings.voice.has_one_list = HasOneList(call);
  auto made = std::make_shared<ProductPlan>(call.name(), settings, std::move(communicator));
  COLLOPS_RETURN_IF_ERROR(made->Infer(call.inputs));
  *plan = std::move(made);
  return Ok();
}

}  // namespace collops
