package main

import (
	"fmt"
	"io"
	"math/rand"
	"net/http"
	"os"
	"time"
)

const (
	customers = 12
	products  = 40
)

// goShopping looks at products and buys one now and then, for ever.
func goShopping(shop string, seed int64) {
	dice := rand.New(rand.NewSource(seed))
	client := &http.Client{Transport: &http.Transport{}}
	for {
		path := "/product"
		if dice.Intn(4) == 0 {
			path = "/checkout"
		}
		visit(client, fmt.Sprintf("%s%s?id=%d", shop, path, dice.Intn(products)))
		time.Sleep(time.Duration(dice.Intn(5)) * time.Millisecond)
	}
}

func visit(client *http.Client, url string) {
	response, err := client.Get(url)
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		return
	}
	defer response.Body.Close()
	// A connection is used again only if its response was read.
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
	}
}
