package session

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/tideover/tideover/cmd/tideover/internal/fileaccess"
	"github.com/tideover/tideover/internal/lazyregexp"
	"github.com/tideover/tideover/internal/secret"
)

const (
	logSize  = 10 << 20 // size at which a file is rotated
	logKeep  = 3        // number of rotated files
	tailSize = 16 << 10 // bytes that Tail reads
	tailMost = 50       // lines that Tail returns
)

// Logs stores the output of sessions in files.
type Logs struct {
	Dir      string
	Redactor *secret.Redactor // redacts known secrets
}

func (l Logs) path(name string) string { return filepath.Join(l.Dir, name+".log") }

// Open implements [Runner.Open]: it appends the output of the command to the session's file.
func (l Logs) Open(s *Spec) (Streams, error) {
	if err := os.MkdirAll(l.Dir, 0o700); err != nil {
		return Streams{}, err
	}
	f := &logFile{path: l.path(s.Name)}
	if err := f.open(); err != nil {
		return Streams{}, fmt.Errorf("opening the output file of the session: %w", err)
	}
	fmt.Fprintf(f, "--- %s\n", time.Now().Format(time.RFC3339))
	out, errs := l.Redactor.NewWriter(f), l.Redactor.NewWriter(f)
	return Streams{
		Stdout: out, Stderr: errs,
		// A failure to write the log does not fail the command.
		Close: func() error {
			_, _, _ = out.Close(), errs.Close(), f.Close()
			return nil
		},
	}, nil
}

// Tee returns a [Runner.Open] whose streams are also written to the session's file. If the file
// can't be opened, the command still runs.
func (l Logs) Tee(open func(*Spec) (Streams, error)) func(*Spec) (Streams, error) {
	return func(s *Spec) (Streams, error) {
		st, err := open(s)
		if err != nil {
			return st, err
		}
		file, err := l.Open(s)
		if err != nil {
			return st, nil
		}
		if show := st.Watch; show != nil {
			st.Watch = func(watcher io.Writer) { show(io.MultiWriter(watcher, file.Stdout)) }
		} else {
			st.Stdout = io.MultiWriter(file.Stdout, st.Stdout)
		}
		if !st.Terminal || st.Stderr != st.Stdout {
			st.Stderr = io.MultiWriter(file.Stderr, st.Stderr)
		}
		shut := st.Close
		st.Close = func() error { return errors.Join(shut(), file.Close()) }
		return st, nil
	}
}

// Known reports whether the session has an output file.
func (l Logs) Known(name string) bool {
	_, err := os.Stat(l.path(name))
	return err == nil
}

// Tail returns the path of a session's file and the last lines in it; "" if there is no file.
func (l Logs) Tail(name string) (path string, lines []string) {
	path = l.path(name)
	f, err := os.Open(path)
	if err != nil {
		return "", nil
	}
	defer f.Close()
	if _, err := f.Seek(-tailSize, io.SeekEnd); err != nil {
		_, _ = f.Seek(0, io.SeekStart) // the file is shorter
	}
	text, _ := io.ReadAll(io.LimitReader(f, tailSize)) // on an error, use what was read
	plain := PlainText(string(bytes.ToValidUTF8(text, []byte("\uFFFD"))))
	lines = strings.Split(strings.TrimRight(plain, "\n"), "\n")
	return path, lines[max(0, len(lines)-tailMost):]
}

// logFile is a file that is rotated when it has reached logSize.
type logFile struct {
	path string
	mu   sync.Mutex
	f    *os.File
	size int64
}

func (l *logFile) open() (err error) {
	if l.f, err = os.OpenFile(l.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
		return err
	}
	info, err := l.f.Stat()
	if err != nil {
		return errors.Join(err, l.f.Close())
	}
	l.size = info.Size()
	return nil
}

// Write implements [io.Writer]. It never fails: a full disk must not end the command, which would
// count as a crash.
func (l *logFile) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.size+int64(len(p)) > logSize && l.size > 0 {
		l.rotate()
	}
	if l.f != nil {
		n, _ := l.f.Write(p)
		l.size += int64(n)
	}
	return len(p), nil
}

func (l *logFile) rotate() {
	_ = l.f.Close()
	if fileaccess.Rotate(l.path, logKeep) != nil {
		// An older file can't be moved. It is replaced, because this one must not grow without limit.
		_ = os.Rename(l.path, fileaccess.Rotated(l.path, 1))
	}
	if l.open() != nil {
		l.f = nil
	}
}

// Close closes the file.
func (l *logFile) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f == nil {
		return nil
	}
	return l.f.Close()
}

// maxOutput limits the bytes of one [OutputPart].
const maxOutput = 256 << 10

// OutputPart is a part of the output of a session.
type OutputPart struct {
	Text string `json:"text"`
	Next string `json:"next"`           // position after this part
	More bool   `json:"more,omitempty"` // more output is available
	Lost bool   `json:"lost,omitempty"` // the output at the given position is no longer stored
}

// ErrPosition means that a position was not returned by [Logs.Read].
var ErrPosition = errors.New("not a position of the output: use the value of next in an earlier answer, or nothing for the beginning")

// Read returns the output of a session after a position: "" is the beginning of the stored output,
// and [OutputPart.Next] is the position after a part. A session without output has an empty part.
func (l Logs) Read(name, after string) (OutputPart, error) {
	id, offset, err := parsePosition(after)
	if err != nil {
		return OutputPart{}, err
	}
	files, err := l.openAll(name)
	defer func() {
		for _, f := range files {
			_ = f.Close()
		}
	}()
	if err != nil || len(files) == 0 {
		return OutputPart{Next: after}, err
	}
	at := slices.IndexFunc(files, func(f *os.File) bool { return after == "" || fileID(f) == id })
	part := OutputPart{Lost: at < 0}
	if part.Lost {
		at, offset = 0, 0
	}
	for ; ; at++ {
		text, end, err := readFrom(files[at], offset)
		if err != nil {
			return part, err
		}
		last := at == len(files)-1
		if len(text) == 0 && end && !last {
			offset = 0
			continue
		}
		part.Text = string(bytes.ToValidUTF8(text, []byte("\uFFFD")))
		part.Next = fmt.Sprintf("%x-%d", fileID(files[at]), offset+int64(len(text)))
		part.More = !end || !last
		return part, nil
	}
}

// readFrom reads a part of the file. It leaves out an incomplete character at the end.
func readFrom(f *os.File, offset int64) (text []byte, end bool, err error) {
	text = make([]byte, maxOutput)
	n, err := f.ReadAt(text, offset)
	end = errors.Is(err, io.EOF)
	if err != nil && !end {
		return nil, false, err
	}
	text = text[:n]
	for i := 1; i < utf8.UTFMax && i <= n; i++ {
		if tail := text[n-i:]; utf8.RuneStart(tail[0]) {
			if !utf8.FullRune(tail) && n > i {
				text = text[:n-i]
			}
			break
		}
	}
	return text, end, nil
}

// openAll opens the files of a session, oldest first.
func (l Logs) openAll(name string) (files []*os.File, err error) {
	for i := logKeep; i >= 0; i-- {
		f, err := os.Open(fileaccess.Rotated(l.path(name), i))
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return files, err
		case len(files) > 0 && fileID(files[len(files)-1]) == fileID(f): // rotated meanwhile
			_ = f.Close()
		default:
			files = append(files, f)
		}
	}
	return files, nil
}

func parsePosition(text string) (id uint64, offset int64, err error) {
	if text == "" {
		return 0, 0, nil
	}
	first, second, _ := strings.Cut(text, "-")
	id, err1 := strconv.ParseUint(first, 16, 64)
	offset, err2 := strconv.ParseInt(second, 10, 64)
	if err1 != nil || err2 != nil || offset < 0 {
		return 0, 0, fmt.Errorf("%q is %w", text, ErrPosition)
	}
	return id, offset, nil
}

// escapeSequence matches terminal escape sequences.
var escapeSequence = lazyregexp.New(`\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])`)

// PlainText removes escape sequences, and characters that could change how a terminal shows the
// text after them.
func PlainText(output string) string {
	text := strings.ReplaceAll(escapeSequence.ReplaceAllString(output, ""), "\r\n", "\n")
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\r':
			return '\n'
		case r == '\n' || r == '\t' || unicode.IsGraphic(r):
			return r
		}
		return -1
	}, text)
}
