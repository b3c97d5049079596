#include "collops/operators/plain/plans.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <mutex>
#include <regex>
#include <utility>

#include "collops/comm/registry.h"
#include "collops/operators/linear_parallel/operator.h"

namespace collops {

namespace {

using P = LinearParallelParam;

constexpr const char* kOperation = "LinearParallel";  // by which the ranks know the call

struct Product {
  const char* method;
  P::ParallelType type;
};

constexpr Product kProducts[] = {
    {"matmul_all_reduce", P::LINEAR_ALL_REDUCE},
    {"matmul_reduce_scatter", P::LINEAR_REDUCE_SCATTER},
    {"all_gather_matmul", P::ALL_GATHER_LINEAR},
    {"all_gather_matmul_reduce_scatter", P::ALL_GATHER_LINEAR_REDUCE_SCATTER},
};

struct Word {
  const char* of_struct;
  const char* of_method;
};

// What the struct's messages say, and what a user of the plain level knows.
constexpr Word kWords[] = {
    {"with transWeight true it", "with trans_weight=True it"},
    {"with transWeight false it is [k, n]", "it is [k, n]: for [n, k] pass trans_weight=True"},
    {"gatherRows", "gather_rows"},
    {"scatterRows", "scatter_rows"},
    {"twoDimTPInfo.agDim", "ag_dim"},
    {"agDim", "ag_dim"},
    {"rsDim", "rs_dim"},
    {"innerDimIsAg", "inner_dim_is_ag"},
    {": the output ", ": out "},
};

// Two ranks' types by the methods that have them; the struct has one that no method has.
std::string WithMethods(const std::string& text) {
  static const std::regex types(": type is (\\d) on (rank .*?) and (\\d) on ");
  std::smatch found;
  if (!std::regex_search(text, found, types)) return text;
  const auto method = [&found](size_t i) {
    const int type = std::stoi(found[i]);
    for (const Product& product : kProducts) {
      if (product.type == type) return std::string(product.method);
    }
    return Concat("type ", type);
  };
  return Concat(found.prefix().str(), ": the call is ", method(1), " on ", found[2].str(), " and ",
                method(3), " on ", found.suffix().str());
}

// Two ranks' k or n, which no argument is called, by the tensor that has them.
std::string WithTensors(const std::string& text, bool trans_weight) {
  static const std::regex sizes(": ([kn]) is (\\d+ on rank .*? and \\d+ on )");
  std::smatch found;
  if (!std::regex_search(text, found, sizes)) return text;
  const bool of_x = found[1] == "k";
  const std::string dim = of_x || !trans_weight ? " columns on " : " rows on ";
  std::string first = found[2];
  first.replace(first.find(" on "), std::strlen(" on "), dim);
  return Concat(found.prefix().str(), of_x ? ": x has k = " : ": weight has n = ", first,
                found.suffix().str());
}

std::string WithPlainWords(std::string text) {
  for (const auto& [of_struct, of_method] : kWords) {
    for (size_t at = 0; (at = text.find(of_struct, at)) != std::string::npos;) {
      text.replace(at, std::strlen(of_struct), of_method);
      at += std::strlen(of_method);
    }
  }
  return text;
}

// What a message says besides: the rows to gather, where nobody said them, and the other way to
// pass a weight that is a transposed view.
struct Hints {
  bool rows;
  bool trans_weight;
};

// The status in the words of the plain level.
Status InPlainWords(const Status& status, const char* method, const Hints& hints) {
  if (status.ok()) return status;
  const std::string begin = Concat(kOperation, ": ");
  std::string text = status.message();
  if (text.compare(0, begin.size(), begin) == 0) {
    text = Concat(method, ": ", text.substr(begin.size()));
  }
  text = WithPlainWords(WithTensors(WithMethods(text), hints.trans_weight));
  if (text.find(": weight is not contiguous: ") != std::string::npos) {
    text += Concat(", or for weight.t() pass weight itself with trans_weight=",
                   hints.trans_weight ? "False" : "True");
  }
  if (hints.rows && text.find(": gather_rows[") != std::string::npos) {
    text.insert(std::min(text.find("; this communicator has ended"), text.size()),
                ": where x has other rows on other ranks, pass gather_rows on all of them");
  }
  return Status(status.code(), text);
}

// Scratch memory that all products of this thread share, until one needs more; null where there is
// not so much.
void* Scratch(uint64_t bytes) {
  constexpr uint64_t kHugePage = uint64_t{1} << 21;  // without such pages it is only slower
  thread_local std::unique_ptr<void, void (*)(void*)> memory(nullptr, &std::free);
  thread_local uint64_t size = 0;
  if (bytes <= size) return memory.get();
  memory.reset();  // first: there may not be room for both
  size = (bytes + kHugePage - 1) / kHugePage * kHugePage;
  memory.reset(std::aligned_alloc(kHugePage, size));
  if (memory == nullptr) size = 0;
  static_cast<void>(madvise(memory.get(), size, MADV_HUGEPAGE));
  return memory.get();
}

class ProductPlan : public PlainPlan {
 public:
  ProductPlan(const char* method, const Hints& hints, std::unique_ptr<LinearParallel> product)
      : PlainPlan(method, kOperation), hints_(hints), product_(std::move(product)) {}

  Status Infer(const std::vector<TensorDesc>& inputs) {
    std::vector<TensorDesc> outputs;
    COLLOPS_RETURN_IF_ERROR(InWords(product_->InferShape(inputs, &outputs)));
    const Shape& shape = outputs[0].shape;
    output_shape_.assign(shape.dims, shape.dims + shape.num_dims);
    return Ok();
  }

  std::vector<int64_t> output_shape() const override { return output_shape_; }

  Status Check(const Communicator& /*communicator*/, const PlainTensors& tensors) const override {
    uint64_t bytes = 0;
    const std::unique_lock alone(in_use_, std::try_to_lock);
    return alone.owns_lock() ? Prepare(tensors, &bytes) : InUse();
  }

  uint64_t DeviceWorkspace(const Communicator& /*communicator*/,
                           const PlainTensors& tensors) const override {
    uint64_t bytes = 0;
    const std::unique_lock alone(in_use_, std::try_to_lock);
    return alone.owns_lock() && Prepare(tensors, &bytes).ok() ? bytes : 0;
  }

  Status Run(Communicator* communicator, const PlainTensors& tensors) const override {
    if (communicator->failed()) return communicator->Barrier();  // says why, and waits for no one
    const std::unique_lock alone(in_use_, std::try_to_lock);
    if (!alone.owns_lock()) return InUse();
    uint64_t bytes = 0;
    Status status = Prepare(tensors, &bytes);
    const bool on_cpu = communicator->device().kind == DeviceKind::kCpu;
    void* const memory = !on_cpu ? tensors.workspace : status.ok() ? Scratch(bytes) : nullptr;
    if (status.ok() && memory == nullptr && bytes > 0) {
      status = Error(ERROR_OUT_OF_HOST_MEMORY, method(), ": no memory for ", bytes,
                     " bytes of workspace");
    }
    if (status.ok()) return InWords(product_->Execute(pack_, memory, bytes, tensors.stream));
    static_cast<void>(communicator->Refuse(method(), status));
    return status;
  }

 private:
  Status InWords(const Status& status) const { return InPlainWords(status, method(), hints_); }

  // Only a call whose shapes are new is planned.
  Status Prepare(const PlainTensors& tensors, uint64_t* bytes) const {
    pack_.inputs.assign(1, tensors.x.view);
    for (const PlainTensor& tensor : tensors.others) pack_.inputs.push_back(tensor.view);
    pack_.outputs.assign(1, tensors.out.view);
    return InWords(product_->GetWorkspaceSize(pack_, bytes));
  }

  Status InUse() const {
    return Error(ERROR_INVALID_PARAM, method(),
                 ": another thread is inside this operation; one thread at a time");
  }

  const Hints hints_;
  const std::unique_ptr<LinearParallel> product_;
  mutable std::mutex in_use_;
  mutable VariantPack pack_;  // kept, so that a call allocates nothing
  std::vector<int64_t> output_shape_;
};

Status CheckGrid(const ProductSpec& spec, int rank_size) {
  COLLOPS_CHECK_ARG(spec.ag_dim >= 1 && spec.rs_dim >= 1, ERROR_INVALID_PARAM, spec.method,
                    ": ag_dim and rs_dim must be >= 1, got ", spec.ag_dim, " and ", spec.rs_dim);
  COLLOPS_CHECK_ARG(rank_size % spec.ag_dim == 0 && rank_size / spec.ag_dim == spec.rs_dim,
                    ERROR_INVALID_PARAM, spec.method, ": ag_dim ", spec.ag_dim, " times rs_dim ",
                    spec.rs_dim, " is not the ", rank_size, " ranks");
  return Ok();
}

Status CheckLength(const ProductSpec& spec, const char* label, const std::optional<Rows>& rows,
                   int64_t members) {
  COLLOPS_CHECK_ARG(!rows || static_cast<int64_t>(rows->size()) == members, ERROR_INVALID_PARAM,
                    spec.method, ": ", label, " must have length ", members,
                    ", one per rank of the group, got ", rows->size());
  return Ok();
}

// The struct of a product whose type is known.
Status FillIn(const ProductSpec& spec, int num_dims, int rank_size, P* param) {
  COLLOPS_CHECK_ARG(num_dims == 2 || num_dims == 3, ERROR_INVALID_TENSOR_DIM, spec.method,
                    ": x must be [rows, k] or [matrices, rows, k], got ", num_dims,
                    " dims: pass x.reshape(-1, x.shape[-1])");
  int64_t gathering = rank_size;
  int64_t scattering = rank_size;
  if (param->type == P::ALL_GATHER_LINEAR_REDUCE_SCATTER) {
    COLLOPS_RETURN_IF_ERROR(CheckGrid(spec, rank_size));
    gathering = spec.ag_dim;
    scattering = spec.rs_dim;
    param->twoDimTPInfo.agDim = static_cast<uint16_t>(gathering);
    param->twoDimTPInfo.rsDim = static_cast<uint16_t>(scattering);
    param->twoDimTPInfo.innerDimIsAg = spec.inner_dim_is_ag ? 1 : 0;
  }
  COLLOPS_RETURN_IF_ERROR(CheckLength(spec, "gather_rows", spec.gather_rows, gathering));
  COLLOPS_RETURN_IF_ERROR(CheckLength(spec, "scatter_rows", spec.scatter_rows, scattering));
  param->transWeight = spec.trans_weight;
  param->gatherRows = spec.gather_rows.value_or(Rows());
  param->scatterRows = spec.scatter_rows.value_or(Rows());
  return Ok();
}

}  // namespace

Status PlanProduct(const ProductSpec& spec, const std::vector<TensorDesc>& inputs,
                   std::shared_ptr<Communicator> communicator,
                   std::shared_ptr<const PlainPlan>* plan) {
  if (communicator->failed()) return communicator->Barrier();  // says why, and waits for no one
  std::shared_ptr<Communicator> live;                          // not so in the child of a fork
  COLLOPS_RETURN_IF_ERROR(Registry::Instance().FromHandle(communicator.get(), &live));
  const auto* const product =
      std::find_if(std::begin(kProducts), std::end(kProducts),
                   [&spec](const Product& row) { return spec.method == row.method; });
  COLLOPS_CHECK_ARG(product != std::end(kProducts), ERROR_INVALID_PARAM, spec.method,
                    ": no such product");
  P param;
  param.type = product->type;
  param.hasResidual = inputs.size() > 2;
  COLLOPS_RETURN_IF_ERROR(FillIn(spec, inputs[0].shape.num_dims, communicator->size(), &param));
  const bool gathers =
      param.type == P::ALL_GATHER_LINEAR || param.type == P::ALL_GATHER_LINEAR_REDUCE_SCATTER;
  auto operation = std::make_unique<LinearParallel>(param, "", spec.averages, !spec.scatter_rows);
  operation->SpeakFor(product->method);
  operation->Join(std::move(communicator));
  const Hints hints = {gathers && !spec.gather_rows, spec.trans_weight};
  auto made = std::make_shared<ProductPlan>(product->method, hints, std::move(operation));
  COLLOPS_RETURN_IF_ERROR(made->Infer(inputs));
  *plan = std::move(made);
  return Ok();
}

}  // namespace collops
