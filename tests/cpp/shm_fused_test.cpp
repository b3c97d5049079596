// Fused calls on shm: what holds when ranks refuse, disagree, die or are late in the middle of one.
#include <csignal>
#include <cstring>
#include <thread>

#include "comm/fused_call.h"
#include "ranks.h"

namespace {

using collops::Agreement;
using collops::Communicator;
using collops::DType;
using collops::FusedCall;
using collops::FusedCallSpec;
using collops::MatrixPart;
using collops::Status;
using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// A call of all ranks that reads every rank's matrix of int32 and adds up what it reads. The tiles
// hold one number per rank, which the others read after its signal.
struct Adding {
  int64_t rows = 5;
  int64_t row_bytes = 40;
  int64_t k = 10;
  int64_t row_unit = 1;
  std::vector<int64_t> list = {};  // empty: `rows` for every rank
  Status (*meanwhile)(int rank, FusedCall* call) = nullptr;

  int64_t sum = 0;
  int64_t tile_sum = 0;
  bool whole_units = true;  // of every part but those that end with the matrix

  Status Run(Communicator* comm, const void* x) {
    std::vector<int> ranks;
    for (int r = 0; r < comm->size(); ++r) ranks.push_back(r);
    std::vector<int64_t> rows_of = list;
    if (rows_of.empty()) rows_of.assign(ranks.size(), rows);
    Agreement agreement("LinearParallel");
    agreement.Equal("k", k)
        .EqualInGroup("gatherRows", ranks, comm->rank(), rows_of)
        .EqualInGroup("scatterRows", ranks, comm->rank(), rows_of);
    FusedCallSpec spec;
    spec.agreement = &agreement;
    spec.dtype = DType::kInt32;
    spec.readers = &ranks;
    spec.reader_rows = &rows_of;
    spec.row_bytes = row_bytes;
    spec.row_unit = row_unit;
    spec.x = x;
    spec.tile_bytes = 4096;
    sum = tile_sum = 0;
    return comm->RunFused(spec, [&](FusedCall* call) { return Body(comm, call); });
  }

  Status Body(Communicator* comm, FusedCall* call) {
    const int size = comm->size();
    RETURN_IF_ERROR(call->Wait([&] { return call->TilesFree(); }));
    const int64_t mine = 1000 + comm->rank();
    std::memcpy(call->tiles(), &mine, sizeof(mine));
    call->Signal(0, 1);
    if (meanwhile != nullptr) RETURN_IF_ERROR(meanwhile(comm->rank(), call));
    RETURN_IF_ERROR(call->Wait([&] {
      bool all_read = true;
      for (size_t i = 0; i < static_cast<size_t>(size); ++i) {
        MatrixPart part;
        while (call->NextPart(i, &part)) {
          Add(part);
          call->ReleasePart(i);
        }
        all_read = all_read && call->AllRead(i);
      }
      return all_read;
    }));
    for (int r = 0; r < size; ++r) {
      RETURN_IF_ERROR(call->Wait([&] { return call->Heard(r) && call->Signalled(r, 0) == 1; }));
      const std::byte* tiles = call->tiles();
      if (r != comm->rank()) RETURN_IF_ERROR(call->PeerTiles(r, &tiles));
      int64_t theirs = 0;
      std::memcpy(&theirs, tiles, sizeof(theirs));
      tile_sum += theirs;
    }
    return collops::Ok();
  }

  void Add(const MatrixPart& part) {
    if (part.row % row_unit != 0) whole_units = false;
    if (part.rows % row_unit != 0 && part.row + part.rows != rows) whole_units = false;
    for (int64_t row = 0; row < part.rows; ++row) {
      for (int64_t byte = part.begin; byte < part.end; byte += 4) {
        int32_t value = 0;
        std::memcpy(&value, part.data + row * part.ld_bytes + byte - part.begin, sizeof(value));
        sum += value;
      }
    }
  }
};

int64_t Fill(int rank, int round, int64_t count, int32_t* x) {
  int64_t sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    x[i] = static_cast<int32_t>((i * 7 + rank * 13 + round * 31) % 1009);
    sum += x[i];
  }
  return sum;
}

// Plain memory and windows, matrices for the slot, for one part and for many, round after round
// with memory that is written anew as soon as the call has returned.
void ManyRounds(int rank, Communicator& comm) {
  struct Size {
    int64_t rows, row_bytes;
  };
  const Size sizes[] = {{5, 40}, {300, 4000}, {30, 100000}, {0, 64}, {1, 3000000}};
  const int64_t units[] = {24, 1, 7, 2048};
  for (int round = 0; round < 40; ++round) {
    const Size& size = sizes[round % 5];
    const int64_t count = size.rows * size.row_bytes / 4;
    Adding call;
    call.rows = size.rows;
    call.row_bytes = size.row_bytes;
    call.row_unit = units[round % 4];
    std::vector<int32_t> plain(static_cast<size_t>(count) + 1);
    int32_t* x = plain.data();
    std::shared_ptr<collops::Window> window;
    if (round % 3 == 0) {
      EXPECT_EQ(comm.AllocateWindow(count * 4, &window).message(), "");
      x = static_cast<int32_t*>(window->data());
    }
    int64_t expected = 0;
    std::vector<int32_t> scratch(static_cast<size_t>(count) + 1);
    for (int r = 0; r < comm.size(); ++r) expected += Fill(r, round, count, scratch.data());
    Fill(rank, round, count, x);
    EXPECT_EQ(call.Run(&comm, x).message(), "");
    std::memset(x, 0x5a, static_cast<size_t>(count) * 4);
    EXPECT_EQ(call.sum, expected);
    EXPECT_TRUE(call.whole_units);
    EXPECT_EQ(call.tile_sum, comm.size() * 1000 + comm.size() * (comm.size() - 1) / 2);
  }
}

}  // namespace

TEST(EveryPartIsReadOverProcesses) {
  for (const int size : {1, 2, 3, 5}) ranks::Run(size, ManyRounds);
}

TEST(EveryPartIsReadOverThreads) {
  ranks::RunThreads(3, ManyRounds);
}

// Signals keep the low 40 bits of a call's number.
TEST(CallsGoOnWhereTheirNumberOutgrowsTheSignals) {
  const collops::JobIdentity job = ranks::FreshJob();
  collops::CommunicatorSpec spec;
  spec.backend = "shm";
  spec.rank_size = 3;
  spec.timeout_s = 2;
  std::vector<pid_t> pids;
  for (; spec.rank < spec.rank_size; ++spec.rank) {
    pids.push_back(ranks::Start([&] {
      constexpr uint64_t kStepsBefore = (uint64_t{1} << 40) - 20;
      collops::shm::ShmCommunicator comm(std::make_shared<collops::control::Control>(
          spec, job, collops::shm::Layout::Bytes(spec.rank_size), kStepsBefore));
      ManyRounds(spec.rank, comm);
    }));
  }
  for (const pid_t pid : pids) {
    const ranks::Ended ended = ranks::Wait(pid);
    EXPECT_TRUE(ended.exited);
    EXPECT_EQ(ended.code, 0);
  }
}

TEST(ARefusalEndsTheCallAndTheNextOneWorks) {
  ranks::Run(3, [](int rank, Communicator& comm) {
    std::vector<int32_t> x(300 * 1000, rank);
    Adding call;
    call.rows = 300;
    call.row_bytes = 4000;
    for (int round = 0; round < 10; ++round) {
      if (rank == round % 3) {
        const Status bad(collops::ERROR_INVALID_PARAM, "the weight is wrong");
        EXPECT_TRUE(comm.Refuse("LinearParallel", bad).ok());
      } else {
        const Status status = call.Run(&comm, x.data());
        EXPECT_EQ(status.code(), collops::ERROR_RANK_MISMATCH);
        EXPECT_CONTAINS(status.message(), "the weight is wrong");
      }
      EXPECT_FALSE(comm.failed());
      EXPECT_EQ(call.Run(&comm, x.data()).message(), "");
      EXPECT_EQ(call.sum, 300 * 1000 * 3);
    }
  });
}

TEST(RanksThatDisagreeAllHearOfIt) {
  struct Fault {
    const char* words;
    void (*plant)(Adding*);
  };
  const Fault faults[] = {
      {"k is ", [](Adding* call) { call->k = 11; }},
      {"gatherRows[1] is ", [](Adding* call) { call->list = {5, 6, 5}; }},
  };
  for (const Fault& fault : faults) {
    ranks::Run(3, [&](int rank, Communicator& comm) {
      std::vector<int32_t> x(60, rank);
      Adding call;
      if (rank == 1) fault.plant(&call);
      const Status status = call.Run(&comm, x.data());
      EXPECT_EQ(status.code(), collops::ERROR_RANK_MISMATCH);
      EXPECT_CONTAINS(status.message(), fault.words);
      EXPECT_CONTAINS(status.message(), "rank 1");
    });
  }
}

TEST(AnotherOperatorIsADisagreement) {
  ranks::Run(2, [](int rank, Communicator& comm) {
    std::vector<int32_t> x(50, rank);
    Adding call;
    const Status status = rank == 0 ? comm.Barrier() : call.Run(&comm, x.data());
    EXPECT_EQ(status.code(), collops::ERROR_RANK_MISMATCH);
    EXPECT_CONTAINS(status.message(), "Barrier");
    EXPECT_CONTAINS(status.message(), "LinearParallel");
  });
}

TEST(ARankThatDiesInsideIsReportedWithinASecond) {
  const collops::JobIdentity job = ranks::FreshJob();
  const pid_t dying = ranks::Start([&] {
    const auto comm = ranks::Make(job, 1, 2);
    std::vector<int32_t> x(50);
    Adding call;
    EXPECT_EQ(call.Run(comm.get(), x.data()).message(), "");
    call.meanwhile = [](int, FusedCall*) {
      raise(SIGKILL);
      return collops::Ok();
    };
    static_cast<void>(call.Run(comm.get(), x.data()));
  });
  const pid_t survivor = ranks::Start([&] {
    const auto comm = ranks::Make(job, 0, 2);
    std::vector<int32_t> x(50);
    Adding call;
    EXPECT_EQ(call.Run(comm.get(), x.data()).message(), "");
    const Clock::time_point start = Clock::now();
    call.list = {5, 5};
    const Status status = call.Run(comm.get(), x.data());
    EXPECT_TRUE(status.ok() || status.code() == collops::ERROR_PEER_LOST);
    const Status next = status.ok() ? call.Run(comm.get(), x.data()) : status;
    EXPECT_EQ(next.code(), collops::ERROR_PEER_LOST);
    EXPECT_CONTAINS(next.message(), "rank 1 (pid ");
    EXPECT_TRUE(SecondsSince(start) < 1.5);
  });
  EXPECT_FALSE(ranks::Wait(dying).exited);
  const ranks::Ended ended = ranks::Wait(survivor);
  EXPECT_TRUE(ended.exited);
  EXPECT_EQ(ended.code, 0);
}

// Computes for 2 s, in which it looks now and then and never waits.
Status Compute(int /*rank*/, FusedCall* call) {
  const Clock::time_point start = Clock::now();
  while (SecondsSince(start) < 2) {
    RETURN_IF_ERROR(call->Progress());
    usleep(1000);
  }
  return collops::Ok();
}

Status DieSoon(int /*rank*/, FusedCall* /*call*/) {
  usleep(200000);
  raise(SIGKILL);
  return collops::Ok();
}

TEST(ARankThatDiesIsReportedToOneThatComputes) {
  const collops::JobIdentity job = ranks::FreshJob();
  const pid_t dying = ranks::Start([&] {
    const auto comm = ranks::Make(job, 1, 2);
    std::vector<int32_t> x(50);
    Adding call;
    call.meanwhile = DieSoon;
    static_cast<void>(call.Run(comm.get(), x.data()));
  });
  const pid_t survivor = ranks::Start([&] {
    const auto comm = ranks::Make(job, 0, 2);
    EXPECT_EQ(comm->Connect().message(), "");
    std::vector<int32_t> x(50);
    Adding call;
    call.meanwhile = Compute;
    const Clock::time_point start = Clock::now();
    const Status status = call.Run(comm.get(), x.data());
    EXPECT_EQ(status.code(), collops::ERROR_PEER_LOST);
    EXPECT_CONTAINS(status.message(), "rank 1 (pid ");
    EXPECT_TRUE(SecondsSince(start) < 1.2);
  });
  EXPECT_FALSE(ranks::Wait(dying).exited);
  const ranks::Ended ended = ranks::Wait(survivor);
  EXPECT_TRUE(ended.exited);
  EXPECT_EQ(ended.code, 0);
}

// A call that some ranks are in the middle of: they read each other's matrices part by part, more
// of them than the stage holds at once, when another one does something 50 ms late.
struct Late {
  static constexpr int64_t kRows = 900;
  static constexpr int64_t kRowBytes = 4000;
  std::vector<int32_t> x = std::vector<int32_t>(kRows * kRowBytes / 4);
  Adding call;

  Late() {
    call.rows = kRows;
    call.row_bytes = kRowBytes;
  }

  // A right call of all ranks, with data of its own.
  void Right(int rank, int round, Communicator& comm) {
    int64_t expected = 0;
    const auto count = static_cast<int64_t>(x.size());
    for (int r = 0; r < comm.size(); ++r) expected += Fill(r, round, count, x.data());
    Fill(rank, round, count, x.data());
    EXPECT_EQ(call.Run(&comm, x.data()).message(), "");
    EXPECT_EQ(call.sum, expected);
  }
};

TEST(ARefusalThatComesLateIsHeardInTheMiddle) {
  ranks::Run(3, [](int rank, Communicator& comm) {
    Late late;
    for (int round = 0; round < 6; ++round) {
      late.Right(rank, 2 * round, comm);
      Fill(rank, 2 * round + 1, static_cast<int64_t>(late.x.size()), late.x.data());
      const Clock::time_point start = Clock::now();
      if (rank == round % 3) {
        usleep(50000);
        const Status bad(collops::ERROR_INVALID_PARAM, "the weight is wrong");
        EXPECT_TRUE(comm.Refuse("LinearParallel", bad).ok());
      } else {
        const Status status = late.call.Run(&comm, late.x.data());
        EXPECT_EQ(status.code(), collops::ERROR_RANK_MISMATCH);
        EXPECT_CONTAINS(status.message(), "the weight is wrong");
      }
      EXPECT_FALSE(comm.failed());
      EXPECT_TRUE(SecondsSince(start) < 1);
    }
    late.Right(rank, 99, comm);
  });
}

TEST(ADisagreementThatComesLateEndsTheGroup) {
  ranks::Run(3, [](int rank, Communicator& comm) {
    Late late;
    late.Right(rank, 0, comm);
    if (rank == 1) {
      usleep(50000);
      late.call.k = 11;
    }
    const Clock::time_point start = Clock::now();
    const Status status = late.call.Run(&comm, late.x.data());
    EXPECT_EQ(status.code(), collops::ERROR_RANK_MISMATCH);
    EXPECT_CONTAINS(status.message(), "k is ");
    EXPECT_CONTAINS(status.message(), "rank 1");
    EXPECT_TRUE(SecondsSince(start) < 1);
    EXPECT_TRUE(comm.failed());
  });
}

// It never comes to the call, or it dies in the middle of it.
TEST(ADeathThatComesLateIsReportedToAll) {
  for (const bool inside : {false, true}) {
    const collops::JobIdentity job = ranks::FreshJob();
    const auto body = [&](int rank) {
      const auto comm = ranks::Make(job, rank, 3);
      Late late;
      late.Right(rank, 0, *comm);
      if (rank == 1) {
        if (inside) late.call.meanwhile = DieSoon;
        usleep(50000);
        if (!inside) raise(SIGKILL);
      }
      const Clock::time_point start = Clock::now();
      const Status status = late.call.Run(comm.get(), late.x.data());
      EXPECT_EQ(status.code(), collops::ERROR_PEER_LOST);
      EXPECT_CONTAINS(status.message(), "rank 1 (pid ");
      EXPECT_TRUE(SecondsSince(start) < 1.3);
    };
    std::vector<pid_t> pids;
    for (int rank = 0; rank < 3; ++rank) {
      pids.push_back(ranks::Start([&] { body(rank); }));
    }
    for (int rank = 0; rank < 3; ++rank) {
      const ranks::Ended ended = ranks::Wait(pids[static_cast<size_t>(rank)]);
      EXPECT_EQ(ended.exited, rank != 1);
      EXPECT_EQ(ended.code, 0);
    }
  }
}

TEST(ARankThatNeverComesIsNamedAtTheTimeOut) {
  ranks::Run(
      2,
      [](int rank, Communicator& comm) {
        std::vector<int32_t> x(50);
        Adding call;
        EXPECT_EQ(call.Run(&comm, x.data()).message(), "");
        if (rank == 1) {
          usleep(1500000);
          return;
        }
        const Status status = call.Run(&comm, x.data());
        EXPECT_EQ(status.code(), collops::ERROR_TIMEOUT);
        EXPECT_CONTAINS(status.message(), "rank 1");
      },
      0.5);
}
