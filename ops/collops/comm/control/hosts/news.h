#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "collops/comm/control/board.h"
#include "collops/comm/control/hosts/bridge.h"

namespace collops::control {

enum class NewsKind : uint32_t {
  kBeat = 1,      // the watcher is alive
  kHead = 2,      // a rank has begun a step whose head is on the board
  kFinished = 3,  // a rank has finished a step
  kFailed = 4,    // a rank has failed
  kLeft = 5,      // a rank has closed the communicator
  kEnded = 6,     // a rank's process has ended
};

// A piece of state of a host's ranks, sent to the other hosts. It is state, not an event: receiving
// it twice changes nothing.
struct News {
  NewsKind kind = NewsKind::kBeat;
  int32_t rank = 0;
  uint64_t step = 0;  // kHead: the word of the head; kLeft: Member::left_after; else a step number
  uint64_t digest = 0;
  uint64_t balance = 0;
  int32_t code = 0;
  std::string text = {};  // why the rank refused, failed or left
  // The rank's agreement and its shared bytes; null: unchanged since its last step of this parity.
  const std::byte* agreement = nullptr;
  const std::byte* shared = nullptr;
};

Frame Encode(const News& news, int rank_size);
// `news` points into `frame`, which must outlive it. False if Encode() did not make the frame.
bool Decode(const Frame& frame, int rank_size, News* news);

}  // namespace collops::control
