#pragma once

#include "collops/kernels/cuda/driver/api.h"

namespace collops::cuda {

// While it lives, this thread's calls that may wait or allocate are allowed while any stream is
// captured, and do not end the capture.
class RelaxedCaptures {
 public:
  explicit RelaxedCaptures(const DriverApi& api) : api_(api) { Exchange(); }
  ~RelaxedCaptures() { Exchange(); }
  RelaxedCaptures(const RelaxedCaptures&) = delete;
  RelaxedCaptures& operator=(const RelaxedCaptures&) = delete;

 private:
  // The driver returns the mode that it had. The caller cannot act on an error.
  void Exchange() { static_cast<void>(api_.exchange_capture_mode(&mode_)); }

  const DriverApi& api_;
  CaptureMode mode_ = CaptureMode::kRelaxed;
};

}  // namespace collops::cuda
