#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "comm/control/board.h"
#include "comm/control/bridge.h"

namespace collops::control {

enum class NewsKind : uint32_t {
  kBeat = 1,      // of a watcher: it is alive
  kHead = 2,      // of a step that Control carries
  kFinished = 3,  // a rank is through with a step
  kFailed = 4,    // a rank has failed
  kLeft = 5,      // a rank has closed the communicator
  kEnded = 6,     // a rank's process has ended
};

// One thing that the ranks of a host tell those of the others. All of it is state, not an event: to
// be told the same twice changes nothing.
struct News {
  NewsKind kind = NewsKind::kBeat;
  int32_t rank = 0;
  uint64_t step = 0;  // kHead: the word of the head; else a number
  uint64_t digest = 0;
  uint64_t balance = 0;
  int32_t code = 0;
  std::string text = {};  // why it refused, failed or left
  // What the rank has agreed to, and what it shares; null: as in its last step of this parity.
  const std::byte* agreement = nullptr;
  const std::byte* shared = nullptr;
};

Frame Encode(const News& news, int rank_size);
// Looks into `frame`, which must live as long as the news. False for what no Encode() has made.
bool Decode(const Frame& frame, int rank_size, News* news);

}  // namespace collops::control
