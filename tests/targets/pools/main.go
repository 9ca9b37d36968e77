// Pools holds connections of two databases and of an HTTP client, for which goroutines wait.
//
// It prints the address of the HTTP server. Then each line is answered by what database/sql reports
// of both databases, as JSON.
package main

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"ebpfprof.test/harness"
)

const (
	limit     = 2
	waited    = 5 // waits that ended
	waiting   = 3
	unlimited = 4 // connections in use
	asked     = 3 // requests, with a connection each
)

type nothing struct{}

func (nothing) Open(string) (driver.Conn, error)             { return nothing{}, nil }
func (nothing) Prepare(string) (driver.Stmt, error)          { return nil, driver.ErrSkip }
func (nothing) Close() error                                 { return nil }
func (nothing) Begin() (driver.Tx, error)                    { return nil, driver.ErrSkip }
func (nothing) Connect(context.Context) (driver.Conn, error) { return nothing{}, nil }
func (nothing) Driver() driver.Driver                        { return nothing{} }

func take(database *sql.DB) *sql.Conn {
	connection, err := database.Conn(context.Background())
	harness.Check(err)
	return connection
}

// awaitWaits returns when so many waits have begun.
func awaitWaits(database *sql.DB, number int64) {
	for database.Stats().WaitCount < number {
		time.Sleep(time.Millisecond)
	}
}

// ask leaves requests without an answer: as many as there may be connections, and one more. It
// returns the address of the server.
func ask() string {
	came := make(chan struct{}, asked+1)
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		came <- struct{}{}
		select {}
	}))
	client := &http.Client{Transport: &http.Transport{MaxConnsPerHost: asked}}
	for i := 0; i <= asked; i++ {
		go client.Get(server.URL)
	}
	for i := 0; i < asked; i++ {
		<-came
	}
	time.Sleep(50 * time.Millisecond) // the last one waits for a connection, most likely
	return server.Listener.Addr().String()
}

func main() {
	small, large := sql.OpenDB(nothing{}), sql.OpenDB(nothing{})
	small.SetMaxOpenConns(limit)
	held := []*sql.Conn{take(small), take(small)}
	for i := int64(1); i <= waited; i++ {
		passed := make(chan *sql.Conn)
		go func() { passed <- take(small) }()
		awaitWaits(small, i)
		harness.Check(held[0].Close())
		held[0] = <-passed
	}
	for i := 0; i < waiting; i++ {
		go take(small)
	}
	awaitWaits(small, waited+waiting)
	for i := 0; i < unlimited; i++ {
		held = append(held, take(large))
	}
	harness.Check(take(large).Close())
	address := ask()
	harness.Ready()
	fmt.Println("http", address)
	for harness.Next() {
		harness.Say(json.Marshal([]sql.DBStats{small.Stats(), large.Stats()}))
	}
}
