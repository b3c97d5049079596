#include "comm/backends/hccl/all_gather_v.h"

#include "comm/backends/hccl/error.h"
#include "comm/backends/hccl/types.h"
#include "comm/backends/hccl/zero.h"

namespace collops::hccl {
namespace {

// HCCL reads counts as uint64_t; checked ones are not negative, so an int64_t is the same number.
struct Counts {
  const void* counts;
  const void* displs;
};

Counts Scale(const AllGatherVCall& call, int rank_size, int64_t scale,
             std::vector<uint64_t>* scaled) {
  if (scale == 1) return {call.recv_counts, call.rdispls};
  scaled->clear();
  for (const int64_t* numbers : {call.recv_counts, call.rdispls}) {
    for (int r = 0; r < rank_size; ++r) {
      scaled->push_back(static_cast<uint64_t>(numbers[r] * scale));
    }
  }
  return {scaled->data(), scaled->data() + rank_size};
}

}  // namespace

Status AllGatherV(const Engine& engine, const AllGatherVCall& call, int rank, int rank_size,
                  std::vector<uint64_t>* scaled) {
  const Api& api = engine.api();
  const Carriage carriage = CarriageOf(call.dtype);
  const Counts counts = Scale(call, rank_size, carriage.scale, scaled);
  const auto send_count = static_cast<uint64_t>(call.recv_counts[rank] * carriage.scale);
  // The gaps come second: a rank that could not zero them has still taken part in the exchange.
  RETURN_IF_ERROR(
      ToStatus(api,
               api.all_gather_v(const_cast<void*>(call.x), send_count, call.output, counts.counts,
                                counts.displs, carriage.type, engine.comm(), call.stream),
               "HcclAllGatherV"));
  for (int64_t i = 0; i < call.num_gaps; ++i) {
    RETURN_IF_ERROR(Zero(api, call.output, call.gaps[i], call.dtype, call.stream));
  }
  return Ok();
}

}  // namespace collops::hccl
