// The kernel that moves data between ranks, on the CPU: every byte comes where it belongs, however
// few blocks run at once, in place and through the regions, and a rank that does not agree, or does
// not come, is found.
#include <chrono>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "check.h"
#include "collops/core/status.h"
#include "collops/kernels/cuda/peers/move.h"
#include "kernels/cuda_peers.h"

namespace {

using collops::cuda::GatedMove;
using collops::cuda::HostBlock;
using collops::cuda::kInlineBytes;
using collops::cuda::Move;
using collops::cuda::MoveArgs;
using collops::cuda::Part;
using collops::cuda::PeerCall;
using cuda_peers::Buffer;
using cuda_peers::Ranks;

void Launch(const Ranks& ranks, const PeerCall& call, std::mt19937_64& random) {
  cuda_peers::Launch(ranks, MoveArgs{call}, random, Move<HostBlock>, GatedMove<HostBlock>);
}

// What one rank sends to another one: the byte at `i`.
char ByteOf(uint64_t step, int from, int to, int64_t i) {
  return static_cast<char>(
      (i * 7 + i / 251 + from * 31 + to * 101 + static_cast<int64_t>(step) * 13) % 250);
}

// Bytes between ranks, drawn so that some messages are empty, some short and some long.
int64_t DrawBytes(std::mt19937_64& random) {
  switch (random() % 5) {
    case 0:
      return 0;
    case 1:
      return static_cast<int64_t>(random() % 40);
    case 2:
      return kInlineBytes - 2 + static_cast<int64_t>(random() % 5);
    case 3:
      return kInlineBytes + static_cast<int64_t>(random() % 9000);
    default:
      return static_cast<int64_t>(random() % 40000);
  }
}

struct Plan {
  bool same_parts;
  std::vector<std::vector<int64_t>> bytes;  // [from][to]
};

Plan DrawPlan(int size, std::mt19937_64& random) {
  Plan plan{random() % 2 == 0, std::vector<std::vector<int64_t>>(size)};
  for (auto& row : plan.bytes) {
    row.assign(size, DrawBytes(random));
    if (plan.same_parts) continue;
    for (int64_t& bytes : row) bytes = DrawBytes(random);
  }
  return plan;
}

// One rank's memory and call of a plan: messages packed in x, and with gaps in the output.
struct Side {
  PeerCall call = {};
  std::vector<Buffer> memory;

  Side(Ranks& ranks, int rank, const Plan& plan, uint64_t step, std::mt19937_64& random) {
    const int size = ranks.size();
    int64_t x_bytes = 0;
    int64_t output_bytes = 0;
    call.group = ranks.GroupOf(rank);
    call.digest = step * 77;
    call.balance = rank == 0 ? 1 - static_cast<uint64_t>(size) : 1;
    call.same_parts = plan.same_parts ? 1 : 0;
    for (int peer = 0; peer < size; ++peer) {
      Part& part = call.parts[peer];
      part.send_offset = plan.same_parts ? 0 : x_bytes;
      part.send_bytes = plan.bytes[rank][peer];
      x_bytes = part.send_offset + part.send_bytes;
      const int64_t gap = static_cast<int64_t>(random() % 3) * 17;
      if (gap > 0) call.gaps[call.num_gaps++] = {output_bytes, gap};
      part.recv_offset = output_bytes + gap;
      part.recv_bytes = plan.bytes[peer][rank];
      output_bytes = part.recv_offset + part.recv_bytes;
    }
    memory.emplace_back(x_bytes, random() % 3 == 0 ? random() % 16 : 0);
    memory.emplace_back(output_bytes, random() % 3 == 0 ? random() % 16 : 0);
    call.x = memory[0].data();
    call.output = memory[1].data();
    for (int peer = 0; peer < size; ++peer) {
      const Part& part = call.parts[peer];
      for (int64_t i = 0; i < part.send_bytes; ++i) {
        memory[0].data()[part.send_offset + i] = ByteOf(step, rank, plan.same_parts ? 0 : peer, i);
      }
    }
  }

  // After the kernel: x may be written again at once, as its stream's next work does.
  std::string Check(const Plan& plan, int rank, uint64_t step) {
    std::memset(memory[0].data(), 0x77, static_cast<size_t>(memory[0].bytes()));
    for (int peer = 0; peer < call.group.size; ++peer) {
      const Part& part = call.parts[peer];
      for (int64_t i = 0; i < part.recv_bytes; ++i) {
        const char want = ByteOf(step, peer, plan.same_parts ? 0 : rank, i);
        if (call.output[part.recv_offset + i] == want) continue;
        return collops::Concat("rank ", rank, ", step ", step, ": byte ", i, " of ",
                               part.recv_bytes, " from rank ", peer, " is wrong");
      }
    }
    for (int i = 0; i < call.num_gaps; ++i) {
      for (int64_t at = 0; at < call.gaps[i].bytes; ++at) {
        if (call.output[call.gaps[i].offset + at] != 0) return "a gap is not zero";
      }
    }
    return memory[0].HasPoisonAround() && memory[1].HasPoisonAround() ? "" : "memory around";
  }
};

void CheckRounds(int size, bool is_direct, uint64_t steps_before, int calls, uint64_t seed) {
  Ranks ranks(size, is_direct, 3, 4096, steps_before);
  std::vector<std::string> found(static_cast<size_t>(size));
  ranks.Run([&](int rank) {
    std::mt19937_64 plans(seed);
    std::mt19937_64 own(seed * 100 + static_cast<uint64_t>(rank));
    for (int i = 1; i <= calls && found[rank].empty(); ++i) {
      const Plan plan = DrawPlan(size, plans);
      const uint64_t step = steps_before + static_cast<uint64_t>(i);
      Side side(ranks, rank, plan, step, own);
      Launch(ranks, side.call, own);
      found[rank] = side.Check(plan, rank, step);
    }
    if (!found[rank].empty()) ranks.Stop();
  });
  for (const std::string& each : found) EXPECT_EQ(each, std::string());
  for (int rank = 0; rank < size; ++rank) {
    EXPECT_EQ(ranks.Own(rank)->step, steps_before + static_cast<uint64_t>(calls));
    EXPECT_EQ(ranks.VerdictOf(rank).step, uint64_t{0});
  }
}

TEST(EveryByteComesWhereItBelongs) {
  for (const bool is_direct : {true, false}) {
    for (const int size : {1, 2, 3, 5, 8}) {
      CheckRounds(size, is_direct, 0, size > 4 ? 6 : 12, static_cast<uint64_t>(size));
    }
    // The words of cells hold half a step's number.
    CheckRounds(3, is_direct, 0xfffffffaull, 10, 17);
  }
}

// A call of two ranks of which one has other terms: nothing moves, both hosts are told, and later
// calls move nothing.
TEST(NothingMovesWhereTermsDiffer) {
  for (const bool in_balance : {false, true}) {
    Ranks ranks(3, true, 2, 4096, 0);
    std::vector<int> moved(3);
    ranks.Run([&](int rank) {
      std::mt19937_64 random(static_cast<uint64_t>(rank));
      for (uint64_t step = 1; step <= 2; ++step) {
        Side side(ranks, rank, Plan{true, {{9000, 9000, 9000}, {5, 5, 5}, {0, 0, 0}}}, step,
                  random);
        if (rank == 1) ++(in_balance ? side.call.balance : side.call.digest);
        Launch(ranks, side.call, random);
        for (int64_t i = 0; i < side.memory[1].bytes(); ++i) {
          moved[rank] |= side.call.output[i] != Buffer::kPoison ? 1 : 0;
        }
      }
    });
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(moved[rank], 0);
      const collops::cuda::Verdict& verdict = ranks.VerdictOf(rank);
      EXPECT_EQ(verdict.step, uint64_t{1});
      EXPECT_EQ(verdict.digests[1] - verdict.digests[2], uint64_t{in_balance ? 0u : 1u});
      EXPECT_EQ(verdict.balances[1] - verdict.balances[2], uint64_t{in_balance ? 1u : 0u});
      EXPECT_EQ(ranks.Own(rank)->failed, uint32_t{1});
    }
  }
}

// The kernels of ranks whose peer does not come tell the host that they wait, and the host ends
// them.
TEST(TheHostEndsWaits) {
  for (const bool is_direct : {true, false}) {
    Ranks ranks(3, is_direct, 2, 4096, 0);
    ranks.Run([&](int rank) {
      std::mt19937_64 random(static_cast<uint64_t>(rank));
      const Plan plan{true, {{90000, 90000, 90000}, {5, 5, 5}, {70000, 70000, 70000}}};
      Side side(ranks, rank, plan, 1, random);
      if (rank == 2) {
        const auto limit =
            std::chrono::steady_clock::now() + std::chrono::duration<double>(check::Patience(60));
        while ((ranks.WaitOf(0) == 0 || ranks.WaitOf(1) == 0) &&
               std::chrono::steady_clock::now() < limit) {
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        return ranks.Stop();
      }
      Launch(ranks, side.call, random);
      Launch(ranks, side.call, random);
    });
    for (int rank = 0; rank < 2; ++rank) {
      EXPECT_EQ(ranks.Own(rank)->failed, uint32_t{1});
      EXPECT_EQ(ranks.Own(rank)->step, uint64_t{0});
      // In the first step.
      EXPECT_EQ(ranks.WaitOf(rank) >> 32, uint64_t{1});
    }
  }
}

}  // namespace
