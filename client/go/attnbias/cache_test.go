// SPDX-License-Identifier: Apache-2.0

package attnbias

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	pb "github.com/attnbias/attnbias/client/go/attnbiaspb"
)

// Nothing listens there.
const nobody = "127.0.0.1:1"

// python runs a program that has the package attnbias, the server's address in SERVER and the
// cache's folder in FOLDER, and returns what it prints.
func python(t *testing.T, folder, program string) string {
	t.Helper()
	command := exec.Command("python", "-c", "import os, attnbias\n"+program)
	command.Env = append(os.Environ(), "SERVER="+serverAddress, "FOLDER="+folder)
	command.Stderr = os.Stderr
	said, err := command.Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(said)
}

// What the clients ask for in these tests: arguments of Python's Client.get.
var shared = []string{
	"attnbias.ALiBi(num_heads=2), queries=6, keys=6, causal=True",
	"attnbias.ALiBi(num_heads=2, variant='key_from_end'), queries=5, keys=5, dtype='f16'",
	"attnbias.ALiBi(num_heads=3), queries=(2, 7), keys=(1, 9), heads=(1, 3), query_offset=4",
	"attnbias.ALiBi(num_heads=2), queries=4, keys=4, form='dense', dtype='f64', fill=-9, " +
		"causal=True",
	"attnbias.Rotary(head_dim=8), positions=16, dtype='bf16'",
	"attnbias.Sinusoidal(dim=4), position_ids=[3, 1, 4, 1, 5]",
	"attnbias.ALiBi(num_heads=2), queries=6, keys=6, window_left=9",
	"attnbias.T5(num_heads=2, bidirectional=True), queries=9, keys=9, values='buckets'",
	"attnbias.TransformerXL(dim=4), queries=5, keys=5",
	"attnbias.T5(num_heads=2, bidirectional=False, table=numpy.ones((2, 32), 'f4'), " +
		"table_layout='heads_buckets'), queries=7, keys=7, window_left=2, scale=2",
	"attnbias.Tupe(num_heads=1, num_buckets=4, max_distance=8, reset_class_token=True, " +
		"relative_table=numpy.arange(5, dtype='f4')[:, None]), queries=6, keys=(2, 6)",
	"attnbias.Beit(window_height=2, window_width=2, num_heads=1, " +
		"table=numpy.arange(12, dtype='f2')[:, None])",
}

// askedFor has Python print each as a TensorSpec, and the key that it files it under.
func askedFor(t *testing.T) (specs []*pb.TensorSpec) {
	t.Helper()
	program := "import attnbias._cache, numpy\n"
	for _, arguments := range shared {
		program += "spec = attnbias.Request(" + arguments + ").to_spec()\n" +
			"print(attnbias._cache.key_of(spec), spec.SerializeToString().hex())\n"
	}
	for line := range strings.Lines(python(t, "", program)) {
		key, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		serialised, err := hex.DecodeString(text)
		spec := &pb.TensorSpec{}
		if err = errors.Join(err, proto.Unmarshal(serialised, spec)); err != nil {
			t.Fatal(err)
		}
		if got, err := cacheKey(spec); got != key || err != nil {
			t.Errorf("%v: got key %s, %v, want %s", spec, got, err, key)
		}
		specs = append(specs, spec)
	}
	return specs
}

func TestPythonsFilesAreMapped(t *testing.T) {
	direct, folder := realClient(t), t.TempDir()
	program := "import numpy\nclient = attnbias.Client(os.environ['SERVER'], " +
		"cache=os.environ['FOLDER'])\n"
	for _, arguments := range shared {
		program += "client.get(" + arguments + ")\n"
	}
	python(t, folder, program)
	offline := clientOf(t, nobody, WithCache(folder), WithOffline())
	for _, spec := range askedFor(t) {
		got, want := get(t, offline, spec), get(t, direct, spec)
		if !bytes.Equal(got.Bytes(), want.Bytes()) || !proto.Equal(got.Header(), want.Header()) {
			t.Errorf("%v: got %v, want %v", spec, got.Header(), want.Header())
		}
		again := get(t, offline, spec)
		if unsafe.SliceData(again.Bytes()) != unsafe.SliceData(got.Bytes()) {
			t.Errorf("%v: mapped twice", spec)
		}
	}
}

func TestPythonMapsTheseFiles(t *testing.T) {
	folder := t.TempDir()
	client := realClient(t, WithCache(folder))
	for _, spec := range askedFor(t) {
		get(t, client, spec)
	}
	program := `
import numpy, pathlib
folder = pathlib.Path(os.environ["FOLDER"])
direct = attnbias.Client(os.environ["SERVER"])
offline = attnbias.Client("127.0.0.1:1", cache=folder, offline=True)
assert attnbias.Cache(folder).verify() == []
def same(got, want):
    assert (type(got), repr(got)) == (type(want), repr(want))
    assert numpy.array_equal(numpy.asarray(got), numpy.asarray(want)), (got, want)
    for name in ("resolved_spec", "mask", "class_query", "class_key"):
        assert getattr(got, name, None) == getattr(want, name, None), name
def ask(*args, **kwargs):
    want = direct.get(*args, **kwargs)
    same(offline.get(*args, **kwargs), want)
    info = direct.describe(*args, **kwargs)
    assert offline.describe(*args, **kwargs) == info
    same(attnbias.load(folder / "tensors" / f"{info.fingerprint}.safetensors"), want)
`
	for _, arguments := range shared {
		program += "ask(" + arguments + ")\n"
	}
	python(t, folder, program)
}

func TestCppsFilesAreMapped(t *testing.T) {
	direct, folder := realClient(t), t.TempDir()
	specs := askedFor(t)
	var asked strings.Builder
	for _, spec := range specs {
		serialised, err := proto.Marshal(spec)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&asked, hex.EncodeToString(serialised))
	}
	program := filepath.Join(filepath.Dir(os.Getenv("ATTNBIAS_SERVER_BINARY")), "attnbias-cpp-get")
	command := exec.Command(program, serverAddress)
	command.Env = append(os.Environ(), cacheVariable+"="+folder)
	command.Stdin = strings.NewReader(asked.String())
	command.Stderr = os.Stderr
	if err := command.Run(); err != nil {
		t.Fatal(err)
	}
	offline := clientOf(t, nobody, WithCache(folder), WithOffline())
	for _, spec := range specs {
		got, want := get(t, offline, spec), get(t, direct, spec)
		if !bytes.Equal(got.Bytes(), want.Bytes()) || !proto.Equal(got.Header(), want.Header()) {
			t.Errorf("%v: got %v, want %v", spec, got.Header(), want.Header())
		}
	}
}

// cacheAndFake are a client with a cache in a folder of its own, and its fake server.
func cacheAndFake(t *testing.T, options ...Option) (*fake, *Client, string) {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "cache")
	f, client := fakeAndClient(t, append([]Option{WithCache(folder)}, options...)...)
	return f, client, folder
}

func tensorFile(folder string) string {
	return filepath.Join(folder, "tensors", fingerprint+".safetensors")
}

func TestWhatWasFetchedIsKept(t *testing.T) {
	f, client, folder := cacheAndFake(t)
	for range 3 {
		tensor := get(t, client, alibi)
		if !slices.Equal(numbersIn[float32](tensor.Bytes()), payload) {
			t.Errorf("got %v", tensor.Bytes())
		}
	}
	same := specOf(t, "alibi { num_heads: 1 alibi_bias_max: 8 } "+
		"pair { query_length: 2 key_length: 2 }")
	get(t, client, same) // which other words for it cost one question
	if len(f.offsets) != 1 || f.described != 2 {
		t.Errorf("got %d transfers and %d questions, want 1 and 2", len(f.offsets), f.described)
	}
	var out [3]float32
	if _, err := GetInto(t.Context(), client, alibi, out[:]); err != nil ||
		!slices.Equal(out[:], payload) {
		t.Errorf("got %v, %v", out, err)
	}
	for _, few := range [][]float32{out[:2], nil} {
		_, err := GetInto(t.Context(), client, alibi, few)
		expectError(t, err, ErrInvalidArgument, "bytes, want at least 12")
	}
	small := clientOf(t, client.target, WithCache(folder), WithMaxTensorBytes(8))
	if _, err := small.Get(t.Context(), alibi); !errors.Is(err, ErrTooLarge) {
		t.Errorf("got %v, want %v", err, ErrTooLarge)
	}
	if left, err := os.ReadDir(filepath.Join(folder, "drafts")); err != nil || len(left) > 0 {
		t.Errorf("got drafts %v, %v", left, err)
	}
	mode, err := os.Stat(tensorFile(folder))
	if err != nil || mode.Mode().Perm() != 0o666&^umask() {
		t.Errorf("got %v, %v", mode, err)
	}
}

func TestCacheKeepsWhatWentIntoMemory(t *testing.T) {
	f, client, folder := cacheAndFake(t)
	var out [3]float32
	for range 2 { // by the server, and by the cache
		clear(out[:])
		tensor, err := GetInto(t.Context(), client, alibi, out[:])
		if err != nil || !slices.Equal(out[:], payload) ||
			unsafe.SliceData(tensor.Bytes()) != unsafe.SliceData(bytesOf(out[:])) {
			t.Errorf("got %v, %v", out, err)
		}
	}
	if len(f.offsets) != 1 {
		t.Errorf("got %d transfers, want 1", len(f.offsets))
	}
	expectTensors(t, folder, fingerprint)
}

func umask() os.FileMode {
	mask := unix.Umask(0)
	unix.Umask(mask)
	return os.FileMode(mask)
}

func TestOneFetchesForAll(t *testing.T) {
	f, client, folder := cacheAndFake(t)
	f.script = append(f.script, func(request *pb.StreamTensorRequest, stream tensorStream) error {
		time.Sleep(50 * time.Millisecond)
		return sends(nil, withHeader(payloadHeader()), part(0), part(1), part(2))(request, stream)
	})
	var all sync.WaitGroup
	for range 8 {
		other := clientOf(t, client.target, WithCache(folder))
		all.Go(func() { get(t, other, alibi) })
	}
	all.Wait()
	if len(f.offsets) != 1 {
		t.Errorf("got %d transfers, want 1", len(f.offsets))
	}
}

func TestDamageIsFetchedAgain(t *testing.T) {
	f, client, folder := cacheAndFake(t)
	get(t, client, alibi)
	whole, err := os.ReadFile(tensorFile(folder))
	if err != nil {
		t.Fatal(err)
	}
	begin := bytes.IndexByte(whole, '{')
	for name, spoil := range map[string]func([]byte) []byte{
		"empty":         func([]byte) []byte { return nil },
		"cut":           func(file []byte) []byte { return file[:len(file)-1] },
		"longer":        func(file []byte) []byte { return append(file, 0) },
		"a number":      func(file []byte) []byte { file[len(file)-1]++; return file },
		"no JSON":       func(file []byte) []byte { file[begin] = 'x'; return file },
		"length":        func(file []byte) []byte { file[7] = 1; return file },
		"header":        spoilText(`"attnbias.header":"`),
		"header's sum":  spoilText(`"attnbias.header_crc32c":"`),
		"payload's sum": spoilText(`"attnbias.crc32c":"`),
	} {
		f.offsets = nil
		replaceFile(t, tensorFile(folder), spoil(slices.Clone(whole)))
		tensor := get(t, clientOf(t, client.target, WithCache(folder)), alibi)
		if !slices.Equal(numbersIn[float32](tensor.Bytes()), payload) || len(f.offsets) != 1 {
			t.Errorf("%s: got %v after %d transfers", name, tensor.Bytes(), len(f.offsets))
		}
	}
	// A folder that was copied is read once, and then trusted again.
	f.offsets = nil
	replaceFile(t, tensorFile(folder), whole)
	get(t, clientOf(t, nobody, WithCache(folder), WithOffline()), alibi)
	key, _ := cacheKey(alibi)
	line, err := os.ReadFile(filepath.Join(folder, "requests", key))
	file, _ := os.Open(tensorFile(folder))
	defer file.Close()
	now, _ := stampOf(file)
	if want := (known{fingerprint, now}).line(); err != nil || !bytes.Equal(line, want) {
		t.Errorf("got line %q, want %q", line, want)
	}
}

// spoilText changes the first character of a value.
func spoilText(before string) func([]byte) []byte {
	return func(file []byte) []byte {
		at := bytes.Index(file, []byte(before)) + len(before)
		file[at] = map[bool]byte{true: '1', false: '0'}[file[at] == '0']
		return file
	}
}

func TestOfflineNeverAsks(t *testing.T) {
	f, client, folder := cacheAndFake(t)
	var log bytes.Buffer
	offline := clientOf(t, client.target, WithCache(folder), WithOffline(),
		WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	for _, ask := range []func() error{
		func() error { _, err := offline.Get(t.Context(), alibi); return err },
		func() error { _, err := offline.Describe(t.Context(), alibi); return err },
	} {
		err := ask()
		expectError(t, err, ErrNotFound, folder+" does not have { ")
	}
	_, err := offline.ServerInfo(t.Context())
	expectError(t, err, ErrUnavailable, "the client is offline (WithOffline)")
	if log.Len() > 0 { // as where it waits to try again
		t.Errorf("got %q", log.String())
	}
	if _, err := client.Describe(t.Context(), alibi); err != nil {
		t.Fatal(err)
	}
	for _, one := range []*Client{client, offline} {
		header, err := one.Describe(t.Context(), alibi)
		if err != nil || header.Fingerprint != fingerprint {
			t.Errorf("got %v, %v", header, err)
		}
	}
	if f.described != 1 || len(f.offsets) > 0 || f.calls > 0 {
		t.Errorf("got %d questions, transfers at %v, %d calls", f.described, f.offsets, f.calls)
	}
}

func TestNamedTablesAreAskedForEachTime(t *testing.T) {
	f, client, folder := cacheAndFake(t)
	spec := specOf(t, "t5 { num_heads: 1 bidirectional: true table { name: 'a' } } "+
		"pair { query_length: 2 key_length: 2 }")
	for range 3 {
		get(t, client, spec)
	}
	if f.described != 3 || len(f.offsets) != 1 {
		t.Errorf("got %d questions and %d transfers, want 3 and 1", f.described, len(f.offsets))
	}
	get(t, clientOf(t, nobody, WithCache(folder), WithOffline()), spec)
}

func TestBoundRemovesWhatWasUsedLongestAgo(t *testing.T) {
	_, client, folder := cacheAndFake(t)
	get(t, client, alibi)
	info, err := os.Stat(tensorFile(folder))
	if err != nil {
		t.Fatal(err)
	}
	// Two more that were used before and after it.
	for i, age := range []time.Duration{-time.Hour, time.Hour} {
		name := strings.Repeat(fmt.Sprint(i+1), 64)
		data, _ := os.ReadFile(tensorFile(folder))
		file := filepath.Join(folder, "tensors", name+tensorSuffix)
		line := known{fingerprint: name}.line()
		request := filepath.Join(folder, "requests", name)
		used := time.Now().Add(age)
		if err := errors.Join(os.WriteFile(file, data, 0o600), os.WriteFile(request, line, 0o600),
			os.Chtimes(request, used, used)); err != nil {
			t.Fatal(err)
		}
	}
	c := &cache{folder: folder, maxBytes: 3 * info.Size(), logger: slog.Default()}
	c.makeRoom(info.Size())
	expectTensors(t, folder, strings.Repeat("2", 64), fingerprint)
	c.makeRoom(2 * info.Size())
	expectTensors(t, folder, strings.Repeat("2", 64))
	if _, err := os.Stat(filepath.Join(folder, "requests", strings.Repeat("1", 64))); err == nil {
		t.Error("the request of what was removed is left")
	}
	small := clientOf(t, client.target, WithCache(folder), WithCacheBytes(10))
	get(t, small, alibi) // which is not kept
	expectTensors(t, folder, strings.Repeat("2", 64))
}

func expectTensors(t *testing.T, folder string, fingerprints ...string) {
	t.Helper()
	var got []string
	for _, entry := range entries(filepath.Join(folder, "tensors")) {
		got = append(got, strings.TrimSuffix(entry.Name(), tensorSuffix))
	}
	slices.Sort(fingerprints)
	if !slices.Equal(got, fingerprints) {
		t.Errorf("got %v, want %v", got, fingerprints)
	}
}

func TestFolderThatCannotBeWrittenIsToldOfOnce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	replaceFile(t, file, nil)
	var log bytes.Buffer
	f, client := fakeAndClient(t, WithLogger(slog.New(slog.NewTextHandler(&log, nil))),
		WithCache(filepath.Join(file, "inside")))
	for range 2 {
		get(t, client, alibi)
	}
	if len(f.offsets) != 2 || strings.Count(log.String(), "calls go on without it") != 1 {
		t.Errorf("got %d transfers and %q", len(f.offsets), log.String())
	}
}

func TestDraftsOfTheDeadAreSwept(t *testing.T) {
	_, client, folder := cacheAndFake(t)
	get(t, client, alibi)
	old, held := strings.Repeat("a", 64)+".0011", strings.Repeat("b", 64)
	long := time.Now().Add(-2 * staleAfter)
	for _, name := range []string{old, held} {
		path := filepath.Join(folder, "drafts", name)
		replaceFile(t, path, nil)
		if err := os.Chtimes(path, long, long); err != nil {
			t.Fatal(err)
		}
	}
	holder, err := client.cache.tryLock(held)
	if err != nil || holder == nil {
		t.Fatal(holder, err)
	}
	defer holder.close()
	client.cache.sweep()
	left, err := os.ReadDir(filepath.Join(folder, "drafts"))
	if err != nil || len(left) != 1 || left[0].Name() != held {
		t.Errorf("got %v, %v, want %s alone", left, err, held)
	}
}

// What Python has for the same, so that the test needs no Python.
func TestKeysAreTheContracts(t *testing.T) {
	spec := specOf(t, "alibi { num_heads: 2 } "+
		"pair { query_length: 6 key_length: 6 query_offset: 0 keys { begin: 1 end: 4 } } "+
		"output { mask { causal: true fill_lowest: true } }")
	const want = "a103faf8e35ed9184614aa31954c1efe57c8eca79e1817e443c5ceca27898dfa"
	if got, err := cacheKey(spec); got != want || err != nil {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
	spec.GetPair().ProtoReflect().SetUnknown([]byte{0xf8, 0x7f, 1})
	if got, err := cacheKey(spec); got == want || err != nil {
		t.Errorf("got %s, %v, want another key for another field", got, err)
	}
	spec = specOf(t, "t5 { table { sha256: 'a' } }")
	spec.GetT5().Table.GetSource().(*pb.TableRef_Sha256).Sha256 = "\xff"
	if _, err := cacheKey(spec); !errors.Is(err, ErrInvalidArgument) {
		t.Errorf("got %v, want %v", err, ErrInvalidArgument)
	}
}

func TestHomesAreFound(t *testing.T) {
	t.Setenv("HOME", "/home/somebody")
	t.Setenv(cacheVariable, "~/cache")
	if c := clientOf(t, nobody).cache; c.folder != "/home/somebody/cache" {
		t.Errorf("got %q", c.folder)
	}
	if c := clientOf(t, nobody, WithCache("")).cache; c != nil {
		t.Errorf("got %q", c.folder)
	}
	who, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	named, want := "~"+who.Username+"/a", filepath.Join(who.HomeDir, "a")
	if c := clientOf(t, nobody, WithCache(named)).cache; c.folder != want {
		t.Errorf("got %q, want %q", c.folder, want)
	}
}
