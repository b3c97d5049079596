// Counts, displacements and elements of the conformance suite: they differ per rank, round and
// position, and every rank can compute them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "collops/comm/call.h"

namespace conformance {

using List = std::vector<int64_t>;
using Bytes = std::vector<std::byte>;

constexpr std::byte kPoison{0xa5};

inline uint64_t Hash(int64_t a, int64_t b, int64_t c = 0) {
  uint64_t hash = 0x6c62272e07bb0142U;
  for (const int64_t value : {a, b, c}) {
    hash = (hash ^ static_cast<uint64_t>(value)) * 0x9e3779b97f4a7c15U;
    hash ^= hash >> 29;
  }
  return hash;
}

inline size_t At(int rank) {
  return static_cast<size_t>(rank);
}

// All zero, one each, primes, one huge block, and mixtures.
inline List Counts(int size, int round) {
  const int64_t primes[] = {2, 3, 5, 7, 11, 13, 997, 4099};
  List counts;
  for (int r = 0; r < size; ++r) {
    const uint64_t mixed = Hash(r, round, 77) % 10;
    const int64_t kinds[] = {0, 1, primes[(r + round) % 8], r == round % size ? 300007 : r % 2,
                             mixed < 8 ? primes[mixed] : static_cast<int64_t>(mixed - 8) * 20011};
    counts.push_back(kinds[round % 5]);
  }
  return counts;
}

// Blocks with `gap` between them, in the order of the ranks or in reverse order.
inline List Displacements(const List& counts, bool reversed, int64_t gap) {
  List displs(counts.size());
  int64_t end = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    const size_t r = reversed ? counts.size() - 1 - i : i;
    displs[r] = end;
    end += counts[r] + gap;
  }
  return displs;
}

inline int64_t EndOf(const List& counts, const List& displs) {
  int64_t end = 0;
  for (size_t r = 0; r < counts.size(); ++r) end = std::max(end, displs[r] + counts[r]);
  return end;
}

// The `gap` elements after each block.
inline std::vector<collops::Range> Gaps(const List& counts, const List& displs, int64_t gap) {
  std::vector<collops::Range> gaps;
  for (size_t r = 0; r < counts.size() && gap > 0; ++r) {
    gaps.push_back({displs[r] + counts[r], displs[r] + counts[r] + gap});
  }
  return gaps;
}

// Bytes [begin, end) of a rank's data in a round.
inline Bytes Data(int rank, int round, int64_t begin, int64_t end) {
  Bytes bytes;
  for (int64_t i = begin; i < end; ++i) {
    bytes.push_back(static_cast<std::byte>(Hash(rank * 1000 + round, i) >> 40));
  }
  return bytes;
}

inline void Put(const Bytes& from, int64_t at, Bytes* to) {
  std::copy(from.begin(), from.end(), to->begin() + at);
}

inline void PutZeros(const std::vector<collops::Range>& gaps, int64_t item, Bytes* to) {
  for (const collops::Range& gap : gaps) {
    std::fill(to->begin() + gap.begin * item, to->begin() + gap.end * item, std::byte{0});
  }
}

// Terms of a sum in float32 whose result depends on the order.
inline float Term(int rank, int round, int64_t i) {
  return static_cast<float>(static_cast<int64_t>(Hash(rank, i, round) % 200003) - 100001) / 7.0F;
}

inline std::vector<float> Terms(int rank, int round, int64_t count) {
  std::vector<float> terms;
  for (int64_t i = 0; i < count; ++i) terms.push_back(Term(rank, round, i));
  return terms;
}

// The reduction in rank order of all ranks' terms at position i.
inline float Reduced(int size, int round, int64_t i, collops::ReduceOp op) {
  float result = Term(0, round, i);
  for (int r = 1; r < size; ++r) {
    const float term = Term(r, round, i);
    result = op == collops::ReduceOp::kMax ? std::max(result, term) : result + term;
  }
  return result;
}

}  // namespace conformance
