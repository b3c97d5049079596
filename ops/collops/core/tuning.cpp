#include "collops/core/tuning.h"

#include <charconv>
#include <sstream>

namespace collops {
namespace {

// Sizes beyond this one are typing errors; sums of them cannot overflow.
constexpr int64_t kMostBytes = int64_t{1} << 40;

std::string KnownNames() {
  std::string names;
  for (const TunedSize& row : TunedSizes()) names += Concat(names.empty() ? "" : ", ", row.name);
  return names;
}

const TunedSize* FindSize(const std::string& name) {
  for (const TunedSize& row : TunedSizes()) {
    if (name == row.name) return &row;
  }
  return nullptr;
}

// A whole number of bytes, with k, m or g for a power of 1024.
bool ParseBytes(const std::string& text, int64_t* bytes) {
  constexpr const char* kUnits = "kmg";
  const std::string units = kUnits;
  const size_t unit = text.empty() ? std::string::npos : units.find(text.back());
  const int shift = unit == std::string::npos ? 0 : 10 * (static_cast<int>(unit) + 1);
  const char* const end = text.data() + text.size() - (shift > 0 ? 1 : 0);
  int64_t number = 0;
  const std::from_chars_result result = std::from_chars(text.data(), end, number);
  if (result.ec != std::errc() || result.ptr != end) return false;
  if (number < 0 || number > (kMostBytes >> shift)) return false;
  *bytes = number << shift;
  return true;
}

}  // namespace

const std::vector<TunedSize>& TunedSizes() {
  static const std::vector<TunedSize>* const sizes = new std::vector<TunedSize>{
      {"all_reduce_one_step_2", &Tuning::all_reduce_one_step_2,
       "The longest vectors that an AllReduce of 2 ranks adds up in one step; longer ones take two "
       "steps, a ReduceScatterV and an AllGatherV."},
      {"all_reduce_one_step", &Tuning::all_reduce_one_step, "The same for more than 2 ranks."},
      {"streamed_output", &Tuning::streamed_output,
       "Outputs of at least this size are stored past the caches. A process reads this size when "
       "it first needs it; all its communicators share it."},
  };
  return *sizes;
}

Status ParseTuning(const std::string& text, Tuning* tuning) {
  Tuning parsed = *tuning;
  std::istringstream pairs(text);
  for (std::string pair; std::getline(pairs, pair, ',');) {
    const size_t equals = pair.find('=');
    COLLOPS_CHECK_ARG(equals != std::string::npos, ERROR_INVALID_PARAM, "\"", pair,
                      "\" is not a pair such as all_reduce_one_step=32k");
    const std::string name = pair.substr(0, equals);
    const TunedSize* const row = FindSize(name);
    COLLOPS_CHECK_ARG(row != nullptr, ERROR_INVALID_PARAM, "\"", name,
                      "\" is unknown; the sizes are ", KnownNames());
    COLLOPS_CHECK_ARG(
        ParseBytes(pair.substr(equals + 1), &(parsed.*row->size)), ERROR_INVALID_PARAM, name,
        " must be a whole number of bytes up to 1024g, with k, m or g for a power of 1024, "
        "got \"",
        pair.substr(equals + 1), "\"");
  }
  *tuning = parsed;
  return Ok();
}

const TunedSize* FirstDifference(const Tuning& a, const Tuning& b) {
  for (const TunedSize& row : TunedSizes()) {
    if (a.*row.size != b.*row.size) return &row;
  }
  return nullptr;
}

}  // namespace collops
