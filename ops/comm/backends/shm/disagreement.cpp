#include "comm/backends/shm/disagreement.h"

#include <cstring>

namespace collops::shm {
namespace {

uint64_t Mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15ULL;
  return hash ^ (hash >> 32);
}

template <typename Enum>
uint64_t Number(Enum value) {
  return static_cast<uint64_t>(static_cast<int64_t>(value));
}

// A peer's text may not end.
std::string TypeName(const CallLabel& label, DType dtype) {
  const std::string name(label.type, strnlen(label.type, sizeof(label.type)));
  return name.empty() ? Name(dtype) : name;
}

uint64_t Mix(uint64_t hash, const CallLabel& label) {
  uint64_t words[sizeof(CallLabel) / sizeof(uint64_t)];
  static_assert(sizeof(words) == sizeof(label));
  std::memcpy(words, &label, sizeof(words));
  for (const uint64_t word : words) hash = Mix(hash, word);
  return hash;
}

// The struct fields' and tensors' names for counts and displacements.
const char* CountsName(CallKind kind) {
  return kind == CallKind::kReduceScatterV ? "sendCounts" : "recvCounts";
}
const char* DisplsName(CallKind kind) {
  return kind == CallKind::kReduceScatterV ? "sdispls" : "rdispls";
}

}  // namespace

uint64_t Signature(const CallInfo& info, int rank_size) {
  uint64_t hash = Mix(Number(info.kind), Number(info.dtype));
  hash = Mix(hash, Number(info.op));
  hash = Mix(Mix(hash, Number(info.root)), info.label);
  hash = Mix(hash, Number(info.x_shape.num_dims));
  for (int i = 0; i < info.x_shape.num_dims; ++i) hash = Mix(hash, Number(info.x_shape[i]));
  for (int r = 0; info.counts != nullptr && r < rank_size; ++r) {
    hash = Mix(Mix(hash, Number(info.counts[r])), Number(info.displs[r]));
  }
  for (int i = 0; info.fused != nullptr && i < info.fused->num_terms; ++i) {
    hash = Mix(hash, Number(info.fused->terms[i].value));
  }
  return hash;
}

Status DescribeDisagreement(const Endpoint& endpoint, const CallInfo& info, uint64_t sequence,
                            int rank) {
  const Announcement& other = endpoint.layout().announcement(rank, sequence);
  const int size = endpoint.size();
  const auto differ = [&](const std::string& field, const auto& mine, const auto& theirs) {
    return Error(ERROR_RANK_MISMATCH, Name(info.kind), ": the ranks disagree in call ", sequence,
                 ": ", field, " is ", mine, " on rank ", endpoint.rank(), " (pid ",
                 endpoint.pid(endpoint.rank()), ") and ", theirs, " on rank ", rank, " (pid ",
                 endpoint.pid(rank), ")");
  };
  if (other.kind != info.kind) return differ("the operator", Name(info.kind), Name(other.kind));
  const std::string mine = TypeName(info.label, info.dtype);
  const std::string theirs = TypeName(other.label, other.dtype);
  if (theirs != mine) return differ("dtype", mine, theirs);
  if (other.op != info.op) return differ("reduceType", Name(info.op), Name(other.op));
  if (other.root != info.root) return differ("rankRoot", info.root, other.root);
  if (other.label.num_tensors != info.label.num_tensors) {
    return differ("the number of tensors", info.label.num_tensors, other.label.num_tensors);
  }
  if (other.label.dim != info.label.dim) return differ("dim", info.label.dim, other.label.dim);
  if (other.x_shape != info.x_shape) {
    return differ("x's shape", ToString(info.x_shape), ToString(other.x_shape));
  }
  const int64_t* counts = endpoint.layout().counts(rank, sequence);
  for (int r = 0; info.counts != nullptr && r < size; ++r) {
    const std::string index = "[" + std::to_string(r) + "]";
    if (counts[r] != info.counts[r]) {
      return differ(CountsName(info.kind) + index, info.counts[r], counts[r]);
    }
    if (counts[size + r] != info.displs[r]) {
      return differ(DisplsName(info.kind) + index, info.displs[r], counts[size + r]);
    }
  }
  const int64_t* terms = endpoint.layout().terms(rank, sequence);
  for (int i = 0; info.fused != nullptr && i < info.fused->num_terms; ++i) {
    const CallTerm& term = info.fused->terms[i];
    if (terms[i] != term.value) return differ(term.name, term.value, terms[i]);
  }
  return differ("the signature", Signature(info, size), other.signature);
}

}  // namespace collops::shm
