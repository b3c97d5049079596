#include "nccl/group.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <random>
#include <thread>
#include <utility>

#include "driver/memory.h"
#include "sim/combine.h"

namespace collops_sim {
namespace {

struct Init {
  std::shared_ptr<Comm> comm;
  std::function<Nccl()> run;
};

struct Group {
  int depth = 0;
  std::vector<std::pair<std::shared_ptr<Comm>, Call>> calls;
  std::vector<Init> inits;
  Nccl error = Nccl::kSuccess;  // of the first wrong call: nothing is launched then
};

thread_local Group group;
std::atomic<int> num_threads{0};

// A communicator that does not block does its work in a thread of NCCL's, which may be when the
// call has returned: a drawn delay.
void Later(std::function<void()> work) {
  ++num_threads;
  std::thread([work = std::move(work)] {
    thread_local std::minstd_rand random(std::random_device{}());
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 500));
    work();
  }).detach();
}

Nccl RunInits(std::vector<Init> inits) {
  Nccl result = Nccl::kSuccess;
  std::vector<std::thread> threads;
  std::vector<Nccl> results(inits.size(), Nccl::kInProgress);
  for (size_t i = 0; i < inits.size(); ++i) {
    Init& init = inits[i];
    if (!init.comm->blocks()) {
      init.comm->set_state(Nccl::kInProgress);
      Later([init] { init.comm->set_state(init.run()); });
      result = Nccl::kInProgress;
      continue;
    }
    // One that could not be made stays until it is aborted.
    threads.emplace_back([&results, &init, i] {
      results[i] = init.run();
      init.comm->set_state(results[i]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < inits.size(); ++i) {
    const bool failed = results[i] != Nccl::kSuccess && results[i] != Nccl::kInProgress;
    if (failed) result = results[i];
  }
  return result;
}

// Messages of a rank to itself need a send and a receive each, in one group.
bool OwnMessagesMatch(const Comm& comm, const std::vector<Call>& calls) {
  std::vector<std::pair<int, size_t>> sends;
  std::vector<std::pair<int, size_t>> receives;
  for (const Call& call : calls) {
    if (!call.IsMessage() || call.root != comm.rank()) continue;
    (call.kind == Call::kSend ? sends : receives).push_back({call.type, call.count});
  }
  return sends == receives;
}

Nccl LaunchAll(const std::vector<std::pair<std::shared_ptr<Comm>, Call>>& all) {
  std::vector<std::shared_ptr<Comm>> comms;
  for (const auto& [comm, call] : all) {
    if (std::find(comms.begin(), comms.end(), comm) == comms.end()) comms.push_back(comm);
  }
  Nccl result = Nccl::kSuccess;
  for (const auto& comm : comms) {
    std::vector<Call> calls;
    for (const auto& [other, call] : all) {
      if (other == comm) calls.push_back(call);
    }
    if (!OwnMessagesMatch(*comm, calls)) {
      Mistake("NCCL: a rank's messages to itself do not match in their group");
      return Nccl::kInvalidUsage;
    }
    if (comm->blocks()) {
      const Nccl launched = comm->Launch(calls);
      comm->Leave();
      if (launched != Nccl::kSuccess) return launched;
      continue;
    }
    result = Nccl::kInProgress;
    comm->set_state(Nccl::kInProgress);
    comm->Leave();
    Later([comm, calls] {
      const Nccl launched = comm->Launch(calls);
      if (comm->state() == Nccl::kInProgress) comm->set_state(launched);
    });
  }
  return result;
}

// In place, where the call has such a place, or apart.
bool Overlaps(const Call& call, const Comm& comm) {
  const size_t bytes = call.bytes();
  const size_t ranks = static_cast<size_t>(comm.size());
  const auto send = reinterpret_cast<uintptr_t>(call.send);
  const auto receive = reinterpret_cast<uintptr_t>(call.receive);
  const size_t sent = call.kind == Call::kReduceScatter ? ranks * bytes : bytes;
  const size_t received = call.kind == Call::kAllGather ? ranks * bytes : bytes;
  const size_t own = static_cast<size_t>(comm.rank()) * bytes;
  if (call.IsMessage() || bytes == 0) return false;
  if (call.kind == Call::kAllGather && send == receive + own) return false;
  if (call.kind == Call::kReduceScatter && receive == send + own) return false;
  if (call.kind != Call::kAllGather && call.kind != Call::kReduceScatter && send == receive) {
    return false;
  }
  return send < receive + received && receive < send + sent;
}

// What is wrong with the buffers, or nothing.
std::string CheckBuffers(const Call& call, const Comm& comm) {
  const size_t bytes = call.bytes();
  const size_t ranks = static_cast<size_t>(comm.size());
  const bool sends =
      call.kind == Call::kBroadcast ? call.root == comm.rank() : call.kind != Call::kRecv;
  const bool receives = call.kind != Call::kSend;
  const size_t sent = call.kind == Call::kReduceScatter ? ranks * bytes : bytes;
  const size_t received = call.kind == Call::kAllGather ? ranks * bytes : bytes;
  std::string wrong;
  if (sends) wrong = CheckOnDevice(call.send, sent, comm.device());
  if (receives && wrong.empty()) wrong = CheckOnDevice(call.receive, received, comm.device());
  if (sends && receives && wrong.empty() && Overlaps(call, comm)) {
    wrong = "the buffers overlap, and not in place";
  }
  return wrong;
}

std::string CheckCall(const Call& call, const Comm& comm) {
  if (SizeOf(call.type) == 0) return "no such data type";
  if (call.reduction < 0 || call.reduction >= kNumReductions) return "no such reduction";
  const bool reduces = call.kind == Call::kReduceScatter || call.kind == Call::kAllReduce;
  if (reduces && !CanReduce(call.type)) return "the simulation does not reduce this type";
  if (call.root < 0 || call.root >= comm.size()) return "no such rank";
  if (call.stream->device() != comm.device()) return "the stream is another device's";
  return CheckBuffers(call, comm);
}

Nccl AddChecked(void* handle, Call call, void* stream) {
  const std::shared_ptr<Comm> comm = FindComm(handle);
  if (comm == nullptr) return RefuseNccl(Nccl::kInvalidArgument, "no such communicator");
  const Nccl state = comm->state();
  if (state == Nccl::kInProgress) {
    return RefuseNccl(Nccl::kInvalidUsage, "a call of the communicator is still in progress");
  }
  if (state != Nccl::kSuccess) return state;
  if (comm->mesh().IsStopped()) return RefuseNccl(Nccl::kInvalidUsage, "it was aborted");
  if (!comm->Take()) {
    Mistake("NCCL: a communicator is used by two threads at once");
    return Nccl::kInvalidUsage;
  }
  const auto number = reinterpret_cast<uintptr_t>(stream);
  const Result found = FindStream(stream, &call.stream);
  if (found != Result::kSuccess || (number <= 2 && CurrentContext()->device != comm->device())) {
    return RefuseNccl(Nccl::kInvalidArgument, "the stream is none, or another device's");
  }
  const std::string wrong = CheckCall(call, *comm);
  if (!wrong.empty()) return RefuseNccl(Nccl::kInvalidArgument, wrong);
  group.calls.push_back({comm, call});
  return Nccl::kSuccess;
}

}  // namespace

Nccl StartGroup() {
  ++group.depth;
  return Nccl::kSuccess;
}

Nccl EndGroup() {
  if (group.depth == 0) return RefuseNccl(Nccl::kInvalidUsage, "ncclGroupEnd without a start");
  if (--group.depth > 0) return Nccl::kSuccess;
  const Group ended = std::exchange(group, Group());
  if (ended.error != Nccl::kSuccess) {
    for (const auto& [comm, call] : ended.calls) comm->Leave();
    return ended.error;
  }
  const Nccl made = RunInits(ended.inits);
  if (ended.calls.empty()) return made;
  const Nccl launched = LaunchAll(ended.calls);
  return launched != Nccl::kSuccess ? launched : made;
}

Nccl Add(const char* function, void* comm, const Call& call, void* stream) {
  Nccl result = static_cast<Nccl>(PlannedFailure(function));
  StartGroup();
  if (result == Nccl::kSuccess) result = AddChecked(comm, call, stream);
  if (result != Nccl::kSuccess && group.error == Nccl::kSuccess) group.error = result;
  if (group.depth == 1) {
    const std::shared_ptr<Comm> found = FindComm(comm);
    const Nccl ended = EndGroup();
    if (found != nullptr && result != Nccl::kSuccess) found->Leave();
    return result != Nccl::kSuccess ? result : ended;
  }
  EndGroup();
  return result;
}

Nccl AddInit(const std::shared_ptr<Comm>& comm, std::function<Nccl()> init) {
  KeepComm(comm);
  StartGroup();
  group.inits.push_back({comm, std::move(init)});
  return EndGroup();
}

}  // namespace collops_sim

// For tests: how many threads NCCL has started for communicators that do not block.
extern "C" int SimNcclThreads() {
  return collops_sim::num_threads;
}
