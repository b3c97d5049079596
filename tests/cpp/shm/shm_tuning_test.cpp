// The table of sizes: which way AllReduce takes, and that both give the same bits.
#include <cstring>
#include <random>

#include "collops/core/tuning.h"
#include "ranks.h"

namespace {

using collops::AllReduceCall;
using collops::Communicator;
using collops::DType;
using collops::ReduceOp;
using collops::Tuning;

Tuning With(const std::string& text) {
  Tuning tuning;
  EXPECT_EQ(collops::ParseTuning(text, &tuning).message(), "");
  return tuning;
}

// Bits of finite numbers; different in every rank and position.
std::vector<uint8_t> Numbers(DType dtype, int64_t count, int rank) {
  std::vector<uint8_t> bytes(static_cast<size_t>(count * collops::SizeOf(dtype)));
  std::mt19937 random(static_cast<unsigned>(rank) * 7919 + static_cast<unsigned>(count));
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  // An exponent whose second highest bit is 0 has no infinity or NaN.
  const auto width = static_cast<size_t>(collops::SizeOf(dtype));
  for (size_t i = width - 1; dtype != DType::kInt32 && i < bytes.size(); i += width) {
    bytes[i] &= 0xbf;
  }
  return bytes;
}

std::vector<uint8_t> Reduced(Communicator& communicator, DType dtype, ReduceOp op, int64_t count,
                             bool in_place, uint64_t steps) {
  const std::vector<uint8_t> given = Numbers(dtype, count, communicator.rank());
  std::vector<uint8_t> x = given;
  std::vector<uint8_t> apart(x.size(), 0xee);
  static const collops::Agreement agreement("AllReduce");
  AllReduceCall call;
  call.agreement = &agreement;
  call.dtype = dtype;
  call.op = op;
  call.x = x.data();
  call.count = count;
  call.output = in_place ? x.data() : apart.data();
  const uint64_t before = ControlOf(communicator).step_number();
  EXPECT_EQ(communicator.AllReduce(call).message(), "");
  EXPECT_EQ(ControlOf(communicator).step_number() - before, steps);
  if (!in_place) EXPECT_TRUE(x == given);
  return in_place ? x : apart;
}

// Both ways, with x apart and in place: the bits are the same.
void CompareWays(int size) {
  const collops::JobIdentity one_job = ranks::FreshJob();
  const collops::JobIdentity two_job = ranks::FreshJob();
  std::vector<pid_t> pids;
  for (int rank = 0; rank < size; ++rank) {
    pids.push_back(ranks::Start([&, rank] {
      const auto make = [&](const collops::JobIdentity& job, const char* table) {
        return ranks::Make(job, rank, size, check::Patience(20.0), collops::COMM_MULTI_PROCESS,
                           With(table));
      };
      const auto one = make(one_job, "all_reduce_one_step_2=1g,all_reduce_one_step=1g");
      const auto two = make(two_job, "all_reduce_one_step_2=0,all_reduce_one_step=0");
      for (const DType dtype :
           {DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kInt32}) {
        for (const int64_t count : {int64_t{7}, int64_t{5003}, int64_t{1100009}}) {
          for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax}) {
            const auto wanted = Reduced(*two, dtype, op, count, false, 2);
            EXPECT_TRUE(Reduced(*one, dtype, op, count, false, 1) == wanted);
            EXPECT_TRUE(Reduced(*one, dtype, op, count, true, 1) == wanted);
            EXPECT_TRUE(Reduced(*two, dtype, op, count, true, 2) == wanted);
          }
        }
      }
    }));
  }
  for (const pid_t pid : pids) EXPECT_EQ(ranks::Wait(pid).code, 0);
}

}  // namespace

TEST(BothWaysOfAllReduceGiveTheSameBits) {
  for (const int size : {2, 3, 4}) CompareWays(size);
}

TEST(WithoutATableAFewBytesAreOneStep) {
  ranks::Run(3, [](int, Communicator& comm) {
    Reduced(comm, DType::kInt32, ReduceOp::kSum, 8192, false, 1);
    Reduced(comm, DType::kInt32, ReduceOp::kSum, 8193, false, 2);
  });
  // Of two ranks more; one rank's output overwrites its x while the other one is late.
  ranks::Run(2, [](int rank, Communicator& comm) {
    for (const int64_t count : {65536, 65537}) {
      const uint64_t steps = count == 65536 ? 1 : 2;
      const auto wanted = Reduced(comm, DType::kInt32, ReduceOp::kSum, count, false, steps);
      for (int late = 0; late < 4; ++late) {
        if (late % 2 == rank) usleep(20000);
        const bool in_place = late / 2 == rank;
        const auto sum = Reduced(comm, DType::kInt32, ReduceOp::kSum, count, in_place, steps);
        EXPECT_TRUE(sum == wanted);
      }
    }
  });
}

// A split keeps its group's table.
TEST(ASubgroupHasTheTableOfItsGroup) {
  EXPECT_EQ(collops::CommunicatorSpec().tuning.all_reduce_one_step_2, 256 << 10);
  const collops::JobIdentity job = ranks::FreshJob();
  // Split() asks the environment which job this is; no launcher started this program.
  setenv("COLLOPS_JOB_ID", job.id.c_str(), 1);
  std::vector<pid_t> pids;
  for (int rank = 0; rank < 3; ++rank) {
    pids.push_back(ranks::Start([&, rank] {
      const auto group = ranks::Make(job, rank, 3, check::Patience(20.0),
                                     collops::COMM_MULTI_PROCESS, With("all_reduce_one_step_2=0"));
      std::shared_ptr<Communicator> pair;
      EXPECT_EQ(group->Split(rank / 2, 0, &pair).message(), "");
      ASSERT_TRUE(pair != nullptr);
      EXPECT_EQ(pair->spec().tuning.all_reduce_one_step_2, 0);
      if (pair->size() == 2) Reduced(*pair, DType::kInt32, ReduceOp::kSum, 100, false, 2);
    }));
  }
  for (const pid_t pid : pids) EXPECT_EQ(ranks::Wait(pid).code, 0);
}
