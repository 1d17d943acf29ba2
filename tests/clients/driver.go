// SPDX-License-Identifier: Apache-2.0

// Command driver is Go's client for the suite: it gets the tensor that a JSON names, and says in
// one line of JSON what came of it.
package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/attnbias/attnbias/client/go/attnbias"
	pb "github.com/attnbias/attnbias/client/go/attnbiaspb"
)

type settings struct {
	Target         string
	Request        json.RawMessage // a TensorSpec
	Times          int
	Timeout        float64
	Token          *string
	MaxAttempts    *int   `json:"max_attempts"`
	MaxTensorBytes *int64 `json:"max_tensor_bytes"`
	Streams        *int
}

type part struct {
	DType  string  `json:"dtype"`
	Shape  []int64 `json:"shape"`
	SHA256 string  `json:"sha256"`
}

func main() {
	s := settings{Times: 1}
	check(json.Unmarshal([]byte(os.Args[1]), &s))
	spec := &pb.TensorSpec{}
	check(protojson.Unmarshal(s.Request, spec))
	client, err := attnbias.New(s.Target, s.options()...)
	check(err)
	defer client.Close()
	var tensor *attnbias.Tensor
	for range s.Times {
		tensor, err = client.Get(context.Background(), spec)
	}
	line, marshalled := json.Marshal(outcome(tensor, err))
	check(marshalled)
	fmt.Println(string(line))
}

func (s *settings) options() []attnbias.Option {
	options := []attnbias.Option{
		attnbias.WithTimeout(time.Duration(s.Timeout * float64(time.Second)))}
	if s.Token != nil {
		options = append(options, attnbias.WithToken(*s.Token))
	}
	if s.MaxAttempts != nil {
		options = append(options, attnbias.WithMaxAttempts(*s.MaxAttempts))
	}
	if s.MaxTensorBytes != nil {
		options = append(options, attnbias.WithMaxTensorBytes(*s.MaxTensorBytes))
	}
	if s.Streams != nil {
		options = append(options, attnbias.WithStreams(*s.Streams))
	}
	return options
}

func outcome(tensor *attnbias.Tensor, err error) map[string]any {
	if err != nil {
		var failed *attnbias.Error
		if !errors.As(err, &failed) {
			log.Fatalf("%T: %v", err, err)
		}
		fields := []string{}
		for _, violation := range failed.FieldViolations {
			fields = append(fields, violation.Field)
		}
		return map[string]any{"status": nameOf(failed.Code), "reason": failed.Reason,
			"request_id": failed.RequestID, "fields": fields, "message": failed.Message}
	}
	parts := map[string]part{}
	for _, each := range tensor.Header().Parts {
		data := tensor.Bytes()[each.Offset : each.Offset+each.SizeBytes]
		parts[each.Name] = part{strings.TrimPrefix(each.DataType.String(), "DATA_TYPE_"),
			each.Shape, fmt.Sprintf("%x", sha256.Sum256(data))}
	}
	return map[string]any{"fingerprint": tensor.Fingerprint(), "parts": parts}
}

// nameOf is a code as the contract has it: "DATA_LOSS", which Go calls DataLoss.
func nameOf(code codes.Code) string {
	var name strings.Builder
	for i, letter := range code.String() {
		if i > 0 && letter >= 'A' && letter <= 'Z' {
			name.WriteByte('_')
		}
		name.WriteRune(letter)
	}
	return strings.ToUpper(name.String())
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
