#include "collops/operators/plain/plain_calls.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <utility>

namespace collops {
namespace {

struct MethodNames {
  const char* name;
  const char* operation;
  const char* asking_name = "";
  const char* asking_operation = "";
};

// In the order of PlainCall::Method.
constexpr MethodNames kMethods[] = {
    {"all_gather", "AllGather"},
    {"all_gatherv", "AllGatherV", "all_gatherv without sizes", "AllGatherV without sizes"},
    {"all_reduce", "AllReduce"},
    {"all_to_allv", "AllToAllV", "all_to_allv without sizes", "AllToAllV without sizes"},
    {"broadcast", "Broadcast"},
    {"gatherv", "GatherV", "gatherv without sizes", "GatherV without sizes"},
    {"reduce", "Reduce"},
    {"reduce_scatter", "ReduceScatter"},
    {"reduce_scatterv", "ReduceScatterV"},
    {"scatterv", "ScatterV", "scatterv's rows", "ScatterV's rows"},
    {"all_reduce", "AllReduce of partials", "all_reduce's leaves", "AllReduce's leaves"},
    {"reduce_scatterv", "ReduceScatterV of partials", "reduce_scatterv's leaves",
     "ReduceScatterV's leaves"},
    {"all_gather_matmul", "LinearParallel", "all_gather_matmul without sizes",
     "LinearParallel without gatherRows"},
    {"matmul_reduce_scatter", "LinearParallel"},
    {"matmul_all_reduce", "LinearParallel"},
    {"all_gather_matmul_reduce_scatter", "LinearParallel",
     "all_gather_matmul_reduce_scatter without gather_rows", "LinearParallel without gatherRows"},
    {"matmul", "LinearParallel"},
    {"all_to_allv_grouped_matmul", "AllToAllVGroupedMatmul", "all_to_allv_grouped_matmul asks",
     "AllToAllVGroupedMatmul without recv_sizes"},
    {"grouped_matmul_all_to_allv", "GroupedMatmulAllToAllV", "grouped_matmul_all_to_allv asks",
     "GroupedMatmulAllToAllV without recv_sizes"},
    {"all_to_all_matmul", "AllToAllMatmul"},
    {"matmul_all_to_all", "MatmulAllToAll"},
};

// Numbers by which calls with one plan are found again.
class KeyWords {
 public:
  explicit KeyWords(std::vector<int64_t>* words) : words_(words) { words_->clear(); }

  void Add(int64_t number) { words_->push_back(number); }
  void Add(const Rows& list) {
    Add(static_cast<int64_t>(list.size()));
    words_->insert(words_->end(), list.begin(), list.end());
  }
  void Add(const std::optional<Rows>& list) {
    Add(list.has_value() ? 1 : 0);
    if (list) Add(*list);
  }
  void Add(const std::string& text) {
    Add(static_cast<int64_t>(text.size()));
    for (size_t i = 0; i < text.size(); i += sizeof(int64_t)) {
      int64_t word = 0;
      std::memcpy(&word, text.data() + i, std::min(sizeof(word), text.size() - i));
      Add(word);
    }
  }
  void Add(const TensorDesc& desc) {
    Add(static_cast<int64_t>(desc.dtype));
    Add(static_cast<int64_t>(desc.format));
    Add(desc.shape.num_dims);
    for (int i = 0; i < std::min(desc.shape.num_dims, kMaxDims); ++i) Add(desc.shape[i]);
  }

 private:
  std::vector<int64_t>* words_;
};

void AddKeyOf(const PlainCall& call, KeyWords* key) {
  key->Add(static_cast<int64_t>(call.method));
  key->Add(static_cast<int64_t>(call.dtype));
  key->Add(static_cast<int64_t>(call.device.kind));
  key->Add(call.device.index);
  key->Add(call.x.dim);
  key->Add(call.x.sizes);
  key->Add(call.x.type);
  key->Add(call.sizes);
  key->Add(call.receives);
  key->Add(call.root);
  key->Add(static_cast<int64_t>(call.op));
  key->Add(call.num_tensors);
  key->Add(call.leaves);
  key->Add(call.leaf_begins);
  if (call.inputs.empty()) return;
  for (const TensorDesc& input : call.inputs) key->Add(input);
  const ProductSpec& product = call.product;
  key->Add(product.ag_dim);
  key->Add(product.rs_dim);
  key->Add(product.inner_dim_is_ag ? 1 : 0);
  key->Add(product.gather_rows);
  key->Add(product.scatter_rows);
  key->Add(product.leaves);
  key->Add(product.sum_columns);
  key->Add(product.trans_weight ? 1 : 0);
  key->Add(product.averages ? 1 : 0);
  key->Add(product.has_scale ? 1 : 0);
  key->Add(product.has_residual ? 1 : 0);
  key->Add(product.group_size);
  key->Add(static_cast<int64_t>(product.out_dtype));
}

Status CheckBeforeAsking(const PlainCall& call, const Communicator& group) {
  const int rank = group.rank();
  const int rank_size = group.size();
  if (call.is_grouped()) return CheckGrouped(call, group);
  if (PlainCall::GathersRows(call.method)) return CheckGathering(call, group);
  const char* const name = call.name();
  const bool sends = call.method == PlainCall::kAllToAllV;
  if (call.method == PlainCall::kGatherV || call.method == PlainCall::kScatterV) {
    COLLOPS_RETURN_IF_ERROR(CheckRoot(name, call.root, rank_size));
  }
  if (!sends && (call.method != PlainCall::kScatterV || !call.sizes)) return Ok();
  const char* const label = sends ? "send_sizes" : "sizes";
  COLLOPS_RETURN_IF_ERROR(CheckSizes(name, label, *call.sizes, rank_size));
  return sends || rank == call.root ? CheckSum(name, label, *call.sizes, call.x) : Ok();
}

// x's sizes with other rows.
Rows WithRows(const RowShape& x, int64_t rows) {
  Rows sizes = x.sizes;
  sizes[static_cast<size_t>(x.dim)] = rows;
  return sizes;
}

}  // namespace

const char* PlainCall::name() const {
  return kMethods[method].name;
}
const char* PlainCall::operation() const {
  return kMethods[method].operation;
}
const char* PlainCall::asking_name() const {
  return kMethods[method].asking_name;
}
const char* PlainCall::asking_operation() const {
  return kMethods[method].asking_operation;
}

Status PlainCall::Normalise(const char* label) {
  const auto num_dims = static_cast<int>(x.sizes.size());
  COLLOPS_CHECK_ARG(num_dims > 0, ERROR_INVALID_TENSOR_DIM_NUM, name(), ": ", label,
                    " has 0 dims, it needs at least 1: pass ", label, ".reshape(1)");
  COLLOPS_CHECK_ARG(-num_dims <= x.dim && x.dim < num_dims, ERROR_INVALID_PARAM, name(),
                    ": dim must be from ", -num_dims, " to ", num_dims - 1, " for the ", num_dims,
                    " dims of ", label, ", got ", x.dim);
  if (x.dim < 0) x.dim += num_dims;
  return Ok();
}

// What the ranks agree on before they tell each other their rows: how many tensors, and of each the
// element type and the other sizes.
class PlainCalls::Question {
 public:
  explicit Question(const std::vector<const PlainCall*>& tensors) {
    const PlainCall& first = *tensors[0];
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (i % kTensorsAtOnce == 0) {
        agreements_.emplace_back(first.asking_operation());
        agreements_.back().Equal("the number of tensors", static_cast<int64_t>(tensors.size()));
        agreements_.back().Equal("dim", first.x.dim);
        if (first.is_grouped()) agreements_.back().Equal("experts of a rank", first.experts());
        agreements_.back().InPlainWords(first.asking_name(), 1);
      }
      // The product compares the rest, of the ranks that it concerns.
      if (PlainCall::GathersRows(first.method)) continue;
      AddTensor(tensors.size() == 1 ? "x" : Concat("x[", i, "]"), first.x.dim, *tensors[i]);
    }
  }

  Status Run(Communicator* communicator, const Rows& mine, Rows* all) const {
    all->resize(mine.size() * static_cast<size_t>(communicator->size()));
    const auto bytes = static_cast<int64_t>(mine.size() * sizeof(int64_t));
    for (const Agreement& agreement : agreements_) {
      COLLOPS_RETURN_IF_ERROR(communicator->Share(agreement, mine.data(), bytes, all->data()));
    }
    return Ok();
  }

 private:
  static constexpr size_t kTensorsAtOnce = 2;  // what one agreement has room for

  const char* Lasting(std::string name) { return names_.emplace_back(std::move(name)).c_str(); }

  void AddTensor(const std::string& label, int dim, const PlainCall& tensor) {
    Agreement& agreement = agreements_.back();
    const RowShape& x = tensor.x;
    Rows sizes = x.sizes;
    sizes.erase(sizes.begin() + x.dim);
    agreement.EqualText(Lasting(Concat(label, "'s dtype")),
                        x.type.empty() ? Name(tensor.dtype) : x.type.c_str());
    Shape shape;
    shape.num_dims = static_cast<int>(std::min<size_t>(sizes.size(), kMaxDims));
    std::copy_n(sizes.begin(), shape.num_dims, shape.dims);
    agreement.EqualShape(
        Lasting(Concat(label, "'s shape ", dim == 0 ? "after" : "without", " dim ", dim)), shape);
    agreement.Equal(Lasting(Concat(label, "'s number of dims")),
                    static_cast<int64_t>(sizes.size()) + 1);
    uint64_t further = 0;
    for (size_t i = kMaxDims; i < sizes.size(); ++i) {
      further = further * 31 + static_cast<uint64_t>(sizes[i]);
    }
    agreement.Equal(Lasting(Concat(label, "'s sizes after the first ", kMaxDims, " (a digest)")),
                    static_cast<int64_t>(further));
  }

  std::vector<Agreement> agreements_;
  std::deque<std::string> names_;  // which the agreements point at
};

size_t PlainCalls::Hash::operator()(const Key& key) const {
  uint64_t hash = 0xcbf29ce484222325ULL;
  for (const int64_t word : key) {
    hash = (hash ^ static_cast<uint64_t>(word)) * 0x9e3779b97f4a7c15ULL;
    hash ^= hash >> 32;
  }
  return hash;
}

std::shared_ptr<PlainCalls::Kept> PlainCalls::Find(const PlainCall& call) {
  thread_local Key key;
  KeyWords words(&key);
  words.Add(communicator_->compares_shapes() ? 1 : 0);
  AddKeyOf(call, &words);
  const std::lock_guard lock(mutex_);
  const auto found = kept_.find(key);
  return found == kept_.end() ? nullptr : found->second;
}

Status PlainCalls::MakeOnce(const PlainCall& call, std::shared_ptr<Kept>* kept) const {
  *kept = std::make_shared<Kept>();
  return MakePlan(call, kept->get());
}

Status PlainCalls::Make(const PlainCall& call, std::shared_ptr<Kept>* kept) {
  auto made = std::make_shared<Kept>();
  COLLOPS_RETURN_IF_ERROR(MakePlan(call, made.get()));
  Key key;
  KeyWords words(&key);
  words.Add(communicator_->compares_shapes() ? 1 : 0);
  AddKeyOf(call, &words);
  *kept = made;
  std::unordered_map<Key, std::shared_ptr<Kept>, Hash> dropped;  // destroyed without the lock
  const std::lock_guard lock(mutex_);
  if (kept_.size() >= kMostKept) dropped.swap(kept_);
  kept_.insert_or_assign(std::move(key), std::move(made));
  return Ok();
}

Status PlainCalls::MakePlan(const PlainCall& call, Kept* kept) const {
  const Communicator& group = *communicator_;
  const auto rank = static_cast<size_t>(group.rank());
  kept->result = call.x.sizes;
  switch (call.method) {
    case PlainCall::kAllGather:
    case PlainCall::kAllGatherV:
      COLLOPS_RETURN_IF_ERROR(PlanGather(call, group, &kept->plan));
      break;
    case PlainCall::kAllToAllV:
    case PlainCall::kGatherV:
    case PlainCall::kScatterV:
      COLLOPS_RETURN_IF_ERROR(PlanExchange(call, group, &kept->plan));
      break;
    case PlainCall::kReduceScatter:
    case PlainCall::kReduceScatterV:
      COLLOPS_RETURN_IF_ERROR(PlanScatter(call, group, &kept->plan));
      kept->rows = kept->plan->rows();
      kept->result = WithRows(call.x, kept->rows[rank]);
      return Ok();
    case PlainCall::kReduce:
      if (group.rank() != call.root) kept->result = {0};
      return PlanScatter(call, group, &kept->plan);
    case PlainCall::kAllReduce:
      return PlanAllReduce(call, group, &kept->plan);
    case PlainCall::kAllReducePartials:
      return PlanPartialSums(call, *communicator_, &kept->plan);
    case PlainCall::kReduceScatterVPartials:
      COLLOPS_RETURN_IF_ERROR(PlanPartialSums(call, *communicator_, &kept->plan));
      kept->rows = kept->plan->rows();
      kept->result = WithRows(call.x, kept->rows[rank]);
      return Ok();
    case PlainCall::kBroadcast:
      return PlanBroadcast(call, group, &kept->plan);
    case PlainCall::kAllGatherMatmul:
    case PlainCall::kMatmulReduceScatter:
    case PlainCall::kMatmulAllReduce:
    case PlainCall::kAllGatherMatmulReduceScatter:
    case PlainCall::kMatmul:
      COLLOPS_RETURN_IF_ERROR(PlanProduct(call, communicator_, &kept->plan));
      kept->result = kept->plan->output_shape();
      kept->result_dtype = kept->plan->output_dtype();
      return Ok();
    case PlainCall::kAllToAllVGroupedMatmul:
    case PlainCall::kGroupedMatmulAllToAllV:
      COLLOPS_RETURN_IF_ERROR(PlanGrouped(call, *communicator_, &kept->plan));
      kept->result = kept->plan->output_shape();
      kept->result_dtype = kept->plan->output_dtype();
      return Ok();
    case PlainCall::kAllToAllMatmul:
    case PlainCall::kMatmulAllToAll:
      COLLOPS_RETURN_IF_ERROR(PlanExchangedProduct(call, group, &kept->plan));
      kept->result = kept->plan->output_shape();
      return Ok();
  }
  kept->rows = kept->plan->rows();
  kept->result = WithRows(call.x, SumOf(kept->rows));
  return Ok();
}

std::shared_ptr<const PlainCalls::Question> PlainCalls::QuestionOf(
    const std::vector<const PlainCall*>& tensors) {
  Key key;
  KeyWords words(&key);
  words.Add(static_cast<int64_t>(tensors[0]->method));
  for (const PlainCall* tensor : tensors) {
    words.Add(static_cast<int64_t>(tensor->dtype));
    words.Add(tensor->x.type);
    words.Add(tensor->x.dim);
    words.Add(WithRows(tensor->x, 0));
    words.Add(tensor->is_grouped() ? tensor->experts() : 0);
  }
  const std::lock_guard lock(mutex_);
  if (questions_.size() >= kMostKept) questions_.clear();
  std::shared_ptr<const Question>& question = questions_[key];
  if (question == nullptr) question = std::make_shared<const Question>(tensors);
  return question;
}

Status PlainCalls::Ask(const std::vector<const PlainCall*>& tensors, const Rows& mine, Rows* all) {
  const PlainCall& first = *tensors[0];
  const Status check = CheckBeforeAsking(first, *communicator_);
  if (!check.ok()) {
    static_cast<void>(communicator_->Refuse(first.asking_name(), check));
    return check;
  }
  return QuestionOf(tensors)->Run(communicator_.get(), mine, all);
}

Status PlainCalls::AskLeaves(const PlainCall& call, int64_t begin, Rows* begins) {
  const Status check = CheckOwnLeaves(call, begin);
  if (!check.ok()) {
    static_cast<void>(communicator_->Refuse(call.asking_name(), check));
    return check;
  }
  const int64_t own[] = {begin, call.num_tensors};
  Rows all(2 * static_cast<size_t>(communicator_->size()));
  Agreement agreement(call.asking_operation());
  agreement.Equal("leaves", call.leaves).InPlainWords(call.asking_name(), 1);
  COLLOPS_RETURN_IF_ERROR(communicator_->Share(agreement, own, sizeof(own), all.data()));
  return CheckLeafBegins(call, all, begins);
}

Status PlainCalls::Tell(const PlainCall& call, const std::string& text, std::string* received) {
  constexpr size_t kMost = 1024;
  const int size = communicator_->size();
  Status check = CheckBeforeAsking(call, *communicator_);
  if (check.ok() && text.size() >= kMost) {
    check = Error(ERROR_INVALID_PARAM, call.name(),
                  ": what the root says of its elements is longer than ", kMost, " bytes");
  }
  if (!check.ok()) {
    static_cast<void>(communicator_->Refuse(call.asking_name(), check));
    return check;
  }
  std::vector<char> mine(kMost);
  std::memcpy(mine.data(), text.data(), text.size());
  std::vector<char> all(kMost * static_cast<size_t>(size));
  Agreement agreement(call.asking_operation());
  const Rows none(static_cast<size_t>(size));
  agreement.Equal("rankRoot", call.root)
      .Equal("whether sizes are given", call.sizes ? 1 : 0)
      .EqualList("sizes", (call.sizes ? *call.sizes : none).data(), size)
      .InPlainWords(call.name(), 1);
  COLLOPS_RETURN_IF_ERROR(communicator_->Share(agreement, mine.data(), kMost, all.data()));
  const char* const sent = all.data() + static_cast<size_t>(call.root) * kMost;
  received->assign(sent, strnlen(sent, kMost));
  return Ok();
}

}  // namespace collops
