#include "collops/kernels/copy.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "collops/core/env.h"
#include "collops/kernels/thread_pool.h"

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace collops::kernels {
namespace {

thread_local uint64_t copied_bytes = 0;

// Bytes that one thread copies at a time.
constexpr int64_t kPartBytes = 256 << 10;

#if defined(__x86_64__)

void StreamLine(char* destination, const char* source) {
  const auto load = [&](int i) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(source) + i);
  };
  const __m128i line[] = {load(0), load(1), load(2), load(3)};
  for (int i = 0; i < 4; ++i)
    _mm_stream_si128(reinterpret_cast<__m128i*>(destination) + i, line[i]);
}

// Stores whole cache lines past the caches, the bytes before and after them as usual.
void StreamCopy(char* destination, const char* source, int64_t bytes) {
  const int64_t head =
      std::min<int64_t>(bytes, -reinterpret_cast<intptr_t>(destination) & (kLineBytes - 1));
  std::memcpy(destination, source, static_cast<size_t>(head));
  int64_t done = head;
  for (; bytes - done >= kLineBytes; done += kLineBytes) {
    StreamLine(destination + done, source + done);
  }
  std::memcpy(destination + done, source + done, static_cast<size_t>(bytes - done));
  _mm_sfence();
}

#else

void StreamCopy(char* destination, const char* source, int64_t bytes) {
  std::memcpy(destination, source, static_cast<size_t>(bytes));
}

#endif

void CopyPart(char* destination, const char* source, int64_t bytes, bool stream) {
  if (stream) {
    StreamCopy(destination, source, bytes);
  } else {
    std::memcpy(destination, source, static_cast<size_t>(bytes));
  }
}

}  // namespace

int64_t StreamedOutputBytes() {
  static const int64_t bytes = [] {
    Env env;
    // An invalid value is reported where communicators are made; until then the default holds.
    static_cast<void>(Env::Read(&env));
    return env.tuning.streamed_output;
  }();
  return bytes;
}

void CopyPastCaches(void* destination, const void* source, int64_t bytes) {
  Copy(destination, source, bytes, StreamedOutputBytes());
}

void Copy(void* destination, const void* source, int64_t bytes, int64_t whole_bytes) {
  if (bytes <= 0) return;  // memcpy does not take the null address of an empty tensor
  copied_bytes += static_cast<uint64_t>(bytes);
  char* const to = static_cast<char*>(destination);
  const char* const from = static_cast<const char*>(source);
  const bool stream = std::max(whole_bytes, bytes) >= StreamedOutputBytes();
  if (2 * bytes < kLeastSharedBytes || NumThreads() == 1) {
    CopyPart(to, from, bytes, stream);
    return;
  }
  ParallelFor(static_cast<int>((bytes + kPartBytes - 1) / kPartBytes), [&](int part) {
    const int64_t begin = part * kPartBytes;
    CopyPart(to + begin, from + begin, std::min(kPartBytes, bytes - begin), stream);
  });
}

void Zero(void* destination, int64_t bytes) {
  if (bytes <= 0) return;
  std::memset(destination, 0, static_cast<size_t>(bytes));
}

uint64_t CopiedBytes() {
  return copied_bytes;
}

}  // namespace collops::kernels
