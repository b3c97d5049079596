#pragma once

#include "collops/kernels/cuda/driver.h"

// Numbers of cuda.h that collops has no name for.
namespace collops_sim {

using collops::cuda::DeviceAttribute;
using collops::cuda::Result;

// CUresult.
constexpr auto kInvalidValue = static_cast<Result>(1);
constexpr auto kNotInitialized = static_cast<Result>(3);
constexpr auto kNoGpu = static_cast<Result>(100);
constexpr auto kInvalidImage = static_cast<Result>(200);
constexpr auto kInvalidContext = static_cast<Result>(201);
constexpr auto kMapFailed = static_cast<Result>(205);
constexpr auto kPeerAccessUnsupported = static_cast<Result>(217);
constexpr auto kInvalidHandle = static_cast<Result>(400);
constexpr auto kNotFound = static_cast<Result>(500);
constexpr auto kIllegalAddress = static_cast<Result>(700);
constexpr auto kLaunchTimeout = static_cast<Result>(702);
constexpr auto kNotPermitted = static_cast<Result>(800);
constexpr auto kCaptureUnsupported = static_cast<Result>(900);
constexpr auto kCaptureInvalidated = static_cast<Result>(901);
constexpr auto kCaptureMerge = static_cast<Result>(902);
constexpr auto kCaptureUnmatched = static_cast<Result>(903);
constexpr auto kCaptureUnjoined = static_cast<Result>(904);
constexpr auto kCaptureIsolation = static_cast<Result>(905);
constexpr auto kCapturedEvent = static_cast<Result>(907);
constexpr auto kCaptureWrongThread = static_cast<Result>(908);
constexpr auto kUnknown = static_cast<Result>(999);

// CUdevice_attribute.
constexpr auto kPciBusId = static_cast<DeviceAttribute>(33);
constexpr auto kUnifiedAddressing = static_cast<DeviceAttribute>(41);

// CUpointer_attribute and CUmemorytype.
enum class PointerAttribute : int32_t { kMemoryType = 2, kDeviceOrdinal = 9 };
enum class MemoryType : int32_t { kHost = 1, kDevice = 2 };

}  // namespace collops_sim
