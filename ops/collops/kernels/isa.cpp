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

// The built-in also asks the system, which must save the registers.
bool HasAvx2() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  const bool has_f16c = __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
  return has_f16c && __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
}

bool HasAvx512() {
  return __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
         __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vl") != 0;
}

bool HasBFloat16() {
  return HasAvx512() && __builtin_cpu_supports("avx512bf16") != 0;
}

// AMX_TILE and AMX_BF16, and Linux's permission to use the tile registers, which a process asks for
// once: without it the first tile instruction ends the process. Linux 5.16 and newer give it where
// they save these registers.
bool HasAmx() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  constexpr unsigned kBFloat16AndTiles = 1u << 22 | 1u << 24;
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
  if ((edx & kBFloat16AndTiles) != kBFloat16AndTiles) return false;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

#else

bool HasAvx2() {
  return false;
}
bool HasAvx512() {
  return false;
}
bool HasBFloat16() {
  return false;
}
bool HasAmx() {
  return false;
}

#endif

#if defined(__aarch64__)

// Linux's bit for FEAT_BF16, which older headers do not name.
constexpr unsigned long kHwcap2BFloat16 = 1UL << 14;

// Every arm64 CPU has NEON.
bool HasNeon() {
  return true;
}

bool HasFeatBFloat16() {
  return (getauxval(AT_HWCAP2) & kHwcap2BFloat16) != 0;
}

#else

bool HasNeon() {
  return false;
}
bool HasFeatBFloat16() {
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

// The instruction set that COLLOPS_ISA names.
Status Choose(Isa* isa) {
  const std::string name = GetVariable("COLLOPS_ISA");
  Isa chosen = BestIsa();
  if (!name.empty()) {
    COLLOPS_CHECK_ARG(Parse(name, &chosen), ERROR_INVALID_PARAM,
                      "COLLOPS_ISA must be amx, avx512, avx2, neon or portable, got \"", name,
                      "\"");
    COLLOPS_CHECK_ARG(CanRun(chosen), ERROR_UNSUPPORTED, "COLLOPS_ISA=", name,
                      ": this CPU, its system or this build cannot run it: use ", Name(BestIsa()),
                      " or unset it");
  }
  *isa = chosen;
  return Ok();
}

struct Active {
  std::atomic<Isa> isa;
  std::atomic<bool> forced{false};
};

std::atomic<bool> bfloat16_allowed{true};
std::atomic<bool> bfmmla_allowed{true};

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

bool HasAvx512BFloat16() {
  static const bool has_it = CanRun(Isa::kAvx512) && HasBFloat16();
  return has_it && bfloat16_allowed.load(std::memory_order_relaxed);
}

void AllowAvx512BFloat16(bool allowed) {
  bfloat16_allowed = allowed;
}

bool HasBfmmla() {
  static const bool has_it = CanRun(Isa::kNeon) && HasFeatBFloat16();
  return has_it && bfmmla_allowed.load(std::memory_order_relaxed);
}

void AllowBfmmla(bool allowed) {
  bfmmla_allowed = allowed;
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
  COLLOPS_RETURN_IF_ERROR(Choose(&isa));
  if (!GetActive().forced) GetActive().isa = isa;
  return Ok();
}

Isa ActiveIsa() {
  return GetActive().isa.load(std::memory_order_relaxed);
}

void ForceIsa(Isa isa) {
  GetActive().forced = true;
  GetActive().isa = isa;
}

}  // namespace collops::kernels
