#include "collops/operators/moe_routing.h"

#include <algorithm>

#include "collops/operators/plain/plain_tensors.h"

namespace collops {
namespace {

// The sum over each rank's experts.
Rows ByRank(const Rows& counts, int64_t local_experts) {
  Rows rows;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (static_cast<int64_t>(i) % local_experts == 0) rows.push_back(0);
    rows.back() += counts[i];
  }
  return rows;
}

Status TakeScratch(const char* method, int64_t bytes, char** data) {
  *data = static_cast<char*>(PlainScratch(static_cast<uint64_t>(bytes)));
  COLLOPS_CHECK_ARG(*data != nullptr || bytes == 0, ERROR_OUT_OF_HOST_MEMORY, method,
                    ": no memory for ", bytes, " bytes of workspace");
  return Ok();
}

}  // namespace

Status SentRows::Take(const char* method, Communicator* communicator, int64_t bytes, char** data) {
  constexpr int64_t kLeast = 1 << 20;
  if (window_ == nullptr || window_->bytes() < bytes) {
    window_.reset();  // first: there may not be room for both
    const int64_t some_more = std::max(bytes + bytes / 4, kLeast);
    if (!communicator->AllocateWindow(some_more, &window_).ok() &&
        !communicator->AllocateWindow(bytes, &window_).ok()) {
      return Error(ERROR_OUT_OF_HOST_MEMORY, method, ": no memory for ", bytes,
                   " bytes of workspace");
    }
  }
  *data = static_cast<char*>(window_->data());
  return Ok();
}

Status CheckRouting(const char* method, const MoeRouting& routing, const Communicator& communicator,
                    std::optional<int64_t> tokens) {
  COLLOPS_CHECK_ARG(!tokens || *tokens == routing.tokens, ERROR_INVALID_PARAM, method, ": x has ",
                    *tokens, " rows but the handle is of ", routing.tokens, " tokens");
  for (const Rows* counts : {&routing.send_counts, &routing.recv_counts}) {
    const bool sends = counts == &routing.send_counts;
    for (const int64_t count : *counts) {
      COLLOPS_CHECK_ARG(count >= 0, ERROR_INVALID_PARAM, method, ": handle.",
                        sends ? "send_sizes" : "recv_sizes", " has the number ", count,
                        ": it must be >= 0");
    }
  }
  const auto own = static_cast<std::ptrdiff_t>(communicator.rank() * routing.local_experts);
  COLLOPS_CHECK_ARG(std::equal(routing.send_counts.begin() + own,
                               routing.send_counts.begin() + own + routing.local_experts,
                               routing.recv_counts.begin() + own),
                    ERROR_INVALID_PARAM, method, ": handle.send_sizes[", communicator.rank(),
                    "] are not its recv_sizes[", communicator.rank(),
                    "]: what this rank sends to itself must be equal");
  const int64_t sent = routing.sent();
  std::vector<bool> is_used(
      static_cast<size_t>(std::min(sent, static_cast<int64_t>(routing.positions.size()))));
  int64_t used = 0;
  for (const int64_t position : routing.positions) {
    if (position == -1) continue;
    const bool is_right = position >= 0 && position < static_cast<int64_t>(is_used.size()) &&
                          !is_used[static_cast<size_t>(position)];
    COLLOPS_CHECK_ARG(is_right, ERROR_INVALID_PARAM, method, ": handle.positions has the number ",
                      position, " twice, or it is not in [0, ", sent, "), the rows sent");
    is_used[static_cast<size_t>(position)] = true;
    ++used;
  }
  COLLOPS_CHECK_ARG(used == sent, ERROR_INVALID_PARAM, method, ": handle.positions has ", used,
                    " rows but handle.send_sizes add up to ", sent);
  return Ok();
}

bool IsInOrder(const MoeRouting& routing, int rank_size) {
  return rank_size == 1 || routing.local_experts == 1;
}

std::vector<kernels::RowRange> ReceivedRows(const MoeRouting& routing, int rank_size) {
  const auto experts = static_cast<size_t>(routing.local_experts);
  const auto ranks = static_cast<size_t>(rank_size);
  std::vector<kernels::RowRange> ranges(routing.recv_counts.size());
  int64_t by_rank = 0;
  for (size_t i = 0; i < ranges.size(); ++i) {
    ranges[i] = {0, by_rank, routing.recv_counts[i]};
    by_rank += ranges[i].rows;
  }
  int64_t by_expert = 0;
  for (size_t expert = 0; expert < experts; ++expert) {
    for (size_t rank = 0; rank < ranks; ++rank) {
      kernels::RowRange& range = ranges[rank * experts + expert];
      range.to = by_expert;
      by_expert += range.rows;
    }
  }
  return ranges;
}

MoeExchange::MoeExchange(const char* method, const char* operation, const MoeRouting& routing,
                         bool goes_back)
    : method_(method),
      agreement_(operation),
      sends_(ByRank(goes_back ? routing.recv_counts : routing.send_counts, routing.local_experts)),
      receives_(
          ByRank(goes_back ? routing.send_counts : routing.recv_counts, routing.local_experts)) {}

Status MoeExchange::Prepare(Communicator* communicator, int64_t stride, SentRows* memory,
                            char** sent, char** received) {
  const RowShape bytes = {{0, stride}, 0, 1, {}};
  COLLOPS_RETURN_IF_ERROR(RowBlocks::Make(method_, bytes, sends_, &send_blocks_));
  COLLOPS_RETURN_IF_ERROR(RowBlocks::Make(method_, bytes, receives_, &receive_blocks_));
  agreement_
      .Pairwise("send_sizes", sends_.data(), "recv_sizes", receives_.data(), communicator->rank(),
                communicator->size())
      .InPlainWords(method_, 1);
  COLLOPS_RETURN_IF_ERROR(
      communicator->Supports(Primitive::kExchange, DType::kUInt8, ReduceOp::kSum));
  if (sent != nullptr) {
    COLLOPS_RETURN_IF_ERROR(memory->Take(method_, communicator, send_blocks_.total(), sent));
  }
  return received == nullptr ? Ok() : TakeScratch(method_, receive_blocks_.total(), received);
}

Status MoeExchange::Run(Communicator* communicator, const void* x, void* output) const {
  ExchangeVCall call;
  call.agreement = &agreement_;
  call.dtype = DType::kUInt8;
  call.x = x;
  call.send_counts = send_blocks_.counts();
  call.sdispls = send_blocks_.displs();
  call.output = output;
  call.recv_counts = receive_blocks_.counts();
  call.rdispls = receive_blocks_.displs();
  return communicator->ExchangeV(call);
}

}  // namespace collops
