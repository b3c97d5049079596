#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "collops/comm/control/hosts/bridge.h"

namespace collops::control::tcp {

// Writes the fields of a frame: numbers in the byte order of the network, texts with their length
// before them.
class FieldWriter {
 public:
  FieldWriter& Number(uint64_t number) {
    for (int shift = 56; shift >= 0; shift -= 8) {
      text_.push_back(static_cast<char>(number >> shift & 0xff));
    }
    return *this;
  }
  FieldWriter& Text(const std::string& text) {
    Number(text.size());
    text_ += text;
    return *this;
  }

  const std::string& text() const { return text_; }
  Frame frame() const {
    const auto* const begin = reinterpret_cast<const std::byte*>(text_.data());
    return Frame(begin, begin + text_.size());
  }

 private:
  std::string text_;
};

// Reads them back. After a field that is not there, or too long, all further fields are empty.
class FieldReader {
 public:
  // `frame` must outlive this object.
  explicit FieldReader(const Frame& frame) : frame_(frame) {}
  explicit FieldReader(Frame&& frame) = delete;

  uint64_t Number() {
    constexpr size_t kBytes = 8;
    if (frame_.size() - at_ < kBytes) return Fail();
    uint64_t number = 0;
    for (size_t i = 0; i < kBytes; ++i) {
      number = number << 8 | std::to_integer<uint64_t>(frame_[at_++]);
    }
    return number;
  }
  // A number of that range; else the frame is not valid.
  int Int(int least, int most) {
    const auto number = static_cast<int64_t>(Number());
    return number < least || number > most ? static_cast<int>(Fail()) : static_cast<int>(number);
  }
  std::string Text(size_t most) {
    const uint64_t bytes = Number();
    // An empty frame has no address to read from, not even nothing.
    if (!valid_ || bytes > most || bytes > frame_.size() - at_) {
      Fail();
      return "";
    }
    std::string text(static_cast<size_t>(bytes), '\0');
    std::memcpy(text.data(), frame_.data() + at_, text.size());
    at_ += text.size();
    return text;
  }

  // Whether all fields were there, and nothing follows.
  bool Done() const { return valid_ && at_ == frame_.size(); }
  bool valid() const { return valid_; }

 private:
  uint64_t Fail() {
    valid_ = false;
    at_ = frame_.size();
    return 0;
  }

  const Frame& frame_;
  size_t at_ = 0;
  bool valid_ = true;
};

}  // namespace collops::control::tcp
