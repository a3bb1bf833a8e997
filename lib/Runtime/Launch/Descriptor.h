//===- Descriptor.h - An open file that is closed with its object -*- C++ -*-===//
#ifndef PARTITA_LIB_RUNTIME_LAUNCH_DESCRIPTOR_H
#define PARTITA_LIB_RUNTIME_LAUNCH_DESCRIPTOR_H

#include <unistd.h>
#include <utility>

namespace partita::runtime {

class FileDescriptor {
public:
  explicit FileDescriptor(int number = -1) : number(number) {}
  FileDescriptor(FileDescriptor &&other) noexcept
      : number(std::exchange(other.number, -1)) {}
  FileDescriptor &operator=(FileDescriptor &&other) noexcept {
    std::swap(number, other.number);
    return *this;
  }
  ~FileDescriptor() { close(); }
  /// −1: none is open.
  int get() const { return number; }
  void close() {
    if (number >= 0)
      ::close(std::exchange(number, -1));
  }

private:
  int number;
};

} // namespace partita::runtime

#endif // PARTITA_LIB_RUNTIME_LAUNCH_DESCRIPTOR_H
