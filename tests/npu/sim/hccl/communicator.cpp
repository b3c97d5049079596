#include "communicator.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

#include "arithmetic.h"
#include "sim/faults.h"
#include "sim/sockets.h"

namespace collops_sim {
namespace {

constexpr double kConnectS = 120;
constexpr double kExecuteS = 1836;
constexpr int kStreamError = 507011;  // what its stream says of a task that failed

size_t At(int rank) {
  return static_cast<size_t>(rank);
}

}  // namespace

std::string HostAddress() {
  const char* const text = std::getenv("COLLOPS_SIM_HOST_IP");
  return text == nullptr ? "" : text;
}

double ConnectS() {
  return Limit("HCCL_CONNECT_TIMEOUT", kConnectS);
}

int Connect(Mesh& mesh, const std::string& root, const std::string& host, int rank, int size,
            int device) {
  const std::string error = mesh.Connect(root, host, rank, size, device, ConnectS());
  return error.empty() ? kSuccess : Refuse(kTimeout, error + " before HCCL_CONNECT_TIMEOUT");
}

std::vector<Communicator::End> Communicator::EndsOf(const Call& call) const {
  std::vector<End> ends;
  for (const Pair& pair : call.pairs) {
    const bool up = pair.sends == (pair.peer > rank_);
    const uint64_t way = call.kind == Call::kBatch ? 0 : 1 + static_cast<uint64_t>(up);
    ends.emplace_back(call.kind * 4 + way, pair.peer);
  }
  for (int r = 0; r < size_ && !call.IsOfPairs(); ++r) {
    if (r != rank_) ends.emplace_back(call.kind * 4, r);
  }
  return ends;
}

int Communicator::Link(const Call& call) {
  const std::lock_guard<std::mutex> lock(linking_);
  const double until = Now() + ConnectS();
  std::vector<End> missing;
  for (const End& end : EndsOf(call)) {
    if (linked_.insert(end).second) missing.push_back(end);
  }
  for (const End& end : missing) mesh_.Tell(kLinks, end.second, &end.first, sizeof(end.first), 1);
  for (const End& end : missing) {
    uint64_t told = 0;
    while (heard_.count(end) == 0) {
      if (mesh_.Hear(kLinks, end.second, &told, sizeof(told), until - Now())) {
        heard_.emplace(told, end.second);
        continue;
      }
      // HCCL does not see that a rank has ended.
      std::this_thread::sleep_for(std::chrono::duration<double>(std::max(until - Now(), 0.0)));
      error_ = kTimeout;
      return Refuse(kTimeout, "EI0006: rank " + std::to_string(end.second) +
                                  " has not connected before HCCL_CONNECT_TIMEOUT");
    }
  }
  return kSuccess;
}

void Communicator::Enqueue(Call call, Stream* stream) {
  stream->Do([this, call = std::move(call)](Stream* where) {
    Place place{};
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      place = {num_calls_++, call.IsOfPairs() ? 0 : num_collectives_++};
    }
    return where->Enqueue([this, call, place] { return Run(call, place); }, call.memory);
  });
}

int Communicator::Run(const Call& call, Place place) {
  std::unique_lock<std::mutex> lock(mutex_);
  turn_.wait(lock, [&] { return next_ == place.turn; });
  lock.unlock();
  int code = kStreamError;
  if (error_ == 0 && !call.IsUnchanged()) {
    code = Fail(kInternal, "counts or displacements were freed or changed before the stream came");
  } else if (error_ == 0) {
    code = call.IsOfPairs() ? RunPairs(call) : RunCollective(call, place.number);
  }
  if (code != 0) mesh_.Close();
  lock.lock();
  ++next_;
  turn_.notify_all();
  return code;
}

int Communicator::RunCollective(const Call& call, uint64_t number) {
  std::vector<Header> mine(At(size_));
  std::vector<Header> theirs(At(size_));
  std::vector<std::vector<char>> parts(At(size_));
  std::vector<Transfer> headers;
  std::vector<Transfer> blocks;
  const size_t element = call.element();
  for (int r = 0; r < size_; ++r) {
    mine[At(r)] = Header(call, number, At(r));
    const Block& sent = call.sent[At(r)];
    parts[At(r)].resize(call.received[At(r)].count * element);
    if (r == rank_) continue;
    headers.push_back({kStreams, r, true, &mine[At(r)], sizeof(Header)});
    headers.push_back({kStreams, r, false, &theirs[At(r)], sizeof(Header)});
    blocks.push_back({kStreams, r, true, sent.data, sent.count * element});
    blocks.push_back({kStreams, r, false, parts[At(r)].data(), parts[At(r)].size()});
  }
  if (const int code = Exchange(headers)) return code;
  for (int r = 0; r < size_; ++r) {
    if (r == rank_) continue;
    if (const int code = Compare(r, mine[At(r)], theirs[At(r)])) return code;
  }
  if (const int code = Exchange(blocks)) return code;
  std::vector<char>& own = parts[At(rank_)];
  if (!own.empty()) std::memcpy(own.data(), call.sent[At(rank_)].data, own.size());
  Finish(call, parts);
  return 0;
}

// Sums begin with the next rank around and have the own part at last, which is no order that a user
// may rely on. Where several ranks get the same sum they all begin with rank 1.
void Communicator::Finish(const Call& call, const std::vector<std::vector<char>>& parts) {
  const bool scatters = call.kind == Call::kReduceScatter || call.kind == Call::kReduceScatterV;
  for (int step = 1; step <= size_; ++step) {
    const size_t r = At(((scatters ? rank_ : 0) + step) % size_);
    if (parts[r].empty()) continue;
    char* const place = call.sum == nullptr ? call.received[r].data : call.sum;
    if (call.sum == nullptr || step == 1) {
      std::memcpy(place, parts[r].data(), parts[r].size());
    } else {
      Combine(static_cast<int>(call.type), static_cast<int>(call.reduction), place, parts[r].data(),
              call.received[r].count);
    }
  }
}

// A sender goes on when its receiver says that everything has arrived.
int Communicator::RunPairs(const Call& call) {
  const size_t num = call.pairs.size();
  std::vector<Header> mine(num);
  std::vector<Header> theirs(num);
  std::vector<Header> arrived(num, Header(Call::kArrived, {}));
  std::vector<Transfer> headers;
  std::vector<Transfer> blocks;
  std::vector<Transfer> answers;
  for (size_t i = 0; i < num; ++i) {
    const Pair& pair = call.pairs[i];
    mine[i] = Header(call.kind, pair);
    const size_t bytes = pair.block.count * SizeOf(static_cast<int>(pair.type));
    Header* const header = pair.sends ? &mine[i] : &theirs[i];
    headers.push_back({kStreams, pair.peer, pair.sends, header, sizeof(Header)});
    blocks.push_back({kStreams, pair.peer, pair.sends, pair.block.data, bytes});
    answers.push_back({kStreams, pair.peer, !pair.sends, &arrived[i], sizeof(Header)});
  }
  if (const int code = Exchange(headers)) return code;
  for (size_t i = 0; i < num; ++i) {
    if (call.pairs[i].sends) continue;
    if (const int code = Compare(call.pairs[i].peer, mine[i], theirs[i])) return code;
  }
  if (const int code = Exchange(blocks)) return code;
  if (const int code = Exchange(answers)) return code;
  for (size_t i = 0; i < num; ++i) {
    if (arrived[i].kind == Call::kArrived) continue;
    return Fail(kInternal, "rank " + std::to_string(call.pairs[i].peer) +
                               " is in another call, and does not receive");
  }
  return 0;
}

int Communicator::Exchange(std::vector<Transfer> transfers) {
  const double limit_s = Limit("HCCL_EXEC_TIMEOUT", kExecuteS);
  const int peer = mesh_.Exchange(std::move(transfers), limit_s, Mesh::Loss::kEnds);
  if (peer < 0) return 0;
  return Fail(kRemote, "rank " + std::to_string(peer) + " is gone or late");
}

int Communicator::Compare(int peer, const Header& mine, const Header& theirs) {
  const std::string difference = Difference(mine, theirs);
  if (difference.empty()) return 0;
  return Fail(kInternal, "rank " + std::to_string(peer) + " differs in " + difference);
}

// A stream's thread has no caller who could ask for the text.
int Communicator::Fail(int code, const std::string& text) {
  std::fprintf(stderr, "simulated HCCL, rank %d of %d: %s\n", rank_, size_, text.c_str());
  error_ = code;
  return kStreamError;
}

}  // namespace collops_sim
