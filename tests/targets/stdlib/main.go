// Stdlib links much of the standard library, to have a large program to look symbols up in. It
// never runs.
package main

import (
	"archive/zip"
	"compress/flate"
	"crypto/tls"
	"database/sql"
	"encoding/gob"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"go/parser"
	"go/token"
	"go/types"
	"html/template"
	"image/jpeg"
	"image/png"
	"math/big"
	"net/http"
	"net/http/pprof"
	"net/rpc"
	"os"
	"regexp"
	"sort"
)

type pair[K comparable, V any] struct {
	key   K
	value V
}

type pairs[K comparable, V any] struct{ items []pair[K, V] }

func (p *pairs[K, V]) sorted(less func(a, b K) bool) []pair[K, V] {
	sort.Slice(p.items, func(i, j int) bool { return less(p.items[i].key, p.items[j].key) })
	return p.items
}

func main() {
	http.HandleFunc("/profile", pprof.Profile)
	http.Handle("/rpc", rpc.NewServer())
	shortest := func(a, b string) bool { return len(a) < len(b) }
	fmt.Println((&pairs[string, int]{}).sorted(shortest), (&pairs[string, any]{}).sorted(shortest))
	tree, err := parser.ParseFile(token.NewFileSet(), os.Args[1], nil, 0)
	fmt.Println(tree, err, types.NewChecker(nil, nil, nil, nil), new(big.Int).Exp(nil, nil, nil))
	fmt.Println(zip.OpenReader(os.Args[1]))
	fmt.Println(flate.NewWriter(os.Stdout, 9))
	fmt.Println(jpeg.Decode(os.Stdin))
	fmt.Println(png.Decode(os.Stdin))
	fmt.Println(sql.Open("none", ""))
	fmt.Println(gob.NewEncoder(os.Stdout).Encode(os.Args), json.NewEncoder(os.Stdout).Encode(os.Args))
	fmt.Println(xml.NewEncoder(os.Stdout).Encode(os.Args), regexp.MustCompile(os.Args[1]))
	fmt.Println(template.Must(template.New("").Parse(os.Args[1])).Execute(os.Stdout, inC(1)))
	fmt.Println(http.Serve(tls.NewListener(nil, nil), nil))
}
