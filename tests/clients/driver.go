// SPDX-License-Identifier: Apache-2.0

// Command driver is the suite's Go client: it gets the tensor that a JSON object describes and
// prints the outcome as one line of JSON.
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
	Request        json.RawMessage // a TensorSpec; null for the list of tables
	Times          int
	Timeout        float64
	ConnectTimeout *float64 `json:"connect_timeout"`
	CA             *string  // a file with trusted authorities
	Token          *string
	MaxAttempts    *int   `json:"max_attempts"`
	MaxTensorBytes *int64 `json:"max_tensor_bytes"`
}

type part struct {
	DType  string  `json:"dtype"`
	Shape  []int64 `json:"shape"`
	SHA256 string  `json:"sha256"`
}

func main() {
	s := settings{Times: 1}
	check(json.Unmarshal([]byte(os.Args[1]), &s))
	client, err := attnbias.New(s.Target, s.options()...)
	check(err)
	defer client.Close()
	var got map[string]any
	if string(s.Request) == "null" {
		got = tables(client)
	} else {
		got = get(client, s.Request, s.Times)
	}
	line, err := json.Marshal(got)
	check(err)
	fmt.Println(string(line))
}

// get gets a tensor several times and returns the last outcome.
func get(client *attnbias.Client, request []byte, times int) map[string]any {
	spec := &pb.TensorSpec{}
	check(protojson.Unmarshal(request, spec))
	var tensor *attnbias.Tensor
	var err error
	for range times {
		tensor, err = client.Get(context.Background(), spec)
	}
	if err != nil {
		return failure(err)
	}
	return parts(tensor)
}

func tables(client *attnbias.Client) map[string]any {
	listed, err := client.ListTables(context.Background())
	if err != nil {
		return failure(err)
	}
	names := []string{}
	for _, table := range listed {
		names = append(names, table.Name)
	}
	return map[string]any{"tables": names}
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
	if s.ConnectTimeout != nil {
		options = append(options,
			attnbias.WithConnectTimeout(time.Duration(*s.ConnectTimeout*float64(time.Second))))
	}
	if s.CA != nil {
		options = append(options, attnbias.WithTLS(attnbias.TLS{CA: *s.CA}))
	}
	return options
}

func failure(err error) map[string]any {
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

func parts(tensor *attnbias.Tensor) map[string]any {
	parts := map[string]part{}
	for _, each := range tensor.Header().Parts {
		data := tensor.Bytes()[each.Offset : each.Offset+each.SizeBytes]
		parts[each.Name] = part{strings.TrimPrefix(each.DataType.String(), "DATA_TYPE_"),
			each.Shape, fmt.Sprintf("%x", sha256.Sum256(data))}
	}
	return map[string]any{"fingerprint": tensor.Fingerprint(), "parts": parts}
}

// nameOf returns the contract's name for a code: "DATA_LOSS" for Go's DataLoss.
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
