// SPDX-License-Identifier: Apache-2.0
// What a message would take in memory, before it is decoded.
#ifndef ATTNBIAS_SERVER_CODEC_DECODED_SIZE_H_
#define ATTNBIAS_SERVER_CODEC_DECODED_SIZE_H_

#include <cstdint>

#include "google/protobuf/descriptor.h"
#include "grpcpp/support/byte_buffer.h"

namespace attnbias {

// Roughly the bytes that a `type` in `bytes` takes as a message, at most: an
// empty element of two bytes becomes an object, a number of one byte takes
// sixteen. Reads up to where the bytes are not a message.
int64_t DecodedSize(const grpc::ByteBuffer& bytes,
                    const google::protobuf::Descriptor& type);

// Whether each field ends inside the message that has it. Where one claims
// more, protobuf's parser takes up to 50 MB for a text in it.
bool FieldsEndInside(const grpc::ByteBuffer& bytes,
                     const google::protobuf::Descriptor& type);

}  // namespace attnbias

#endif  // ATTNBIAS_SERVER_CODEC_DECODED_SIZE_H_
