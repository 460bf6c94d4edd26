package paxos

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"unicode/utf8"
)

// MaxData is the longest Data that a message may carry.
const MaxData = 32 << 10

// maxFrame is the longest encoded message: its data and twelve numbers.
const maxFrame = MaxData + 2 + 12*binary.MaxVarintLen32

// numbers returns the message's numbers in the order of the encoding.
func (m *Message) numbers() [10]*int {
	return [...]*int{
		&m.From, &m.To,
		&m.Ballot.Epoch, &m.Ballot.Attempt, &m.Ballot.Member,
		&m.Prior.Epoch, &m.Prior.Attempt, &m.Prior.Member,
		&m.Value.Member, &m.Value.Seq,
	}
}

// Append appends the encoded message: its length, and then its kind, whether
// there is more, its numbers and its data.
func Append(b []byte, m Message) ([]byte, error) {
	if m.Kind < Prepare || m.Kind > Tip {
		return b, fmt.Errorf("paxos: kind %v cannot be sent", m.Kind)
	}
	if len(m.Value.Data) > MaxData {
		return b, fmt.Errorf("paxos: data of %d bytes: at most %d can be sent", len(m.Value.Data), MaxData)
	}
	body := make([]byte, 0, 64+len(m.Value.Data))
	body = append(body, byte(m.Kind), 0)
	if m.More {
		body[1] = 1
	}
	for _, n := range m.numbers() {
		if *n < 0 || *n > math.MaxInt32 {
			return b, fmt.Errorf("paxos: %d in a message: want 0 to %d", *n, math.MaxInt32)
		}
		body = binary.AppendUvarint(body, uint64(*n))
	}
	body = append(body, m.Value.Data...)
	return append(binary.AppendUvarint(b, uint64(len(body))), body...), nil
}

// maxAttempt is far above any real number of attempts.
const maxAttempt = 1 << 24

// Read decodes one message. It returns [io.EOF] if there is none, and limits
// its memory to the longest message for any input.
func Read(r *bufio.Reader) (Message, error) {
	size, err := binary.ReadUvarint(r)
	if errors.Is(err, io.EOF) {
		return Message{}, io.EOF
	}
	if err != nil {
		return Message{}, fmt.Errorf("paxos: length of a message: %w", err)
	}
	if size > maxFrame {
		return Message{}, fmt.Errorf("paxos: a message of %d bytes: at most %d are read", size, maxFrame)
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(r, body); err != nil {
		return Message{}, fmt.Errorf("paxos: a message cut off: %w", err)
	}
	return decode(body)
}

func decode(body []byte) (m Message, err error) {
	if len(body) < 2 || body[0] < byte(Prepare) || body[0] > byte(Tip) || body[1] > 1 {
		return m, errors.New("paxos: a message of an unknown kind")
	}
	m.Kind, m.More = Kind(body[0]), body[1] == 1
	rest := body[2:]
	for _, n := range m.numbers() {
		v, size := binary.Uvarint(rest)
		if size <= 0 || v > math.MaxInt32 {
			return Message{}, errors.New("paxos: a message with a number cut off or out of range")
		}
		*n, rest = int(v), rest[size:]
	}
	if len(rest) > MaxData {
		return Message{}, fmt.Errorf("paxos: data of %d bytes: at most %d are read", len(rest), MaxData)
	}
	if m.Ballot.Attempt > maxAttempt || m.Prior.Attempt > maxAttempt {
		return Message{}, fmt.Errorf("paxos: attempt %d is above %d: no later attempt could exceed it", max(m.Ballot.Attempt, m.Prior.Attempt), maxAttempt)
	}
	if !utf8.Valid(rest) { // a JSON file would not store it unchanged
		return Message{}, errors.New("paxos: data that is not UTF-8")
	}
	m.Value.Data = string(rest)
	return m, nil
}
