// SPDX-License-Identifier: Apache-2.0

package attnbias

import (
	"context"
	"errors"
	"hash/crc32"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	pb "github.com/attnbias/attnbias/client/go/attnbiaspb"
)

const (
	// Maximum data per request: the server's limit minus room for the other fields.
	maxRequestBytes = 8<<20 - 4096
	// Blocks are large enough to amortize the cost of a message, and small enough for sending,
	// computing and receiving to overlap.
	blockBytes       = 2 << 20
	blockAnswerBytes = 16 << 20
)

// Logits computes positional logits over a stream that stays open between calls to Rows, as suits a
// decoder. In is the element type of the rows that are sent, and Out is that of the results. A
// Logits is not safe for concurrent use.
type Logits[In, Out Float] struct {
	client *Client
	spec   *pb.LogitsSpec
	row    int // elements per head in a row that is sent
	width  int // elements per head in the result for a row

	stream grpc.ClientStream // nil: no stream is open
	// Outlives the call to Rows that opened the stream.
	streamContext context.Context
	cancel        context.CancelFunc
}

// NewLogits prepares a stream for one spec; the first call to Rows opens it, and Close ends it. The
// error is ErrInvalidArgument if the spec sets data_type to a type other than In, or
// output_data_type to a type other than Out.
func NewLogits[In, Out Float](client *Client, spec *pb.LogitsSpec) (*Logits[In, Out], error) {
	if spec == nil {
		return nil, invalid("spec: got nil, want an *attnbiaspb.LogitsSpec")
	}
	spec = proto.CloneOf(spec)
	for _, field := range []struct {
		name string
		is   *pb.DataType
		want pb.DataType
	}{
		{"spec.data_type", &spec.DataType, dataTypeOf[In]()},
		{"spec.output_data_type", &spec.OutputDataType, dataTypeOf[Out]()},
	} {
		if *field.is != pb.DataType_DATA_TYPE_UNSPECIFIED && *field.is != field.want {
			return nil, invalid("%s: got %v, want %v, the data type of the type argument",
				field.name, *field.is, field.want)
		}
		*field.is = field.want
	}
	for _, field := range []struct {
		name   string
		length int64
	}{
		{"spec.num_heads", int64(spec.NumHeads)},
		{"spec.head_dim", int64(spec.HeadDim)},
		{"spec.key_length", spec.KeyLength},
	} {
		if field.length < 0 || field.length > 1<<40 {
			return nil, invalid("%s: got %d, want at least 0 and at most 2^40", field.name,
				field.length)
		}
	}
	l := &Logits[In, Out]{client: client, spec: spec, row: int(spec.HeadDim),
		width: int(spec.KeyLength)}
	if _, isValues := spec.Term.(*pb.LogitsSpec_ShawValues); isValues {
		l.row, l.width = l.width, l.row
	}
	if spec.BiasAlone {
		l.row = 0
	}
	return l, nil
}

// Rows computes the results for count query rows, starting at row first. It returns them in
// row-major order, with shape [heads, count, width].
//
// The shape of rows is [heads, count, head_dim], and width is key_length. For shaw_values, the
// shape is [heads, count, key_length], and width is head_dim. With bias_alone, rows is empty.
//
// If the stream breaks, a new stream continues after the last answered row.
func (l *Logits[In, Out]) Rows(
	ctx context.Context, first int64, count int, rows []In,
) ([]Out, error) {
	heads := int(l.spec.NumHeads)
	if count < 1 {
		return nil, invalid("count: got %d, want at least 1", count)
	}
	size, _ := product(heads, count, l.width, elementSize[Out]())
	if err := checkSize(size, l.client.maxTensorBytes); err != nil {
		return nil, err
	}
	want, fits := product(heads, count, l.row)
	if !fits || int64(len(rows)) != want {
		return nil, invalid("rows: got %d numbers, want %d for %d heads, %d rows and %d columns",
			len(rows), want, heads, count, l.row)
	}
	step, err := l.rowsInBlock()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, l.client.timeout)
	defer cancel()
	work := &rowsCall[In, Out]{
		Logits: l, heads: heads, first: first, count: count, step: step, rows: rows,
		answer: make([]Out, heads*count*l.width),
	}
	return work.run(ctx)
}

// rowsInBlock returns the number of rows in a message.
func (l *Logits[In, Out]) rowsInBlock() (int, error) {
	heads := int(l.spec.NumHeads)
	row := max(heads*l.row*elementSize[In](), 1)
	if row > maxRequestBytes {
		return 0, invalid("rows: one row across all heads takes %d bytes, want at most %d; "+
			"request fewer heads at a time", row, maxRequestBytes)
	}
	answer := max(heads*l.width*elementSize[Out](), 1)
	return max(min(blockBytes/row, blockAnswerBytes/answer), 1), nil
}

// Close ends the stream.
func (l *Logits[In, Out]) Close() error {
	if l.cancel != nil {
		l.cancel()
	}
	l.stream, l.cancel = nil, nil
	return nil
}

// begin opens a stream and reads its header.
func (l *Logits[In, Out]) begin() error {
	const method = pb.AttentionBiasService_ComputeLogits_FullMethodName
	stream, err := l.client.newStream(l.streamContext, method)
	if err != nil {
		return err
	}
	l.stream = stream
	request, err := serialized(&pb.ComputeLogitsRequest{Spec: l.spec})
	if err != nil {
		return err
	}
	err = stream.SendMsg(request)
	if err != nil && !errors.Is(err, io.EOF) { // after io.EOF, RecvMsg returns the cause
		return err
	}
	var message rawMessage
	if err := stream.RecvMsg(&message); err != nil {
		return endOf(err)
	}
	defer message.Free()
	read, err := readChunk(message.ReadOnlyData())
	if err != nil {
		return err
	}
	return read.readHeader(request, &pb.LogitsHeader{})
}

// rowsCall is one call to Rows.
type rowsCall[In, Out Float] struct {
	*Logits[In, Out]
	heads    int
	first    int64
	count    int
	step     int // rows per block
	rows     []In
	answer   []Out
	answered int // rows answered so far
}

// run makes attempts until all rows are answered.
func (w *rowsCall[In, Out]) run(ctx context.Context) ([]Out, error) {
	for tries := w.client.newAttempts(); ; {
		before, reused := w.answered, w.stream != nil
		err := w.attempt(ctx)
		if err == nil {
			return w.answer, nil
		}
		failure := w.failure(ctx, err)
		w.Close()
		if w.answered > before {
			tries.progressed()
		} else if reused && isTransient(failure) && failure.delay == nil {
			continue // the stream had ended while it was idle
		}
		if err := tries.waitAfter(ctx, failure); err != nil {
			return nil, err
		}
	}
}

// attempt sends the unanswered rows in blocks and copies the results into place.
func (w *rowsCall[In, Out]) attempt(ctx context.Context) error {
	if w.stream == nil {
		w.streamContext, w.cancel = context.WithCancel(context.WithoutCancel(ctx))
	}
	stop := context.AfterFunc(ctx, w.cancel)
	defer stop()
	if w.stream == nil {
		if err := w.begin(); err != nil {
			return err
		}
	}
	sent := make(chan struct{})
	stream, begin := w.stream, w.answered
	go func() {
		defer close(sent)
		w.send(stream, begin)
	}()
	err := w.receive()
	if err != nil {
		w.cancel() // ends a blocked send
	}
	<-sent // after Rows returns, the caller may modify the rows
	return err
}

// failure converts the error from an attempt into an Error.
func (w *rowsCall[In, Out]) failure(ctx context.Context, err error) *Error {
	if ctx.Err() != nil { // the stream was cancelled because ctx ended
		err = ctx.Err()
	}
	var trailer func() metadata.MD
	if w.stream != nil {
		trailer = w.stream.Trailer
	}
	return w.client.advised(errorOf(err, trailer))
}

// send sends the rows from begin onward. If the stream breaks, receive returns the cause.
func (w *rowsCall[In, Out]) send(stream grpc.ClientStream, begin int) {
	for ; begin < w.count; begin += w.step {
		end := min(begin+w.step, w.count)
		block := make([]In, 0, w.heads*(end-begin)*w.row)
		for h := range w.heads {
			row := h * w.count
			block = append(block, w.rows[(row+begin)*w.row:(row+end)*w.row]...)
		}
		data := bytesOf(block)
		err := stream.SendMsg(&pb.ComputeLogitsRequest{
			FirstRow: w.first + int64(begin), NumRows: int64(end - begin),
			Crc32C: proto.Uint32(crc32.Checksum(data, castagnoli)), Data: data,
		})
		if err != nil {
			return
		}
	}
}

func (w *rowsCall[In, Out]) receive() error {
	for w.answered < w.count {
		end := min(w.answered+w.step, w.count)
		block, err := w.receiveBlock(end)
		if err != nil {
			return err
		}
		size := (end - w.answered) * w.width
		for h := range w.heads {
			copy(w.answer[(h*w.count+w.answered)*w.width:][:size], block[h*size:])
		}
		w.answered = end
	}
	return nil
}

// receiveBlock checks and returns the results for the next rows, up to end.
func (w *rowsCall[In, Out]) receiveBlock(end int) ([]Out, error) {
	block := make([]Out, w.heads*(end-w.answered)*w.width)
	memory, received := bytesOf(block), 0
	for received < len(memory) {
		var message rawMessage
		if err := w.stream.RecvMsg(&message); err != nil {
			return nil, endOf(err)
		}
		read, err := readChunk(message.ReadOnlyData())
		if err == nil {
			err = read.copyData(memory[received:])
		}
		message.Free()
		if err != nil {
			return nil, err
		}
		if first := w.first + int64(w.answered); read.firstRow != first ||
			read.offset != int64(received) {
			return nil, corrupt("chunk: got offset %d of row %d, want offset %d of row %d",
				read.offset, read.firstRow, received, first)
		}
		received += len(read.data)
	}
	return block, nil
}

func endOf(err error) error {
	if errors.Is(err, io.EOF) {
		return corrupt("stream: ended with OK before all rows were received")
	}
	return err
}
