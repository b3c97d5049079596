#pragma once

#include <cstddef>

#include "sim/capture.h"
#include "sim/faults.h"
#include "sim/memory.h"

// The devices of a simulated libascendcl, for it and for the libraries beside it.
namespace collops_sim {

constexpr int kNumDevices = 8;

// The device whose memory holds all the bytes; kHostDevice for host memory that was asked for as
// such, kNoDevice for any other.
int DeviceOf(const void* address, size_t bytes);

// The stream behind a handle: null means the current device's own; nullptr if it is none of ours.
Stream* FindStream(void* handle);
// The same for a call that puts work on it, which real CANN takes in a thread whose device is the
// stream's: the stream, or null and aclError's number.
Stream* FindStreamHere(void* handle, int* code);
// Null where this thread has set no device.
Home* CurrentHome();

// The device that this thread has set, or -1.
int CurrentDevice();
// The number on its server: ASCEND_RT_VISIBLE_DEVICES, such as "2,3", says which are device 0, 1
// ...
int PhysicalDevice(int device);
// 0, or aclError's number when this thread has none.
int NeedDevice();
// Whether a capture forbids this thread calls that wait, also for streams that are not captured.
bool CaptureForbids();
// COLLOPS_SIM_SOC, or Ascend910B1.
const char* SocName();

}  // namespace collops_sim
