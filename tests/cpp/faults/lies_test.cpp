// A rank that lies about a number or a text in shared memory, each in turn, while calls of all
// kinds run; and one that forges whole call records. The others may get an error or wrong data of
// that rank, but they do not crash, do not wait longer than their time-out, and touch nothing
// beside their tensors, which lie between pages without access. COLLOPS_ALL_FAULTS=1 walks the
// whole table, otherwise a part of it, another one per process.
#include <cstdlib>
#include <random>

#include "faults/doom.h"
#include "faults/shared_fields.h"
#include "faults/ways.h"
#include "run_call.h"

namespace {

using collops::Communicator;
using collops::Status;
using collops::Transfer;

constexpr int kSize = 3;
constexpr double kTimeoutS = 0.25;
constexpr int64_t kLimitNs = int64_t{5000000000};

// The value that is written in the place of a true one.
uint64_t Lie(uint64_t number, uint64_t truth) {
  switch (number % 12) {
    case 0:
      return truth + 1;
    case 1:
      return truth - 1;
    case 2:
      return 0;
    case 3:
      return 1;
    case 4:
      return UINT64_MAX;
    case 5:
      return uint64_t{1} << 63;
    case 6:
      return uint64_t{1} << 31;
    case 7:
      return truth + (uint64_t{1} << 20);
    case 8:
      return truth ^ (uint64_t{1} << (number / 12 % 64));
    case 9:
      return truth * 2 + 3;
    case 10:
      return uint64_t{0x2525252525252525};  // text
    default:
      return (uint64_t{1} << 62) - 7;
  }
}

// Lies about one field again and again, for a moment each time, or for good.
class Liar {
 public:
  Liar(const fields::Field& field, uint64_t seed)
      : field_(field), random_(seed), stays_(seed % 4 == 0), thread_([this] { Run(); }) {}
  ~Liar() {
    stop_ = true;
    thread_.join();
  }
  Liar(const Liar&) = delete;
  Liar& operator=(const Liar&) = delete;

 private:
  uint64_t Read(const std::byte* at) const {
    if (field_.bytes == 8)
      return __atomic_load_n(reinterpret_cast<const uint64_t*>(at), __ATOMIC_RELAXED);
    return __atomic_load_n(reinterpret_cast<const uint32_t*>(at), __ATOMIC_RELAXED);
  }
  void Write(std::byte* at, uint64_t value) const {
    if (field_.bytes == 8)
      return __atomic_store_n(reinterpret_cast<uint64_t*>(at), value, __ATOMIC_RELAXED);
    __atomic_store_n(reinterpret_cast<uint32_t*>(at), static_cast<uint32_t>(value),
                     __ATOMIC_RELAXED);
  }

  void Run() {
    while (!stop_) {
      usleep(static_cast<useconds_t>(random_() % 300));
      const uint64_t number = random_();
      std::vector<uint64_t> truths;
      for (std::byte* at : field_.places) {
        truths.push_back(Read(at));
        Write(at, Lie(number, truths.back()));
      }
      usleep(static_cast<useconds_t>(random_() % 200));
      for (size_t i = 0; i < truths.size() && !stays_; ++i) {
        const uint64_t lie = Lie(number, truths[i]);
        const uint64_t mask = field_.bytes == 8 ? UINT64_MAX : UINT32_MAX;
        // What the rank has written meanwhile stays.
        if (Read(field_.places[i]) == (lie & mask)) Write(field_.places[i], truths[i]);
      }
    }
  }

  const fields::Field& field_;
  std::mt19937_64 random_;
  bool stays_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

// One call on memory between pages without access, or with its x in a window.
Status CallOnce(const ways::Way& way, bool window, Communicator& comm) {
  const int64_t x_bytes = way.x_elements(kSize) * 4;
  doom::Memory plain(x_bytes);
  doom::Memory output(way.output_elements(kSize) * 4);
  int32_t* x = plain.data();
  std::shared_ptr<collops::Window> made;
  if (window) {
    COLLOPS_RETURN_IF_ERROR(comm.AllocateWindow(x_bytes, &made));
    x = static_cast<int32_t*>(made->data());
  }
  way.Fill(comm.rank(), kSize, x);
  const Status status = way.Call(comm, x, output.data());
  EXPECT_TRUE(plain.Whole() && output.Whole());
  for (int64_t i = 0; i < way.x_elements(kSize); i += 997) {
    EXPECT_EQ(x[i], ways::Value(comm.rank(), i));
  }
  return status;
}

Status SplitOnce(Communicator& comm) {
  std::shared_ptr<Communicator> part;
  COLLOPS_RETURN_IF_ERROR(comm.Split(0, comm.rank(), &part));
  return part->Barrier();
}

// Takes no part in a call, so that the others read why.
Status RefuseOnce(const std::string& op, Communicator& comm) {
  const Status reason(collops::ERROR_INVALID_PARAM, "a reason of some length, and no lie so far");
  if (op != "exchange") return comm.Refuse(op.c_str(), reason);
  Transfer both[2];
  both[0].way = Transfer::kSend;
  both[0].peer = (comm.rank() + 1) % comm.size();
  both[1].way = Transfer::kRecv;
  both[1].peer = (comm.rank() + comm.size() - 1) % comm.size();
  both[0].tag = both[1].tag = 3;
  return comm.RefuseMessages("exchange", both, 2, reason);
}

// The calls of one rank, in an order that all ranks have, until one fails. Where a lie is about a
// text, the liar refuses every other call.
void CallAll(uint64_t seed, bool lies, bool refuses, Communicator& comm) {
  std::mt19937_64 order(seed);
  Status status;
  for (int call = 0; call < 8 && status.ok(); ++call) {
    const uint64_t choice = order();
    const auto& ways = ways::All();
    const ways::Way& way = ways[choice % (ways.size() + 1) % ways.size()];
    const bool splits = choice % (ways.size() + 1) == ways.size();
    const bool refused = refuses && call % 2 == 1;
    const int64_t begun_ns = doom::NowNs();
    if (lies && refused) {
      status = RefuseOnce(splits ? "Split" : way.op, comm);
    } else if (splits) {
      status = SplitOnce(comm);
    } else {
      status = CallOnce(way, choice / 64 % 2 == 0, comm);
    }
    // Of a text without an end no more is read than its place has room for.
    EXPECT_TRUE(status.message().size() < 4 * collops::control::kReasonBytes);
    if (refused && status.code() == collops::ERROR_RANK_MISMATCH) status = collops::Ok();
    if (!lies) EXPECT_TRUE(doom::NowNs() - begun_ns < kLimitNs);
  }
}

// Rank `liar` has ended in some way, the others well.
void ExpectNoHarm(const std::vector<pid_t>& pids, int liar) {
  for (int rank = 0; rank < kSize; ++rank) {
    if (rank == liar) continue;
    const ranks::Ended ended = ranks::Wait(pids[static_cast<size_t>(rank)], 30);
    EXPECT_TRUE(ended.exited);
    EXPECT_EQ(ended.code, 0);
  }
  // What becomes of the liar is its own affair.
  kill(pids[static_cast<size_t>(liar)], SIGKILL);
  int status = 0;
  waitpid(pids[static_cast<size_t>(liar)], &status, 0);
}

// One job in which `liar` lies about the field of that number. False: there is no such field.
bool RunJob(size_t number, int liar, uint64_t seed, std::string* name) {
  const collops::JobIdentity job = ranks::FreshJob();
  setenv("COLLOPS_JOB_ID", job.id.c_str(), 1);
  const ranks::Event met, done;
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  std::vector<pid_t> pids;
  for (int rank = 0; rank < kSize; ++rank) {
    pids.push_back(ranks::Start([&, rank] {
      const auto comm = ranks::Make(job, rank, kSize, check::Patience(20));
      EXPECT_EQ(comm->Barrier().message(), "");
      comm->set_timeout_s(kTimeoutS);
      const fields::Table table(*comm, liar);
      const bool there = number < table.all().size();
      const bool is_text = there && table.all()[number].is_text;
      if (rank != liar) {
        met.Set();
        CallAll(seed, false, is_text, *comm);
        return done.Set();
      }
      const std::string word = there ? table.all()[number].name : "";
      EXPECT_TRUE(write(ends[1], word.c_str(), word.size() + 1) > 0);
      met.Wait(kSize - 1);  // no lie may disturb the call in which they met
      if (there) {
        const Liar lies(table.all()[number], seed);
        CallAll(seed, true, is_text, *comm);
        done.Wait(kSize - 1);
      }
    }));
  }
  char text[64] = {};
  EXPECT_TRUE(read(ends[0], text, sizeof(text) - 1) > 0);
  close(ends[0]);
  close(ends[1]);
  *name = text;
  ExpectNoHarm(pids, liar);
  unsetenv("COLLOPS_JOB_ID");
  return !name->empty();
}

// A rank's part in a gather, made by hand: a step that the ranks agree on, and a call record of
// drawn numbers, published as a rank would. What a real call writes is right until it is published,
// so a lie at a drawn moment hardly ever meets the one at which another rank reads.
Status ForgedGather(const ways::Way& way, Communicator& comm, std::mt19937_64* random) {
  using namespace collops::shm;  // NOLINT: the structures of the segment
  auto& control = ControlOf(comm);
  const collops::Agreement terms = ways::Terms("AllGatherV", kSize, ways::Even(kSize, way.each));
  const auto lie = [random] { return Lie((*random)(), 0); };
  return RunCall(control, "AllGatherV", [&]() -> Status {
    collops::control::Step& step = control.step();
    COLLOPS_RETURN_IF_ERROR(step.Begin(terms, kTimeoutS));
    const SegmentLayout layout(control.backend_memory(), kSize);
    CallRecord& mine = layout.call_record(comm.rank(), step.number());
    mine.mails = layout.call_record(comm.rank(), step.number() - 1).mails;
    if ((*random)() % 8 == 0) mine.mails += lie();
    mine.place = static_cast<InputPlace>((*random)() % 4);
    if ((*random)() % 2 == 0) mine.place = InputPlace::kWindow;
    mine.window_id = static_cast<uint32_t>((*random)() % 3);
    mine.window_offset = static_cast<int64_t>(lie());
    mine.tile_window_id = static_cast<uint32_t>(lie());
    mine.staged_first = static_cast<uint32_t>((*random)() % 2);
    step.Publish();
    layout.produced(comm.rank(), 0, kAllRanks).store(lie());
    usleep(5000);
    return collops::Ok();
  });
}

}  // namespace

TEST(NoNumberThatAPeerWritesDoesHarm) {
  const bool all = std::getenv("COLLOPS_ALL_FAULTS") != nullptr;
  const char* const wish = std::getenv("COLLOPS_FAULT_SEED");
  const uint64_t seed = wish != nullptr ? std::strtoull(wish, nullptr, 10) : std::random_device()();
  std::mt19937_64 random(seed);
  const size_t stride = all ? 1 : 24;
  int jobs = 0;
  // A whole walk may begin later in the table.
  const char* const first = std::getenv("COLLOPS_FAULT_FIRST");
  const size_t begin = first != nullptr ? std::strtoull(first, nullptr, 10) : 0;
  for (size_t number = all ? begin : random() % stride;; number += stride) {
    std::string name;
    bool there = true;
    for (int repeat = 0; there && repeat < (all ? 4 : 1); ++repeat) {
      const uint64_t draw = random();
      const int liar = static_cast<int>(draw % kSize);
      const int before = check::Failures();
      there = RunJob(number, liar, draw, &name);
      if (check::Failures() != before) {
        std::printf("  rank %d lied about field %zu, %s; COLLOPS_FAULT_SEED=%llu\n", liar, number,
                    name.c_str(), static_cast<unsigned long long>(seed));
      }
      jobs += there ? 1 : 0;
    }
    if (!there) break;
  }
  std::printf("%d jobs, seed %llu\n", jobs, static_cast<unsigned long long>(seed));
  EXPECT_TRUE(jobs >= 10);
}

TEST(NoCallRecordThatAPeerForgesDoesHarm) {
  constexpr int kForger = 1;
  const uint64_t jobs = std::getenv("COLLOPS_ALL_FAULTS") != nullptr ? 400 : 12;
  const ways::Way& way = ways::All()[1];  // the chunked gather
  for (uint64_t seed = 0; seed < jobs; ++seed) {
    const collops::JobIdentity job = ranks::FreshJob();
    std::vector<pid_t> pids;
    for (int rank = 0; rank < kSize; ++rank) {
      pids.push_back(ranks::Start([&, rank] {
        const auto comm = ranks::Make(job, rank, kSize, check::Patience(20));
        EXPECT_EQ(CallOnce(way, true, *comm).message(), "");  // they know each other's windows
        comm->set_timeout_s(kTimeoutS);
        std::mt19937_64 random(seed);
        Status status;
        for (int call = 0; call < 3 && status.ok(); ++call) {
          const int64_t begun_ns = doom::NowNs();
          status = rank == kForger ? ForgedGather(way, *comm, &random) : CallOnce(way, true, *comm);
          if (rank != kForger) EXPECT_TRUE(doom::NowNs() - begun_ns < kLimitNs);
        }
      }));
    }
    const int before = check::Failures();
    ExpectNoHarm(pids, kForger);
    if (check::Failures() != before) {
      std::printf("  in job %llu\n", static_cast<unsigned long long>(seed));
    }
  }
}
