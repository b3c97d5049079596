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
using collops::kernels::AllowExtensions;
using collops::kernels::CanRun;
using collops::kernels::CheckIsa;
using collops::kernels::Extension;
using collops::kernels::FeaturesOf;
using collops::kernels::ForceIsa;
using collops::kernels::Has;
using collops::kernels::Isa;
using collops::kernels::RunnableIsas;
using collops::kernels::X86Features;
using collops::kernels::X86Words;

constexpr Isa kAll[] = {Isa::kPortable, Isa::kNeon, Isa::kAvx2, Isa::kAvx512, Isa::kAmx};

// A CPU with all that kernels use, whose system saves all registers.
constexpr X86Words kEverything = {1u << 12 | 1u << 29,
                                  1u << 5 | 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31,
                                  1u << 11,
                                  1u << 22 | 1u << 24 | 1u << 25,
                                  1u << 4 | 1u << 5,
                                  0x602e7};

std::vector<bool> Found(const X86Words& words) {
  const X86Features found = FeaturesOf(words);
  return {found.avx2, found.avx512, found.avx512_bf16, found.amx};
}

std::vector<bool> FoundForInt8(const X86Words& words) {
  const X86Features found = FeaturesOf(words);
  return {found.avx_vnni, found.avx512_vnni, found.amx_int8};
}

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

TEST(EachFeatureOfX86NeedsAllOfItsBits) {
  EXPECT_EQ(Found(kEverything), (std::vector<bool>{true, true, true, true}));
  EXPECT_EQ(Found({}), (std::vector<bool>{false, false, false, false}));
  X86Words words = kEverything;
  words.leaf7_1_eax = 0;
  EXPECT_EQ(Found(words), (std::vector<bool>{true, true, false, false}));
  for (const unsigned bit : {12u, 29u}) {
    words = kEverything;
    words.leaf1_ecx &= ~(1u << bit);
    EXPECT_EQ(Found(words), (std::vector<bool>{false, true, true, true}));
  }
  for (const unsigned bit : {16u, 17u, 30u, 31u}) {
    words = kEverything;
    words.leaf7_ebx &= ~(1u << bit);
    EXPECT_EQ(Found(words), (std::vector<bool>{true, false, false, false}));
  }
  for (const unsigned bit : {22u, 24u}) {
    words = kEverything;
    words.leaf7_edx &= ~(1u << bit);
    EXPECT_EQ(Found(words), (std::vector<bool>{true, true, true, false}));
  }
}

TEST(EachFeatureForInt8NeedsItsOwnBit) {
  EXPECT_EQ(FoundForInt8(kEverything), (std::vector<bool>{true, true, true}));
  EXPECT_EQ(FoundForInt8({}), (std::vector<bool>{false, false, false}));
  X86Words words = kEverything;
  words.leaf7_1_eax &= ~(1u << 4);
  EXPECT_EQ(FoundForInt8(words), (std::vector<bool>{false, true, true}));
  words = kEverything;
  words.leaf7_ecx = 0;
  EXPECT_EQ(FoundForInt8(words), (std::vector<bool>{true, false, true}));
  words = kEverything;
  words.leaf7_edx &= ~(1u << 25);
  EXPECT_EQ(FoundForInt8(words), (std::vector<bool>{true, true, false}));
  words = kEverything;
  words.xcr0 = 0x7;
  EXPECT_EQ(FoundForInt8(words), (std::vector<bool>{true, false, false}));
}

TEST(RegistersThatTheSystemDoesNotSaveAreNotUsed) {
  X86Words words = kEverything;
  words.xcr0 = 0x2e7;
  EXPECT_EQ(Found(words), (std::vector<bool>{true, true, true, false}));
  words.xcr0 = 0x7;
  EXPECT_EQ(Found(words), (std::vector<bool>{true, false, false, false}));
  words.xcr0 = 0x3;
  EXPECT_EQ(Found(words), (std::vector<bool>{false, false, false, false}));
}

#if defined(__x86_64__)

// SSE2 is in every x86-64 CPU: a built-in that lacks it asks no CPU.
TEST(WhatTheCpuHasIsWhatTheCompilersRuntimeFinds) {
  __builtin_cpu_init();
  if (__builtin_cpu_supports("sse2") == 0) return;
  const bool avx2 = __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
  const bool avx512 =
      __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
      __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vl") != 0;
  EXPECT_EQ(CanRun(Isa::kAvx2), avx2);
  EXPECT_EQ(CanRun(Isa::kAvx512), avx2 && avx512);
  EXPECT_EQ(Has(Extension::kAvx512BFloat16),
            avx2 && avx512 && __builtin_cpu_supports("avx512bf16") != 0);
  EXPECT_EQ(Has(Extension::kAvx512Vnni),
            avx2 && avx512 && __builtin_cpu_supports("avx512vnni") != 0);
}

#endif

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

TEST(ExtensionsCanBeSwitchedOff) {
  for (const Extension extension :
       {Extension::kAvxVnni, Extension::kAvx512BFloat16, Extension::kAvx512Vnni,
        Extension::kAmxInt8, Extension::kBfmmla, Extension::kDotProduct, Extension::kSmmla}) {
    const bool has_it = Has(extension);
    AllowExtensions(false);
    EXPECT_FALSE(Has(extension));
    AllowExtensions(true);
    EXPECT_EQ(Has(extension), has_it);
  }
}
