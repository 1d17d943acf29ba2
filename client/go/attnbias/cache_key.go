// SPDX-License-Identifier: Apache-2.0

package attnbias

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	pb "github.com/attnbias/attnbias/client/go/attnbiaspb"
)

const keyPrefix = "attnbias request 1\n"

// cacheKey is what a request is filed under.
func cacheKey(spec *pb.TensorSpec) (string, error) {
	serialised, err := appendAscending([]byte(keyPrefix), spec.ProtoReflect())
	if err != nil { // text that is not UTF-8
		return "", invalid("spec: %v", err)
	}
	digest := sha256.Sum256(serialised)
	return hex.EncodeToString(digest[:]), nil
}

// appendAscending serialises a message with its fields in ascending order of their numbers, as
// other languages do; Go's own writes those of a oneof last.
func appendAscending(to []byte, message protoreflect.Message) ([]byte, error) {
	var fields []protoreflect.FieldDescriptor
	message.Range(func(field protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		fields = append(fields, field)
		return true
	})
	slices.SortFunc(fields, func(a, b protoreflect.FieldDescriptor) int {
		return int(a.Number() - b.Number())
	})
	var err error
	for _, field := range fields {
		value := message.Get(field)
		switch {
		case field.Message() == nil:
			alone := message.New()
			alone.Set(field, value)
			to, err = proto.MarshalOptions{}.MarshalAppend(to, alone.Interface())
		case field.IsList():
			for i := range value.List().Len() {
				to, err = appendInner(to, field, value.List().Get(i).Message(), err)
			}
		default:
			to, err = appendInner(to, field, value.Message(), err)
		}
		if err != nil {
			return nil, err
		}
	}
	return append(to, message.GetUnknown()...), nil
}

func appendInner(
	to []byte, field protoreflect.FieldDescriptor, inner protoreflect.Message, err error,
) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	serialised, err := appendAscending(nil, inner)
	return protowire.AppendBytes(
		protowire.AppendTag(to, field.Number(), protowire.BytesType), serialised), err
}

// namesATable says whether a request means a table by its name, under which a server may have
// another one.
func namesATable(message protoreflect.Message) bool {
	if ref, ok := message.Interface().(*pb.TableRef); ok {
		_, byName := ref.Source.(*pb.TableRef_Name)
		return byName
	}
	found := false
	message.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch {
		case field.Message() == nil:
		case field.IsList():
			for i := range value.List().Len() {
				found = found || namesATable(value.List().Get(i).Message())
			}
		default:
			found = namesATable(value.Message())
		}
		return !found
	})
	return found
}
