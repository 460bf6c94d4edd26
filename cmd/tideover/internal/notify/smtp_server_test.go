package notify_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"
)

// smtpConfig configures a mail server. The zero value is a server without TLS and without
// login that accepts every mail.
type smtpConfig struct {
	User, Password string           // the only valid login; an empty User means that no login is needed
	Mechanism      string           // mechanism that the server offers, such as PLAIN or LOGIN; empty means PLAIN
	Certificate    *tls.Certificate // nil means no TLS
	Implicit       bool             // TLS from the start instead of STARTTLS
	Script         string           // commands and their answers in order, such as mail:451,rcpt:250,rcpt:550,data:hang
}

// smtpServer is a mail server that stores the mails that it accepts in a folder, and rejects
// commands according to a script.
type smtpServer struct {
	smtpConfig
	mails string        // folder in which mails are stored
	done  chan struct{} // is closed when the server stops

	mu     sync.Mutex
	script []string // remaining entries; rcpt:451 answers the next RCPT with code 451
	count  int
}

// startSMTP runs a mail server until the test ends. It returns the address of the server and the
// folder in which it stores mails.
func startSMTP(t testing.TB, cfg smtpConfig) (addr, mails string) {
	t.Helper()
	s := &smtpServer{smtpConfig: cfg, mails: t.TempDir(), done: make(chan struct{})}
	if s.Mechanism == "" {
		s.Mechanism = "PLAIN"
	}
	if cfg.Script != "" {
		s.script = strings.Split(cfg.Script, ",")
	}
	srv := smtp.NewServer(smtp.BackendFunc(func(*smtp.Conn) (smtp.Session, error) { return &smtpSession{smtpServer: s}, nil }))
	srv.Domain, srv.AllowInsecureAuth, srv.ErrorLog = "localhost", true, log.New(io.Discard, "", 0)
	if cfg.Certificate != nil {
		srv.TLSConfig = &tls.Config{Certificates: []tls.Certificate{*cfg.Certificate}, MinVersion: tls.VersionTLS12}
	}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr = l.Addr().String()
	if cfg.Implicit {
		l = tls.NewListener(l, srv.TLSConfig)
	}
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(l) }()
	t.Cleanup(func() {
		close(s.done)
		_ = srv.Close()
		_ = l.Close() // if Close ran before Serve, the server has not closed the listener
		if err := <-ended; err != nil && !errors.Is(err, smtp.ErrServerClosed) {
			t.Errorf("mail server: %v", err)
		}
	})
	return addr, s.mails
}

// answer returns the scripted error for a command, nil if the command is accepted. It
// removes the entry from the script. For "hang" it waits until the server stops.
func (s *smtpServer) answer(command string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.script) == 0 {
		return nil
	}
	name, what, _ := strings.Cut(s.script[0], ":")
	if name != command {
		return nil
	}
	s.script = s.script[1:]
	if what == "hang" {
		s.mu.Unlock()
		<-s.done
		s.mu.Lock()
		return errors.New("the server has stopped")
	}
	code, err := strconv.Atoi(what)
	if err != nil || code < 400 {
		return err
	}
	return &smtp.SMTPError{Code: code, EnhancedCode: smtp.NoEnhancedCode, Message: "as the script says, for " + s.Password}
}

// keep stores a mail in a file. The first line of the file is the envelope.
func (s *smtpServer) keep(from string, to []string, r io.Reader) error {
	data, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count++
	envelope := fmt.Sprintf("%s > %s\n", from, strings.Join(to, " "))
	return os.WriteFile(filepath.Join(s.mails, fmt.Sprintf("%03d.eml", s.count)), append([]byte(envelope), data...), 0o600)
}

type smtpSession struct {
	*smtpServer
	in   bool
	from string
	to   []string
}

func (s *smtpSession) AuthMechanisms() []string {
	if s.User == "" {
		return nil
	}
	return []string{s.Mechanism}
}

func (s *smtpSession) Auth(mechanism string) (sasl.Server, error) {
	if err := s.answer("auth"); err != nil {
		return nil, err
	}
	if mechanism == "LOGIN" {
		return &loginServer{check: s.check}, nil
	}
	return sasl.NewPlainServer(func(_, user, password string) error { return s.check(user, password) }), nil
}

func (s *smtpSession) check(user, password string) error {
	if user != s.User || password != s.Password {
		return &smtp.SMTPError{Code: 535, EnhancedCode: smtp.NoEnhancedCode, Message: "no: " + user + " " + password}
	}
	s.in = true
	return nil
}

func (s *smtpSession) Mail(from string, _ *smtp.MailOptions) error {
	if s.User != "" && !s.in {
		return smtp.ErrAuthRequired
	}
	s.from = from
	return s.answer("mail")
}

func (s *smtpSession) Rcpt(to string, _ *smtp.RcptOptions) error {
	if err := s.answer("rcpt"); err != nil {
		return err
	}
	s.to = append(s.to, to)
	return nil
}

func (s *smtpSession) Data(r io.Reader) error {
	if err := s.answer("data"); err != nil {
		return err
	}
	return s.keep(s.from, s.to, r)
}

func (s *smtpSession) Reset()        { s.from, s.to = "", nil }
func (s *smtpSession) Logout() error { return nil }

// loginServer is the server side of AUTH LOGIN: it asks for a name and a password.
type loginServer struct {
	check func(user, password string) error
	step  int
	user  string
}

func (l *loginServer) Next(response []byte) (challenge []byte, done bool, err error) {
	l.step++
	switch l.step {
	case 1:
		return []byte("Username:"), false, nil
	case 2:
		l.user = string(response)
		return []byte("Password:"), false, nil
	}
	return nil, true, l.check(l.user, string(response))
}
