// Whether the address or thread sanitizer watches this program, which changes how it ends and how
// much address space it has, and stands before libc; and how long tests wait for what must come.
#pragma once

#include <cstdlib>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define COLLOPS_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define COLLOPS_SANITIZED 1
#endif
#endif

#ifdef COLLOPS_SANITIZED
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

namespace check {

// So many seconds of a quiet machine: the time limit of what must come. tools/patience.py measures
// how slow the machine is now. A time that is itself what a test promises is plain.
inline double Patience(double seconds) {
  constexpr double kOfSanitizers = 6;
  const char* const factor = std::getenv("COLLOPS_TEST_PATIENCE");
  return seconds * (kSanitized ? kOfSanitizers : 1) * (factor == nullptr ? 1 : std::atof(factor));
}

}  // namespace check
