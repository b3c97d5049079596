#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collops/operators/atb/acl.h"
#include "collops/operators/atb/status.h"

namespace collops {
namespace [[gnu::visibility("default")]] atb {

// ATB's basic types (atb/types.h, atb/svector.h, atb/utils.h).

constexpr uint32_t MAX_DIM = 8;

template <typename T>
using SVector = std::vector<T>;

struct Dims {
  int64_t dims[MAX_DIM];
  uint64_t dimNum = 0;
};

struct TensorDesc {
  aclDataType dtype = ACL_DT_UNDEFINED;
  aclFormat format = ACL_FORMAT_UNDEFINED;
  Dims shape;
};

// One of the two addresses is used: deviceData, or if that is null hostData.
struct Tensor {
  TensorDesc desc;
  void* deviceData = nullptr;
  void* hostData = nullptr;
  uint64_t dataSize = 0;
};

struct VariantPack {
  SVector<Tensor> inTensors;
  SVector<Tensor> outTensors;
};

enum class LogLevel : int { DEBUG = 0, INFO = 1, WARN = 2, ERROR = 3, NONE = 4 };

class Utils {
 public:
  // "collops": no version of ATB's.
  static std::string GetAtbVersion();
  // Of this process. NONE: messages are not written, and aclGetRecentErrMsg() has the last one; all
  // other levels write every error, and there is nothing else to write.
  static Status SetLogLevel(LogLevel atbLogLevel);
  static Status ResetLogLevel();
  static uint64_t GetTensorSize(const Tensor& tensor) { return GetTensorSize(tensor.desc); }
  static uint64_t GetTensorSize(const TensorDesc& desc);
  static uint64_t GetTensorNumel(const Tensor& tensor) { return GetTensorNumel(tensor.desc); }
  static uint64_t GetTensorNumel(const TensorDesc& desc);
};

}  // namespace atb
}  // namespace collops
