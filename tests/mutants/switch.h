#pragma once

#include <cstdlib>

// Whether that fault is switched on. A copy for each file: those of vector code have compiler
// options of their own.
[[maybe_unused]] static bool MUTANT(int number) {
  static const int chosen = [] {
    const char* const text = std::getenv("TESTED_MUTANT");
    return text == nullptr ? 0 : std::atoi(text);
  }();
  return chosen == number;
}
