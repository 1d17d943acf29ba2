// SPDX-License-Identifier: Apache-2.0

package attnbias

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	pb "github.com/attnbias/attnbias/client/go/attnbiaspb"
)

const (
	lengthBytes      = 8  // of what a .safetensors begins with
	payloadAlignment = 64 // of a payload in its file
	noIndex          = "none"
)

// damagedError is a file that is not what was written.
type damagedError struct{ fingerprint, how string }

func (e *damagedError) Error() string {
	return e.fingerprint + tensorSuffix + " is damaged: " + e.how
}

func damaged(fingerprint, format string, values ...any) error {
	return &damagedError{fingerprint, fmt.Sprintf(format, values...)}
}

// readTensorFile finds header and payload in a file of the cache. The payload is read if it is to
// be verified.
func readTensorFile(file []byte, fingerprint string, verify bool) (*Tensor, error) {
	if len(file) < lengthBytes {
		return nil, damaged(fingerprint, "it has %d bytes", len(file))
	}
	length := binary.LittleEndian.Uint64(file)
	if length > uint64(len(file)-lengthBytes) || (lengthBytes+length)%payloadAlignment != 0 {
		return nil, damaged(fingerprint, "its JSON has %d bytes of %d", length, len(file))
	}
	payload := file[lengthBytes+length:]
	var content struct {
		Metadata map[string]string `json:"__metadata__"`
	}
	if err := json.Unmarshal(file[lengthBytes:lengthBytes+length], &content); err != nil {
		return nil, damaged(fingerprint, "%v", err)
	}
	serialised, err := base64.StdEncoding.DecodeString(content.Metadata["attnbias.header"])
	if err != nil {
		return nil, damaged(fingerprint, "attnbias.header: %v", err)
	}
	if got, want := checksum(serialised), content.Metadata["attnbias.header_crc32c"]; got != want {
		return nil, damaged(fingerprint, "the header's checksum is %s, want %s", got, want)
	}
	header := &pb.TensorHeader{}
	if err := proto.Unmarshal(serialised, header); err != nil {
		return nil, damaged(fingerprint, "attnbias.header: %v", err)
	}
	if err := checkHeader(header); err != nil {
		return nil, damaged(fingerprint, "%v", err)
	}
	if header.Fingerprint != fingerprint || header.TotalBytes != int64(len(payload)) {
		return nil, damaged(fingerprint, "its header is that of %s, of %d bytes; it has %d",
			header.Fingerprint, header.TotalBytes, len(payload))
	}
	if want := content.Metadata["attnbias.crc32c"]; verify && checksum(payload) != want {
		return nil, damaged(fingerprint, "checksum is %s, want %s", checksum(payload), want)
	}
	return &Tensor{header, payload[:len(payload):len(payload)]}, nil
}

// headOf is what stands before the payload in its file.
func headOf(tensor *Tensor, mask *pb.Mask) ([]byte, error) {
	metadata, err := metadataOf(tensor.header, mask)
	if err != nil {
		return nil, err
	}
	serialised, err := proto.Marshal(tensor.header)
	if err != nil {
		return nil, err
	}
	metadata["attnbias.header"] = base64.StdEncoding.EncodeToString(serialised)
	metadata["attnbias.header_crc32c"] = checksum(serialised)
	metadata["attnbias.crc32c"] = checksum(tensor.bytes)
	content := map[string]any{"__metadata__": metadata}
	for _, part := range tensor.header.Parts {
		content[part.Name] = map[string]any{
			"dtype":        strings.TrimPrefix(part.DataType.String(), "DATA_TYPE_"),
			"shape":        append([]int64{}, part.Shape...),
			"data_offsets": []int64{part.Offset, part.Offset + part.SizeBytes},
		}
	}
	text, err := json.Marshal(content)
	if err != nil {
		return nil, err
	}
	if odd := (lengthBytes + len(text)) % payloadAlignment; odd > 0 {
		text = append(text, bytes.Repeat([]byte(" "), payloadAlignment-odd)...)
	}
	return append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...), nil
}

// metadataOf is what docs/protocol.md has a file say, so that the Python client makes the answer of
// it again.
func metadataOf(header *pb.TensorHeader, mask *pb.Mask) (map[string]string, error) {
	resolved, err := toJSON(header.ResolvedSpec)
	if err != nil {
		return nil, err
	}
	metadata := map[string]string{
		"attnbias.fingerprint":          header.Fingerprint,
		"attnbias.encoding_fingerprint": header.EncodingFingerprint,
		"attnbias.resolved_spec":        resolved,
	}
	if len(header.Parts) == 0 {
		return metadata, nil
	}
	first, pair := header.Parts[0], header.ResolvedSpec.GetPair()
	if first.Form != pb.Form_FORM_TOEPLITZ && first.Form != pb.Form_FORM_KEY_ROW {
		return metadata, nil
	}
	queries, keys := lengthsOf(pair)
	metadata["attnbias.query_length"] = strconv.Itoa(queries)
	metadata["attnbias.key_length"] = strconv.Itoa(keys)
	if first.Form != pb.Form_FORM_TOEPLITZ {
		return metadata, nil
	}
	metadata["attnbias.diagonals.first_relative_position"] =
		strconv.FormatInt(first.FirstRelativePosition, 10)
	metadata["attnbias.diagonals.vectors"] = strconv.FormatBool(areVectors(header))
	if mask.GetCausal() || mask != nil && (mask.WindowLeft != nil || mask.WindowRight != nil) {
		without := &pb.Mask{
			Causal: mask.Causal, WindowLeft: mask.WindowLeft, WindowRight: mask.WindowRight,
		}
		if metadata["attnbias.diagonals.mask"], err = toJSON(without); err != nil {
			return nil, err
		}
	}
	if len(header.Parts) > 1 {
		metadata["attnbias.border.class_query"] =
			indexOfZero(pair.GetQueryOffset()+pair.GetQueries().GetBegin(), queries)
		metadata["attnbias.border.class_key"] = indexOfZero(pair.GetKeys().GetBegin(), keys)
	}
	return metadata, nil
}

func toJSON(message proto.Message) (string, error) {
	text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(message)
	return string(text), err
}

// indexOfZero is where position 0 stands among so many positions from the first on.
func indexOfZero(first int64, length int) string {
	if first > 0 || -first >= int64(length) {
		return noIndex
	}
	return strconv.FormatInt(-first, 10)
}

func checksum(data []byte) string { return fmt.Sprintf("%08x", crc32.Checksum(data, castagnoli)) }
