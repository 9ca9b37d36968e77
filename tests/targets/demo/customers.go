package main

import (
	"bufio"
	"fmt"
	"io"
	"math/rand"
	"net"
	"net/http"
	"os"
	"time"
)

const (
	customers = 12
	products  = 40
)

// goShopping looks at products and buys one now and then, for ever. It speaks HTTP over one
// connection of its own: the shop's profile would show the waits of http.Client.
func goShopping(address string, seed int64) {
	connection, err := net.Dial("tcp", address)
	if err != nil {
		giveUp(err)
	}
	defer connection.Close()
	responses := bufio.NewReader(connection)
	dice := rand.New(rand.NewSource(seed))
	for {
		path := "/product"
		if dice.Intn(4) == 0 {
			path = "/checkout"
		}
		url := fmt.Sprintf("http://%s%s?id=%d", address, path, dice.Intn(products))
		if err := visit(connection, responses, url); err != nil {
			giveUp(err)
		}
		time.Sleep(time.Duration(dice.Intn(5)) * time.Millisecond)
	}
}

func visit(connection net.Conn, responses *bufio.Reader, url string) error {
	request, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	if err := request.Write(connection); err != nil {
		return err
	}
	response, err := http.ReadResponse(responses, request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	return err
}

func giveUp(err error) {
	fmt.Fprintln(os.Stderr, "demo:", err)
	os.Exit(1)
}
