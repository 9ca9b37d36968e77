package main

import (
	"bufio"
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"io"
	"math/rand"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"ebpfprof.test/harness"
	"ebpfprof.test/harness/traffic"
)

func init() {
	registerPeer("database", serveRows)
	registerPeer("backend", serveBackend)
	sql.Register("rows", rowsDriver{})
}

// answerAfter waits as long as a peer takes for a request that begins with that time: `20ms SELECT
// 1`, GET /20ms/price. Real peers vary; so do these, by up to 30 %.
func answerAfter(request string) {
	word := strings.FieldsFunc(request, func(r rune) bool { return r == '/' || r == ' ' })[0]
	takes, err := time.ParseDuration(word)
	harness.Check(err)
	time.Sleep(takes*7/10 + time.Duration(rand.Int63n(int64(takes*6/10)+1)))
}

// serveBackend answers HTTP requests.
func serveBackend() string {
	return traffic.Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answerAfter(r.URL.Path)
		fmt.Fprint(w, "ok")
	}))
}

// serveRows is a database: it answers each line with a line.
func serveRows() string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	harness.Check(err)
	go func() {
		for {
			connection, err := listener.Accept()
			harness.Check(err)
			go func() {
				for statements := bufio.NewScanner(connection); statements.Scan(); {
					answerAfter(statements.Text())
					fmt.Fprintln(connection, "row of", statements.Text())
				}
			}()
		}
	}()
	return listener.Addr().String()
}

// A rowsConn is a connection to the database.
type rowsConn struct {
	net.Conn
	answers *bufio.Reader
}

func dialRows(address string) (*rowsConn, error) {
	connection, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	return &rowsConn{connection, bufio.NewReader(connection)}, nil
}

// exchange sends a statement, and waits for its row.
//
//go:noinline
func (c *rowsConn) exchange(statement string) (string, error) {
	if _, err := fmt.Fprintln(c.Conn, statement); err != nil {
		return "", err
	}
	return c.answers.ReadString('\n')
}

// openDatabase starts a database, and returns a pool of at most so many connections to it.
func openDatabase(connections int) *sql.DB {
	database, err := sql.Open("rows", startPeer("database"))
	harness.Check(err)
	database.SetMaxOpenConns(connections)
	database.SetMaxIdleConns(connections)
	return database
}

// query returns the only column of the only row.
func query(ctx context.Context, database *sql.DB, statement string) (string, error) {
	var row string
	err := database.QueryRowContext(ctx, statement).Scan(&row)
	return row, err
}

// rowsDriver is the driver of the database.
type rowsDriver struct{}

func (rowsDriver) Open(address string) (driver.Conn, error) { return dialRows(address) }

func (c *rowsConn) Prepare(statement string) (driver.Stmt, error) { return nil, driver.ErrSkip }
func (c *rowsConn) Begin() (driver.Tx, error)                     { return nil, driver.ErrSkip }

// QueryContext is used by package sql instead of Prepare.
func (c *rowsConn) QueryContext(
	ctx context.Context, statement string, arguments []driver.NamedValue,
) (driver.Rows, error) {
	row, err := c.exchange(statement)
	return &oneRow{row: row}, err
}

type oneRow struct {
	row  string
	read bool
}

func (r *oneRow) Columns() []string { return []string{"row"} }
func (r *oneRow) Close() error      { return nil }

func (r *oneRow) Next(values []driver.Value) error {
	if r.read {
		return io.EOF
	}
	r.read = true
	values[0] = r.row
	return nil
}

// get reads an answer of a backend.
func get(client *http.Client, url string) (string, error) {
	answer, err := client.Get(url)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return string(text), err
}

// reply writes what a handler has computed.
func reply(w http.ResponseWriter, text string, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	fmt.Fprint(w, text)
}

// keyOf returns N of a request for /path/N.
func keyOf(r *http.Request) int {
	return harness.Number(r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:])
}

// awaitStop returns when a counter is above 0 and has stayed the same for half a second.
func awaitStop(counter *atomic.Int64) {
	last, since := int64(0), time.Now()
	harness.Poll(func() bool {
		time.Sleep(10 * time.Millisecond)
		if now := counter.Load(); now != last || now == 0 {
			last, since = now, time.Now()
		}
		return time.Since(since) > 500*time.Millisecond
	})
}

// awaitCount returns when a counter has reached a number.
func awaitCount(counter *atomic.Int64, number int64) {
	harness.Poll(func() bool { return counter.Load() >= number })
}
