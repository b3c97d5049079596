// Holds what the library declares of cuBLASLt against cublasLt.h. Only compiled: a difference is an
// error of the compiler.
#include <cublasLt.h>

#include "collops/kernels/cuda/blaslt.h"
#include "same.h"

namespace declarations {

using namespace collops::cuda;  // every name of ours below is from there

#include "plain.h"

#include "compared.h"

// The comparison can fail.
static_assert(!kSame<decltype(BlasApi::create), decltype(&cublasLtMatmulDescCreate)>);
static_assert(!kSame<decltype(BlasApi::desc_set), decltype(&cublasLtMatmulPreferenceSetAttribute)>);
static_assert(!Equal(BlasStatus::kNotSupported, CUBLAS_STATUS_SUCCESS));

}  // namespace declarations
