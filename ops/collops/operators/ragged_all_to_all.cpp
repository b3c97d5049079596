#include "collops/operators/ragged_all_to_all.h"

#include <algorithm>
#include <cstring>

#include "collops/comm/user_calls.h"

namespace collops {
namespace ragged {
namespace {

constexpr const char* kName = "ragged_all_to_all";
constexpr const char* kOperation = "RaggedAllToAll";

// The numbers of all ranks: of each the rows of its two arrays, then its four lists.
class AllNumbers {
 public:
  AllNumbers(int rank_size, size_t slices)
      : size_(rank_size), slices_(slices), all_(static_cast<size_t>(rank_size) * count()) {}

  size_t count() const { return 2 + 4 * slices_; }
  int size() const { return size_; }
  int64_t per_rank() const { return static_cast<int64_t>(slices_) / size_; }
  int64_t num_slices() const { return static_cast<int64_t>(slices_); }
  int64_t* data() { return all_.data(); }

  int64_t operand_rows(int rank) const { return At(rank, 0); }
  int64_t output_rows(int rank) const { return At(rank, 1); }
  int64_t input_offset(int rank, int64_t slice) const { return Listed(rank, 0, slice); }
  int64_t send_size(int rank, int64_t slice) const { return Listed(rank, 1, slice); }
  int64_t output_offset(int rank, int64_t slice) const { return Listed(rank, 2, slice); }
  int64_t recv_size(int rank, int64_t slice) const { return Listed(rank, 3, slice); }

 private:
  int64_t At(int rank, size_t index) const {
    return all_[static_cast<size_t>(rank) * count() + index];
  }
  int64_t Listed(int rank, size_t list, int64_t slice) const {
    return At(rank, 2 + list * slices_ + static_cast<size_t>(slice));
  }

  const int size_;
  const size_t slices_;
  std::vector<int64_t> all_;
};

// Rows of one array that belong to a slice.
struct SliceRows {
  int64_t begin;
  int64_t end;
  int peer;
};

Status CheckApart(const char* array, int owner, const char* peers, std::vector<SliceRows>* slices) {
  std::sort(slices->begin(), slices->end(),
            [](const SliceRows& a, const SliceRows& b) { return a.begin < b.begin; });
  for (size_t i = 1; i < slices->size(); ++i) {
    const SliceRows& first = (*slices)[i - 1];
    const SliceRows& second = (*slices)[i];
    COLLOPS_CHECK_ARG(second.begin >= first.end, ERROR_INVALID_PARAM, kName, ": row ", second.begin,
                      " of rank ", owner, "'s ", array, " is in two slices ", peers, ", rank ",
                      first.peer, "'s and rank ", second.peer, "'s: they must not overlap");
  }
  return Ok();
}

// Slice `slice` of `rank` at its two ends.
Status CheckSlice(const AllNumbers& all, int rank, int64_t slice) {
  const auto receiver = static_cast<int>(slice / all.per_rank());
  const int64_t arriving = rank * all.per_rank() + slice % all.per_rank();
  const int64_t rows = all.send_size(rank, slice);
  const int64_t begin = all.input_offset(rank, slice);
  const int64_t lands = all.output_offset(rank, slice);
  COLLOPS_CHECK_ARG(rows >= 0, ERROR_INVALID_PARAM, kName, ": rank ", rank, "'s send_sizes[", slice,
                    "] must be >= 0, got ", rows);
  COLLOPS_CHECK_ARG(rows == all.recv_size(receiver, arriving), ERROR_RANK_MISMATCH, kName,
                    ": rank ", rank, " sends ", rows, " rows to rank ", receiver, " (send_sizes[",
                    slice, "]), which expects ", all.recv_size(receiver, arriving), " (recv_sizes[",
                    arriving, "])");
  if (rows == 0) return Ok();
  COLLOPS_CHECK_ARG(begin >= 0 && begin <= all.operand_rows(rank) - rows, ERROR_INVALID_PARAM,
                    kName, ": rank ", rank, "'s input_offsets[", slice, "] ", begin,
                    " and send_sizes[", slice, "] ", rows, " are not within operand's ",
                    all.operand_rows(rank), " rows");
  COLLOPS_CHECK_ARG(lands >= 0 && lands <= all.output_rows(receiver) - rows, ERROR_INVALID_PARAM,
                    kName, ": rank ", rank, "'s output_offsets[", slice, "] ", lands,
                    " and send_sizes[", slice, "] ", rows, " are not within the ",
                    all.output_rows(receiver), " rows of rank ", receiver, "'s output");
  return Ok();
}

// The same answer on every rank.
Status Check(const AllNumbers& all, bool goes_back) {
  std::vector<std::vector<SliceRows>> written(static_cast<size_t>(all.size()));
  for (int rank = 0; rank < all.size(); ++rank) {
    std::vector<SliceRows> read;
    for (int64_t slice = 0; slice < all.num_slices(); ++slice) {
      COLLOPS_RETURN_IF_ERROR(CheckSlice(all, rank, slice));
      const int64_t rows = all.send_size(rank, slice);
      if (rows == 0) continue;
      const auto receiver = static_cast<int>(slice / all.per_rank());
      const int64_t begin = all.input_offset(rank, slice);
      const int64_t lands = all.output_offset(rank, slice);
      read.push_back({begin, begin + rows, receiver});
      written[static_cast<size_t>(receiver)].push_back({lands, lands + rows, rank});
    }
    if (goes_back) {
      COLLOPS_RETURN_IF_ERROR(CheckApart("operand", rank, "whose gradients come back", &read));
    }
  }
  for (int rank = 0; rank < all.size(); ++rank) {
    COLLOPS_RETURN_IF_ERROR(
        CheckApart("output", rank, "that arrive", &written[static_cast<size_t>(rank)]));
  }
  return Ok();
}

Status Share(Communicator* communicator, const RaggedExchange& exchange, AllNumbers* all) {
  std::vector<int64_t> mine = {exchange.operand_rows, exchange.output_rows};
  for (const auto* list : {&exchange.input_offsets, &exchange.send_sizes, &exchange.output_offsets,
                           &exchange.recv_sizes}) {
    mine.insert(mine.end(), list->begin(), list->end());
  }
  const auto count = static_cast<int64_t>(all->count());
  const std::vector<int64_t> counts(static_cast<size_t>(all->size()), count);
  std::vector<int64_t> displs;
  for (int rank = 0; rank < all->size(); ++rank) displs.push_back(rank * count);
  Agreement agreement(kOperation);
  agreement.EqualText("dtype", Name(exchange.dtype))
      .EqualShape("the shape of a row", exchange.row)
      .Equal("the number of slices", all->num_slices())
      .InPlainWords(kName, 1);
  AllGatherVCall call;
  call.agreement = &agreement;
  call.dtype = DType::kInt64;
  call.x = mine.data();
  call.output = all->data();
  call.recv_counts = counts.data();
  call.rdispls = displs.data();
  return communicator->AllGatherV(call);
}

// One side of an exchange, in elements.
struct Side {
  std::vector<int64_t> counts;
  std::vector<int64_t> displs;

  void Add(int64_t rows, int64_t begin, int64_t row_elements) {
    counts.push_back(rows * row_elements);
    displs.push_back(rows == 0 ? 0 : begin * row_elements);
  }
};

// Moves the slices that are the `number`-th of every pair.
Status Move(Communicator* communicator, const RaggedExchange& exchange, const AllNumbers& all,
            int64_t number, bool goes_back) {
  const int rank = communicator->rank();
  const int64_t elements = Numel(exchange.row);
  Side operand;
  Side output;
  for (int peer = 0; peer < all.size(); ++peer) {
    const int64_t leaves = peer * all.per_rank() + number;
    const int64_t arrives = rank * all.per_rank() + number;
    operand.Add(all.send_size(rank, leaves), all.input_offset(rank, leaves), elements);
    output.Add(all.send_size(peer, arrives), all.output_offset(peer, arrives), elements);
  }
  const Side& sends = goes_back ? output : operand;
  const Side& receives = goes_back ? operand : output;
  Agreement agreement(kOperation);
  agreement
      .Pairwise("send_sizes", sends.counts.data(), "recv_sizes", receives.counts.data(), rank,
                all.size())
      .InPlainWords(kName, std::max<int64_t>(elements, 1));
  ExchangeVCall call;
  call.agreement = &agreement;
  call.dtype = exchange.dtype;
  call.x = goes_back ? exchange.output : exchange.operand;
  call.send_counts = sends.counts.data();
  call.sdispls = sends.displs.data();
  call.output = goes_back ? exchange.operand : exchange.output;
  call.recv_counts = receives.counts.data();
  call.rdispls = receives.displs.data();
  COLLOPS_RETURN_IF_ERROR(communicator->ExchangeV(call));
  if (!goes_back) return Ok();
  auto* const gradients = static_cast<char*>(exchange.output);
  const int64_t bytes = SizeOf(exchange.dtype);
  for (size_t peer = 0; peer < output.counts.size(); ++peer) {
    if (output.counts[peer] == 0) continue;
    std::memset(gradients + output.displs[peer] * bytes, 0,
                static_cast<size_t>(output.counts[peer] * bytes));
  }
  return Ok();
}

Status CheckLists(const RaggedExchange& exchange, int rank_size) {
  const size_t slices = exchange.send_sizes.size();
  COLLOPS_CHECK_ARG(
      exchange.input_offsets.size() == slices && exchange.output_offsets.size() == slices &&
          exchange.recv_sizes.size() == slices,
      ERROR_INVALID_PARAM, kName,
      ": input_offsets, send_sizes, output_offsets and recv_sizes have ",
      exchange.input_offsets.size(), ", ", slices, ", ", exchange.output_offsets.size(), " and ",
      exchange.recv_sizes.size(), " numbers: they must be as many");
  COLLOPS_CHECK_ARG(slices > 0 && slices % static_cast<size_t>(rank_size) == 0, ERROR_INVALID_PARAM,
                    kName, ": send_sizes has ", slices, " numbers, which is no multiple of the ",
                    rank_size, " ranks");
  return Ok();
}

Status Run(Communicator* communicator, const RaggedExchange& exchange, bool goes_back) {
  const UserCall number(communicator->CallOfUser());
  const Status lists = CheckLists(exchange, communicator->size());
  if (!lists.ok()) {
    static_cast<void>(communicator->Refuse(kName, lists));
    return lists;
  }
  AllNumbers all(communicator->size(), exchange.send_sizes.size());
  COLLOPS_RETURN_IF_ERROR(Share(communicator, exchange, &all));
  COLLOPS_RETURN_IF_ERROR(Check(all, goes_back));
  if (goes_back && exchange.operand != nullptr) {
    const int64_t bytes = exchange.operand_rows * Numel(exchange.row) * SizeOf(exchange.dtype);
    std::memset(exchange.operand, 0, static_cast<size_t>(bytes));
  }
  for (int64_t slice = 0; slice < all.per_rank(); ++slice) {
    COLLOPS_RETURN_IF_ERROR(Move(communicator, exchange, all, slice, goes_back));
  }
  return Ok();
}

}  // namespace
}  // namespace ragged

Status RaggedAllToAll(Communicator* communicator, const RaggedExchange& exchange) {
  return ragged::Run(communicator, exchange, false);
}

Status RaggedAllToAllGradient(Communicator* communicator, const RaggedExchange& exchange) {
  return ragged::Run(communicator, exchange, true);
}

}  // namespace collops
