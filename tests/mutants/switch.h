#pragma once

#include <cstdint>
#include <cstdlib>

// Whether that fault is switched on. A copy for each file: those of vector code have compiler
// options of their own.
[[maybe_unused]] static bool MUTANT(int number) {
  static const uint64_t chosen = [] {
    uint64_t bits = 0;
    const char* text = std::getenv("TESTED_MUTANT");  // numbers between commas
    for (char* end = nullptr; text != nullptr && *text != '\0';
         text = *end == ',' ? end + 1 : end) {
      const long one = std::strtol(text, &end, 10);
      if (end == text) break;
      bits |= uint64_t{1} << one;
    }
    return bits;
  }();
  return (chosen >> number & 1) != 0;
}
