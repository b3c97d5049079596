// The window of a fused call on shm: what a rank may write and read in it, and when.
#include <atomic>
#include <cstring>

#include "collops/comm/backends/shm/communicator.h"
#include "collops/comm/fused_call.h"
#include "ranks.h"

namespace {

using collops::Agreement;
using collops::Communicator;
using collops::DType;
using collops::FusedBody;
using collops::FusedCall;
using collops::FusedCallSpec;
using collops::Ok;
using collops::Status;

// A fused call of all ranks that reads no input; this rank's window has `bytes`.
Status RunFused(Communicator* comm, int64_t bytes, const FusedBody& body) {
  const std::vector<int> alone = {comm->rank()};
  const std::vector<int64_t> rows = {1};
  const int32_t x = 0;
  Agreement agreement("LinearParallel");
  agreement.EqualInGroup("gatherRows", alone, 0, rows);
  FusedCallSpec spec;
  spec.agreement = &agreement;
  spec.dtype = DType::kInt32;
  spec.readers = &alone;
  spec.reader_rows = &rows;
  spec.row_bytes = sizeof(x);
  spec.x = &x;
  spec.tile_bytes = bytes;
  return comm->RunFused(spec, body);
}

Status WaitForAll(const Communicator& comm, FusedCall* call) {
  return call->Wait([&] {
    for (int r = 0; r < comm.size(); ++r) {
      if (!call->HasAnnounced(r)) return false;
    }
    return true;
  });
}

int64_t Number(int rank, int round, int64_t index) {
  return rank * 1000003 + round * 1009 + index;
}

// Rank 0 begins a second call, with a larger window, while rank 1 is still inside the first.
// `reserves`: it reserves the window before, at first for a call that is refused.
void GoOnBesideAReader(int rank, Communicator& comm, bool reserves, std::atomic<bool>* begun) {
  constexpr int64_t kCount = 4096;
  auto& shm = static_cast<collops::shm::ShmCommunicator&>(comm);
  for (int round = 0; round < 2; ++round) {
    const int64_t count = kCount * (1 + 8 * round);
    for (int64_t part = 2; part > 0 && rank == 0 && round == 1 && reserves; --part) {
      EXPECT_EQ(shm.ReserveTiles(count * 8 / part).message(), "");
    }
    const Status status = RunFused(&comm, count * 8, [&](FusedCall* call) {
      if (rank == 0) {
        EXPECT_EQ(call->WindowIsFree(), round == 0);
        *begun = round == 1;
        COLLOPS_RETURN_IF_ERROR(call->Wait([&] { return call->WindowIsFree(); }));
        for (int64_t i = 0; i < count; ++i) {
          const int64_t number = Number(0, round, i);
          std::memcpy(call->window() + i * 8, &number, 8);
        }
        call->Signal(0, 1);
        return Ok();
      }
      COLLOPS_RETURN_IF_ERROR(
          call->Wait([&] { return call->HasAnnounced(0) && call->Signalled(0, 0) == 1; }));
      const std::byte* data = nullptr;
      COLLOPS_RETURN_IF_ERROR(call->PeerWindow(0, &data));
      if (round == 0) COLLOPS_RETURN_IF_ERROR(call->Wait([&] { return begun->load(); }));
      for (int64_t i = 0; i < count; ++i) {
        int64_t number = 0;
        std::memcpy(&number, data + i * 8, 8);
        EXPECT_EQ(number, Number(0, round, i));
      }
      return Ok();
    });
    EXPECT_EQ(status.message(), "");
  }
}

}  // namespace

TEST(AWindowThatAPeerReadsIsNotFreeAndKeepsItsContents) {
  for (const bool reserves : {false, true}) {
    std::atomic<bool> begun{false};
    ranks::RunThreads(
        2, [&](int rank, Communicator& comm) { GoOnBesideAReader(rank, comm, reserves, &begun); });
  }
}

// In each call one rank signals nothing, though it did in the previous call.
TEST(CountsOfAnEarlierCallReadAsZero) {
  ranks::Run(3, [](int rank, Communicator& comm) {
    const int last = 2 * comm.size() - 1;
    for (int round = 0; round < 6; ++round) {
      const Status status = RunFused(&comm, 0, [&](FusedCall* call) {
        const int silent = round % comm.size();
        COLLOPS_RETURN_IF_ERROR(call->Wait([&] { return call->WindowIsFree(); }));
        for (int64_t count = 1; count <= 5 && rank != silent; ++count) call->Signal(last, count);
        COLLOPS_RETURN_IF_ERROR(WaitForAll(comm, call));
        for (int r = 0; r < comm.size(); ++r) {
          EXPECT_EQ(call->Signalled(r, 0), 0);
          if (r == silent) {
            EXPECT_EQ(call->Signalled(r, last), 0);
          } else {
            COLLOPS_RETURN_IF_ERROR(call->Wait([&] { return call->Signalled(r, last) == 5; }));
          }
        }
        return Ok();
      });
      EXPECT_EQ(status.message(), "");
    }
  });
}

// Rank 1 needs more than rank 0 has shared, and must not read beyond it.
TEST(APeersWindowIsCheckedAgainstWhatIsMapped) {
  for (const int64_t shared : {0, 4096}) {
    ranks::Run(2, [shared](int rank, Communicator& comm) {
      constexpr int64_t kWanted = 1 << 20;
      const Status status = RunFused(&comm, rank == 0 ? shared : kWanted, [&](FusedCall* call) {
        COLLOPS_RETURN_IF_ERROR(WaitForAll(comm, call));
        const std::byte* data = nullptr;
        const Status found = call->PeerWindow(1 - rank, &data);
        EXPECT_EQ(found.code(), rank == 0 ? collops::NO_ERROR : collops::ERROR_PEER_LOST);
        EXPECT_EQ(data != nullptr, rank == 0 && shared > 0);
        if (rank == 1) {
          EXPECT_CONTAINS(found.message(), "announced tiles of 1048576 bytes in window ");
          EXPECT_CONTAINS(found.message(), ", which it has not shared");
        }
        return Ok();
      });
      EXPECT_EQ(status.message(), "");
    });
  }
}
