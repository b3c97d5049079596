// Whether the address or thread sanitizer watches this program, which changes how it ends and how
// much address space it has, and stands before libc.
#pragma once

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
