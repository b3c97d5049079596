#include "collops/kernels/isa.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <vector>

#include "check.h"
#include "collops/comm/registry.h"

namespace {

using collops::Status;
using collops::kernels::ActiveIsa;
using collops::kernels::AllowBfmmla;
using collops::kernels::CanRun;
using collops::kernels::CheckIsa;
using collops::kernels::ForceIsa;
using collops::kernels::HasBfmmla;
using collops::kernels::Isa;
using collops::kernels::RunnableIsas;

constexpr Isa kAll[] = {Isa::kPortable, Isa::kNeon, Isa::kAvx2, Isa::kAvx512, Isa::kAmx};

// Sets COLLOPS_ISA for the duration of a test.
class IsaVariable {
 public:
  explicit IsaVariable(const char* value) { setenv("COLLOPS_ISA", value, 1); }
  ~IsaVariable() { unsetenv("COLLOPS_ISA"); }
  IsaVariable(const IsaVariable&) = delete;
  IsaVariable& operator=(const IsaVariable&) = delete;
};

}  // namespace

TEST(PortableRunsEverywhere) {
  const std::vector<Isa> runnable = RunnableIsas();
  EXPECT_TRUE(!runnable.empty() && runnable.front() == Isa::kPortable);
  for (const Isa isa : kAll) {
    const bool listed = std::find(runnable.begin(), runnable.end(), isa) != runnable.end();
    EXPECT_EQ(listed, CanRun(isa));
  }
}

TEST(TheBestInstructionSetIsUsedByDefault) {
  unsetenv("COLLOPS_ISA");
  EXPECT_TRUE(CheckIsa().ok());
  EXPECT_EQ(ActiveIsa(), RunnableIsas().back());
}

TEST(TheEnvironmentChoosesTheInstructionSet) {
  for (const Isa isa : RunnableIsas()) {
    const IsaVariable variable(Name(isa));
    EXPECT_TRUE(CheckIsa().ok());
    EXPECT_EQ(ActiveIsa(), isa);
  }
}

TEST(AnUnknownNameIsRefusedAndChangesNothing) {
  {
    const IsaVariable variable("portable");
    EXPECT_TRUE(CheckIsa().ok());
  }
  const IsaVariable variable("AVX-512");
  const Status status = CheckIsa();
  EXPECT_EQ(status.code(), collops::ERROR_INVALID_PARAM);
  EXPECT_CONTAINS(status.message(),
                  "COLLOPS_ISA must be amx, avx512, avx2, neon or portable, got \"AVX-512\"");
  EXPECT_EQ(ActiveIsa(), Isa::kPortable);
}

TEST(WhatCannotRunHereIsRefused) {
  for (const Isa isa : kAll) {
    if (CanRun(isa)) continue;
    const IsaVariable variable(Name(isa));
    const Status status = CheckIsa();
    EXPECT_EQ(status.code(), collops::ERROR_UNSUPPORTED);
    EXPECT_CONTAINS(status.message(), Name(isa));
    EXPECT_TRUE(ActiveIsa() != isa);
  }
}

TEST(CreatingACommunicatorReportsAnInvalidIsa) {
  const IsaVariable variable("sse");
  collops::CommunicatorSpec spec;
  spec.rank = 0;
  spec.rank_size = 2;
  spec.backend = "shm";
  spec.comm_mode = collops::COMM_MULTI_THREAD;
  std::shared_ptr<collops::Communicator> communicator;
  const Status status = collops::Registry::Instance().Get(spec, &communicator);
  EXPECT_EQ(status.code(), collops::ERROR_INVALID_PARAM);
  EXPECT_CONTAINS(status.message(), "COLLOPS_ISA must be");
}

TEST(BfmmlaCanBeSwitchedOff) {
  const bool has_it = HasBfmmla();
  EXPECT_TRUE(!has_it || CanRun(Isa::kNeon));
  AllowBfmmla(false);
  EXPECT_FALSE(HasBfmmla());
  AllowBfmmla(true);
  EXPECT_EQ(HasBfmmla(), has_it);
}

// The last test, because a forced instruction set stays.
TEST(AForcedInstructionSetStays) {
  for (const Isa isa : RunnableIsas()) {
    ForceIsa(isa);
    EXPECT_TRUE(CheckIsa().ok());
    EXPECT_EQ(ActiveIsa(), isa);
  }
}
