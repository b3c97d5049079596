// Damages inputs of a corpus, the same way in every run: a driver without coverage, for compilers
// that have no libFuzzer. COLLOPS_FUZZ_ROUNDS says how often each input is damaged.
#ifndef COLLOPS_TESTS_CPP_FUZZ_MUTATION_H_
#define COLLOPS_TESTS_CPP_FUZZ_MUTATION_H_

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "check.h"

namespace fuzz {

using Random = std::mt19937_64;

inline int Rounds(int quick) {
  const char* const said = std::getenv("COLLOPS_FUZZ_ROUNDS");
  return said == nullptr ? quick : std::max(1, std::atoi(said)) * quick;
}

inline size_t Below(Random* random, size_t limit) {
  return limit == 0 ? 0 : static_cast<size_t>((*random)() % limit);
}

// Numbers at the ends of ranges, of the widths of fields.
inline uint64_t NumberAtAnEnd(Random* random) {
  static constexpr uint64_t kEnds[] = {
      0, 1, 2, 3, 127, 128, 129, 255, 4096, 65535, 65536, INT32_MAX, uint64_t{1} << 31, UINT32_MAX};
  const uint64_t end = kEnds[Below(random, std::size(kEnds))];
  switch (Below(random, 4)) {
    case 0:
      return uint64_t{0} - end;
    case 1:
      return static_cast<uint64_t>(INT64_MAX) - end;
    case 2:
      return static_cast<uint64_t>(INT64_MAX) + end;
    default:
      return end;
  }
}

// One change: bits, bytes, a number of either byte order, a stretch gone, repeated or moved, an end
// cut off, or a stretch of `other`.
inline void DamageOnce(std::string* bytes, const std::string& other, Random* random) {
  const size_t at = Below(random, bytes->size() + 1);
  const size_t stretch = std::min<size_t>(Below(random, 24), bytes->size() - at);
  switch (Below(random, 9)) {
    case 0:
      if (at < bytes->size()) (*bytes)[at] ^= static_cast<char>(1 << Below(random, 8));
      break;
    case 1:
      if (at < bytes->size()) (*bytes)[at] = static_cast<char>((*random)());
      break;
    case 2:
    case 3: {
      const size_t width = size_t{1} << Below(random, 4);
      const uint64_t number = NumberAtAnEnd(random);
      const bool reversed = Below(random, 2) == 0;
      for (size_t i = 0; i < width && at + i < bytes->size(); ++i) {
        const size_t byte = reversed ? width - 1 - i : i;
        (*bytes)[at + i] = static_cast<char>(number >> 8 * byte);
      }
      break;
    }
    case 4:
      bytes->erase(at, stretch);
      break;
    case 5:
      bytes->insert(at, bytes->substr(at, stretch));
      break;
    case 6:
      bytes->insert(Below(random, bytes->size() + 1), bytes->substr(at, stretch));
      break;
    case 7:
      bytes->resize(at);
      break;
    default:
      bytes->insert(at, other.substr(Below(random, other.size() + 1), Below(random, 40)));
      break;
  }
}

inline std::string Damaged(const std::vector<std::string>& corpus, size_t which, Random* random) {
  std::string bytes = corpus[which];
  for (size_t times = 1 + Below(random, 3); times > 0; --times) {
    DamageOnce(&bytes, corpus[Below(random, corpus.size())], random);
  }
  return bytes;
}

// The contents of the files of a folder of corpus/, in the order of their names.
inline std::vector<std::string> Corpus(const std::string& folder) {
  std::vector<std::filesystem::path> paths;
  const std::filesystem::path root(COLLOPS_FUZZ_CORPUS);
  for (const auto& entry : std::filesystem::directory_iterator(root / folder)) {
    paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<std::string> found;
  for (const auto& path : paths) {
    std::ifstream file(path, std::ios::binary);
    found.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  EXPECT_FALSE(found.empty());
  return found;
}

// Calls `read` with every input of the corpus as it is, and then with damaged ones; it returns
// whether the input was valid. Of the damaged ones some must be valid and some not, else nothing is
// tried.
template <typename Read>
void Drive(const char* name, const std::vector<std::string>& corpus, int quick, Read&& read) {
  for (const std::string& input : corpus) EXPECT_TRUE(read(input));
  Random random(15);
  int valid = 0;
  int tried = 0;
  for (int round = Rounds(quick); round > 0; --round) {
    for (size_t which = 0; which < corpus.size(); ++which, ++tried) {
      const std::string input = Damaged(corpus, which, &random);
      const int before = check::Failures();
      valid += read(input) ? 1 : 0;
      if (check::Failures() == before) continue;
      std::printf("the input, of %zu bytes, in hexadecimal:", input.size());
      for (const char byte : input) std::printf(" %02x", static_cast<unsigned char>(byte));
      std::printf("\n");
      return;
    }
  }
  std::printf("%s: %d inputs, %d of them valid\n", name, tried, valid);
  EXPECT_TRUE(valid > 0 && valid < tried);
}

}  // namespace fuzz

#endif  // COLLOPS_TESTS_CPP_FUZZ_MUTATION_H_
