// Holds what the library declares of NCCL against nccl.h. Only compiled: a difference is an error
// of the compiler.
#include <nccl.h>

#include "collops/comm/backends/nccl/library.h"
#include "same.h"

namespace declarations {

using namespace collops::nccl;  // every name of ours below is from there

constexpr ncclConfig_t kTheirConfig = NCCL_CONFIG_INITIALIZER;

#include "plain.h"

#include "compared.h"

// A config of ours is the beginning of a newer version's, and the whole of its own version's.
static_assert(sizeof(Config) == sizeof(ncclConfig_t) || NCCL_VERSION_CODE >= kConfigVersion + 100);
static_assert(kTheirConfig.size == sizeof(ncclConfig_t));
static_assert(Equal(kConfigNotSet, kTheirConfig.blocking));

// The comparison can fail.
static_assert(!kSame<decltype(Api::comm_count), decltype(&ncclCommDestroy)>);
static_assert(!kSame<decltype(Api::all_gather), decltype(&ncclAllReduce)>);
static_assert(!Equal(Result::kInProgress, ncclSuccess));

}  // namespace declarations
