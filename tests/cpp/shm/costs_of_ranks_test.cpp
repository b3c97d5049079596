// What a call costs a rank as the ranks of its host become more: the instructions that it executes,
// and the cache lines of the shared memory that it writes and reads. No line has two writers: a
// core that writes it would take it from the other's cache in every call.
//
// The rank is the last to come. The others are stopped once they have announced the call, so it
// waits for nobody, and the counts are the same in every run and beside any load.
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <fstream>
#include <map>
#include <numeric>
#include <set>

#include "ranks.h"

#if defined(__x86_64__) && !defined(COLLOPS_SANITIZED)

namespace {

using collops::Agreement;
using collops::Communicator;
using collops::DType;
using collops::Status;
using collops::control::kLineBytes;
using collops::control::kPageBytes;

constexpr int kMostRanks = 32;
constexpr size_t kMostLines = 4096;

// What one rank has done in one call.
struct Trace {
  uint64_t instructions;
  size_t num_accesses;
  struct Access {
    uint32_t line;  // from the beginning of the shared memory
    bool writes;
  } accesses[4 * kMostLines];

  std::set<uint32_t> Lines(bool written) const {
    std::set<uint32_t> lines;
    for (size_t i = 0; i < num_accesses; ++i) {
      if (!written || accesses[i].writes) lines.insert(accesses[i].line);
    }
    return lines;
  }
};

// Traces this process's one thread: it runs with the processor's trap flag, so that each
// instruction ends in a signal; the shared memory is protected, so that each access begins with
// one.
class Tracer {
 public:
  Tracer(std::byte* memory, const collops::shm::SegmentLayout& layout, int size, Trace* trace) {
    memory_ = memory;
    // Not the stages: their lines are as many as the data's.
    begin_ = memory;
    end_ = layout.pairs() + collops::shm::PairLayout::Bytes(size);
    size_ = size;
    layout_ = layout;
    trace_ = trace;
    struct sigaction action = {};
    action.sa_flags = SA_SIGINFO;
    action.sa_sigaction = OnAccess;
    sigaction(SIGSEGV, &action, nullptr);
    action.sa_sigaction = OnInstruction;
    sigaction(SIGTRAP, &action, nullptr);
    Protect(PROT_NONE);
    open_pages_ = 0;
    __builtin_ia32_writeeflags_u64(__builtin_ia32_readeflags_u64() | kTrapFlag);
  }
  ~Tracer() {
    __builtin_ia32_writeeflags_u64(__builtin_ia32_readeflags_u64() & ~kTrapFlag);
    Protect(PROT_READ | PROT_WRITE);
    signal(SIGSEGV, SIG_DFL);
    signal(SIGTRAP, SIG_DFL);
  }

 private:
  static constexpr uint64_t kTrapFlag = 0x100;

  static void Protect(int protection) {
    mprotect(begin_, static_cast<size_t>(end_ - begin_), protection);
    for (int r = 0; r < size_; ++r) {
      mprotect(layout_.stage(r), collops::shm::kStageBytes, PROT_READ | PROT_WRITE);
    }
  }
  static void OnAccess(int, siginfo_t* info, void* context) {
    auto* const at = static_cast<std::byte*>(info->si_addr);
    const bool known = at >= begin_ && at < end_ && open_pages_ < std::size(pages_) &&
                       trace_->num_accesses < std::size(trace_->accesses);
    if (!known) {
      signal(SIGSEGV, SIG_DFL);  // the access comes again, and ends the program
      return;
    }
    constexpr uint64_t kWrite = 2;  // of the processor's code for a page fault
    const auto* const thread = static_cast<ucontext_t*>(context);
    const bool writes = (static_cast<uint64_t>(thread->uc_mcontext.gregs[REG_ERR]) & kWrite) != 0;
    trace_->accesses[trace_->num_accesses++] = {
        static_cast<uint32_t>(static_cast<size_t>(at - memory_) / kLineBytes), writes};
    std::byte* const page = memory_ + (at - memory_) / kPageBytes * kPageBytes;
    mprotect(page, kPageBytes, PROT_READ | PROT_WRITE);
    pages_[open_pages_++] = page;
  }
  static void OnInstruction(int, siginfo_t*, void* context) {
    ++trace_->instructions;
    CopyAtOnce(static_cast<ucontext_t*>(context)->uc_mcontext.gregs);
    while (open_pages_ > 0) mprotect(pages_[--open_pages_], kPageBytes, PROT_NONE);
  }

  // A copy by one instruction, "rep movsb", would end in a signal for every byte.
  static void CopyAtOnce(greg_t* registers) {
    const auto* const next = reinterpret_cast<const unsigned char*>(registers[REG_RIP]);
    if (next[0] != 0xf3 || next[1] != 0xa4) return;
    const greg_t bytes = registers[REG_RCX] - 1;  // the last one with its signal
    if (bytes <= 0) return;
    auto* to = reinterpret_cast<volatile char*>(registers[REG_RDI]);
    auto* from = reinterpret_cast<const char*>(registers[REG_RSI]);
    for (greg_t i = 0; i < bytes; ++i) to[i] = from[i];
    registers[REG_RDI] += bytes;
    registers[REG_RSI] += bytes;
    registers[REG_RCX] = 1;
  }

  static std::byte* memory_;
  static std::byte* begin_;
  static std::byte* end_;
  static collops::shm::SegmentLayout layout_;
  static int size_;
  static Trace* trace_;
  static std::byte* pages_[4];
  static size_t open_pages_;
};
std::byte* Tracer::memory_;
std::byte* Tracer::begin_;
std::byte* Tracer::end_;
collops::shm::SegmentLayout Tracer::layout_;
int Tracer::size_;
Trace* Tracer::trace_;
std::byte* Tracer::pages_[4];
size_t Tracer::open_pages_;

// The memory and arguments of calls in which each rank has `each` elements for each rank.
struct Blocks {
  Blocks(int size, int64_t elements)
      : each(elements),
        counts(static_cast<size_t>(size), elements),
        displs(counts.size()),
        x(counts.size() * static_cast<size_t>(elements), 1),
        output(x.size()) {
    std::exclusive_scan(counts.begin(), counts.end(), displs.begin(), int64_t{0});
  }
  int64_t each;
  std::vector<int64_t> counts;
  std::vector<int64_t> displs;
  std::vector<int32_t> x;
  std::vector<int32_t> output;
};

template <typename Call>
Call Common(const Agreement& agreement, Blocks* blocks) {
  Call call;
  call.agreement = &agreement;
  call.dtype = DType::kInt32;
  if constexpr (!std::is_same_v<Call, collops::BroadcastCall>) {
    call.x = blocks->x.data();
    call.output = blocks->output.data();
  }
  return call;
}

using Run = std::function<Status()>;

Status Gather(Communicator& comm, Blocks* blocks, const std::function<Status(const Run&)>& with) {
  Agreement agreement("AllGatherV");
  agreement.EqualList("counts", blocks->counts.data(), comm.size());
  auto call = Common<collops::AllGatherVCall>(agreement, blocks);
  call.recv_counts = blocks->counts.data();
  call.rdispls = blocks->displs.data();
  return with([&] { return comm.AllGatherV(call); });
}

Status Scatter(Communicator& comm, Blocks* blocks, const std::function<Status(const Run&)>& with) {
  Agreement agreement("ReduceScatterV");
  agreement.EqualList("counts", blocks->counts.data(), comm.size());
  auto call = Common<collops::ReduceScatterVCall>(agreement, blocks);
  call.send_counts = blocks->counts.data();
  call.sdispls = blocks->displs.data();
  call.output_count = blocks->each;
  return with([&] { return comm.ReduceScatterV(call); });
}

Status Exchange(Communicator& comm, Blocks* blocks, const std::function<Status(const Run&)>& with) {
  Agreement agreement("AllToAllV");
  agreement.Pairwise("sendCounts", blocks->counts.data(), "recvCounts", blocks->counts.data(),
                     comm.rank(), comm.size());
  auto call = Common<collops::ExchangeVCall>(agreement, blocks);
  call.send_counts = call.recv_counts = blocks->counts.data();
  call.sdispls = call.rdispls = blocks->displs.data();
  return with([&] { return comm.ExchangeV(call); });
}

Status Sum(Communicator& comm, Blocks* blocks, const std::function<Status(const Run&)>& with) {
  const Agreement agreement("AllReduce");
  auto call = Common<collops::AllReduceCall>(agreement, blocks);
  call.count = blocks->each;
  return with([&] { return comm.AllReduce(call); });
}

Status Cast(Communicator& comm, Blocks* blocks, const std::function<Status(const Run&)>& with) {
  const Agreement agreement("Broadcast");
  auto call = Common<collops::BroadcastCall>(agreement, blocks);
  call.data = blocks->x.data();
  call.count = blocks->each;
  return with([&] { return comm.Broadcast(call); });
}

Status Meet(Communicator& comm, Blocks*, const std::function<Status(const Run&)>& with) {
  return with([&] { return comm.Barrier(); });
}

// A call, and the most that each rank more adds to what it costs each rank.
struct Law {
  const char* name;
  int64_t (*each)(int size);  // elements
  Status (*call)(Communicator&, Blocks*, const std::function<Status(const Run&)>&);
  double instructions;
  double written;  // lines
  double read;     // lines, those that it writes too
};

// Inputs that travel in a call record; in one chunk of a stage; in one chunk of each lane.
int64_t Small(int) {
  return 16;
}
int64_t Staged(int) {
  return 5 << 10;
}
int64_t StagedInAll(int size) {
  return (12 << 10) / size;
}
const Law kLaws[] = {
    {"barrier", Small, Meet, 150, 0, 2},
    {"64 B all_gatherv", Small, Gather, 380, 0, 2},
    {"64 B reduce_scatterv", Small, Scatter, 440, 0.5, 4},
    {"64 B all_reduce", Small, Sum, 320, 0, 2},
    {"64 B all_to_allv", Small, Exchange, 500, 1, 4.5},
    {"64 B broadcast", Small, Cast, 340, 0, 2},
    {"20 KiB all_gatherv", Staged, Gather, 800, 1, 4},
    {"48 KiB reduce_scatterv", StagedInAll, Scatter, 3000, 2, 5},
};

// Of rank r of each call of kLaws, in memory that all processes share.
struct Traces {
  Trace of[std::size(kLaws)][kMostRanks];
};

char StateOf(pid_t pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  std::getline(stat, line);
  return line[line.rfind(") ") + 2];
}

// Stops the other ranks while it lives.
class Alone {
 public:
  explicit Alone(collops::control::Endpoint* endpoint) : endpoint_(endpoint) {
    ForEachPeer([&](int r) { kill(endpoint_->pid(r), SIGSTOP); });
    ForEachPeer([&](int r) {
      while (StateOf(endpoint_->pid(r)) != 'T') sched_yield();
      // One that has waited long sleeps. It wakes by itself; nobody spends a system call on it.
      for (auto& asleep : endpoint_->board().member(r).asleep) asleep = collops::control::kAwake;
    });
  }
  ~Alone() {
    ForEachPeer([&](int r) { kill(endpoint_->pid(r), SIGCONT); });
  }

 private:
  template <typename Visit>
  void ForEachPeer(const Visit& visit) const {
    for (int r = 0; r < endpoint_->size(); ++r) {
      if (r != endpoint_->rank()) visit(r);
    }
  }
  collops::control::Endpoint* endpoint_;
};

// One call of every rank; that of rank `traced` is the last, and traced.
Status CallOnce(const Law& law, Communicator& comm, int traced, Trace* trace) {
  collops::control::Endpoint& endpoint = collops::ControlOf(comm).endpoint();
  const uint64_t before = collops::ControlOf(comm).step_number();
  for (int r = 0; r < comm.size(); ++r) {
    // Then an input is staged before it is announced.
    while (!endpoint.HasFinished(r, before)) sched_yield();
  }
  Blocks blocks(comm.size(), law.each(comm.size()));
  return law.call(comm, &blocks, [&](const Run& run) {
    if (comm.rank() != traced) return run();
    for (int r = 0; r < comm.size(); ++r) {
      // Once it sleeps it has staged all that it can.
      const auto& asleep = endpoint.board().member(r).asleep[collops::control::kGroupLane];
      while (r != traced && (!endpoint.HasBegun(r, before + 1) || asleep == 0)) sched_yield();
    }
    const Alone alone(&endpoint);
    auto* const memory = static_cast<std::byte*>(endpoint.group().segment.data());
    const collops::shm::SegmentLayout layout(collops::ControlOf(comm).backend_memory(),
                                             comm.size());
    const Tracer tracer(memory, layout, comm.size(), trace);
    return run();
  });
}

// The traces of the calls of `traced` ranks among `size`.
std::shared_ptr<Traces> Measure(int size, const std::vector<int>& traced) {
  void* const memory = mmap(nullptr, sizeof(Traces), PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  const std::shared_ptr<Traces> traces(static_cast<Traces*>(memory),
                                       [](Traces* all) { munmap(all, sizeof(Traces)); });
  ranks::Run(size, [&](int, Communicator& comm) {
    EXPECT_EQ(comm.Barrier().message(), "");
    for (size_t law = 0; law < std::size(kLaws); ++law) {
      // Two calls write the agreement, which the next ones find written.
      for (int i = 0; i < 3; ++i) {
        Blocks blocks(comm.size(), kLaws[law].each(comm.size()));
        EXPECT_EQ(kLaws[law].call(comm, &blocks, [](const Run& run) { return run(); }).message(),
                  "");
      }
      for (const int rank : traced) {
        EXPECT_EQ(CallOnce(kLaws[law], comm, rank, &traces->of[law][rank]).message(), "");
      }
    }
  });
  return traces;
}

}  // namespace

TEST(NoLineHasTwoWriters) {
  constexpr int kRanks = 5;
  std::vector<int> all(kRanks);
  std::iota(all.begin(), all.end(), 0);
  const auto traces = Measure(kRanks, all);
  for (size_t law = 0; law < std::size(kLaws); ++law) {
    std::map<uint32_t, int> writers;
    for (const int rank : all) {
      const std::set<uint32_t> lines = traces->of[law][rank].Lines(true);
      EXPECT_TRUE(!lines.empty());
      for (const uint32_t line : lines) {
        const int writer = writers.emplace(line, rank).first->second;
        if (writer == rank) continue;
        check::Fail(__FILE__, __LINE__,
                    std::string(kLaws[law].name) + ": ranks " + std::to_string(writer) + " and " +
                        std::to_string(rank) + " write line " + std::to_string(line));
      }
    }
  }
}

TEST(CostsGrowAsTheirLawsSay) {
  std::map<int, std::shared_ptr<Traces>> at;
  for (const int size : {2, 8, kMostRanks}) at[size] = Measure(size, {size / 2});
  for (size_t law = 0; law < std::size(kLaws); ++law) {
    std::map<int, std::vector<double>> costs;
    for (const auto& [size, traces] : at) {
      const Trace& trace = traces->of[law][size / 2];
      costs[size] = {static_cast<double>(trace.instructions),
                     static_cast<double>(trace.Lines(true).size()),
                     static_cast<double>(trace.Lines(false).size())};
    }
    const double slopes[] = {kLaws[law].instructions, kLaws[law].written, kLaws[law].read};
    const char* const of[] = {"instructions", "lines written", "lines"};
    for (size_t i = 0; i < std::size(slopes); ++i) {
      std::printf("%-22s %-14s", kLaws[law].name, of[i]);
      for (const auto& [size, cost] : costs) std::printf("  %d ranks %5.0f", size, cost[i]);
      const double slope = (costs[kMostRanks][i] - costs[2][i]) / (kMostRanks - 2);
      std::printf("  per rank %.1f, at most %.1f\n", slope, slopes[i]);
      for (const auto& [size, cost] : costs) {
        EXPECT_TRUE(cost[i] <= costs[2][i] + slopes[i] * (size - 2));
      }
    }
  }
}

#else

TEST(NeedsAnX86ProcessorWithoutSanitizers) {
  std::printf("skipped\n");
}

#endif
