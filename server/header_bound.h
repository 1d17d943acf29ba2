// SPDX-License-Identifier: Apache-2.0
// Bounds the headers of a call before gRPC reads them.
//
// gRPC 1.51 keeps what CONTINUATION frames bring for as long as headers do not
// end. Its bound on metadata does not stop that, and its memory quota not in
// time: a few connections take gigabytes in seconds.
#ifndef ATTNBIAS_SERVER_HEADER_BOUND_H_
#define ATTNBIAS_SERVER_HEADER_BOUND_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace attnbias {

// Reads the frames of one connection's client, and nothing inside them.
class HeaderBound {
 public:
  // Of one call, as they are sent, with the heads of their frames: twice what
  // gRPC tells clients, so that it refuses by itself what is a little too much.
  static constexpr size_t kMaxBytes = size_t{32} << 10;

  // Takes what came next. False from the byte on with which headers are larger
  // than that. What does not begin as HTTP/2, as TLS does not, passes.
  bool Pass(std::string_view bytes);

 private:
  void EndOfPrefix();

  // The preface of a connection, then the head of a frame: as much as has come.
  std::array<char, 24> prefix_;
  size_t prefix_size_ = 0;
  size_t prefix_wanted_ = prefix_.size();
  // Of the frame's payload, still to come.
  size_t payload_left_ = 0;
  size_t header_bytes_ = 0;
  bool is_http2_ = true;
};

// gRPC reads the socket, which is a new connection's, only as far as it passes
// a HeaderBound. Over TLS that is so for every server of this process without.
void BoundHeadersOf(int fd);

// The socket that this thread has read last; -1 before the first.
int LastSocketRead();

}  // namespace attnbias

#endif  // ATTNBIAS_SERVER_HEADER_BOUND_H_
