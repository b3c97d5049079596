// Holds what the library declares of CUDA's driver against cuda.h. Only compiled: a difference is
// an error of the compiler.
#define __CUDA_API_VERSION_INTERNAL  // the functions by the names that they have in libcuda
#include <cuda.h>

#include "collops/kernels/cuda/driver.h"
#include "same.h"

namespace declarations {

using namespace collops::cuda;  // every name of ours below is from there

#include "plain.h"

#include "compared.h"

// The comparison can fail.
static_assert(!kSame<decltype(DriverApi::event_record), decltype(&cuEventDestroy_v2)>);
static_assert(!kSame<decltype(DriverApi::device_get), decltype(&cuMemAlloc_v2)>);
static_assert(!Equal(Result::kNotReady, CUDA_SUCCESS));

}  // namespace declarations
