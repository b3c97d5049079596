#include "collops/kernels/isa.h"

#include <atomic>
#include <string>

#include "collops/core/env.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

namespace collops::kernels {
namespace {

constexpr Isa kIsas[] = {Isa::kPortable, Isa::kNeon, Isa::kAvx2, Isa::kAvx512, Isa::kAmx};

#if defined(__x86_64__)

X86Words AskCpu() {
  X86Words words = {};
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0) return words;
  words.leaf1_ecx = ecx;
  if ((ecx & bit_OSXSAVE) != 0) {
    unsigned low = 0;
    unsigned high = 0;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));  // the intrinsic needs -mxsave
    words.xcr0 = uint64_t{high} << 32 | low;
  }
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return words;
  words.leaf7_ebx = ebx;
  words.leaf7_ecx = ecx;
  words.leaf7_edx = edx;
  const bool has_subleaf_1 = eax >= 1;
  if (has_subleaf_1 && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0) {
    words.leaf7_1_eax = eax;
  }
  return words;
}

const X86Features& Features() {
  static const X86Features features = FeaturesOf(AskCpu());
  return features;
}

bool HasAvx2() {
  return Features().avx2;
}
bool HasAvx512() {
  return Features().avx512;
}
// With Linux's permission to use the tile registers, which a process asks for once: without it the
// first tile instruction ends the process. Linux 5.16 and newer give it where they save these
// registers.
bool HasAmx() {
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;
  return Features().amx && syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

bool CpuHas(Extension extension) {
  switch (extension) {
    case Extension::kAvxVnni:
      return Features().avx_vnni;
    case Extension::kAvx512BFloat16:
      return Features().avx512_bf16;
    case Extension::kAvx512Vnni:
      return Features().avx512_vnni;
    case Extension::kAmxInt8:
      return Features().amx_int8;
    case Extension::kBfmmla:
    case Extension::kDotProduct:
    case Extension::kSmmla:
      return false;
  }
  return false;
}

#else

bool HasAvx2() {
  return false;
}
bool HasAvx512() {
  return false;
}
bool HasAmx() {
  return false;
}

#endif

#if defined(__aarch64__)

// Linux's bits, which older headers do not name: FEAT_DotProd, FEAT_I8MM and FEAT_BF16.
constexpr unsigned long kHwcapDotProduct = 1UL << 20;
constexpr unsigned long kHwcap2I8mm = 1UL << 13;
constexpr unsigned long kHwcap2BFloat16 = 1UL << 14;

// Every arm64 CPU has NEON.
bool HasNeon() {
  return true;
}

bool CpuHas(Extension extension) {
  switch (extension) {
    case Extension::kBfmmla:
      return (getauxval(AT_HWCAP2) & kHwcap2BFloat16) != 0;
    case Extension::kDotProduct:
      return (getauxval(AT_HWCAP) & kHwcapDotProduct) != 0;
    case Extension::kSmmla:
      return (getauxval(AT_HWCAP2) & kHwcap2I8mm) != 0;
    default:
      return false;
  }
}

#else

bool HasNeon() {
  return false;
}

#endif

Isa BestIsa() {
  return RunnableIsas().back();
}

bool Parse(const std::string& name, Isa* isa) {
  for (const Isa candidate : kIsas) {
    if (name != Name(candidate)) continue;
    *isa = candidate;
    return true;
  }
  return false;
}

// The instruction set that COLLOPS_ISA names. The error says what is wrong, without the variable.
Status Choose(Isa* isa) {
  const std::string name = GetVariable("COLLOPS_ISA");
  Isa chosen = BestIsa();
  if (!name.empty()) {
    COLLOPS_CHECK_ARG(Parse(name, &chosen), ERROR_INVALID_PARAM,
                      "must be amx, avx512, avx2, neon or portable, got \"", name, "\"");
    COLLOPS_CHECK_ARG(CanRun(chosen), ERROR_UNSUPPORTED,
                      "this CPU, its system or this build cannot run it: use ", Name(BestIsa()),
                      " or unset it");
  }
  *isa = chosen;
  return Ok();
}

struct Active {
  std::atomic<Isa> isa;
  std::atomic<bool> forced{false};
};

std::atomic<bool> extensions_allowed{true};

Active& GetActive() {
  // Used before any CheckIsa(), which reports an invalid value.
  static Active active{[] {
    Isa isa = BestIsa();
    return Choose(&isa).ok() ? isa : BestIsa();
  }()};
  return active;
}

}  // namespace

const char* Name(Isa isa) {
  switch (isa) {
    case Isa::kPortable:
      return "portable";
    case Isa::kNeon:
      return "neon";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
    case Isa::kAmx:
      return "amx";
  }
  return "unknown";
}

bool CanRun(Isa isa) {
  static const bool has_amx = HasAvx2() && HasAvx512() && HasAmx();
  switch (isa) {
    case Isa::kPortable:
      return true;
    case Isa::kNeon:
      return HasNeon();
    case Isa::kAvx2:
      return HasAvx2();
    case Isa::kAvx512:
      return HasAvx2() && HasAvx512();
    case Isa::kAmx:
      return has_amx;
  }
  return false;
}

bool Has(Extension extension) {
  return extensions_allowed.load(std::memory_order_relaxed) && CpuHas(extension);
}

void AllowExtensions(bool allowed) {
  extensions_allowed = allowed;
}

std::vector<Isa> RunnableIsas() {
  std::vector<Isa> runnable;
  for (const Isa isa : kIsas) {
    if (CanRun(isa)) runnable.push_back(isa);
  }
  return runnable;
}

Status CheckIsa() {
  Isa isa = Isa::kPortable;
  const Status chosen = Choose(&isa);
  if (chosen.code() == ERROR_UNSUPPORTED) {
    return Error(chosen.code(), "COLLOPS_ISA=", GetVariable("COLLOPS_ISA"), ": ", chosen.message());
  }
  if (!chosen.ok()) return Error(chosen.code(), "COLLOPS_ISA ", chosen.message());
  if (!GetActive().forced) GetActive().isa = isa;
  return Ok();
}

std::string IsaFault() {
  Isa unused = Isa::kPortable;
  return Choose(&unused).message();
}

Isa ActiveIsa() {
  return GetActive().isa.load(std::memory_order_relaxed);
}

void ForceIsa(Isa isa) {
  GetActive().forced = true;
  GetActive().isa = isa;
}

}  // namespace collops::kernels
