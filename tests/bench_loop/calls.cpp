#include "calls.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "board.h"
#include "collops/comm/registry.h"
#include "collops/operators/params.h"

namespace {

constexpr const char* kDomain = "bench_loop";
constexpr size_t kLine = 64;

void Demand(const collops::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "bench_loop: %s\n", status.message().c_str());
  std::exit(1);
}

// The only place that knows how a window is made.
std::shared_ptr<void> MakeWindow(int rank, int64_t bytes) {
  collops::CommunicatorSpec spec;
  spec.backend = "shm";
  spec.comm_domain = kDomain;
  spec.rank = rank;
  spec.rank_size = kRanks;
  std::shared_ptr<collops::Communicator> communicator;
  Demand(collops::Registry::Instance().Get(spec, &communicator));
  std::shared_ptr<collops::Window> window;
  Demand(communicator->AllocateWindow(bytes, &window));
  return {window, window->data()};
}

std::shared_ptr<void> MakePlain(int64_t bytes) {
  constexpr size_t kPage = 4096;
  const size_t pages = (static_cast<size_t>(bytes) + kPage - 1) / kPage;
  return {std::aligned_alloc(kPage, pages * kPage), std::free};
}

template <typename Param>
std::unique_ptr<collops::Operation> Create(int rank) {
  Param param;
  param.rank = rank;
  param.rankSize = kRanks;
  param.backend = "shm";
  param.commDomain = kDomain;
  std::unique_ptr<collops::Operation> operation;
  Demand(CreateOperation(param, &operation));
  return operation;
}

collops::TensorView View(void* data, collops::DType dtype, const collops::Shape& shape) {
  collops::TensorView view;
  view.desc.dtype = dtype;
  view.desc.shape = shape;
  view.data = data;
  return view;
}

}  // namespace

Call::Call(Kind kind, Memory memory, int64_t bytes, int rank) : kind_(kind), rank_(rank) {
  const int64_t total = bytes / int64_t{sizeof(float)};
  counts_ = {total * 3 / 8, total - total * 3 / 8};
  displs_ = {0, counts_[0]};
  own_count_ = counts_[static_cast<size_t>(rank)];
  num_inputs_ = kind == Kind::kAllGatherV ? own_count_ : total;
  num_outputs_ = kind == Kind::kAllGatherV ? total : own_count_;
  const int64_t input_bytes = num_inputs_ * int64_t{sizeof(float)};
  memory_ = memory == Memory::kWindow ? MakeWindow(rank, input_bytes) : MakePlain(input_bytes);
  x_ = static_cast<float*>(memory_.get());
  for (int64_t i = 0; i < num_inputs_; ++i) x_[i] = Input(rank, i);
  y_.resize(static_cast<size_t>(num_outputs_));
  output_ = std::make_unique<float[]>(static_cast<size_t>(num_outputs_));
  Plan();
  (void)Check();
}

// Whole numbers, so that their sum is exact, other ones on every rank and position.
float Call::Input(int rank, int64_t i) const {
  const int64_t position = kind_ == Kind::kAllGatherV ? Begin(rank) + i : i;
  return static_cast<float>((position * 7 + rank * 1009) % 65521);
}

void Call::Plan() {
  using collops::DType;
  const collops::Shape per_rank{kRanks};
  const auto shape = [](int64_t n) { return collops::Shape{n, 1}; };
  const auto x = View(x_, DType::kFloat32, shape(num_inputs_));
  const auto own = View(&own_count_, DType::kInt64, {1});
  const auto counts = View(counts_.data(), DType::kInt64, per_rank);
  const auto displs = View(displs_.data(), DType::kInt64, per_rank);
  const auto y = View(y_.data(), DType::kFloat16, {num_outputs_});
  if (kind_ == Kind::kAllGatherV) {
    operation_ = Create<collops::AllGatherVParam>(rank_);
    pack_.inputs = {x, own, counts, displs, y};
  } else {
    operation_ = Create<collops::ReduceScatterVParam>(rank_);
    pack_.inputs = {x, counts, displs, own, y};
  }
  pack_.outputs = {View(output_.get(), DType::kFloat32, shape(num_outputs_))};
  uint64_t bytes = 0;
  Demand(operation_->GetWorkspaceSize(pack_, &bytes));
  workspace_.resize(bytes);
}

void Call::Rewrite() {
  for (int64_t i = 0; i < num_inputs_; i += kLine / sizeof(float)) {
    volatile float* const line = x_ + i;
    *line = *line;
  }
}

void Call::Run() {
  Demand(operation_->Execute(pack_, workspace_.data(), workspace_.size(), nullptr));
}

bool Call::Check() {
  bool right = true;
  for (int64_t i = 0; i < num_outputs_ && right; ++i) {
    float expected = 0;
    if (kind_ == Kind::kAllGatherV) {
      const int from = i < counts_[0] ? 0 : 1;
      expected = Input(from, i - Begin(from));
    } else {
      for (int r = 0; r < kRanks; ++r) expected += Input(r, Begin(rank_) + i);
    }
    right = std::memcmp(&output_[static_cast<size_t>(i)], &expected, sizeof(float)) == 0;
  }
  std::memset(static_cast<void*>(output_.get()), 0xff,
              static_cast<size_t>(num_outputs_) * sizeof(float));
  return right;
}
