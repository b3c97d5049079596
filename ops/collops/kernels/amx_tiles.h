#pragma once

#include <cstdint>

// In an unnamed namespace for the reason given in vector.h.
namespace collops::kernels {
namespace {

// What ldtilecfg reads: for each tile register its rows and the bytes of a row. All eight are
// whole.
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

}  // namespace
}  // namespace collops::kernels
