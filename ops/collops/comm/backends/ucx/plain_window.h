#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "collops/comm/window.h"
#include "collops/core/status.h"

namespace collops::ucx {

// Memory that only its own rank addresses.
class PlainWindow : public Window {
 public:
  // `own`: this rank. ERROR_OUT_OF_HOST_MEMORY if the process can get no more memory.
  static Status Allocate(int64_t bytes, RankSet own, std::shared_ptr<Window>* window);

  PlainWindow(void* data, int64_t bytes, RankSet own)
      : data_(data), bytes_(bytes), own_(std::move(own)) {}
  ~PlainWindow() override;

  void* data() const override { return data_; }
  int64_t bytes() const override { return bytes_; }
  const RankSet& peers() const override { return own_; }

 private:
  void* data_;
  int64_t bytes_;
  RankSet own_;
};

}  // namespace collops::ucx
