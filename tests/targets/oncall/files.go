package main

import (
	"net"
	"os"
	"path/filepath"
	"syscall"

	"ebpfprof.test/harness"
)

const polling = "IO wait"

var kept []interface{} // that the collector may not close

func waitForFiles() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	harness.Check(err)
	near, far := pair(listener)
	known(begin("readTCP", func() { readTCP(near) }), near, near.LocalAddr(), near.RemoteAddr())
	full, unread := pair(listener)
	writer := begin("writeTCP", func() { writeTCP(full) })
	known(writer, full, full.LocalAddr(), full.RemoteAddr())
	wild, err := net.Listen("tcp", ":0")
	harness.Check(err)
	known(begin("acceptTCP", func() { acceptTCP(wild) }), wild, wild.Addr(), nil)

	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	harness.Check(err)
	known(begin("readUDP", func() { readUDP(packets) }), packets, packets.LocalAddr(), nil)

	folder, err := os.MkdirTemp("", "oncall")
	harness.Check(err)
	path := filepath.Join(folder, "socket")
	local, err := net.Listen("unix", path)
	harness.Check(err)
	known(begin("acceptUnix", func() { acceptUnix(local) }), local, nil, nil).Path = path

	reader, other, err := os.Pipe()
	harness.Check(err)
	known(begin("readPipe", func() { readPipe(reader) }), reader, nil, nil)
	kept = append(kept, listener, far, other, full, unread)
	for _, name := range []string{
		"readTCP", "writeTCP", "acceptTCP", "readUDP", "acceptUnix", "readPipe",
	} {
		await(reports[name].ID, polling)
	}
	harness.Check(os.RemoveAll(folder)) // the socket stays bound to its path
}

func pair(listener net.Listener) (net.Conn, net.Conn) {
	made := make(chan net.Conn)
	go func() {
		conn, err := listener.Accept()
		harness.Check(err)
		made <- conn
	}()
	conn, err := net.Dial("tcp", listener.Addr().String())
	harness.Check(err)
	return conn, <-made
}

func known(found *facts, file interface{}, local, peer net.Addr) *facts {
	raw, err := file.(syscall.Conn).SyscallConn()
	harness.Check(err)
	harness.Check(raw.Control(func(fd uintptr) { found.FD = fd }))
	if local != nil {
		found.Local = local.String()
	}
	if peer != nil {
		found.Peer = peer.String()
	}
	return found
}

//go:noinline
func readTCP(conn net.Conn) { conn.Read(make([]byte, 1)) }

// writeTCP writes more than all buffers take.
//
//go:noinline
func writeTCP(conn net.Conn) { conn.Write(make([]byte, 64<<20)) }

//go:noinline
func acceptTCP(listener net.Listener) { listener.Accept() }

//go:noinline
func readUDP(conn net.PacketConn) { conn.ReadFrom(make([]byte, 1)) }

//go:noinline
func acceptUnix(listener net.Listener) { listener.Accept() }

//go:noinline
func readPipe(file *os.File) { file.Read(make([]byte, 1)) }
