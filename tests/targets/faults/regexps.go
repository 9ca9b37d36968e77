package main

import (
	"fmt"
	"net/http"
	"regexp"

	"ebpfprof.test/harness/traffic"
)

// An addressForm checks what was entered, with expressions that it compiles for each request.
type addressForm struct{ fields []addressField }

type addressField struct{ expression, example string }

//go:noinline
func (f *addressForm) isValid(field addressField) bool {
	return regexp.MustCompile(field.expression).MatchString(field.example)
}

func (f *addressForm) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	for _, field := range f.fields {
		fmt.Fprintln(w, f.isValid(field))
	}
}

func init() { register("regexps", serveAddresses) }

func serveAddresses() {
	underLoad(&addressForm{[]addressField{
		{`^\pL[\pL .'-]{0,40}\pL$`, "Jane O'Neill"},
		{`^[a-zA-Z0-9._%+-]{1,64}@(?:[a-zA-Z0-9-]{1,63}\.){1,8}[a-zA-Z]{2,63}$`, "jane@mail.example.org"},
		{`^\+?[0-9]{1,3}[ -]?(?:\([0-9]{1,5}\))?[ -]?[0-9]{3,8}$`, "+49 (30) 123456"},
		{`^(?:[A-Z]{1,2}-)?[0-9]{4,5}(?:-[0-9]{4})?$`, "D-10115"},
		{`^[A-Z]{2}[0-9]{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?$`, "DE02 1203 0000 0000 2020 51"},
	}}, traffic.Load{Clients: 4})
}
