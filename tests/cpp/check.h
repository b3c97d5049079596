// A small test framework: TEST(Name) { EXPECT_EQ(a, b); } registers itself. A program has the files
// of a folder; `--file NAME` runs those of one. It fails if an expectation failed, if a test threw,
// or if it ran no test at all.
#ifndef COLLOPS_TESTS_CPP_CHECK_H_
#define COLLOPS_TESTS_CPP_CHECK_H_

#include <sstream>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "sanitized.h"

namespace check {

// The number of expectations that have failed.
int& Failures();

struct Registration {
  Registration(const char* file, const char* name, void (*body)());
};

template <typename T, typename = void>
struct IsPrintable : std::false_type {};
template <typename T>
struct IsPrintable<T, std::void_t<decltype(std::declval<std::ostream&>() << std::declval<T>())>>
    : std::true_type {};

// Prints bytes as numbers, enums as their number, other types without operator<< as their size.
template <typename T>
std::string Show(const T& value) {
  std::ostringstream out;
  out.precision(17);
  if constexpr (std::is_same_v<T, bool>) {
    out << (value ? "true" : "false");
  } else if constexpr (std::is_integral_v<T> && sizeof(T) == 1) {
    out << static_cast<int>(value);
  } else if constexpr (IsPrintable<T>::value) {
    out << value;
  } else if constexpr (std::is_enum_v<T>) {
    out << static_cast<long long>(value);
  } else {
    out << "<" << sizeof(T) << " bytes>";
  }
  return out.str();
}

template <typename T>
std::string Show(const std::vector<T>& values) {
  std::string text = "[";
  for (size_t i = 0; i < values.size(); ++i) {
    text += (i == 0 ? "" : ", ") + Show(static_cast<T>(values[i]));
  }
  return text + "]";
}

void Fail(const char* file, int line, const std::string& what);

template <typename A, typename B>
bool Equal(const A& a, const B& b) {
  if constexpr (std::is_integral_v<A> && std::is_integral_v<B> && !std::is_same_v<A, bool> &&
                !std::is_same_v<B, bool>) {
    // Compares values of any signedness: -1 never equals the largest unsigned number.
    return (a < 0) == (b < 0) &&
           static_cast<unsigned long long>(a) == static_cast<unsigned long long>(b);
  } else {
    return a == b;
  }
}

template <typename A, typename B>
bool ExpectEqual(const A& a, const B& b, const char* text, const char* file, int line) {
  if (Equal(a, b)) return true;
  Fail(file, line, std::string(text) + "\n  got  " + Show(a) + "\n  want " + Show(b));
  return false;
}

bool ExpectTrue(bool value, const char* text, const char* file, int line);

// Checks that a message contains `part`.
bool ExpectContains(const std::string& text, const std::string& part, const char* file, int line);

}  // namespace check

#define TEST(name)                                                                   \
  static void name##Body();                                                          \
  static const check::Registration name##_registration(__FILE__, #name, name##Body); \
  static void name##Body()
#define EXPECT_EQ(got, want) \
  check::ExpectEqual((got), (want), #got " == " #want, __FILE__, __LINE__)
#define EXPECT_TRUE(value) check::ExpectTrue(static_cast<bool>(value), #value, __FILE__, __LINE__)
#define EXPECT_FALSE(value) EXPECT_TRUE(!(value))
#define EXPECT_CONTAINS(text, part) check::ExpectContains((text), (part), __FILE__, __LINE__)
// Ends the test if the value is false, because the rest would make no sense.
#define ASSERT_TRUE(value) \
  if (!EXPECT_TRUE(value)) return
#define ASSERT_EQ(got, want) \
  if (!EXPECT_EQ(got, want)) return

#endif  // COLLOPS_TESTS_CPP_CHECK_H_
