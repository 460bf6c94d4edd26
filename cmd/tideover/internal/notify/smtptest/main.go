// Command smtptest is a mail server for the tests of package notify, in a process
// of its own. It keeps what it accepts in a folder, and refuses what it is told
// to. It ends with its standard input.
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"
)

type server struct {
	mails, user, password, mechanism string

	mu     sync.Mutex
	script []string // such as rcpt:451: the next RCPT is answered so
	count  int
}

func main() {
	log.SetFlags(0)
	s := new(server)
	flag.StringVar(&s.mails, "mails", ".", "folder for the mails")
	flag.StringVar(&s.user, "user", "", "name of who may send; empty for everybody")
	flag.StringVar(&s.password, "password", "", "password of the user")
	flag.StringVar(&s.mechanism, "mechanism", "PLAIN", "PLAIN or LOGIN")
	cert := flag.String("cert", "", "certificate and key, PEM; empty for no TLS")
	implicit := flag.Bool("implicit", false, "TLS from the start")
	script := flag.String("script", "", "answers in order, such as mail:451,rcpt:250,rcpt:550,data:hang")
	flag.Parse()
	if *script != "" {
		s.script = strings.Split(*script, ",")
	}
	if err := s.serve(*cert, *implicit); err != nil {
		log.Fatal(err)
	}
}

// serve prints the address and answers until the input ends.
func (s *server) serve(cert string, implicit bool) error {
	srv := smtp.NewServer(smtp.BackendFunc(func(*smtp.Conn) (smtp.Session, error) { return &session{server: s}, nil }))
	srv.Domain, srv.AllowInsecureAuth, srv.ErrorLog = "localhost", true, log.New(io.Discard, "", 0)
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, cert)
		if err != nil {
			return err
		}
		srv.TLSConfig = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	}
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	if implicit {
		l = tls.NewListener(l, srv.TLSConfig)
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		_ = srv.Close()
	}()
	if err := srv.Serve(l); !errors.Is(err, smtp.ErrServerClosed) {
		return err
	}
	return nil
}

// answer returns what the script says about the next command of this name.
func (s *server) answer(command string) error {
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
		select {} // until the process ends
	}
	code, err := strconv.Atoi(what)
	if err != nil || code < 400 {
		return err
	}
	return &smtp.SMTPError{Code: code, EnhancedCode: smtp.NoEnhancedCode, Message: "as the script says, for " + s.password}
}

// keep writes a mail, with its envelope in front.
func (s *server) keep(from string, to []string, r io.Reader) error {
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

type session struct {
	*server
	in   bool
	from string
	to   []string
}

func (s *session) AuthMechanisms() []string {
	if s.user == "" {
		return nil
	}
	return []string{s.mechanism}
}

func (s *session) Auth(mechanism string) (sasl.Server, error) {
	if err := s.answer("auth"); err != nil {
		return nil, err
	}
	if mechanism == "LOGIN" {
		return &loginServer{check: s.check}, nil
	}
	return sasl.NewPlainServer(func(_, user, password string) error { return s.check(user, password) }), nil
}

func (s *session) check(user, password string) error {
	if user != s.user || password != s.password {
		return &smtp.SMTPError{Code: 535, EnhancedCode: smtp.NoEnhancedCode, Message: "no: " + user + " " + password}
	}
	s.in = true
	return nil
}

func (s *session) Mail(from string, _ *smtp.MailOptions) error {
	if s.user != "" && !s.in {
		return smtp.ErrAuthRequired
	}
	s.from = from
	return s.answer("mail")
}

func (s *session) Rcpt(to string, _ *smtp.RcptOptions) error {
	if err := s.answer("rcpt"); err != nil {
		return err
	}
	s.to = append(s.to, to)
	return nil
}

func (s *session) Data(r io.Reader) error {
	if err := s.answer("data"); err != nil {
		return err
	}
	return s.keep(s.from, s.to, r)
}

func (s *session) Reset()        { s.from, s.to = "", nil }
func (s *session) Logout() error { return nil }

// loginServer asks for a name and a password.
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
