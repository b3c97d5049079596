#include "nccl/comm.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include "driver/context.h"
#include "driver/memory.h"
#include "sim/capture.h"

namespace collops_sim {
namespace {

struct Comms {
  std::mutex mutex;
  std::map<void*, std::shared_ptr<Comm>> all;
};
Comms& GetComms() {
  static auto* const comms = new Comms;
  return *comms;
}

bool MayShareGpus() {
  const char* text = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");
  return text != nullptr && std::strcmp(text, "1") == 0;
}

std::vector<const void*> MemoryOf(const std::vector<Call>& calls) {
  std::vector<const void*> memory;
  for (const Call& call : calls) {
    memory.push_back(call.send);
    memory.push_back(call.receive);
  }
  return memory;
}

}  // namespace

std::shared_ptr<Comm> FindComm(void* handle) {
  Comms& comms = GetComms();
  const std::lock_guard<std::mutex> lock(comms.mutex);
  const auto found = comms.all.find(handle);
  return found == comms.all.end() ? nullptr : found->second;
}
void KeepComm(const std::shared_ptr<Comm>& comm) {
  Comms& comms = GetComms();
  const std::lock_guard<std::mutex> lock(comms.mutex);
  comms.all[comm.get()] = comm;
}
bool ForgetComm(void* handle) {
  Comms& comms = GetComms();
  const std::lock_guard<std::mutex> lock(comms.mutex);
  return comms.all.erase(handle) != 0;
}

Nccl Comm::Meet(const std::string& root) {
  const auto begin = std::chrono::steady_clock::now();
  const std::string error = mesh_.Connect(root, "", rank_, size_, device_, TimeoutS());
  if (!error.empty()) {
    // At once: a rank's process has ended.
    const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - begin;
    if (!mesh_.IsStopped() && waited.count() >= TimeoutS()) {
      Mistake("NCCL, rank " + std::to_string(rank_) + " of " + std::to_string(size_) + ": " +
              error + "; inits of several communicators in one thread must be in a group");
    }
    return RefuseNccl(Nccl::kSystemError, error);
  }
  has_met_ = true;
  if (mesh_.HasDuplicates() && !MayShareGpus()) {
    return RefuseNccl(Nccl::kInvalidUsage,
                      "several ranks have the same GPU: NCCL_MULTI_RANK_GPU_ENABLE=1 allows it");
  }
  return Nccl::kSuccess;
}

bool Comm::Take() {
  const std::lock_guard<std::mutex> lock(mutex_);
  const std::thread::id here = std::this_thread::get_id();
  const bool is_free = user_ == std::thread::id() || user_ == here;
  if (is_free) user_ = here;
  return is_free;
}

void Comm::Leave() {
  const std::lock_guard<std::mutex> lock(mutex_);
  user_ = std::thread::id();
}

// The ranks whom the calls need for the first time tell each other that they have come.
bool Comm::ConnectFor(const std::vector<Call>& calls) {
  std::set<std::pair<bool, int>> fresh;  // for messages, or for collectives, and the peer
  has_connected_.resize(static_cast<size_t>(size_));
  for (const Call& call : calls) {
    for (int peer = 0; peer < size_; ++peer) {
      if (peer == rank_ || (call.IsMessage() && peer != call.root)) continue;
      const bool known =
          call.IsMessage() ? has_connected_[static_cast<size_t>(peer)] : has_connected_all_;
      if (!known) fresh.insert({call.IsMessage(), peer});
    }
  }
  char here = 0;
  std::vector<char> there(fresh.size());
  std::vector<Transfer> transfers;
  size_t next = 0;
  for (const auto& [is_message, peer] : fresh) {
    transfers.push_back({kConnections, peer, true, &here, 1});
    transfers.push_back({kConnections, peer, false, &there[next++], 1});
  }
  if (mesh_.Exchange(transfers, TimeoutS(), Mesh::Loss::kWaits) >= 0) return false;
  for (const auto& [is_message, peer] : fresh) {
    if (is_message) has_connected_[static_cast<size_t>(peer)] = true;
    if (!is_message) has_connected_all_ = true;
  }
  return true;
}

// All streams of the group wait for each other before it and behind it, as with NCCL.
Nccl Comm::Launch(const std::vector<Call>& calls) {
  if (!ConnectFor(calls)) {
    static_cast<void>(Stopped());
    return RefuseNccl(Nccl::kInternalError, "a rank that the call needs has not come");
  }
  Stream* const first = calls[0].stream;
  std::vector<Stream*> others;
  for (const Call& call : calls) {
    bool known = call.stream == first;
    for (const Stream* other : others) known = known || other == call.stream;
    if (!known) others.push_back(call.stream);
  }
  Result result = Result::kSuccess;
  for (Stream* other : others) {
    if (result == Result::kSuccess) result = OrderStreams(other, first);
  }
  if (result == Result::kSuccess) {
    const std::vector<const void*> memory = MemoryOf(calls);
    result = first->Do(
        [self = shared_from_this(), captured = captured_, calls, memory](Stream* where) {
          uint64_t place = 0;
          {
            const std::lock_guard<std::mutex> lock(self->mutex_);
            place = self->num_launched_++;
          }
          return where->Enqueue([self, calls, place] { return self->Run(calls, place); }, memory);
        },
        memory);
  }
  for (Stream* other : others) {
    if (result == Result::kSuccess) result = OrderStreams(first, other);
  }
  if (result == Result::kSuccess) return Nccl::kSuccess;
  return RefuseNccl(Nccl::kUnhandledCudaError,
                    "CUDA error " + std::to_string(static_cast<int>(result)));
}

Result Comm::Run(const std::vector<Call>& calls, uint64_t place) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&] { return next_ == place; });
  is_running_ = true;
  lock.unlock();
  const int planned = PlannedFailure("run.nccl");
  if (planned != 0) state_ = static_cast<Nccl>(planned);
  bool goes_on = state_ == Nccl::kSuccess || state_ == Nccl::kInProgress;
  goes_on = goes_on && !mesh_.IsStopped();
  for (const Call& call : calls) {
    if (!goes_on || call.IsMessage()) continue;
    goes_on = RunCollective(call, num_collectives_++);
  }
  if (goes_on) RunMessages(calls);
  if (std::exchange(waits_, false)) --PrimaryOf(device_)->waiting;
  lock.lock();
  is_running_ = false;
  ++next_;
  changed_.notify_all();
  // Neither an error of NCCL nor an abort makes the stream's context unusable.
  return Result::kSuccess;
}

bool Comm::Exchange(std::vector<Transfer> transfers) {
  const auto on_wait = [this] {
    if (!std::exchange(waits_, true)) ++PrimaryOf(device_)->waiting;
  };
  return mesh_.Exchange(std::move(transfers), TimeoutS(), Mesh::Loss::kWaits, on_wait) < 0;
}

bool Comm::Finish() {
  std::unique_lock<std::mutex> lock(mutex_);
  const uint64_t last = num_launched_;
  return changed_.wait_for(lock, std::chrono::duration<double>(TimeoutS()),
                           [&] { return next_ >= last; });
}

void Comm::Abort() {
  mesh_.Stop();
  // What a stream has not begun yet does nothing when its turn comes.
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] { return !is_running_; });
}

void Comm::LetGo(bool waits) {
  for (int r = 0; r < size_; ++r) {
    if (r == rank_ || !has_met_) continue;
    if (waits && mesh_.HasEnded(kHosts, r)) {
      Mistake("NCCL, rank " + std::to_string(rank_) + ": ncclCommDestroy waits for rank " +
              std::to_string(r) + ", which has ended");
    }
    const char word = 0;
    mesh_.Tell(kHosts, r, &word, sizeof(word), 0);
  }
}

void Comm::AwaitGraphs(const char* function) {
  const auto begin = std::chrono::steady_clock::now();
  while (captured_.use_count() > 1) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - begin;
    if (waited.count() < TimeoutS()) continue;
    return Mistake(std::string("NCCL: ") + function + " waits for a graph that is not destroyed");
  }
}

bool Comm::Fail(Nccl code, const std::string& text) {
  const std::string place =
      "NCCL, rank " + std::to_string(rank_) + " of " + std::to_string(size_) + ": " + text;
  RefuseNccl(code, place);
  state_ = code;
  return false;
}

// A wait has ended without its peer: false.
bool Comm::Stopped() {
  if (mesh_.IsStopped()) return false;
  Mistake("NCCL, rank " + std::to_string(rank_) + " of " + std::to_string(size_) +
          ": a rank is missing, and nobody has called ncclCommAbort");
  return Fail(Nccl::kInternalError, "a rank is missing");
}

bool Comm::Compare(const std::vector<Header>& mine, const std::vector<Header>& theirs,
                   const std::vector<int>& peers) {
  for (size_t i = 0; i < peers.size(); ++i) {
    const std::string difference = Difference(mine[i], theirs[i]);
    if (difference.empty()) continue;
    const std::string text = "rank " + std::to_string(peers[i]) + " differs in " + difference;
    Mistake("NCCL, rank " + std::to_string(rank_) + ": " + text);
    return Fail(Nccl::kInternalError, text);
  }
  return true;
}

bool Comm::RunCollective(const Call& call, uint64_t number) {
  const Header header{number, call.kind, call.type, call.reduction, call.root, call.count};
  std::vector<Header> mine(static_cast<size_t>(size_ - 1), header);
  std::vector<Header> theirs(mine.size());
  std::vector<int> peers;
  std::vector<Transfer> transfers;
  for (int r = 0; r < size_; ++r) {
    if (r == rank_) continue;
    const size_t i = peers.size();
    peers.push_back(r);
    transfers.push_back({kCollectives, r, true, &mine[i], sizeof(Header)});
    transfers.push_back({kCollectives, r, false, &theirs[i], sizeof(Header)});
  }
  if (!Exchange(transfers)) return Stopped();
  return Compare(mine, theirs, peers) && Move(call);
}

// Which of a collective's bytes go where.
bool Comm::Move(const Call& call) {
  const size_t bytes = call.bytes();
  char* const send = static_cast<char*>(HostView(reinterpret_cast<uint64_t>(call.send)));
  char* const receive = static_cast<char*>(HostView(reinterpret_cast<uint64_t>(call.receive)));
  const bool reduces = call.kind == Call::kReduceScatter || call.kind == Call::kAllReduce;
  const bool has_root = call.kind == Call::kBroadcast;
  std::vector<std::vector<char>> parts(reduces ? static_cast<size_t>(size_) : 0);
  for (std::vector<char>& part : parts) part.resize(bytes);
  std::vector<Transfer> transfers;
  for (int r = 0; r < size_; ++r) {
    const size_t at = static_cast<size_t>(r);
    const bool i_send = !has_root || rank_ == call.root;
    const bool i_receive = !has_root || r == call.root;
    char* const from = call.kind == Call::kReduceScatter ? send + at * bytes : send;
    char* const to = reduces                         ? parts[at].data()
                     : call.kind == Call::kAllGather ? receive + at * bytes
                                                     : receive;
    if (r == rank_) {
      if (i_send && i_receive && bytes > 0) std::memmove(to, from, bytes);
      continue;
    }
    if (i_send) transfers.push_back({kCollectives, r, true, from, bytes});
    if (i_receive) transfers.push_back({kCollectives, r, false, to, bytes});
  }
  if (!Exchange(transfers)) return Stopped();
  if (reduces) Reduce(call, parts);
  return true;
}

// As in a ring, the sum of a part begins with the rank behind its owner, and each step is rounded:
// no order that a user may rely on. Parts have owners also where all ranks get the whole sum.
void Comm::Reduce(const Call& call, const std::vector<std::vector<char>>& parts) {
  const size_t element = SizeOf(call.type);
  char* const receive = static_cast<char*>(HostView(reinterpret_cast<uint64_t>(call.receive)));
  const bool is_whole = call.kind == Call::kAllReduce;
  const size_t size = static_cast<size_t>(size_);
  for (size_t piece = 0; piece < (is_whole ? size : 1); ++piece) {
    const size_t begin = is_whole ? call.count * piece / size : 0;
    const size_t end = is_whole ? call.count * (piece + 1) / size : call.count;
    const size_t owner = is_whole ? piece : static_cast<size_t>(rank_);
    std::vector<char> sum((end - begin) * element);
    for (size_t step = 1; step <= size && !sum.empty(); ++step) {
      const char* const part = parts[(owner + step) % size].data() + begin * element;
      if (step == 1) {
        std::memcpy(sum.data(), part, sum.size());
      } else {
        Combine(call.type, call.reduction, sum.data(), part, end - begin);
      }
    }
    if (!sum.empty()) std::memcpy(receive + begin * element, sum.data(), sum.size());
  }
}

// A sender goes on when its receiver says that everything has arrived. What one rank has in a group
// may be several calls of the other, so each message is compared when it comes. Messages to itself
// were checked when the group ended.
bool Comm::RunMessages(const std::vector<Call>& calls) {
  std::vector<Header> mine(calls.size());
  std::vector<Header> theirs(calls.size());
  std::vector<char> arrived(calls.size(), 1);
  std::vector<Transfer> transfers;
  std::vector<const Call*> own_sends;
  std::vector<const Call*> own_receives;
  bool differs = false;
  for (size_t i = 0; i < calls.size(); ++i) {
    const Call& call = calls[i];
    const bool sends = call.kind == Call::kSend;
    if (!call.IsMessage()) continue;
    if (call.root == rank_) {
      (sends ? own_sends : own_receives).push_back(&call);
      continue;
    }
    mine[i] = {0, Call::kSend, call.type, 0, 0, call.count};
    const auto compare = [&, i, peer = call.root] {
      differs = !Compare({mine[i]}, {theirs[i]}, {peer});
      return !differs;
    };
    void* const view = HostView(reinterpret_cast<uint64_t>(sends ? call.send : call.receive));
    Header* const header = sends ? &mine[i] : &theirs[i];
    transfers.push_back({kMessages, call.root, sends, header, sizeof(Header)});
    if (!sends) transfers.back().then = compare;
    transfers.push_back({kMessages, call.root, sends, view, call.bytes()});
    const int after = static_cast<int>(transfers.size()) - 1;
    transfers.push_back({kAnswers, call.root, !sends, &arrived[i], 1, nullptr, after});
  }
  for (size_t i = 0; i < own_sends.size(); ++i) {
    const Call& from = *own_sends[i];
    std::memmove(HostView(reinterpret_cast<uint64_t>(own_receives[i]->receive)),
                 HostView(reinterpret_cast<uint64_t>(from.send)), from.bytes());
  }
  return Exchange(transfers) || (!differs && Stopped());
}

}  // namespace collops_sim
