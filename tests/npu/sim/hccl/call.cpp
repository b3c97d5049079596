#include "call.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "arithmetic.h"

namespace collops_sim {

size_t Call::element() const {
  return SizeOf(static_cast<int>(type));
}

std::vector<uint64_t> Call::Read(const void* list, size_t length) {
  const auto* const first = static_cast<const uint64_t*>(list);
  std::vector<uint64_t> copy(first, first + length);
  const char* const late = std::getenv("COLLOPS_SIM_LATE_COUNTS");
  if (late != nullptr && std::strcmp(late, "1") == 0) late_.push_back({first, copy});
  return copy;
}

bool Call::IsUnchanged() const {
  return std::all_of(late_.begin(), late_.end(), [](const Late& late) {
    return std::equal(late.copy.begin(), late.copy.end(), late.list);
  });
}

Header::Header(const Call& call, uint64_t a_number, size_t peer)
    : number(a_number),
      kind(call.kind),
      type(call.type),
      reduction(call.reduction),
      root(call.root),
      to_you(call.sent[peer].count),
      from_you(call.received[peer].count) {
  std::copy(call.counts.begin(), call.counts.end(), counts);
  std::copy(call.displs.begin(), call.displs.end(), displs);
}

Header::Header(Call::Kind a_kind, const Pair& pair)
    : kind(a_kind),
      type(pair.type),
      to_you(pair.sends ? pair.block.count : 0),
      from_you(pair.sends ? 0 : pair.block.count) {}

std::string Difference(const Header& mine, const Header& theirs) {
  if (mine.kind != theirs.kind) return "the operator";
  if (mine.number != theirs.number) return "the number of the call";
  if (mine.type != theirs.type) return "the data type";
  if (mine.reduction != theirs.reduction) return "the reduction";
  if (mine.root != theirs.root) return "the root";
  if (std::memcmp(mine.counts, theirs.counts, sizeof(mine.counts)) != 0) return "the counts";
  if (std::memcmp(mine.displs, theirs.displs, sizeof(mine.displs)) != 0) return "the displacements";
  if (mine.to_you != theirs.from_you || mine.from_you != theirs.to_you) {
    return "how much goes between the two";
  }
  return "";
}

}  // namespace collops_sim
