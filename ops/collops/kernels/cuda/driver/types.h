#pragma once

#include <cstddef>
#include <cstdint>

namespace collops::cuda {

// CUDA's types and numbers, declared here as cuda.h publishes them; a test compares these
// declarations with that header. C enumerations have four bytes.

using Device = int32_t;
using Context = void*;
using Stream = void*;
using Event = void*;
using Graph = void*;
using GraphExec = void*;
using GraphNode = void*;
using Module = void*;
using Function = void*;
using UserObject = void*;
using DevicePointer = uint64_t;
using AllocationHandle = uint64_t;
using HostFunction = void (*)(void* user_data);

// The streams that no one creates. Here a stream is never null, which means kLegacyStream or
// kPerThreadStream by how a program was compiled.
inline Stream LegacyStream() {
  return reinterpret_cast<Stream>(uintptr_t{1});
}
inline Stream PerThreadStream() {
  return reinterpret_cast<Stream>(uintptr_t{2});
}

// CUresult: those that are looked at here. The driver names the others itself.
enum class Result : int32_t {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kNotInitialized = 3,
  kDeinitialized = 4,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kInvalidContext = 201,
  kNoBinaryForGpu = 209,
  kPeerAccessUnsupported = 217,
  kInvalidHandle = 400,
  kNotFound = 500,
  kNotReady = 600,
  kIllegalAddress = 700,
  kPeerAccessAlreadyEnabled = 704,
  kContextIsDestroyed = 709,
  kLaunchFailed = 719,
  kNotPermitted = 800,
  kNotSupported = 801,
  kStreamCaptureUnsupported = 900,
  kStreamCaptureInvalidated = 901,
  kStreamCaptureImplicit = 906,
  kUnknown = 999,
};

// CUdevice_attribute.
enum class DeviceAttribute : int32_t {
  kMultiprocessorCount = 16,
  kIntegrated = 18,
  kComputeMode = 20,
  kPciBusId = 33,
  kPciDeviceId = 34,
  kL2CacheBytes = 38,
  kUnifiedAddressing = 41,
  kPciDomainId = 50,
  kComputeCapabilityMajor = 75,
  kComputeCapabilityMinor = 76,
  kManagedMemory = 83,
  kHostNativeAtomics = 86,
  kCooperativeLaunch = 95,
  kMaxSharedBytesPerBlock = 97,
  kVirtualMemory = 102,
  kFileDescriptorHandles = 103,
  kMemoryPools = 115,
  kDmaBuf = 124,
  kIpcEvents = 125,
  kFabricHandles = 128,
  kMulticast = 132,
  kMpsEnabled = 133,
};

// CUpointer_attribute.
enum class PointerAttribute : int32_t {
  kContext = 1,
  kMemoryType = 2,
  kIsManaged = 8,
  kDeviceOrdinal = 9,
  kIsLegacyIpcCapable = 10,
  kRangeStart = 11,
  kRangeBytes = 12,
  kAllowedHandleTypes = 14,
};

// CUmemorytype, as the attribute kMemoryType returns it.
enum class MemoryType : int32_t { kHost = 1, kDevice = 2 };

// CUmemAllocationType, CUmemAllocationHandleType, CUmemLocationType, CUmemAccess_flags and
// CUmemAllocationGranularity_flags.
enum class AllocationType : int32_t { kPinned = 1 };
enum class HandleType : int32_t { kNone = 0, kFileDescriptor = 1, kFabric = 8 };
enum class LocationType : int32_t { kDevice = 1, kHost = 2 };
enum class AccessRights : int32_t { kNone = 0, kRead = 1, kReadWrite = 3 };
enum class Granularity : int32_t { kMinimum = 0, kRecommended = 1 };

// CUmemLocation, CUmemAllocationProp and CUmemAccessDesc.
struct Location {
  LocationType type;
  int32_t id;
};
struct AllocationProperties {
  AllocationType type;
  HandleType requested_handle_types;
  Location location;
  void* win32_metadata;
  uint8_t compression;
  uint8_t gpu_direct_rdma;
  uint16_t usage;
  uint8_t reserved[4];
};
struct AccessDescription {
  Location location;
  AccessRights rights;
};

// CUipcMemHandle and CUuuid.
struct IpcMemoryHandle {
  char reserved[64];
};
struct Uuid {
  char bytes[16];
};

// CUlaunchConfig, with its attributes.
enum class LaunchAttributeId : int32_t { kCooperative = 2 };
struct LaunchAttribute {
  LaunchAttributeId id;
  char pad[4];
  alignas(8) char value[64];  // of kCooperative: an int of 1
};
struct LaunchConfig {
  uint32_t grid_x, grid_y, grid_z;
  uint32_t block_x, block_y, block_z;
  uint32_t shared_bytes;
  Stream stream;
  LaunchAttribute* attributes;
  uint32_t num_attributes;
};

// CUfunction_attribute.
enum class FunctionAttribute : int32_t {
  kMaxThreadsPerBlock = 0,
  kLocalBytes = 3,
  kRegisters = 4,
  kMaxDynamicSharedBytes = 8,
};

// CUstreamCaptureStatus and CUstreamCaptureMode.
enum class CaptureStatus : int32_t { kNone = 0, kActive = 1, kInvalidated = 2 };
enum class CaptureMode : int32_t { kGlobal = 0, kThreadLocal = 1, kRelaxed = 2 };

// Flags of calls.
constexpr uint32_t kStreamNonBlocking = 1;
constexpr uint32_t kEventDisableTiming = 2;
constexpr uint32_t kEventInterprocess = 4;
constexpr uint32_t kHostAllocPortable = 1;
constexpr uint32_t kHostAllocDeviceMap = 2;
constexpr uint32_t kIpcLazyPeerAccess = 1;
constexpr uint32_t kUserObjectNoDestructorSync = 1;
constexpr uint32_t kGraphUserObjectMove = 1;

}  // namespace collops::cuda
