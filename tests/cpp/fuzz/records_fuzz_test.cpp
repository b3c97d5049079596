// A rank that writes arbitrary numbers into its part of the shared memory, and arbitrary mails,
// before and during its calls: the other rank gets an error or a result, in time, and touches
// nothing outside its tensors, which end at pages that nobody may touch.
#include <sys/mman.h>
#include <sys/prctl.h>

#include <atomic>
#include <cstring>

#include "collops/comm/backends/shm/exchange.h"
#include "collops/comm/control/board.h"
#include "collops/comm/control/first_contact/local_socket.h"
#include "fuzz/mutation.h"
#include "ranks.h"
#include "run_call.h"

namespace {

using collops::Agreement;
using collops::Communicator;
using collops::DType;
using collops::Status;
using collops::Transfer;
using collops::control::kPageBytes;
using collops::control::Member;
using collops::shm::CallRecord;
using collops::shm::PairLayout;
using collops::shm::SegmentLayout;
using Clock = std::chrono::steady_clock;

constexpr int kRanks = 2, kHonest = 0, kLiar = 1;
constexpr double kTimeoutS = 0.25;
const double kInTimeS = check::Patience(10.0);  // for a time-out and a machine that is busy
constexpr int64_t kCount[] = {1, 700, 40'000, 200'000};

// Numbers that end where the page behind may not be touched; the page before may not be either.
class Guarded {
 public:
  explicit Guarded(int64_t count)
      : bytes_(collops::control::RoundUp(count * 8 + 8, kPageBytes) + 2 * kPageBytes),
        base_(static_cast<std::byte*>(mmap(nullptr, static_cast<size_t>(bytes_),
                                           PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                                           0))) {
    EXPECT_TRUE(base_ != MAP_FAILED);
    mprotect(base_, kPageBytes, PROT_NONE);
    mprotect(base_ + bytes_ - kPageBytes, kPageBytes, PROT_NONE);
    data_ = reinterpret_cast<int64_t*>(base_ + bytes_ - kPageBytes) - count;
    data_[-1] = kCanary;
    std::fill(data_, data_ + count, 7);
  }
  ~Guarded() {
    EXPECT_EQ(data_[-1], kCanary);
    munmap(base_, static_cast<size_t>(bytes_));
  }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;
  int64_t* data() const { return data_; }

 private:
  static constexpr int64_t kCanary = 0x5ca1ab1e5ca1ab1e;
  int64_t bytes_;
  std::byte* base_;
  int64_t* data_;
};

Status Gather(Communicator& comm, int64_t count, const int64_t* x) {
  const Guarded output(kRanks * count);
  const int64_t counts[] = {count, count};
  const int64_t displs[] = {0, count};
  Agreement agreement("AllGatherV");
  agreement.EqualText("dtype", "int64").EqualList("recvCounts", counts, kRanks);
  collops::AllGatherVCall call;
  call.agreement = &agreement;
  call.dtype = DType::kInt64;
  call.x = x;
  call.output = output.data();
  call.recv_counts = counts;
  call.rdispls = displs;
  return comm.AllGatherV(call);
}

Status Reduce(Communicator& comm, int64_t count, const int64_t* x) {
  const Guarded output(count);
  Agreement agreement("AllReduce");
  agreement.EqualText("dtype", "int64").Equal("count", count);
  collops::AllReduceCall call;
  call.agreement = &agreement;
  call.dtype = DType::kInt64;
  call.x = x;
  call.count = count;
  call.output = output.data();
  return comm.AllReduce(call);
}

Status Exchange(Communicator& comm, int64_t count, const int64_t* x) {
  const Guarded output(count + 1);
  const int rank = comm.rank();
  const int64_t sent[] = {rank == 0 ? 1 : count, rank == 0 ? count : 1};
  const int64_t received[] = {rank == 0 ? 1 : count, rank == 0 ? count : 1};
  const int64_t sdispls[] = {0, 0};
  const int64_t rdispls[] = {0, received[0]};
  Agreement agreement("AllToAllV");
  agreement.Pairwise("sendCounts", sent, "recvCounts", received, rank, kRanks);
  collops::ExchangeVCall call;
  call.agreement = &agreement;
  call.dtype = DType::kInt64;
  call.x = x;
  call.send_counts = sent;
  call.sdispls = sdispls;
  call.output = output.data();
  call.recv_counts = received;
  call.rdispls = rdispls;
  return comm.ExchangeV(call);
}

Status Message(Communicator& comm, int64_t count, int64_t* x) {
  const Guarded output(count);
  Transfer list[2];
  for (Transfer& transfer : list) {
    transfer.peer = 1 - comm.rank();
    transfer.digest = static_cast<uint64_t>(count);
    transfer.dtype = DType::kInt64;
    transfer.elements = count;
    transfer.bytes = count * 8;
    transfer.data = x;
  }
  list[1].way = Transfer::kRecv;
  list[1].data = output.data();
  return comm.Messages("exchange", list, 2);
}

// One call; both ranks draw the same one. A window is this rank's own, so that the other maps it.
Status Call(Communicator& comm, fuzz::Random* shared) {
  const int64_t count = kCount[fuzz::Below(shared, std::size(kCount))];
  const size_t kind = fuzz::Below(shared, 5);
  const bool in_window = fuzz::Below(shared, 3) == 0;
  const Guarded plain(count);
  int64_t* x = plain.data();
  std::shared_ptr<collops::Window> window;
  if (in_window && comm.AllocateWindow(count * 8, &window).ok()) {
    x = static_cast<int64_t*>(window->data());
  }
  switch (kind) {
    case 0:
      return Gather(comm, count, x);
    case 1:
      return Reduce(comm, count, x);
    case 2:
      return Exchange(comm, count, x);
    case 3:
      return Message(comm, count, x);
    default:
      return comm.Barrier();
  }
}

struct Region {
  void* begin;
  size_t bytes;
};

// All that the liar writes of its own, as the layouts say; data of its tensors it may write anyway.
std::vector<Region> OwnMemory(Communicator& comm) {
  const auto& board = ControlOf(comm).endpoint().board();
  const SegmentLayout layout(ControlOf(comm).backend_memory(), kRanks);
  const PairLayout pairs(layout.pairs(), kRanks);
  std::vector<Region> regions = {{&board.member(kLiar), sizeof(Member)},
                                 {&board.group(), sizeof(board.group())}};
  for (const uint64_t parity : {0, 1}) {
    regions.push_back({&layout.call_record(kLiar, parity), offsetof(CallRecord, data)});
    regions.push_back({&layout.call_record(kLiar, parity), offsetof(CallRecord, data)});
    regions.push_back(
        {board.agreement(kLiar, parity), static_cast<size_t>(Agreement::EncodedBytes(kRanks))});
    regions.push_back({board.refusal_reason(kLiar, parity), 64});
    regions.push_back({board.shared(kLiar, parity), 64});
  }
  for (const int reader : {kHonest, kLiar}) {
    regions.push_back({&layout.produced(kLiar, reader), 8});
    regions.push_back({&layout.consumed(reader, kLiar), 8});
  }
  for (int i = 0; i < SegmentLayout::NumFusedSignals(kRanks); ++i) {
    regions.push_back({&layout.fused_signal(kLiar, i), 8});
  }
  for (uint64_t number = 0; number < collops::shm::kPairSlots; ++number) {
    regions.push_back({&pairs.envelope(kLiar, kHonest, number), 64 + 32});
  }
  regions.push_back({&pairs.receiver_line(kHonest, kLiar), sizeof(collops::shm::ReceiverLine)});
  regions.push_back({&pairs.sender_line(kLiar, kHonest), sizeof(collops::shm::SenderLine)});
  return regions;
}

void Lie(const std::vector<Region>& regions, fuzz::Random* own) {
  const Region region = regions[fuzz::Below(own, regions.size())];
  const size_t width = size_t{1} << fuzz::Below(own, 4);
  const size_t at = fuzz::Below(own, region.bytes / width) * width;
  auto* const place = static_cast<char*>(region.begin) + at;
  uint64_t number = 0;
  std::memcpy(&number, place, width);
  switch (fuzz::Below(own, 4)) {
    case 0:
      number += fuzz::NumberAtAnEnd(own);
      break;
    case 1:
      number ^= uint64_t{1} << fuzz::Below(own, 8 * width);
      break;
    case 2:
      number = (*own)();
      break;
    default:
      number = fuzz::NumberAtAnEnd(own);
      break;
  }
  std::memcpy(place, &number, width);
}

// A mail of a window as WindowMail sends it, with wrong numbers, and sometimes with a descriptor
// that is no window.
void SendLyingMail(Communicator& comm, fuzz::Random* own) {
  struct {
    int32_t rank;
    uint32_t window_id;
    int64_t bytes;
  } mail = {kLiar, static_cast<uint32_t>(fuzz::Below(own, 5)), 0};
  if (fuzz::Below(own, 2) == 0) mail.bytes = static_cast<int64_t>(fuzz::NumberAtAnEnd(own));
  if (fuzz::Below(own, 4) == 0) mail.rank = static_cast<int32_t>(fuzz::NumberAtAnEnd(own));
  const int mailbox = ControlOf(comm).endpoint().group().peers[kHonest].mailbox.get();
  std::vector<int> fds;
  const collops::control::UniqueFd file(memfd_create("a lie", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (fuzz::Below(own, 2) == 0) fds.push_back(file.get());
  const size_t bytes = fuzz::Below(own, 8) == 0 ? fuzz::Below(own, sizeof(mail)) : sizeof(mail);
  static_cast<void>(collops::control::Send(mailbox, &mail, bytes, fds));
}

// The liar's side of a Gather, made by hand: a step that the ranks agree on, and a call record of
// drawn numbers, published as a rank would. What a real call writes is right until it is published,
// so lies at drawn moments hardly ever meet the moment at which the other rank reads.
Status ForgedGather(Communicator& comm, int64_t count, fuzz::Random* own) {
  const int64_t counts[] = {count, count};
  Agreement agreement("AllGatherV");
  agreement.EqualText("dtype", "int64").EqualList("recvCounts", counts, kRanks);
  auto& control = ControlOf(comm);
  return RunCall(control, "AllGatherV", [&]() -> Status {
    collops::control::Step& step = control.step();
    COLLOPS_RETURN_IF_ERROR(step.Begin(agreement, kTimeoutS));
    const SegmentLayout layout(control.backend_memory(), kRanks);
    CallRecord& mine = layout.call_record(kLiar, step.number());
    mine.mails = layout.call_record(kLiar, step.number() - 1).mails;
    if (fuzz::Below(own, 8) == 0) mine.mails += fuzz::NumberAtAnEnd(own);
    mine.place = static_cast<collops::shm::InputPlace>(fuzz::Below(own, 4));
    if (fuzz::Below(own, 2) == 0) mine.place = collops::shm::InputPlace::kWindow;
    mine.window_id = static_cast<uint32_t>(fuzz::Below(own, 3));
    mine.window_offset = static_cast<int64_t>(fuzz::NumberAtAnEnd(own));
    mine.tile_window_id = static_cast<uint32_t>(fuzz::NumberAtAnEnd(own));
    std::memset(static_cast<void*>(&mine.staged_first), static_cast<int>(fuzz::Below(own, 256)), 1);
    step.Publish();
    layout.produced(kLiar, kLiar).count.store(fuzz::NumberAtAnEnd(own));
    layout.produced(kLiar, kHonest).count.store(fuzz::NumberAtAnEnd(own));
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return collops::Ok();
  });
}

// Gathers that only the honest rank makes as it should, once the liar has shared a window.
Status CallBesideForgery(Communicator& comm, int number, fuzz::Random* own) {
  constexpr int64_t kMany = 40'000;
  if (number > 0 && comm.rank() == kLiar) return ForgedGather(comm, kMany, own);
  std::shared_ptr<collops::Window> window;
  COLLOPS_RETURN_IF_ERROR(comm.AllocateWindow(kMany * 8, &window));
  return Gather(comm, kMany, static_cast<int64_t*>(window->data()));
}

struct Outcome {
  int calls = 0;
  int good = 0;
};

// One communicator, and calls until one has failed.
Outcome Calls(const collops::JobIdentity& job, int rank, uint64_t seed) {
  const auto comm = ranks::Make(job, rank, kRanks, check::Patience(20));
  Outcome outcome;
  if (!EXPECT_EQ(comm->Connect().message(), "")) return outcome;
  comm->set_timeout_s(kTimeoutS);
  fuzz::Random shared(seed), own(~seed);
  std::atomic<bool> over{rank != kLiar};
  const std::vector<Region> regions = OwnMemory(*comm);
  std::thread liar([&] {
    fuzz::Random during(seed * 3);
    const bool lies = seed % 3 == 0;
    while (!over) {
      if (lies) Lie(regions, &during);
      std::this_thread::sleep_for(std::chrono::microseconds(300));
    }
  });
  for (Status status; status.ok() && outcome.calls < 4; ++outcome.calls) {
    if (rank == kLiar && seed % 3 == 1) {
      Lie(regions, &own);
      if (fuzz::Below(&own, 3) == 0) SendLyingMail(*comm, &own);
    }
    const auto begin = Clock::now();
    status = seed % 3 == 2 ? CallBesideForgery(*comm, outcome.calls, &own) : Call(*comm, &shared);
    const std::chrono::duration<double> took = Clock::now() - begin;
    if (rank == kHonest) EXPECT_TRUE(took.count() < kInTimeS);
    outcome.good += status.ok() ? 1 : 0;
  }
  over = true;
  liar.join();
  comm->Close("the end");
  return outcome;
}

}  // namespace

TEST(ARankThatLiesAboutItsRecordsHarmsNoOther) {
  const int rounds = fuzz::Rounds(24);
  const collops::JobIdentity job = ranks::FreshJob();
  const auto play = [&](int round, int rank) {
    const collops::JobIdentity one = {job.id + "-" + std::to_string(round), job.source};
    return Calls(one, rank, static_cast<uint64_t>(round) + 100);
  };
  const pid_t honest = ranks::Start([&] {
    Outcome all;
    for (int round = 0; round < rounds; ++round) {
      const Outcome outcome = play(round, kHonest);
      all.calls += outcome.calls;
      all.good += outcome.good;
    }
    std::printf("records: %d calls beside a liar, %d of them without an error\n", all.calls,
                all.good);
    EXPECT_TRUE(all.good > 0 && all.good < all.calls);
  });
  // The liar may harm itself, so each is a process of its own.
  const pid_t liars = ranks::Start([&] {
    for (int round = 0; round < rounds; ++round) {
      ranks::Wait(ranks::Start([&] {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        play(round, kLiar);
      }));
    }
  });
  const ranks::Ended ended = ranks::Wait(honest, 600);
  EXPECT_TRUE(ended.exited);  // and was not ended by a signal
  EXPECT_EQ(ended.code, 0);
  if (ended.code != 0 || !ended.exited) kill(liars, SIGKILL);  // they would wait for it
  ranks::Wait(liars, 600);
}
