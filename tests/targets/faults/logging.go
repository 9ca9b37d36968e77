package main

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"os"

	"ebpfprof.test/harness"
	"ebpfprof.test/harness/traffic"
)

// A paymentService logs each step of a payment with all that it knows of it.
type paymentService struct{ journal *log.Logger }

type payment struct {
	Account, Purpose string
	Cents            int
	Steps            []paymentStep
}

type paymentStep struct {
	Name  string
	Fee   float64
	Notes map[string]string
}

// A rotatedFile starts again when it is large.
type rotatedFile struct {
	*os.File
	size int64
}

const rotatedBytes = 32 << 20

func (f *rotatedFile) Write(line []byte) (int, error) {
	if f.size += int64(len(line)); f.size > rotatedBytes {
		f.size = 0
		harness.Check(f.Truncate(0))
		_, err := f.Seek(0, io.SeekStart)
		harness.Check(err)
	}
	return f.File.Write(line)
}

//go:noinline
func (s *paymentService) pay(p *payment) (fees float64) {
	for i, step := range p.Steps {
		s.journal.Printf("DEBUG step %d: %+v of payment %+v", i, step, *p)
		fees += step.Fee
	}
	s.journal.Printf("INFO paid %+v with fees %.2f", *p, fees)
	return fees
}

func (s *paymentService) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p := &payment{Account: r.URL.Path, Purpose: "books", Cents: 1990}
	for _, name := range []string{"check", "screen", "convert", "reserve", "book", "notify", "report", "archive"} {
		notes := map[string]string{"source": "web", "country": "DE"}
		p.Steps = append(p.Steps, paymentStep{name, 0.35, notes})
	}
	fmt.Fprint(w, s.pay(p))
}

func init() { register("logging", servePayments) }

func servePayments() {
	file, err := os.CreateTemp("", "payments-*.log")
	harness.Check(err)
	harness.Check(os.Remove(file.Name()))
	service := &paymentService{log.New(&rotatedFile{File: file}, "", log.LstdFlags|log.Lshortfile)}
	underLoad(service, traffic.Load{Clients: 8})
}
